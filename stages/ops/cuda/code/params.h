// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_CODE_PARAMS_H
#define PENSTOCK_STAGES_OPS_CUDA_CODE_PARAMS_H
/*
 * Parameters of kernels, one struct each, passed by value. C and C++: the host
 * fills them, device code reads them. Addresses are the device's.
 */
#include <stdint.h>

/* Threads of a block, for all kernels but those of layers/sdpa_16.cu. */
#define PST_CUDA_BLOCK 256

#define PST_CUDA_RANK     8 /* equals PST_MAX_RANK */
#define PST_CUDA_OPERANDS 5 /* equals PST_ND_MAX */

/* The loop of several operands of one shape (struct pst_nd). */
struct pst_cuda_nd {
    uint32_t rank; /* at least 1 */
    int64_t numel;
    int64_t size[PST_CUDA_RANK];
    int64_t stride[PST_CUDA_OPERANDS][PST_CUDA_RANK]; /* strides in elements */
};

/* Dtypes of elements (enum pst_dtype has others, too). */
enum pst_cuda_type {
    PST_CUDA_F32,
    PST_CUDA_F64,
    PST_CUDA_BF16,
    PST_CUDA_F16,
    PST_CUDA_BOOL, /* any byte but 0 is true */
    PST_CUDA_U8,
    PST_CUDA_I8,
    PST_CUDA_I16,
    PST_CUDA_I32,
    PST_CUDA_I64,
};

/* PLAIN: all operands are contiguous or numbers, and y is not added to. */
enum pst_cuda_plain {
    PST_CUDA_NOT_PLAIN,
    PST_CUDA_PLAIN_F32, /* all are f32 */
    PST_CUDA_PLAIN_16,  /* each is f32, bf16 or f16 */
};

/* An elementwise loop (stages/ops/cpu/simd/loops.def): y = f(x[0], x[1], ...).
 * Operand 0 of nd is y, operand k + 1 is x[k]. */
struct pst_cuda_loop {
    struct pst_cuda_nd nd;
    void *y;
    const void *x[3]; /* NULL: the operand is a number */
    float number[3];
    int64_t whole[3];         /* number[] for loops over integers */
    uint32_t type[3], y_type; /* enum pst_cuda_type */
    /* type that operands of other types are rounded to before an f32 loop */
    uint32_t rounds;
    uint32_t accumulate;
    uint32_t plain; /* enum pst_cuda_plain */
    float s[3];
};

/* Rows of at most this many elements have a warp each, longer ones a block
 * (team.cuh). */
#define PST_CUDA_TEAM_WARP 1024

/* Parameters with which a kernel reports a fault (fault.cuh). */
struct pst_cuda_fault_words { /* laid out as struct pst_fault */
    uint32_t set, code, site, microbatch;
    int64_t numbers[4];
};

struct pst_cuda_fault {
    struct pst_cuda_fault_words *words; /* NULL: not reported */
    uint32_t code, site, microbatch;
};

/* Computes a stream of random numbers (pst_rng_stream) from its key. The step's
 * number is in device memory, so that the call can be replayed in another step.
 */
struct pst_cuda_stream {
    uint32_t *to; /* 4 words */
    const uint64_t *step;
    uint64_t seed;
    uint32_t microbatch, node;
};

/* Random choices (random.cuh): element i is dropped if 24 bits of number i of
 * the stream are below `limit`, just as if pst_rng_f32 were below the
 * probability. */
struct pst_cuda_chance {
    const uint32_t *stream; /* 4 words */
    uint32_t limit;         /* 0: never */
    float kept;             /* factor of elements that are kept */
};

/* Sets all elements of `to` to one value; wide: its bits. */
struct pst_cuda_fill {
    struct pst_cuda_nd nd; /* operand 0: to */
    void *to;
    uint64_t wide;
    uint32_t bytes; /* bytes of an element: 1, 2, 4, 8 */
};

/* to = from, for any strides; operand 0 of nd is `to`. */
struct pst_cuda_copy {
    struct pst_cuda_nd nd;
    void *to;
    const void *from;
    uint32_t bytes; /* bytes of an element: 1, 2, 4, 8, 16 */
};

/* to = from, or to += from, converted as pst_store_f64 and pst_store_i64 do;
 * types as enum pst_cuda_type. */
struct pst_cuda_cast {
    struct pst_cuda_nd nd; /* operand 0: to, 1: from */
    void *to;
    const void *from;
    uint32_t to_type, from_type, accumulate;
};

/* to = from for n contiguous elements of f32, bf16 or f16 (enum pst_cuda_type),
 * at addresses that are multiples of 16. */
struct pst_cuda_cast_dense {
    void *to;
    const void *from;
    int64_t n;
    uint32_t to_type, from_type;
};

/* Maximum number of operands that one launch adds. */
#define PST_CUDA_SUM 256

/* to = from[0] + from[1] + ..., in this order. `to` may be one of them. */
struct pst_cuda_sum {
    void *to;
    const void *from[PST_CUDA_SUM];
    uint32_t n_from;
    int64_t n;
};

/* Maximum number of blocks of a sum of squares. */
#define PST_CUDA_SUMSQ 256

/* partial[block] = sum of squares of the block's elements; then *to = the sum
 * of all partial[]. */
struct pst_cuda_sumsq {
    double *to, *partial;
    const float *from;
    int64_t n;
    uint32_t blocks;
};

/* Converts f32 to bf16 or back. `from` and `to` do not overlap, except in
 * upcast_last, which has one block. */
struct pst_cuda_convert {
    void *to;
    const void *from;
    int64_t n;
};

/* Numbers of an update, with the names and values of the constants in
 * stages/ops/cpu/simd/optim/optim.c. */
struct pst_cuda_numbers {
    float keep, b1, b2, c2, root, step, eps; /* adamw */
    float lr, mu, damp, decay;               /* sgd */
    float c1;                                /* lion: 1 - b1 */
    float gscale;
    uint32_t nesterov, first;
};

/* An optimizer's update of n f32 elements: parameter, gradient and states
 * (NULL: absent). An element that would become non-finite keeps its value.
 * stayed[1] counts these elements; stayed[0] is the `number` of the first
 * parameter with such elements, 0: none. */
struct pst_cuda_update {
    float *p, *m, *v, *mean; /* mean: rmsprop's third state */
    const float *g;
    unsigned long long *stayed;
    unsigned long long number;
    int64_t n;
    const struct pst_cuda_numbers *at; /* in device memory; NULL: `numbers` */
    struct pst_cuda_numbers numbers;
};

/* *to = numbers */
struct pst_cuda_set_numbers {
    struct pst_cuda_numbers *to;
    struct pst_cuda_numbers numbers;
};

#endif
