// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_RESIZE_GRID_H
#define PENSTOCK_STAGES_OPS_RESIZE_GRID_H
/*
 * Sampling at positions that a grid gives: x (N, C, in...), grid (N, out..., D)
 * with coordinates in -1..1, the last spatial dimension first; result (N, C,
 * out...). Along each dimension a position uses one to four inputs ("taps").
 */
#include <stdbool.h>
#include <stdint.h>

/* Values of interpolation_mode and padding_mode. */
enum { PST_GRID_LINEAR, PST_GRID_NEAREST, PST_GRID_CUBIC };
enum { PST_GRID_ZEROS, PST_GRID_BORDER, PST_GRID_REFLECT };

struct pst_grid_taps {
    unsigned n;
    int64_t at[4]; /* index of the input; -1: outside, counts as 0 */
    double weight[4];
    double slope[4]; /* derivative of each weight by the coordinate g */
};
/* Computes the taps along a dimension of size n at coordinate g. dims_f32: 0
 * for an f64 grid; else the number of the grid's dimensions: positions are
 * rounded to f32 as PyTorch rounds them, which depends on it. */
void pst_grid_taps(int mode, int padding, bool align, unsigned dims_f32,
                   int64_t n, double g, struct pst_grid_taps *ret);

#endif
