// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CUDA_BLOCKS_H
#define PENSTOCK_TESTS_CUDA_BLOCKS_H
/* Device memory of the driver of the tests: files without a name, which other
 * processes of the host can map, and which end with the processes. */
#include <stddef.h>
#include <stdint.h>

/* Part of a block that all processes see. */
struct block_state;

struct block {
    size_t size;
    int device; /* that accesses it */
    int file;   /* -1: the block of another process */
    struct block_state *state;
};

/* CUipcMemHandle */
struct block_handle {
    char bytes[64];
};

/* Returns the address, NULL: there is no memory. how: as for mmap. */
void *block_make(size_t size, int device, int how, struct block *ret);
/* Releases a block, or what block_open returned. Returns false if it belongs to
 * this process, and another one still has it open. */
bool block_end(void *at, const struct block *b);
void block_give(const struct block *b, struct block_handle *ret);
/* Maps the block of another process. ret->device is that of its owner. Returns
 * NULL if there is no such block, or it is this process's. */
void *block_open(const struct block_handle *from, int how, struct block *ret);

#endif
