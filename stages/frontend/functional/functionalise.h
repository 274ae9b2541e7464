// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_FUNCTIONALISE_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_FUNCTIONALISE_H
/*
 * Turns in-place operators and views into values, by one rule: a write makes a
 * new version of the storage's owner, and names that alias it are regenerated
 * from the newest version when they are next read.
 *
 * Used while nodes are added in program order (import), because only then is it
 * known which version a read sees:
 *   - read(v): the current value of v (a regenerated view if v is stale);
 *   - write(v, update): v's window now has the content of `update`.
 * After the last node, finish() adds BUFFER_UPDATE and INPUT_UPDATE outputs for
 * buffers and inputs whose storage was written. Writing a parameter that
 * requires grad is an error, also under no_grad (a parameter update, not
 * supported yet).
 */
#include "stages/graph/build.h"

struct pst_functionalise;

enum pst_status pst_functionalise_new(struct pst_build *build,
                                      struct pst_functionalise **ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pst_functionalise_free(struct pst_functionalise *f);
/* Declares that the caller sees the memory that the program writes. A write to
 * a detached name is then an error if it cannot also reach the memory that the
 * name shares. */
void pst_functionalise_share(struct pst_functionalise *f);

/* Returns the current value of v; NULL after an error in the builder. */
struct pst_value *pst_functionalise_read(struct pst_functionalise *f,
                                         struct pst_value *v);
/* Returns v; if t_() or a similar operator changed its geometry, the value that
 * replaces v. NULL after an error. */
struct pst_value *pst_functionalise_shape(struct pst_functionalise *f,
                                          struct pst_value *v);
/* True if a gradient flows through the current value of v. */
bool pst_functionalise_has_gradient(struct pst_functionalise *f,
                                    struct pst_value *v);
/* Makes v refer to `window`, possibly in another storage, as set_() does. Fails
 * if v or the window has a gradient, which would be lost. PyTorch, too, rejects
 * a window that has a gradient. */
enum pst_status pst_functionalise_set_window(
    struct pst_functionalise *f, struct pst_value *v,
    struct pst_value *window) PST_MUST_CHECK;
/* Returns the value of v just before node number `node` of the graph; NULL if
 * no value has that content, or after an error. */
struct pst_value *pst_functionalise_before(struct pst_functionalise *f,
                                           struct pst_value *v, size_t node);
/* Returns the value that owns the storage of v, regardless of writes; NULL
 * after an error. */
struct pst_value *pst_functionalise_owner(struct pst_functionalise *f,
                                          struct pst_value *v);
/* True if a view between v and its storage stops gradients. */
bool pst_functionalise_is_detached(const struct pst_functionalise *f,
                                   struct pst_value *v);
/* Declares that `copy` replaces `original`, an input or state. `copy` is a view
 * of all of its own storage. finish() writes the final content of `copy` to
 * `original`. */
enum pst_status pst_functionalise_mirror(
    struct pst_functionalise *f, struct pst_value *copy,
    struct pst_value *original) PST_MUST_CHECK;
/* Sets the expressions of the strides and of the offset of v's window, in lists
 * as in pst_arg; the offset's list has one element. Expressions that window.h
 * has derived are kept. */
enum pst_status pst_functionalise_explain(
    struct pst_functionalise *f, const struct pst_value *v,
    const char *const *strides, const char *const *offset) PST_MUST_CHECK;
/* Sets the number of bytes of v's storage (resize.c): its full size, or 0. */
enum pst_status pst_functionalise_resize(struct pst_functionalise *f,
                                         struct pst_value *v,
                                         int64_t bytes) PST_MUST_CHECK;
/* Returns the original (see mirror) if v is such a copy, else v. */
struct pst_value *pst_functionalise_original(const struct pst_functionalise *f,
                                             struct pst_value *v);
/* True if anything but state was written. */
bool pst_functionalise_has_written(const struct pst_functionalise *f);
/* Replaces the window of v by update (broadcast and converted to v's shape and
 * dtype). Returns the new value of v, or NULL. A window that overlaps itself is
 * an error (E_SELF_OVERLAP). */
struct pst_value *pst_functionalise_write(struct pst_functionalise *f,
                                          struct pst_value *v,
                                          struct pst_value *update);
/*
 * Emits the functional variant (from pst_functional_variant) of an in-place
 * operator such as "aten.add_.Tensor" on current values and writes the result
 * to args[0].
 */
struct pst_value *pst_functionalise_inplace(struct pst_functionalise *f,
                                            const struct pst_op *variant,
                                            const struct pst_arg *args,
                                            unsigned n_args);
/*
 * note_silent() records a write without gradient to `version`, a value with its
 * own storage, whose content a differentiated node has read; it returns false
 * after an error. check_silent() fails with `error` and the message `why` if
 * the gradient of a root needs that content. Roots are values of the finished
 * graph.
 */
bool pst_functionalise_note_silent(struct pst_functionalise *f,
                                   const struct pst_value *version,
                                   enum pst_error error, const char *why);
enum pst_status pst_functionalise_check_silent(
    struct pst_functionalise *f, struct pst_value *const *roots, size_t n,
    struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_functionalise_finish(struct pst_functionalise *f,
                                         struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the functional variant of an in-place operator: "aten.add.Tensor" for
 * "aten.add_.Tensor" (also copy_, fill_, zero_, masked_fill_, ...); NULL if
 * there is none. */
const struct pst_op *pst_functional_variant(const char *name);
/* Returns "aten.div.Tensor" for "aten.div.out"; NULL if the name is not an
 * `out` variant. */
const struct pst_op *pst_out_variant(const char *name);

#endif
