// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_OPERANDS_H
#define PENSTOCK_STAGES_ALIAS_OPERANDS_H
/*
 * Finds operands of a program that share memory and decides how each is passed.
 * The analysis is exact, on sets of bytes:
 *
 * - A tensor that is passed several times, and is written or changes its
 *   geometry, is passed once.
 * - Two tensors that have a byte in common, one of which is written, become
 *   views of one base: the bounding range of their component, in bytes if their
 *   elements have different sizes. Interleaved views have no byte in common,
 *   and a storage is not merged as a whole because two of its views overlap.
 * - All others are passed as they are.
 *
 * PyTorch's rules are in torch/_functorch/_aot_autograd (merge_view_inputs); it
 * compares bounds, merges whole storages and takes some overlapping views for
 * disjoint ones. Pure functions; any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/graph/tensor.h"

struct pst_alias_operand {
    const char *name;     /* for messages */
    unsigned tensor;      /* equal numbers: the same tensor */
    unsigned storage;     /* equal numbers: the same storage */
    struct pst_meta meta; /* strides in the storage */
    int64_t offset;       /* from its start, in elements of its own dtype */
    /* Bytes of the storage that the program reaches by as_strided() besides the
     * operand's own; from == to: none. */
    int64_t from, to;
    /* If the code before the call makes this operand: the operand that it is a
     * view of or, with a new storage, a number >= the number of operands. Else
     * its own number. */
    unsigned root;
    bool written; /* the program changes its content */
    bool moved;   /* the program changes its geometry: t_() */
    bool hidden;  /* not an argument: only the code before the call reads it */
};

struct pst_alias_base {
    unsigned storage, first; /* first: the operand whose position it takes */
    int64_t begin, end;      /* bytes of the storage */
    enum pst_dtype dtype;    /* u8 if it has elements of several sizes */
    /* If all its operands are views of one operand that is passed as it is:
     * that operand (their `root`). Else -1. */
    int64_t of;
};

/* How an operand is passed. */
struct pst_alias_part {
    unsigned same; /* operand passed in its place; mostly itself */
    int base;      /* index in bases; -1: none */
};

struct pst_alias {
    unsigned n;
    struct pst_alias_part *parts; /* n entries */
    struct pst_alias_base *bases; /* in the order of their first operands */
    unsigned n_bases;
    size_t bytes; /* total bytes passed */
    /* Equal for operands that share memory in the same way and have the same
     * shapes and dtypes, so that they can use the same plan. */
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
