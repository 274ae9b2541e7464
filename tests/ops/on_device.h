// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_OPS_ON_DEVICE_H
#define PENSTOCK_TESTS_OPS_ON_DEVICE_H
/* Runs a kernel of a device on operands that are in host memory. */
#include "stages/ops/core/op.h"

/* A block of host memory that the call uses; NULL blocks are left out. */
struct on_device_block {
    void *at;
    size_t size;
};

/* Opens the device "cuda" with a memory of `size` bytes, after the registry.
 * Returns 0, or -1 with the reason on stderr. */
int on_device_open(struct pst_device_memory *ret, size_t size);

/* Copies the blocks to the device, runs the kernel with the operands, scratch
 * and fault there, and copies the blocks back. Every address of the call is
 * inside one of them. Fails the test if the device does. */
void on_device_run(struct pst_device_memory *mem,
                   const struct pst_kernel *kernel, const struct pst_call *call,
                   const struct on_device_block *blocks, unsigned n);
/* Does the same; returns what has failed on the device, or NULL. */
const char *on_device_try(struct pst_device_memory *mem,
                          const struct pst_kernel *kernel,
                          const struct pst_call *call,
                          const struct on_device_block *blocks, unsigned n);

#endif
