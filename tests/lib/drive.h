// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_LIB_DRIVE_H
#define PENSTOCK_TESTS_LIB_DRIVE_H
/* Checks and tensors for tests of the library, which use penstock.h alone. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/penstock.h"

#define MAX_DIMS 8

/* Ends the program with the error, if the call has failed. */
#define good(call)                                                             \
    do {                                                                       \
        if ((call) != 0) {                                                     \
            fprintf(stderr, "%s:%d: %s: %s [%s]\n", __FILE__, __LINE__, #call, \
                    error.text, error.id);                                     \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
#define require(condition)                                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

/* A penstock_fill_fn that gives zeros. */
static inline int fill_zeros(void *ctx, uint64_t step, uint32_t microbatch,
                             uint32_t input, DLTensor *dst)
{
    size_t size = dst->dtype.bits / 8;

    (void)ctx;
    (void)step;
    (void)microbatch;
    (void)input;
    for (int d = 0; d < dst->ndim; d++)
        size *= (size_t)dst->shape[d];
    memset(dst->data, 0, size);
    return 0;
}

static inline size_t count_of(const struct penstock_info *info)
{
    size_t n = 1;

    for (int d = 0; d < info->ndim; d++)
        n *= (size_t)info->shape[d];
    return n;
}

static inline size_t size_of(const struct penstock_info *info)
{
    return info->dtype.bits / 8;
}

/* A tensor in memory of its own. */
struct held {
    DLTensor tensor;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
    char *memory;
};

/* Makes a contiguous tensor of zeros. */
static inline void held_init(struct held *h, const struct penstock_info *info)
{
    memset(h, 0, sizeof(*h));
    require(info->ndim <= MAX_DIMS);
    for (int d = 0; d < info->ndim; d++)
        h->shape[d] = info->shape[d];
    h->memory = calloc(count_of(info) + 1, size_of(info));
    require(h->memory != NULL);
    h->tensor = (DLTensor){.data = h->memory,
                           .device = {.device_type = kDLCPU},
                           .ndim = info->ndim,
                           .dtype = info->dtype,
                           .shape = h->shape};
}

static inline void held_fini(struct held *h)
{
    free(h->memory);
}

/* Returns element i, in row-major order, of a tensor with strides. */
static inline char *element_of(const struct held *h,
                               const struct penstock_info *info, size_t i)
{
    char *at = h->memory + h->tensor.byte_offset;

    for (int d = info->ndim - 1; d >= 0; d--) {
        at += (int64_t)(i % (size_t)info->shape[d]) * h->strides[d] *
              (int64_t)size_of(info);
        i /= (size_t)info->shape[d];
    }
    return at;
}

/* Copies contiguous bytes into a tensor with gaps between its elements, with
 * the first dimension innermost and the last one backwards. */
static inline void held_init_strided(struct held *h,
                                     const struct penstock_info *info,
                                     const char *from)
{
    const size_t n = count_of(info), size = size_of(info);
    const int last = info->ndim - 1;
    int64_t step = 2;

    held_init(h, info);
    free(h->memory);
    h->memory = malloc((2 * n + 3) * size);
    require(h->memory != NULL);
    memset(h->memory, 0x7b, (2 * n + 3) * size);
    for (int d = 0; d < info->ndim; d++) {
        h->strides[d] = step;
        step *= info->shape[d];
    }
    h->tensor.data = h->memory;
    h->tensor.byte_offset = 3 * size;
    h->tensor.strides = h->strides;
    if (last >= 0 && info->shape[last] > 0) {
        h->tensor.byte_offset +=
            (size_t)((info->shape[last] - 1) * h->strides[last]) * size;
        h->strides[last] = -h->strides[last];
    }
    for (size_t i = 0; i < n; i++)
        memcpy(element_of(h, info, i), from + i * size, size);
}

#endif
