// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_MATMUL_BLAS_H
#define PENSTOCK_STAGES_OPS_MATMUL_BLAS_H
/*
 * The kernels with which OpenBLAS runs. It has a set of them for each type of
 * core, chooses by model number when it is loaded, and takes the kernels of
 * Prescott (SSE3) for a model that is younger than the library. Before main,
 * pst_blas_choose looks at what was chosen and takes a better set where the
 * feature bits allow one (OPENBLAS_CORETYPE in the environment is left alone),
 * so that cblas and LAPACK can be called as they are. OpenBLAS is also kept to
 * one thread, and has no other: our pool divides the work.
 *
 * Threads: pst_blas_choose while nothing else runs, the others any.
 */
#include "stages/base/host/cpu.h"

struct pst_str;

/* Called before main, in whatever program links this. */
void pst_blas_choose(void);
/* "SkylakeX": the core type whose kernels run now. */
const char *pst_blas_core(void);
/* The core type to take instead of `core` on a processor with isa; NULL: none
 * is better. Names that are not known belong to younger libraries, whose
 * choice stands. */
const char *pst_blas_better(const char *core, enum pst_isa isa);
/* "OpenBLAS 0.3.21, SkylakeX kernels (its own choice was Prescott)". */
void pst_blas_describe(struct pst_str *out);
/* All that multiplies: "oneDNN 2.6.3; OpenBLAS 0.3.21, SkylakeX kernels". */
void pst_products_describe(struct pst_str *out);

#endif
