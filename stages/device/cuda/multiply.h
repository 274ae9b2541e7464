// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_MULTIPLY_H
#define PENSTOCK_STAGES_DEVICE_CUDA_MULTIPLY_H
/*
 * Matmuls of a context by cuBLASLt. The library's heuristic chooses an
 * algorithm for each description once, and the context keeps it. The choice
 * depends on sizes, types and alignment only, so that, on one model of GPU,
 * results do not differ between runs, nor between cuts of the model into
 * stages.
 */
#include "stages/device/cuda/cublaslt.h"
#include "stages/device/cuda/cuda.h"

/* A column-major matrix, or a batch of them. */
struct pst_cuda_matrix {
    const void *data;
    int64_t ld, stride; /* elements between columns; between matrices */
    bool shared;        /* one matrix is used for the whole batch */
    /* Bitwise OR of the addresses of the matrix in all calls that make up the
     * matmul, or of one address and the bytes between calls. It has the
     * alignment that all these addresses have. */
    uintptr_t bits;
};

/* d (rows, cols) = alpha * a b + beta * c + bias, for each matrix of the
 * batch. */
struct pst_cuda_multiply {
    int64_t rows, cols, depth;
    /* trans: the matrix in memory is the transpose of a (rows, depth) or b
     * (depth, cols). c is ignored for beta 0; it may be d. */
    struct pst_cuda_matrix a, b, c, d;
    bool trans_a, trans_b;
    enum pst_cublaslt_type in, out; /* types of a and b; of c, d and bias */
    bool tf32; /* f32 operands may be rounded to TF32; other types ignore it */
    int64_t batch;     /* matrices of this call */
    int64_t batch_all; /* matrices of all calls that make up the matmul */
    const void *bias;  /* rows elements, added to each column; may be NULL */
    float alpha, beta;
    /* scratch in device memory, 16-byte aligned; the library chooses algorithms
     * by its size */
    void *workspace;
    size_t workspace_size;
};

/* Opens the library for this context, if there is one. */
enum pst_status pst_cuda_multiply_open(struct pst_cuda_context *c,
                                       struct pst_diag *diag) PST_MUST_CHECK;
void pst_cuda_multiply_close(struct pst_cuda_context *c);

/* Enqueues the matmul in COMPUTE. Returns false, with nothing enqueued, if
 * there is no library or it has no algorithm for this matmul. A failure of the
 * library makes the context fail; the return value is true then. */
bool pst_cuda_multiply(struct pst_cuda_context *c,
                       const struct pst_cuda_multiply *m);

#endif
