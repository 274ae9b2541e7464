// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_MEMPLAN_H
#define PENSTOCK_STAGES_COMPILE_MEMPLAN_H
/*
 * Packs buffers with known lifetimes into one block of memory.
 *
 * Takes larger buffers first and puts each at the lowest offset that is free
 * during its lifetime ("greedy by size": Pisarchyk and Lee, "Efficient memory
 * management for deep neural net inference", 2020). Deterministic.
 */
#include "stages/base/diag.h"

#include <stdint.h>

/* Alignment of every buffer, in bytes. */
#define PST_MEM_ALIGN 64

struct pst_interval {
    size_t size;
    /* First and last moment of the lifetime, both included. */
    unsigned begin, end;
    size_t offset; /* filled by pst_mem_pack */
};

/* Rounds size up to the alignment; PST_SIZE_TOO_LARGE as in checked.h. */
size_t pst_mem_round(size_t size);

/* Sets the offset of every interval. *ret_size: bytes of the block;
 * PST_SIZE_TOO_LARGE on overflow. */
enum pst_status pst_mem_pack(struct pst_interval *intervals, size_t n,
                             size_t *ret_size,
                             struct pst_diag *diag) PST_MUST_CHECK;

#endif
