// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_WINDOWS_JOB_H
#define PENSTOCK_STAGES_OPS_CONV_WINDOWS_JOB_H
/* A convolution by windows, of windows.c and windows_lines.c. Pointers are
 * borrowed from the call and its scratch. */
#include "stages/ops/conv/direct_plan.h"
#include "stages/ops/matmul/packed.h"

struct pst_windows_job {
    struct pst_direct_job plan;
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    pst_windows_fn product;
    int64_t sets, each; /* sets of images, images of one */
    int64_t pieces;     /* of a set's or a group's work */
    bool by_rows;       /* pieces are rows of the result, not positions */
    bool bare;          /* the copy is the tensor */
    bool straight;      /* results lie in their tensor as they are computed */
    bool pairs;         /* passes that share lines are stored together */
    bool flat;          /* positions are those of the copy, ends of lines too */
    int64_t image;      /* floats from an image's copy to the next */
    int64_t rows, taps; /* of a group, of all passes */
    int64_t passes;
    struct pst_direct_room shared; /* passes and taps */
    bool turned;                   /* weights are laid out anew */
    bool picked;                   /* ... by the product, which reads once */
    float *weights;                /* (groups, passes, taps, rows) */
    float *parts;                  /* scratch of the parts */
    int64_t copy, side, part;      /* floats of each part, and of its pieces */
    int64_t ld;                    /* of rows of a side */
};

/* Rows and positions of a product: of a set, a group and a pass. */
struct pst_windows_range {
    int64_t set, group, pass, passes; /* passes: that share lines */
    int64_t row[2], at[2];
};

/* Scratch of a part: the copy; what is beside it; behind that, of the product.
 */
float *pst_windows_copy(const struct pst_windows_job *j, unsigned part);
float *pst_windows_beside(const struct pst_windows_job *j, unsigned part);
float *pst_windows_room(const struct pst_windows_job *j, float *side);
int64_t pst_windows_images(const struct pst_windows_job *j, int64_t set);
/* Copies the images of a set, if there is a copy. */
void pst_windows_fill(const struct pst_windows_job *j, int64_t set,
                      int64_t group, float *to);
/* The second factor of a pass. */
struct pst_windows pst_windows_of(const struct pst_windows_job *j,
                                  const struct pst_direct_pass *p, int64_t set,
                                  int64_t group, const float *copy);

#endif
