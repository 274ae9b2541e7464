// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_RESIZE_GRID_H
#define PENSTOCK_STAGES_OPS_RESIZE_GRID_H
/*
 * Sampling at positions given by a grid: x (N, C, in...), grid (N, out..., D)
 * with coordinates -1..1, last spatial dimension first, result (N, C, out...).
 * Along each dimension a position uses one to four inputs ("taps").
 */
#include <stdbool.h>
#include <stdint.h>

/* Values of interpolation_mode and padding_mode. */
enum { PST_GRID_LINEAR, PST_GRID_NEAREST, PST_GRID_CUBIC };
enum { PST_GRID_ZEROS, PST_GRID_BORDER, PST_GRID_REFLECT };

struct pst_grid_taps {
    unsigned n;
    int64_t at[4]; /* -1: outside, counts as 0 */
    double weight[4];
    double slope[4]; /* derivative of the weight by the coordinate */
};
/* Computes the taps along a dimension of size n at coordinate g. dims_f32: the
 * number of dimensions of a grid that is not f64, whose positions are rounded
 * to f32; else 0. */
void pst_grid_taps(int mode, int padding, bool align, unsigned dims_f32,
                   int64_t n, double g, struct pst_grid_taps *ret);

#endif
