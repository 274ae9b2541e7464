// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_BLAS_H
#define PENSTOCK_STAGES_OPS_MATMUL_BLAS_H
/*
 * Selects the kernels of OpenBLAS. OpenBLAS has a set of kernels per core type,
 * selects one by model number when it is loaded, and falls back to Prescott
 * (SSE3) for a model younger than the library. Before main, pst_blas_choose
 * selects a better set if the feature bits allow one (unless OPENBLAS_CORETYPE
 * is set), so that cblas and LAPACK can be called directly. It also limits
 * OpenBLAS to one thread: our pool divides the work.
 *
 * Threads: pst_blas_choose while the process has one thread, the others on any
 * thread.
 */
#include "stages/base/diag.h"
#include "stages/base/host/cpu.h"

struct pst_str;

/* Called before main, in every program that links this. */
void pst_blas_choose(void);
/* Returns the core type of the current kernels: "SkylakeX". */
const char *pst_blas_core(void);
/* Returns a core type with better kernels than `core` for a processor with isa;
 * NULL: none. An unknown `core` belongs to a newer library, whose choice is
 * kept. */
const char *pst_blas_better(const char *core, enum pst_isa isa);
/* Returns pst_blas_core(), and in *ret_better what pst_blas_better() gives for
 * this processor. */
const char *pst_blas_tuned_for(const char **ret_better);
/* Checks that `threads` threads can multiply at once. In the first matmul of a
 * thread OpenBLAS maps address space for operands; if a limit (ulimit -v) does
 * not allow that, it waits forever. */
enum pst_status pst_blas_check_space(unsigned threads,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Appends "OpenBLAS 0.3.21, SkylakeX kernels (its own choice was Prescott)". */
void pst_blas_describe(struct pst_str *out);
/* Appends the GEMM back ends in use: "oneDNN 2.6.3; OpenBLAS 0.3.21, SkylakeX
 * kernels". */
void pst_products_describe(struct pst_str *out);

#endif
