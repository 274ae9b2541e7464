// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_VERSIONS_H
#define PENSTOCK_STAGES_FRONTEND_FUNCTIONAL_VERSIONS_H
/*
 * Versions of storages, shared by writes.c, inplace.c (writes) and versions.c
 * (reads).
 *
 * A storage has a newest version, a value whose row-major order is the order of
 * the storage. Every name keeps its geometry (sizes, strides, offset in the
 * storage), which alone determines what it reads and writes; how the view was
 * made does not matter.
 *
 * One thread. Errors stay in f->build; after one all functions return NULL or
 * false.
 */
#include "stages/frontend/functional/functionalise.h"

struct pst_storage {
    struct pst_value *owner, *version;
    bool changed; /* written, except to fill a resized storage */
    bool resized; /* the program has resized it (resize.c) */
    /* if resized, in bytes: the full size, the size before the program, and the
     * size now */
    int64_t bytes_full, bytes_before, bytes_now;
    bool hole;         /* grown by a resize and not filled yet */
    const char *since; /* source line of the last resize */
    /* A detached name was written and became a separate value, so the other
     * names of the storage have no valid content. */
    bool has_split;
};

/* State of a value, by id. */
struct pst_value_fact {
    struct pst_storage *storage; /* for owners and versions; else NULL */
    struct pst_value *now;       /* view of the newest version */
    struct pst_value *renamed;   /* replaces it after t_() and similar */
    bool carries;                /* a gradient flows to a parameter */
    /* for the owner of a copy that replaces an input or state (mirror): that
     * input or state, and the copy */
    struct pst_value *original, *copy;
    const char *const *strides, *const *offset; /* expressions from the file, as
                                                   in pst_arg */
    /* strides and offset have been set; their NULL entries are plain numbers */
    bool explained;
};

/* A write without gradient to content that a differentiated node has read. */
struct pst_silent {
    const struct pst_value *version; /* version that was overwritten */
    enum pst_error error;
    const char *why; /* message for the user */
};

struct pst_functionalise {
    struct pst_build *build;
    struct pst_value_fact *facts;
    size_t n_facts, cap_facts;
    struct PST_VEC(
        struct pst_storage *) storages; /* in order of their first writes */
    struct PST_VEC(struct pst_silent) silents;
    bool is_shared; /* the caller sees the memory that is written */
};

/* A window that is about to be written. */
struct pst_write_target {
    struct pst_value *value;
    struct pst_storage *storage;
    bool detached;           /* the name is detached from gradients */
    bool silent;             /* no gradient goes through the write */
    const struct pst_op *op; /* the operator that writes; NULL: no operator */
};

/* Adds facts for new values; false after an error in the builder. The facts may
 * move. */
bool pst_versions_add_facts(struct pst_functionalise *f);
/* Returns the value that t_() and similar replaced v by. */
struct pst_value *pst_versions_follow(const struct pst_functionalise *f,
                                      struct pst_value *v);
/* True if an operand of the node is in the storage of v. */
bool pst_versions_reads(struct pst_node *node, const struct pst_value *v);
/* Returns the nearest view that stops gradients, on the way from v (inclusive)
 * to its storage; NULL if there is none. */
struct pst_value *pst_versions_find_detach(struct pst_value *v);
/* True if pst_versions_find_detach would find a view. */
bool pst_versions_detached(const struct pst_value *v);
/* True if v is a view of the name, directly or not. */
bool pst_versions_is_view_of(const struct pst_value *v,
                             const struct pst_value *name);

/* Emits an operator with results named after `like`. Views are made outside
 * no_grad, so that each reader decides whether gradients pass. */
struct pst_value *pst_versions_emit(struct pst_functionalise *f,
                                    const struct pst_op *op,
                                    const struct pst_value *like, bool no_grad,
                                    const struct pst_arg *args,
                                    unsigned n_args);
/* Return sizes, strides and offset of v as arguments, with expressions of
 * symbolic sizes. */
struct pst_arg pst_versions_sizes(const struct pst_value *v);
struct pst_arg pst_versions_strides(struct pst_functionalise *f,
                                    const struct pst_value *v);
struct pst_arg pst_versions_offset(struct pst_functionalise *f,
                                   const struct pst_value *v);
/* True if v is all of the version, in order. */
bool pst_versions_cover(const struct pst_value *v,
                        const struct pst_value *version);
/* Returns a one-dimensional view of the version: the smallest range of its
 * elements that contains v and can be reinterpreted as elements of v's dtype.
 */
struct pst_value *pst_versions_view_around(struct pst_functionalise *f,
                                           const struct pst_value *v,
                                           struct pst_value *version,
                                           bool no_grad);
/* Reinterprets the bits of v as the other dtype. */
struct pst_value *pst_versions_bit_cast(struct pst_functionalise *f,
                                        const struct pst_value *like,
                                        struct pst_value *v,
                                        enum pst_dtype dtype, bool no_grad);

/* Returns the record of v's storage, which the first call makes; NULL after an
 * error (writes.c). */
struct pst_storage *pst_versions_storage(struct pst_functionalise *f,
                                         struct pst_value *v);

/* --- resize.c ------------------------------------------------------------- */

enum pst_status pst_versions_bad_resize(const struct pst_functionalise *f,
                                        const struct pst_value *v,
                                        const char *error, const char *why);
/* True if the storage has content to read; otherwise the builder fails. NULL: a
 * storage that was never written or resized. */
bool pst_versions_is_filled(struct pst_functionalise *f,
                            const struct pst_value *v,
                            const struct pst_storage *s);
/* Notes a write of a resized storage; called before each write. Fails the
 * builder and returns false if the write leaves unwritten content. */
bool pst_versions_note_write(struct pst_functionalise *f,
                             const struct pst_write_target *t);
/* Sets owner->empty_before and owner->empty_after of a resized storage; called
 * after the last node. Fails the builder and returns false if the storage has
 * unwritten content. */
bool pst_versions_finish_resize(struct pst_functionalise *f,
                                struct pst_storage *s);

/* --- writes.c, for inplace.c ---------------------------------------------- */

/* True if the storage still has valid content; otherwise the builder fails.
 * NULL: a storage that was never written. */
bool pst_versions_is_kept(struct pst_functionalise *f,
                          const struct pst_value *v,
                          const struct pst_storage *s);
enum pst_status pst_versions_refuse(const struct pst_functionalise *f,
                                    const struct pst_value *v, const char *why);
/* Returns the content that a write through v replaces; the gradient of the
 * write flows to this value. NULL after an error (versions.c). */
struct pst_value *pst_versions_written(struct pst_functionalise *f,
                                       const struct pst_write_target *t);
/* Checks the write before anything is emitted. one_number: the write stores one
 * number, so elements may share memory. */
bool pst_versions_prepare(struct pst_functionalise *f, struct pst_value *v,
                          bool one_number, struct pst_write_target *ret);
/* Sets the content of the window to `new`. fresh: NULL, or a value whose
 * storage no name of the program shares. If `new` is `fresh`, it may itself
 * become the new version. */
struct pst_value *pst_versions_commit(struct pst_functionalise *f,
                                      const struct pst_write_target *t,
                                      struct pst_value *new,
                                      const struct pst_value *fresh);

#endif
