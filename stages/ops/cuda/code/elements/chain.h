// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_CHAIN_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_ELEMENTS_CHAIN_H
/* Parameters of chains.cu. */
#include "stages/ops/cuda/code/params.h"

#define PST_CUDA_CHAIN_PARTS   32 /* equals PST_CHAIN_PARTS */
#define PST_CUDA_CHAIN_TENSORS 96 /* maximum number of operands and results */
#define PST_CUDA_CHAIN_EACH    4  /* elements of a thread at a time */
/* Maximum number of slots, and the bytes of one in a block's shared memory. */
#define PST_CUDA_CHAIN_SLOTS 24
#define PST_CUDA_CHAIN_SLOT  (PST_CUDA_BLOCK * PST_CUDA_CHAIN_EACH * 4)

/* Functions of parts: a copy, and those of loops.def whose operands are no
 * integers. */
enum pst_cuda_chain_fn {
    PST_CUDA_CHAIN_copy,
#define LOOP(name, n, expr)              PST_CUDA_CHAIN_##name,
#define GUARDED(name, n, expr, ok, slow) PST_CUDA_CHAIN_##name,
#define RANGED(name, n, expr, ok, slow)  PST_CUDA_CHAIN_##name,
#define QUESTION(name, n, expr)          PST_CUDA_CHAIN_##name,
#define LOGIC(name, n, expr)             PST_CUDA_CHAIN_##name,
#define INTEGER(name, n, expr)
#define COMPARE(name, n, expr)
#define CHOICE(name, expr) PST_CUDA_CHAIN_##name,
#include "stages/ops/cpu/simd/loops.def"
};

/* Addresses of the elements of a tensor. If cols is a multiple of 4, the four
 * elements of a thread are in one row. */
enum pst_cuda_chain_how {
    PST_CUDA_CHAIN_ONE,      /* one element for all */
    PST_CUDA_CHAIN_STEP,     /* element i: at i * col */
    PST_CUDA_CHAIN_WIDE,     /* element i: at i, four at an aligned address */
    PST_CUDA_CHAIN_ROWS,     /* element i: at i / cols * row + i % cols * col */
    PST_CUDA_CHAIN_ROWS_ONE, /* the four are the same element */
    PST_CUDA_CHAIN_ROWS_WIDE, /* the four are at an aligned address */
};

struct pst_cuda_chain_tensor {
    void *x;
    int64_t row;
    int32_t col;
    uint8_t type, how; /* enum pst_cuda_type, enum pst_cuda_chain_how */
};

/* Source of an operand of a part. */
enum pst_cuda_chain_from {
    PST_CUDA_CHAIN_NUMBER,
    PST_CUDA_CHAIN_LAST, /* the result of the part before */
    PST_CUDA_CHAIN_IN_SLOT,
    PST_CUDA_CHAIN_TENSOR,
};

#define PST_CUDA_CHAIN_NOT 255 /* slot or tensor: none */

struct pst_cuda_chain_part {
    float number[3]; /* operands that are numbers */
    float s[3];
    uint8_t fn;                /* enum pst_cuda_chain_fn */
    uint8_t from[3], index[3]; /* source of operand k; number of the slot or
                                * tensor */
    /* Operand k is rounded to the type `rounds` first if bit k of `rounded` is
     * set. */
    uint8_t rounds, rounded;
    uint8_t type;         /* the result is rounded to this type */
    uint8_t slot, tensor; /* destinations of the result */
};

/* A chain (stages/ops/pointwise/chain.h) of numel elements. */
struct pst_cuda_chain {
    int64_t numel;
    int64_t cols; /* length of rows; 0: no tensor has rows */
    uint32_t n_parts, pad;
    struct pst_cuda_chain_part parts[PST_CUDA_CHAIN_PARTS];
    struct pst_cuda_chain_tensor tensors[PST_CUDA_CHAIN_TENSORS];
};

#endif
