// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_SPACE_H
#define PENSTOCK_STAGES_BASE_SPACE_H
/* Memory spaces: the memory of a device is in one of them; a transport can send
 * from one or more. The values are bits, so that they combine to a mask. */
enum pst_space {
    PST_SPACE_HOST = 1, /* any code of this process may read and write */
    PST_SPACE_DEVICE =
        2, /* accessible only to kernels and copies of its device */
};

#endif
