// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CONV_NARROW_H
#define PENSTOCK_STAGES_OPS_CONV_NARROW_H
/*
 * Convolutions whose groups have few rows (channels of the result), so that one
 * or two vectors hold all of them: only the weights of a group are packed.
 *
 * The channels of a group are copied with zero padding (direct_plan.h). A tile
 * of y or x has all rows of some positions of a line: consecutive numbers of
 * the copy are multiplied with a row of the transposed weights, and the tile is
 * transposed when it is stored. For w the copy is transposed, so that each of
 * its rows has all channels of a position; for each element of the windows, y
 * is multiplied with these rows.
 *
 * Sums of y and x go over taps in order, those of w over positions, then
 * images; they do not depend on the number of threads.
 */
#include "stages/ops/conv/dnnl.h"
#include "stages/ops/cpu/simd/simd.h"

#define PST_NARROW_LINE 16 /* rows are padded to a multiple of it */

/*
 * Computes a line of results:
 *     y[r * ldy + i] (+)= bias[r] + sum over t of w[t * width + r]
 *                                                 x[offset[t] + i].
 */
struct pst_narrow_sums {
    int64_t n; /* positions */
    int64_t taps;
    const int64_t *offset;
    const float *x;
    int64_t rows, width; /* width: length of a row of weights and of bias */
    const float *w, *bias;
    float *y;
    int64_t ldy;
    bool add;
};

/*
 * sums[r * width + c] += sum over lines l and their positions i of
 *     y[r * ldy + l * y_line + i] x[l * x_line + i * width + c].
 */
struct pst_narrow_dots {
    int64_t lines, n;
    int64_t rows, width;
    const float *y, *x;
    int64_t ldy, y_line, x_line;
    float *sums;
};

struct pst_narrow_loops {
    void (*sums)(const struct pst_narrow_sums *s);
    void (*dots)(const struct pst_narrow_dots *s);
    /* to (cols, ld_to) := from (rows, ld_from) transposed. */
    void (*turn)(int64_t rows, int64_t cols, const float *from, int64_t ld_from,
                 float *to, int64_t ld_to);
};
extern const struct pst_narrow_loops pst_narrow_loops_any,
    pst_narrow_loops_avx2, pst_narrow_loops_avx512;
/* Returns the loops for this processor. */
const struct pst_narrow_loops *pst_narrow_loops(void);

/* True if these kernels are preferred for the convolution, whose operands must
 * be contiguous f32; depends on shapes only. False if oneDNN was built in. */
bool pst_conv_narrow_preferred(const struct pst_conv *c,
                               enum pst_conv_fill fill);
/* True if these kernels can compute the convolution, with a copy and weights
 * that stay in the L2 cache; ignores whether others are faster. */
bool pst_conv_narrow_fits(const struct pst_conv *c, enum pst_conv_fill fill);
size_t pst_conv_narrow_scratch(const struct pst_conv *c,
                               enum pst_conv_fill fill, unsigned threads);
void pst_conv_narrow_run(const struct pst_conv *c, enum pst_conv_fill fill,
                         struct pst_pool *pool, void *scratch,
                         const struct pst_narrow_loops *loops);

#endif
