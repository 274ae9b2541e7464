// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_SIMD_OPTIM_STATES_H
#define PENSTOCK_STAGES_OPS_CPU_SIMD_OPTIM_STATES_H
/* Loops of stages/ops/cpu/states.h, one table per instruction set. Their bits
 * are the same for all. */
#include "stages/ops/cpu/simd/simd.h"

struct pst_simd_states {
    /* y[i] = x[i] in bf16, rounded up with the probability of the bits that are
     * cut off; u[i] is random, in [0, 1). A finite number stays finite. */
    void (*round)(int64_t n, const float *x, const float *u, uint16_t *y);
    /* Returns the largest absolute value; infinite or NaN if there is such a
     * number. */
    float (*most)(int64_t n, const float *x);
    /* y[i] = index, in an ascending map, of the value nearest to x[i] / scale;
     * between: the means of neighbours in the map. n at most 256, scale above
     * 0. If the map has no negative values, a positive x[i] has index 1 or
     * more. */
    void (*codes)(int64_t n, const float *x, float scale,
                  const float between[255], bool is_signed, uint8_t *y);
    /* y[i] = map[x[i]] * scale. */
    void (*values)(int64_t n, const uint8_t *x, float scale,
                   const float map[256], float *y);
};

extern const struct pst_simd_states pst_simd_states_any;
extern const struct pst_simd_states pst_simd_states_avx2;
extern const struct pst_simd_states pst_simd_states_avx512;

const struct pst_simd_states *pst_simd_states_best(enum pst_isa isa);

#endif
