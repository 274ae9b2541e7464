// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_JOB_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_JOB_H
/* State of a convolution by windows, for windows.c and windows_lines.c.
 * Pointers are borrowed from the call and its scratch. */
#include "stages/ops/conv/direct_plan.h"
#include "stages/ops/matmul/packed.h"

struct pst_windows_job {
    struct pst_direct_job plan;
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    pst_windows_fn product;
    int64_t sets, each; /* sets: GEMMs into which the images are divided; each:
                           images of a set */
    int64_t pieces;     /* pieces of the work of a set or a group */
    bool by_rows;       /* pieces are rows of the result instead of positions */
    bool bare;          /* the tensor is used in place of a copy */
    bool straight;      /* results are stored directly in their tensor */
    bool pairs;         /* two alternating passes are stored together */
    bool flat;          /* positions follow the copy, including line ends */
    int64_t image;      /* floats from one image's copy to the next */
    int64_t rows, taps; /* rows of a group's result; taps of all passes */
    int64_t passes;
    struct pst_direct_scratch shared; /* passes and taps */
    bool turned;                      /* weights are transposed in advance */
    bool picked;    /* GEMM reads the weights in place, out of order */
    float *weights; /* (groups, passes, taps, rows) */
    float *parts;   /* scratch of the threads' parts */
    /* floats of a part's copy, of its side buffer, and of all its scratch */
    int64_t copy, side, part;
    int64_t ld; /* leading dimension of the results in the side buffer */
};

/* The rows and positions that one GEMM computes, in one set, group and pass. */
struct pst_windows_range {
    /* passes: number of passes whose results share lines, from `pass` on */
    int64_t set, group, pass, passes;
    int64_t row[2], at[2];
};

/* Return a section of a part's scratch: the copy, the side buffer, and, after
 * the side buffer, the scratch of GEMM. */
float *pst_windows_copy(const struct pst_windows_job *j, unsigned part);
float *pst_windows_side_buffer(const struct pst_windows_job *j, unsigned part);
float *pst_windows_scratch(const struct pst_windows_job *j, float *side);
int64_t pst_windows_images(const struct pst_windows_job *j, int64_t set);
/* Copies the images of a set, if copies are used. */
void pst_windows_fill(const struct pst_windows_job *j, int64_t set,
                      int64_t group, float *to);
/* Returns matrix B of the GEMM of a pass. */
struct pst_windows pst_windows_of(const struct pst_windows_job *j,
                                  const struct pst_direct_pass *p, int64_t set,
                                  int64_t group, const float *copy);

#endif
