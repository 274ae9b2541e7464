// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_STATES_H
#define PENSTOCK_STAGES_OPS_CPU_STATES_H
/*
 * How devices keep optimizer states in fewer bits than f32, by two tasks over n
 * elements of `dtype`, which is bf16 or u8:
 *
 *   unpack  converts from[0], of that dtype, to `to`, f32
 *   pack    converts from[0], f32, to `to`, of that dtype
 *
 * bf16: pack rounds stochastically, with the random numbers of from[1], a
 * struct pst_states_draw. u8: from[1] has the scales, f32, one for each block
 * of PST_STATES_BLOCK elements from the first one on; pack sets them. number is
 * 1 if the state may be negative, else 0.
 *
 * 8 bits: Dettmers et al., "8-bit Optimizers via Block-wise Quantization"
 * (2021, arXiv:2110.02861). The scale of a block is its largest absolute value;
 * the code of an element is the index of the value nearest to element / scale
 * in the dynamic map: 0, 1 and, for E = 0 ... 6, the means of 2^E equal
 * intervals from 10^(E - 7) to 10^(E - 6), each with both signs; a state
 * without a sign has twice as many intervals. Its positive elements never have
 * code 0.
 */
#include "stages/device/device.h"

#define PST_STATES_BLOCK 256

/* Element i is rounded by number first + i of the stream
 * (stages/base/rng.h). */
struct pst_states_draw {
    uint32_t stream[4];
    int64_t first;
};

/* Computes the dynamic map, ascending. Pure function. */
void pst_states_map(bool is_signed, float ret[256]);

#endif
