// SPDX-License-Identifier: Apache-2.0
#include "stages/device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/macros.h"

static struct {
    pthread_once_t once;
    struct pst_cuda_driver driver;
    struct pst_diag diag;
    enum pst_status status;
} cuda = {.once = PTHREAD_ONCE_INIT};

static const struct {
    const char *symbol;
    size_t offset;
    bool optional;
} functions[] = {
#define X(member, symbol, arguments)                                           \
    {#symbol, offsetof(struct pst_cuda_driver, member), false},
#define OPTIONAL(member, symbol, arguments)                                    \
    {#symbol, offsetof(struct pst_cuda_driver, member), true},
#include "stages/device/cuda/driver.def"
#undef X
};

void pst_cuda_explain(const struct pst_cuda_driver *driver, int error,
                      char *text, size_t size)
{
    const char *name = NULL, *words = NULL;

    (void)driver->error_name(error, &name);
    (void)driver->error_text(error, &words);
    if (name == NULL)
        (void)snprintf(text, size, "CUDA error %d", error);
    else
        (void)snprintf(text, size, "%s: %s", name, words != NULL ? words : "");
}

static enum pst_status find_functions(void *library, const char *path)
{
    for (size_t i = 0; i < PST_COUNT(functions); i++) {
        void *found = dlsym(library, functions[i].symbol);

        if (found == NULL && !functions[i].optional)
            return pst_diag_set(&cuda.diag, PST_E_DEVICE_NONE,
                                "%s has no function %s: the driver is older "
                                "than CUDA 12.0",
                                path, functions[i].symbol);
        memcpy((char *)&cuda.driver + functions[i].offset, &found,
               sizeof(found));
    }
    return PST_OK;
}

static enum pst_status start_driver(void)
{
    char text[256];
    int version = 0;
    const int error = cuda.driver.init(0);

    if (error != 0) {
        pst_cuda_explain(&cuda.driver, error, text, sizeof(text));
        return pst_diag_set(&cuda.diag, PST_E_DEVICE_NONE,
                            "the CUDA driver cannot be used: %s", text);
    }
    if (cuda.driver.driver_version(&version) != 0 ||
        version < PST_CUDA_LEAST_DRIVER)
        return pst_diag_set(&cuda.diag, PST_E_DEVICE_NONE,
                            "the CUDA driver supports CUDA %d.%d, and %d.%d "
                            "is needed",
                            version / 1000, version % 1000 / 10,
                            PST_CUDA_LEAST_DRIVER / 1000,
                            PST_CUDA_LEAST_DRIVER % 1000 / 10);
    return PST_OK;
}

static void open_once(void)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    const char *given = getenv("PENSTOCK_LIBCUDA");
    const char *path = given != NULL ? given : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    pst_diag_init(&cuda.diag);
    if (library == NULL) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is per thread
        const char *why = dlerror();

        cuda.status = pst_diag_set(&cuda.diag, PST_E_DEVICE_NONE,
                                   "there is no CUDA driver here: %s",
                                   why != NULL ? why : path);
        return;
    }
    cuda.status = find_functions(library, path);
    if (cuda.status == PST_OK)
        cuda.status = start_driver();
}

enum pst_status pst_cuda_open(const struct pst_cuda_driver **ret,
                              struct pst_diag *diag)
{
    if (pthread_once(&cuda.once, open_once) != 0)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "the CUDA driver cannot be opened");
    if (cuda.status != PST_OK)
        return pst_diag_pass(diag, &cuda.diag, "%s", cuda.diag.text);
    *ret = &cuda.driver;
    return PST_OK;
}
