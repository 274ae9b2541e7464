// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_OPERANDS_H
#define PENSTOCK_STAGES_ALIAS_OPERANDS_H
/*
 * Which operands of a program share memory, and what that means for how they
 * are passed. Decided exactly, on sets of bytes:
 *
 * - One tensor that is passed several times, and written or given another
 *   geometry: it is passed once.
 * - Two tensors of which one is written and that have a byte in common: both
 *   become windows on one base, the bounding range of their component, of bytes
 *   if their elements have different sizes. Windows that interleave have no
 *   byte in common, and a storage is never merged as such because two of its
 *   windows meet.
 * - All others are passed as they are.
 *
 * PyTorch's rules for the same are in torch/_functorch/_aot_autograd
 * (merge_view_inputs); it compares bounds, merges whole storages and takes some
 * windows that meet for disjoint ones. Pure functions; any thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/graph/tensor.h"

struct pst_alias_operand {
    const char *name;     /* for messages */
    unsigned tensor;      /* equal numbers: one tensor */
    unsigned storage;     /* equal numbers: one storage */
    struct pst_meta meta; /* strides in the storage */
    int64_t offset;       /* from its start, in elements of the own dtype */
    /* Bytes of the storage that the program reaches through it besides its own,
     * by as_strided(); equal: none. */
    int64_t from, to;
    /* Made by what runs before the call, as a view of this operand; of others,
     * its own number or, for new storages, any that no operand has. */
    unsigned root;
    bool written; /* the program changes its numbers */
    bool moved;   /* the program changes its geometry: t_() */
    bool hidden;  /* no argument: only what runs before the call reads it */
};

struct pst_alias_base {
    unsigned storage, first; /* first: the operand that it stands in place of */
    int64_t begin, end;      /* bytes of the storage */
    enum pst_dtype dtype;    /* u8 if elements of several sizes are in it */
    /* All of its operands are made of one, which is passed as it is: that one's
     * `root`. Else, -1. */
    int64_t of;
};

/* How an operand is passed. */
struct pst_alias_part {
    unsigned same; /* the operand that is passed for it; itself, most times */
    int base;      /* in bases; -1: none */
};

struct pst_alias {
    unsigned n;
    struct pst_alias_part *parts; /* n of them */
    struct pst_alias_base *bases; /* by their first operands */
    unsigned n_bases;
    size_t bytes; /* of all that is passed */
    /* Equal for operands that share memory in the same way and have the same
     * shapes and dtypes: what is made for one list serves the other. */
    uint64_t key;
};

/* Everything in the arena. absolute: bases begin where any element can. */
enum pst_status pst_alias_analyse(const struct pst_alias_operand *operands,
                                  unsigned n, bool absolute,
                                  struct pst_arena *arena,
                                  struct pst_alias *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* The first byte of the storage that the operand reaches, and behind the last
 * one. */
int64_t pst_alias_begin(const struct pst_alias_operand *operand);
int64_t pst_alias_end(const struct pst_alias_operand *operand);
/* The key alone, which does not depend on what is written: for whoever looks a
 * program up before each call. */
uint64_t pst_alias_key(const struct pst_alias_operand *operands, unsigned n);

#endif
