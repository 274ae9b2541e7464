// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_FUNCTIONALISE_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_FUNCTIONALISE_H
/*
 * In-place operators and views become values, by one rule: a write makes a new
 * version of the storage's owner; names that alias it are regenerated from the
 * newest version when they are next read.
 *
 * Used while nodes are added in program order (import), because only then is
 * it known which version a read sees:
 *   - read(v): the value that stands for v now (regenerated view if stale);
 *   - write(v, update): v's window now holds `update`.
 * After the last node, finish() adds BUFFER_UPDATE / INPUT_UPDATE outputs for
 * buffers and inputs whose storage was written. A written parameter that
 * requires grad is refused unless under no_grad (then a parameter update,
 * refused for now by name).
 */
#include "stages/graph/build.h"

struct pst_functionalise;

enum pst_status pst_functionalise_new(struct pst_build *build,
                                      struct pst_functionalise **ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pst_functionalise_free(struct pst_functionalise *f);
/* The caller sees the memory that names stand for: a write to a detached name
 * must reach it, or is refused. */
void pst_functionalise_share(struct pst_functionalise *f);

/* Current value for v; NULL after a failure of the builder. */
struct pst_value *pst_functionalise_read(struct pst_functionalise *f,
                                         struct pst_value *v);
/* v, or what t_() and the like have made of its geometry; NULL after a
 * failure. */
struct pst_value *pst_functionalise_shape(struct pst_functionalise *f,
                                          struct pst_value *v);
/* Does a gradient flow through what v holds now? */
bool pst_functionalise_carries(struct pst_functionalise *f,
                               struct pst_value *v);
/* v is `window` from now on, another storage perhaps: set_(). Gradients of v
 * would be lost, those of the window are refused by PyTorch, too. */
enum pst_status pst_functionalise_become(
    struct pst_functionalise *f, struct pst_value *v,
    struct pst_value *window) PST_MUST_CHECK;
/* What stood for v when node number `node` of the graph was about to run; NULL
 * if no value has these numbers, or after a failure. */
struct pst_value *pst_functionalise_before(struct pst_functionalise *f,
                                           struct pst_value *v, size_t node);
/* The value that owns the storage of v, whatever was written to it since; NULL
 * after a failure. */
struct pst_value *pst_functionalise_owner(struct pst_functionalise *f,
                                          struct pst_value *v);
/* Is there a view between v and its storage that cuts gradients off? */
bool pst_functionalise_is_detached(const struct pst_functionalise *f,
                                   struct pst_value *v);
/* copy, a view of all of a storage of its own, stands for an input or for state
 * from now on: what is written to it goes to `original` at the end. */
enum pst_status pst_functionalise_stand_for(
    struct pst_functionalise *f, struct pst_value *copy,
    struct pst_value *original) PST_MUST_CHECK;
/* Where the strides and the offset of v's window come from if that cannot be
 * found by itself (window.h), as in pst_arg (offset: a list of one). What is
 * known stays. */
enum pst_status pst_functionalise_explain(
    struct pst_functionalise *f, const struct pst_value *v,
    const char *const *strides, const char *const *offset) PST_MUST_CHECK;
/* The storage of v has so many bytes from now on (resize.c): all of them, or
 * none. */
enum pst_status pst_functionalise_resize(struct pst_functionalise *f,
                                         struct pst_value *v,
                                         int64_t bytes) PST_MUST_CHECK;
/* What v stands for; v itself if it is no such copy. */
struct pst_value *pst_functionalise_home(const struct pst_functionalise *f,
                                         struct pst_value *v);
/* Was something written that is not state? */
bool pst_functionalise_has_written(const struct pst_functionalise *f);
/* Replaces the window of v by update (broadcast and converted to v's shape
 * and dtype); returns the value that stands for v from now on, or NULL. A
 * self-overlapping window is refused by name (E_SELF_OVERLAP). */
struct pst_value *pst_functionalise_write(struct pst_functionalise *f,
                                          struct pst_value *v,
                                          struct pst_value *update);
/*
 * Emits op (an in-place schema such as "aten.add_.Tensor" resolved to its
 * functional twin by pst_functional_twin) on current values and writes the
 * result to args[0].
 */
struct pst_value *pst_functionalise_inplace(struct pst_functionalise *f,
                                            const struct pst_op *twin,
                                            const struct pst_arg *args,
                                            unsigned n_args);
/*
 * The numbers that `version`, a value with storage of its own, has are replaced
 * without a gradient, and a differentiated node has read them; false after a
 * failure. If a gradient of one of the roots, values of the finished graph,
 * needs them, check() refuses the program, with that error and sentence.
 */
bool pst_functionalise_note_silent(struct pst_functionalise *f,
                                   const struct pst_value *version,
                                   enum pst_error error, const char *why);
enum pst_status pst_functionalise_check_silent(
    struct pst_functionalise *f, struct pst_value *const *roots, size_t n,
    struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_functionalise_finish(struct pst_functionalise *f,
                                         struct pst_diag *diag) PST_MUST_CHECK;

/* "aten.add_.Tensor" -> row of "aten.add.Tensor" (also copy_, fill_, zero_,
 * masked_fill_, ...); NULL if the name is not in-place or has no twin. */
const struct pst_op *pst_functional_twin(const char *name);
/* "aten.div.out" -> row of "aten.div.Tensor"; NULL if it has no `out`. */
const struct pst_op *pst_out_twin(const char *name);

#endif
