// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPTIM_SHARE_H
#define PENSTOCK_STAGES_OPTIM_SHARE_H
/* Elements of a parameter go to pool threads in multiples of this, so that
 * loops see the same vector bodies and tails for any number of threads. */
#define PST_OPTIM_GRAIN 4096

#endif
