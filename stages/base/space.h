// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_SPACE_H
#define PENSTOCK_STAGES_BASE_SPACE_H
/* Where bytes lie: devices have memory in a space, transports send from some.
 * Bits, so that several make a mask. */
enum pst_space {
    PST_SPACE_HOST = 1,   /* any code of this process may read and write */
    PST_SPACE_DEVICE = 2, /* only kernels and copies of its device may */
};

#endif
