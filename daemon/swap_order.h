// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_SWAP_ORDER_H
#define PENSTOCK_DAEMON_SWAP_ORDER_H
/* What an order SWAP says, as its bytes. */
#include <stdbool.h>
#include <stddef.h>

struct pst_str;

/* Texts are borrowed. */
struct pstd_swap_order {
    const char *module; /* FQN */
    int call;           /* number of one call, -1: all */
    bool aliases, keep;
    const char *path; /* of the file, for rank 0 */
};

void pstd_swap_order_write(const struct pstd_swap_order *from,
                           struct pst_str *out);
/* Of bytes that were written so. */
void pstd_swap_order_read(const char *data, struct pstd_swap_order *ret);

#endif
