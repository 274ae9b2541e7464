// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_LIB_GPU_DRIVER_H
#define PENSTOCK_TESTS_LIB_GPU_DRIVER_H
/* Memory of GPUs, from the driver $PENSTOCK_LIBCUDA or libcuda.so.1, for
 * programs that use the library; copies are enqueued in the default stream, and
 * not waited for. */
#include "tests/lib/drive.h"

#include <dlfcn.h>

/* Returns a function of the driver, or a variable of that of tests; NULL: it
 * has none of that name. */
static inline void *driver_look(const char *symbol)
{
    const char *path = getenv("PENSTOCK_LIBCUDA");
    static void *library;

    if (library == NULL)
        library =
            dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    require(library != NULL);
    return dlsym(library, symbol);
}

static inline void *driver_find(const char *symbol)
{
    void *found = driver_look(symbol);

    require(found != NULL);
    return found;
}

/* True on the driver of tests, whose blocks of memory are known, and end where
 * no other memory begins. */
static inline bool driver_is_of_tests(void)
{
    return driver_look("driver_graph_launches") != NULL;
}

/* Calls a function of the driver by its type and name. */
#define driver_call(name, types, ...)                                          \
    do {                                                                       \
        int(*const fn) types = (int(*) types)driver_find(#name);               \
                                                                               \
        require(fn(__VA_ARGS__) == 0);                                         \
    } while (0)

static inline int gpu_count(void)
{
    int n;

    driver_call(cuDeviceGetCount, (int *), &n);
    return n;
}

/* Makes the GPU's context current in this thread. */
static inline void gpu_enter(int gpu)
{
    void *context;

    driver_call(cuDevicePrimaryCtxRetain, (void **, int), &context, gpu);
    driver_call(cuCtxSetCurrent, (void *), context);
}

static inline void *gpu_alloc(int gpu, size_t size)
{
    uint64_t at;

    gpu_enter(gpu);
    driver_call(cuMemAlloc_v2, (uint64_t *, size_t), &at, size);
    return (void *)(uintptr_t)at; // NOLINT
}

static inline void gpu_free(int gpu, void *at)
{
    gpu_enter(gpu);
    driver_call(cuStreamSynchronize, (void *), NULL);
    driver_call(cuMemFree_v2, (uint64_t), (uintptr_t)at);
}

/* Enqueues a copy from the host, which must stay as it is until gpu_get. */
static inline void gpu_put(int gpu, void *to, const void *from, size_t size)
{
    gpu_enter(gpu);
    driver_call(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *),
                (uintptr_t)to, from, size, NULL);
}

/* Copies to the host, and waits. */
static inline void gpu_get(int gpu, void *to, const void *from, size_t size)
{
    gpu_enter(gpu);
    driver_call(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), to,
                (uintptr_t)from, size, NULL);
    driver_call(cuStreamSynchronize, (void *), NULL);
}

static inline size_t gpu_bytes_free(int gpu)
{
    size_t unused, total;

    gpu_enter(gpu);
    driver_call(cuMemGetInfo_v2, (size_t *, size_t *), &unused, &total);
    return unused;
}

#endif
