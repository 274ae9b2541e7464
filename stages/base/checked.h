// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_CHECKED_H
#define PENSTOCK_STAGES_BASE_CHECKED_H
/*
 * Arithmetic on sizes that come from files. Two kinds: PST_ADD, PST_MUL and
 * PST_SUB return true if the result does not fit the type of *ret; the
 * functions on size_t stay at PST_SIZE_TOO_LARGE once a result does not fit,
 * so that a long sum is looked at once, at its end (pst_size_fits). Any thread.
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

/* Rounded up to a multiple of align, a power of two. */
static inline size_t pst_size_round(size_t size, size_t align)
{
    size_t ret;

    return PST_ADD(size, align - 1, &ret) ? PST_SIZE_TOO_LARGE
                                          : ret & ~(align - 1);
}

/* Whether an object can have that size at all (and differences of its
 * addresses a ptrdiff_t). */
static inline bool pst_size_fits(size_t size)
{
    return size <= (size_t)PTRDIFF_MAX;
}

#endif
