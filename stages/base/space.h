// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_SPACE_H
#define PENSTOCK_STAGES_BASE_SPACE_H
/* Memory spaces: a device has its memory in one, a transport can send from
 * some. The values are bits, so that several make a mask. */
enum pst_space {
    PST_SPACE_HOST = 1, /* any code of this process may read and write */
    PST_SPACE_DEVICE =
        2, /* accessible only to kernels and copies of its device */
};

#endif
