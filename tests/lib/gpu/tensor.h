// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_LIB_GPU_TENSOR_H
#define PENSTOCK_TESTS_LIB_GPU_TENSOR_H
/* Tensors on the CPU and on GPUs for tests of the library. */
#include "tests/lib/gpu/driver.h"

enum layout {
    HOST,    /* on the CPU */
    DENSE,   /* on the GPU, without gaps */
    STRIDED, /* on the GPU, with gaps, an offset and a negative stride */
    SHIFTED, /* on the GPU, without gaps, aligned to an element only */
    N_LAYOUTS
};

/* A tensor in one of the layouts, and the host's memory for it. */
struct gpu_tensor {
    struct held held;
    void *at;     /* on the GPU; NULL: the tensor is `held` */
    size_t bytes; /* size of each of both memories */
    int gpu;
};

/* Makes a tensor with the content of `from`, contiguous; enqueues the copy. */
static inline void tensor_init(struct gpu_tensor *t, enum layout layout,
                               int gpu, const struct penstock_info *info,
                               const char *from)
{
    const size_t n = count_of(info), size = size_of(info);

    memset(t, 0, sizeof(*t));
    if (layout == STRIDED && n > 0) {
        held_init_strided(&t->held, info, from);
        t->bytes = (2 * n + 3) * size;
    } else {
        held_init(&t->held, info);
        memcpy(t->held.memory, from, n * size);
        t->bytes = n * size;
    }
    if (layout == HOST)
        return;
    t->gpu = gpu;
    t->at = gpu_alloc(gpu, t->bytes + size + 1);
    if (layout == SHIFTED)
        t->held.tensor.byte_offset = size;
    gpu_put(gpu, (char *)t->at + (layout == SHIFTED ? size : 0), t->held.memory,
            t->bytes);
    t->held.tensor.data = t->at;
    t->held.tensor.device = (DLDevice){kDLCUDA, gpu};
}

/* Appends the elements, in row-major order, to *to. */
static inline void tensor_take(struct gpu_tensor *t,
                               const struct penstock_info *info, char **to)
{
    const size_t n = count_of(info), size = size_of(info);
    const bool strided = t->held.tensor.strides != NULL;
    char *at = (char *)t->at + (strided ? 0 : t->held.tensor.byte_offset);

    if (t->at != NULL)
        gpu_get(t->gpu, t->held.memory, at, t->bytes);
    for (size_t i = 0; i < n; i++, *to += size)
        memcpy(*to,
               strided ? element_of(&t->held, info, i)
                       : t->held.memory + i * size,
               size);
}

static inline void tensor_fini(struct gpu_tensor *t)
{
    if (t->at != NULL)
        gpu_free(t->gpu, t->at);
    held_fini(&t->held);
}

/* Sets element k: small numbers, which all dtypes have. */
static inline void set_element(char *values, const struct penstock_info *info,
                               size_t k, unsigned seed)
{
    const unsigned x = seed % 8;
    const float small = (float)x / 8;
    uint32_t bits;

    memcpy(&bits, &small, sizeof(bits));
    if (info->dtype.code == kDLBfloat)
        ((uint16_t *)(void *)values)[k] = (uint16_t)(bits >> 16);
    else if (info->dtype.code == kDLFloat && info->dtype.bits == 64)
        ((double *)(void *)values)[k] = small;
    else if (info->dtype.code == kDLFloat)
        ((float *)(void *)values)[k] = small;
    else if (info->dtype.bits == 64)
        ((int64_t *)(void *)values)[k] = x;
    else
        values[k] = x % 3 == 0;
}

#endif
