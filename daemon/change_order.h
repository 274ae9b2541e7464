// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CHANGE_ORDER_H
#define PENSTOCK_DAEMON_CHANGE_ORDER_H
/* Contents of an order CHANGE, and their bytes. */
#include <stdbool.h>
#include <stddef.h>

struct pst_str;

enum pstd_change_kind {
    PSTD_CHANGE_SWAP, /* another module in the place of `name` */
    PSTD_CHANGE_FREEZE,
    PSTD_CHANGE_UNFREEZE, /* parameters that match `name` */
    PSTD_CHANGE_SET,
    PSTD_CHANGE_CAST,
    PSTD_CHANGE_GET, /* reads the tensors called `name`; changes nothing */
};

/* Texts are borrowed. */
struct pstd_change_order {
    enum pstd_change_kind kind;
    const char *name; /* FQN, or pattern */
    const char *path; /* SWAP, SET, GET: the file, for rank 0; or "" */
    /* SET: a number; CAST: a dtype; SWAP: "NEW\nOLD\n"..., parameters whose
     * optimizer states go on; or "" */
    const char *value;
    int call;           /* SWAP: number of one call, -1: all */
    bool aliases, keep; /* SWAP; keep: SET */
};

void pstd_change_order_write(const struct pstd_change_order *from,
                             struct pst_str *out);
/* Decodes an order from bytes that pstd_change_order_write made. */
void pstd_change_order_read(const char *data, struct pstd_change_order *ret);

#endif
