// SPDX-License-Identifier: Apache-2.0
/* Checks the GPUs for ranks with --device cuda. */
#include "daemon/ctl/doctor/check.h"

#include <unistd.h>

#include "stages/base/str.h"
#include "stages/device/cuda/cublaslt.h"
#include "stages/device/cuda/driver.h"
#include "stages/ops/cuda/cuda.h"

#define GIB 1073741824.0

static bool has_node(const struct pstctl_doctor *d)
{
    struct pst_str path = {0};
    bool found;

    pst_str_addf(&path, "%s/dev/nvidiactl", d->root);
    found = !path.failed && access(path.text, F_OK) == 0;
    pst_str_fini(&path);
    return found;
}

/* Adds a finding about the library for matmuls (cuBLASLt). */
static void check_library(struct pstctl_doctor *d)
{
    const struct pst_cublaslt *library = NULL;
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_cublaslt_open(&library, &diag) == PST_OK && library != NULL)
        pstctl_add_finding(d, PSTCTL_NOTE,
                           "PENSTOCK_LIBCUBLASLT=none leaves it out",
                           "matmuls on GPUs use %s", pst_cublaslt_text());
    else
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "install NVIDIA's package nvidia-cublas, or set "
            "PENSTOCK_LIBCUBLASLT; without the library matmuls take longer",
            "%s", pst_cublaslt_text());
}

/* Adds a finding about copies between GPUs, if there are several. */
static void check_peers(struct pstctl_doctor *d, unsigned number)
{
    const struct pst_cuda_driver *driver;
    struct pst_diag diag;
    unsigned pairs = 0, direct = 0;

    pst_diag_init(&diag);
    if (number < 2 || pst_cuda_open(&driver, &diag) != PST_OK)
        return;
    for (unsigned i = 0; i < number * number; i++) {
        int a, b, can = 0;

        if (i / number == i % number ||
            driver->device_get(&a, (int)(i / number)) != 0 ||
            driver->device_get(&b, (int)(i % number)) != 0)
            continue;
        pairs++;
        direct += driver->can_access(&can, a, b) == 0 && can != 0;
    }
    pstctl_add_finding(d, PSTCTL_NOTE,
                       "ranks of one process, or of several by CUDA IPC, send "
                       "nothing through the host then",
                       "of %u pairs of GPUs, one reads the other's memory in "
                       "%u",
                       pairs, direct);
}

/* Adds a finding for each GPU; none on a host without GPUs. */
void pstctl_check_gpus(struct pstctl_doctor *d)
{
    struct pst_device_info info = {.number = 1};
    struct pst_diag diag;

    for (unsigned i = 0; i < info.number; i++) {
        pst_diag_init(&diag);
        if (pst_device_cuda.probe(i, &info, &diag) == PST_OK) {
            pstctl_add_finding(
                d, PSTCTL_NOTE, "ranks use it with --device cuda",
                "GPU %u: %s, %.1f of %.1f GiB free", i, info.name,
                (double)info.free / GIB, (double)info.size / GIB);
            if (i + 1 >= info.number) {
                check_peers(d, info.number);
                check_library(d);
            }
            continue;
        }
        if (has_node(d) || i > 0)
            pstctl_add_finding(
                d, PSTCTL_WARNING,
                "install or update NVIDIA's driver; nvidia-smi tells "
                "what it sees",
                "GPU %u cannot be used: %s", i, diag.text);
        return;
    }
}
