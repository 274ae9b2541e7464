// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_CHECKED_H
#define PENSTOCK_STAGES_BASE_CHECKED_H
/*
 * Overflow-checked arithmetic on sizes that come from files. Any thread.
 *
 * PST_ADD, PST_MUL and PST_SUB return true if the result does not fit the type
 * of *ret. The size_t functions saturate at PST_SIZE_TOO_LARGE, so that a long
 * sum is checked once, at its end (pst_size_fits).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PST_ADD(a, b, ret) __builtin_add_overflow(a, b, ret)
#define PST_SUB(a, b, ret) __builtin_sub_overflow(a, b, ret)
#define PST_MUL(a, b, ret) __builtin_mul_overflow(a, b, ret)

#define PST_SIZE_TOO_LARGE SIZE_MAX

static inline size_t pst_size_add(size_t a, size_t b)
{
    size_t ret;

    return PST_ADD(a, b, &ret) ? PST_SIZE_TOO_LARGE : ret;
}

static inline size_t pst_size_mul(size_t a, size_t b)
{
    size_t ret;

    if (b != 0 && a == PST_SIZE_TOO_LARGE)
        return PST_SIZE_TOO_LARGE;
    return PST_MUL(a, b, &ret) ? PST_SIZE_TOO_LARGE : ret;
}

/* Rounds up to a multiple of align, a power of two. */
static inline size_t pst_size_round(size_t size, size_t align)
{
    size_t ret;

    return PST_ADD(size, align - 1, &ret) ? PST_SIZE_TOO_LARGE
                                          : ret & ~(align - 1);
}

/* True if an object can have this size (and differences of its addresses fit
 * ptrdiff_t). */
static inline bool pst_size_fits(size_t size)
{
    return size <= (size_t)PTRDIFF_MAX;
}

#endif
