// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_WATCHED_H
#define PENSTOCK_TESTS_RUN_WATCHED_H
/*
 * The device "cpu" with a check of every access: while a kernel, a task or a
 * copy runs, all bytes of the arena outside its operands are inverted. A write
 * outside its results is detected at once, a read outside its operands changes
 * the result. One thread.
 */
#include "stages/device/device.h"

struct watched {
    unsigned long calls, writes_outside;
    char first[256]; /* first access outside */
    /* Highest byte + 1 of any operand, in the memory opened last. */
    size_t reach;
};
extern struct watched watched;
const struct pst_device *watched_device(void);

#endif
