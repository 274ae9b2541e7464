// SPDX-License-Identifier: Apache-2.0
#include "stages/device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "stages/base/macros.h"
#include "stages/device/cuda/driver.h"

#define VARIABLE "PENSTOCK_LIBCUBLASLT"

static struct {
    pthread_once_t once;
    struct pst_cublaslt functions;
    void *library; /* NULL: there is none */
    struct pst_diag diag;
    enum pst_status status;
    char text[600];
} lt = {.once = PTHREAD_ONCE_INIT};

static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define X(type, member, symbol, arguments)                                     \
    {#symbol, offsetof(struct pst_cublaslt, member)},
#include "stages/device/cuda/cublaslt.def"
#undef X
};

/* Versions of the library, preferred ones first, and the lowest driver version
 * that each needs. */
static const struct {
    const char *name;
    int driver;
} versions[] = {{"libcublasLt.so.13", 13000}, {"libcublasLt.so.12", 12000}};

static int driver_version(void)
{
    const struct pst_cuda_driver *driver;
    struct pst_diag ignored;
    int version = 0;

    pst_diag_init(&ignored);
    if (pst_cuda_open(&driver, &ignored) == PST_OK &&
        driver->driver_version(&version) != 0)
        version = 0;
    return version;
}

static bool open_file(const char *path)
{
    lt.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return lt.library != NULL;
}

/* Opens FOLDER/NAME; folder is a glob pattern. Of several matches, the last in
 * alphabetical order is tried first, normally the newest. */
static bool open_in(const char *folder, const char *name)
{
    char pattern[512];
    glob_t found = {0};
    bool opened = false;

    if ((size_t)snprintf(pattern, sizeof(pattern), "%s/%s", folder, name) >=
        sizeof(pattern))
        return false;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i-- > 0 && !opened;)
            opened = open_file(found.gl_pathv[i]);
    globfree(&found);
    return opened;
}

/* Opens the library in one of the folders, which are relative to `root`. root
 * NULL: the folders are absolute, and the loader also looks for the library by
 * its name. */
static bool search(const char *root, const char *const *folders, unsigned n)
{
    const int driver = driver_version();

    for (size_t v = 0; v < PST_COUNT(versions); v++) {
        if (driver < versions[v].driver)
            continue;
        if (root == NULL && open_file(versions[v].name))
            return true;
        for (unsigned i = 0; i < n; i++) {
            char folder[400];

            if ((size_t)snprintf(folder, sizeof(folder), "%s%s",
                                 root != NULL ? root : "",
                                 folders[i]) < sizeof(folder) &&
                open_in(folder, versions[v].name))
                return true;
        }
    }
    return false;
}

static enum pst_status find_functions(void)
{
    for (size_t i = 0; i < PST_COUNT(functions); i++) {
        void *found = dlsym(lt.library, functions[i].symbol);

        if (found == NULL)
            return pst_diag_set(&lt.diag, PST_E_DEVICE_NONE,
                                "the cuBLASLt that was found has no function "
                                "%s; " VARIABLE " names another file",
                                functions[i].symbol);
        memcpy((char *)&lt.functions + functions[i].offset, &found,
               sizeof(found));
    }
    return PST_OK;
}

/* Opens the library at `path`, the value of the variable: a file, the folder of
 * the library, or Python's site-packages with NVIDIA's packages. */
static enum pst_status open_given(const char *path)
{
    static const char *const folders[] = {"", "/nvidia/*/lib"};
    struct stat info;
    bool opened;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        opened = search(path, folders, PST_COUNT(folders));
    else
        opened = open_file(path);
    if (!opened) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is per thread
        const char *why = dlerror();

        return pst_diag_set(&lt.diag, PST_E_DEVICE_NONE,
                            VARIABLE "=%s: there is no libcublasLt.so.13 or "
                                     ".12 that can be opened%s%s",
                            path, why != NULL ? ": " : "",
                            why != NULL ? why : "");
    }
    return PST_OK;
}

static enum pst_status find_library(void)
{
    static const char *const folders[] = {"/usr/local/cuda/lib64",
                                          "/usr/local/cuda-1*/lib64",
                                          "/usr/lib/x86_64-linux-gnu"};
    // NOLINTBEGIN(concurrency-mt-unsafe): nobody changes the environment
    const char *given = getenv(VARIABLE);
    const bool other_driver = getenv("PENSTOCK_LIBCUDA") != NULL;
    // NOLINTEND(concurrency-mt-unsafe)

    if (given != NULL && strcmp(given, "none") != 0)
        return open_given(given);
    if (given == NULL && !other_driver)
        (void)search(NULL, folders, PST_COUNT(folders));
    if (lt.library == NULL)
        (void)snprintf(
            lt.text, sizeof(lt.text), "%s",
            given != NULL  ? "cuBLASLt is not used: " VARIABLE " is none"
            : other_driver ? "cuBLASLt is not used: PENSTOCK_LIBCUDA is set, "
                             "and " VARIABLE " is not"
                           : "there is no libcublasLt.so.13 or .12: the loader "
                             "was asked, and the folders of CUDA in /usr/local "
                             "were searched; " VARIABLE " may name the file or "
                             "Python's site-packages");
    return PST_OK;
}

static void open_once(void)
{
    Dl_info info = {0};

    pst_diag_init(&lt.diag);
    lt.status = find_library();
    if (lt.status == PST_OK && lt.library != NULL)
        lt.status = find_functions();
    if (lt.status != PST_OK) {
        lt.library = NULL;
    } else if (lt.library != NULL) {
        const size_t v = lt.functions.version();
        void *entry = dlsym(lt.library, "cublasLtMatmul");

        (void)dladdr(entry, &info);
        (void)snprintf(lt.text, sizeof(lt.text), "cuBLASLt %zu.%zu.%zu (%s)",
                       v / 10000, v / 100 % 100, v % 100,
                       info.dli_fname != NULL ? info.dli_fname : "");
    }
}

enum pst_status pst_cublaslt_open(const struct pst_cublaslt **ret,
                                  struct pst_diag *diag)
{
    if (pthread_once(&lt.once, open_once) != 0)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "cuBLASLt cannot be opened");
    if (lt.status != PST_OK)
        return pst_diag_pass(diag, &lt.diag, "%s", lt.diag.text);
    *ret = lt.library != NULL ? &lt.functions : NULL;
    return PST_OK;
}

enum pst_status pst_cublaslt_check_tf32(struct pst_diag *diag)
{
    const struct pst_cublaslt *library = NULL;
    const enum pst_status status = pst_cublaslt_open(&library, diag);

    if (status == PST_OK && library == NULL)
        return pst_diag_set(diag, PST_E_DEVICE_CUBLASLT,
                            "--tf32 needs cuBLASLt, since penstock's own "
                            "kernels multiply in f32 only, and %s",
                            lt.text);
    return status;
}

const char *pst_cublaslt_text(void)
{
    (void)pthread_once(&lt.once, open_once);
    return lt.status == PST_OK ? lt.text : lt.diag.text;
}
