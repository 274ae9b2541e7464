// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_OPERANDS_H
#define PENSTOCK_STAGES_ALIAS_OPERANDS_H
/*
 * Finds operands of a program that share memory and decides how each is passed.
 * The analysis is exact, on sets of bytes:
 *
 * - A tensor that is passed several times, and is written or changes its
 *   geometry, is passed once.
 * - Tensors that have a byte in common become views of one base if one of them
 *   is written. The base is the smallest range of the storage that contains all
 *   tensors connected in this way; it consists of bytes if their elements have
 *   different sizes. Interleaved views have no byte in common. Other parts of
 *   the storage do not become part of the base.
 * - All others are passed as they are.
 *
 * PyTorch's rules are in torch/_functorch/_aot_autograd (merge_view_inputs); it
 * compares bounds, merges whole storages and treats some overlapping views as
 * disjoint. Pure functions; any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/graph/tensor.h"

struct pst_alias_operand {
    const char *name;     /* name in messages */
    unsigned tensor;      /* equal numbers: the same tensor */
    unsigned storage;     /* equal numbers: the same storage */
    struct pst_meta meta; /* strides in the storage */
    int64_t offset;       /* offset in the storage, in elements of the dtype */
    /* Bytes of the storage that the program reaches by as_strided() besides the
     * operand's own; from == to: none. */
    int64_t from, to;
    /* The operand's own number, unless the code before the call makes the
     * operand. Then it is the number of the operand that this one is a view of,
     * or a number >= the number of operands for a new storage. */
    unsigned root;
    bool written; /* the program changes its content */
    bool moved;   /* the program changes its geometry: t_() */
    bool hidden;  /* not an argument: only the code before the call reads it */
};

struct pst_alias_base {
    /* first: the operand at whose position the base is passed */
    unsigned storage, first;
    int64_t begin, end;   /* range in the storage, in bytes */
    enum pst_dtype dtype; /* u8 if it has elements of several sizes */
    /* The operand that all operands of the base are views of (their `root`), if
     * that one is passed as it is; -1: there is none. */
    int64_t viewed;
};

/* How an operand is passed. */
struct pst_alias_part {
    /* number of the operand that is passed instead, or its own */
    unsigned same;
    int base; /* index in bases; -1: none */
};

struct pst_alias {
    unsigned n;
    struct pst_alias_part *parts; /* per operand: how it is passed */
    struct pst_alias_base *bases; /* in the order of their first operands */
    unsigned n_bases;
    size_t bytes; /* total bytes passed */
    /* Hash that is equal for operands that share memory in the same way and
     * have the same shapes and dtypes: these can use the same plan. */
    uint64_t key;
};

/* Analyses operands; results are in the arena. absolute: bases begin at
 * multiples of 8 bytes. */
enum pst_status pst_alias_analyse(const struct pst_alias_operand *operands,
                                  unsigned n, bool absolute,
                                  struct pst_arena *arena,
                                  struct pst_alias *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Return the first byte of the storage that the operand reaches, and the end of
 * the last. */
int64_t pst_alias_begin(const struct pst_alias_operand *operand);
int64_t pst_alias_end(const struct pst_alias_operand *operand);
/* Computes only the key, which does not depend on writes, for looking up a plan
 * before each call. */
uint64_t pst_alias_key(const struct pst_alias_operand *operands, unsigned n);

#endif
