// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_VERSIONS_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_VERSIONS_H
/*
 * One rule for all views and writes: a storage has a newest version, a value
 * whose row-major order is the order of the storage. Every name keeps its
 * geometry (sizes, strides, offset in the storage), which alone says where it
 * reads from and writes to; how the view was made does not matter.
 *
 * What writes.c, inplace.c (writes) and versions.c (reads) share; one thread.
 * Failures stay in f->build, from which on all functions return NULL or false.
 */
#include "stages/frontend/functional/functionalise.h"

struct pst_storage {
    struct pst_value *owner, *version;
    bool changed;           /* written, or written again after it was filled */
    bool resized;           /* then, in bytes (resize.c): */
    int64_t full, had, has; /* with all, before the program, now */
    bool hole;              /* it has grown and was not filled */
    const char *since;      /* source of the last resize */
    bool left; /* a detached name of it was written and is another value now:
                  what other names would see is nowhere */
};

/* What is known of a value, by id. */
struct pst_fact {
    struct pst_storage *storage; /* of owners and of versions */
    struct pst_value *now;     /* the name, regenerated from a newer version */
    struct pst_value *renamed; /* by t_() and the like */
    bool carries;              /* gradients can flow on to a parameter */
    struct pst_value *original, *copy; /* of owners that stand for an input */
    const char *const *strides, *const *offset; /* expressions, as in pst_arg:
                                                   what the file says */
    bool explained; /* it has said so: numbers without one are numbers */
};

/* A write without gradient to numbers that a differentiated node has read. */
struct pst_silent {
    const struct pst_value *version; /* that has the old numbers */
    enum pst_error error;
    const char *why; /* for who has to change the program */
};

struct pst_functionalise {
    struct pst_build *build;
    struct pst_fact *facts;
    size_t n_facts, cap_facts;
    struct PST_VEC(
        struct pst_storage *) storages; /* in order of first writes */
    struct PST_VEC(struct pst_silent) silents;
    bool is_shared; /* the caller sees the memory that is written */
};

/* A window that is about to be written. */
struct pst_write_target {
    struct pst_value *value;
    struct pst_storage *storage;
    bool detached;           /* the name has no part in gradients */
    bool silent;             /* the write is not differentiated */
    const struct pst_op *op; /* that writes; NULL: none has a say */
};

/* Makes facts for values that came since; false if the builder has failed. The
 * facts may move. */
bool pst_versions_learn(struct pst_functionalise *f);
/* The name that t_() and the like gave the value. */
struct pst_value *pst_versions_follow(const struct pst_functionalise *f,
                                      struct pst_value *v);
/* Does an operand of the node lie in the storage of v? */
bool pst_versions_reads(struct pst_node *node, const struct pst_value *v);
/* Does some view between the name and its storage cut gradients off? */
bool pst_versions_detached(const struct pst_value *v);

/* Emits the operator, with results named after `like`. Whether
 * gradients pass is up to the reader: views are made outside of no_grad. */
struct pst_value *pst_versions_emit(struct pst_functionalise *f,
                                    const struct pst_op *op,
                                    const struct pst_value *like, bool no_grad,
                                    const struct pst_arg *args,
                                    unsigned n_args);
/* Sizes, strides and offset of v, free ones with what they come from. */
struct pst_arg pst_versions_sizes(const struct pst_value *v);
struct pst_arg pst_versions_strides(struct pst_functionalise *f,
                                    const struct pst_value *v);
struct pst_arg pst_versions_offset(struct pst_functionalise *f,
                                   const struct pst_value *v);
/* Is the window of v all of the version, in its order? */
bool pst_versions_cover(const struct pst_value *v,
                        const struct pst_value *version);
/* Elements of the version that v lies in, the least that are cut into v's dtype
 * without a rest: a row of them. */
struct pst_value *pst_versions_around(struct pst_functionalise *f,
                                      const struct pst_value *v,
                                      struct pst_value *version, bool no_grad);
/* The bits of v as the other dtype. */
struct pst_value *pst_versions_bit_cast(struct pst_functionalise *f,
                                        const struct pst_value *like,
                                        struct pst_value *v,
                                        enum pst_dtype dtype, bool no_grad);

/* The record of v's storage; it is made if there is none. NULL after a failure
 * (writes.c). */
struct pst_storage *pst_versions_storage(struct pst_functionalise *f,
                                         struct pst_value *v);

/* --- resize.c ------------------------------------------------------------- */

enum pst_status pst_versions_bad_resize(const struct pst_functionalise *f,
                                        const struct pst_value *v,
                                        const char *error, const char *why);
/* Has the storage numbers to read? If not, the builder has failed. NULL is a
 * storage that nobody has written or resized. */
bool pst_versions_is_filled(struct pst_functionalise *f,
                            const struct pst_value *v,
                            const struct pst_storage *s);
/* Before each write; false after a failure. */
bool pst_versions_note_write(struct pst_functionalise *f,
                             const struct pst_write_target *t);
/* After the last node; false after a failure. */
bool pst_versions_finish_resize(struct pst_functionalise *f,
                                struct pst_storage *s);

/* --- writes.c, for inplace.c ---------------------------------------------- */

/* Are the numbers of the storage still there? If not, the builder has failed.
 * NULL is a storage that nobody has written. */
bool pst_versions_is_kept(struct pst_functionalise *f,
                          const struct pst_value *v,
                          const struct pst_storage *s);
enum pst_status pst_versions_refuse(const struct pst_functionalise *f,
                                    const struct pst_value *v, const char *why);
/* The numbers that a write through v changes, as the gradient of the write sees
 * them: NULL after a failure (versions.c). */
struct pst_value *pst_versions_written(struct pst_functionalise *f,
                                       const struct pst_write_target *t);
/* Everything that can be refused before anything is emitted. one_number: the
 * elements that share memory are given the same. */
bool pst_versions_prepare(struct pst_functionalise *f, struct pst_value *v,
                          bool one_number, struct pst_write_target *ret);
/* The window holds `new` from now on; fresh may become the version itself. */
struct pst_value *pst_versions_commit(struct pst_functionalise *f,
                                      const struct pst_write_target *t,
                                      struct pst_value *new,
                                      const struct pst_value *fresh);

#endif
