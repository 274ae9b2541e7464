// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_WATCHED_H
#define PENSTOCK_TESTS_RUN_WATCHED_H
/*
 * The device "cpu" with an eye on every access: while a kernel, a task or a
 * copy is at work, all bytes of the arena that are none of its operands are
 * inverted. Who writes beyond its results is found at once, who reads beyond
 * its operands computes something else. One thread.
 */
#include "stages/device/device.h"

struct watched {
    unsigned long calls, writes_outside;
    char first[256]; /* what wrote outside first */
    /* Highest byte + 1 that an operand had, of the memory opened last. */
    size_t reach;
};
extern struct watched watched;
const struct pst_device *watched_device(void);

#endif
