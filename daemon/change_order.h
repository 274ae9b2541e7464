// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CHANGE_ORDER_H
#define PENSTOCK_DAEMON_CHANGE_ORDER_H
/* A change of a running job's model, and its encoding as the data of an order
 * of kind PSTD_ORDER_CHANGE. */
#include <stdbool.h>
#include <stddef.h>

struct pst_str;

enum pstd_change_kind {
    PSTD_CHANGE_SWAP,     /* replaces the module `name` by another one */
    PSTD_CHANGE_FREEZE,   /* freezes parameters that match `name` */
    PSTD_CHANGE_UNFREEZE, /* unfreezes parameters that match `name` */
    PSTD_CHANGE_SET,      /* sets values of the tensors called `name` */
    PSTD_CHANGE_CAST,     /* changes the dtype of the tensors called `name` */
    PSTD_CHANGE_GET,      /* reads the tensors called `name`; changes nothing */
    PSTD_CHANGE_OPTIONS,  /* changes options: lines "NAME=VALUE\n" in `value` */
};

/* A decoded change. Its texts are borrowed: from the caller that encodes the
 * change, or from the encoded bytes. */
struct pstd_change_order {
    enum pstd_change_kind kind;
    const char *name; /* FQN of the module or tensors, or a pattern */
    const char *path; /* SWAP, SET, GET: path of a file on rank 0, or "" */
    /* The new value; "": none. SET: a number. CAST: a dtype. SWAP: lines
     * "NEW\nOLD\n": parameter NEW takes over the optimizer states of parameter
     * OLD. */
    const char *value;
    int call; /* SWAP: index of the only call to replace; -1: all calls */
    /* aliases: SWAP replaces the module under its other names, too. keep: SWAP
     * and SET keep optimizer states. */
    bool aliases, keep;
};

void pstd_change_order_write(const struct pstd_change_order *from,
                             struct pst_str *out);
/* Decodes an order from bytes that pstd_change_order_write made. *ret borrows
 * data. */
void pstd_change_order_read(const char *data, struct pstd_change_order *ret);

#endif
