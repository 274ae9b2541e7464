// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/ops/cpu/shadow.h"
#include "stages/ops/cuda/cuda.h"

static const struct pst_device *const devices[] = {
    &pst_device_cpu,
    &pst_device_cuda,
#if PST_HAVE_SHADOW
    &pst_device_shadow,
#endif
};

static const struct pst_device *find_device(const char *name, size_t len)
{
    for (size_t i = 0; i < PST_COUNT(devices); i++)
        if (strlen(devices[i]->name) == len &&
            strncmp(devices[i]->name, name, len) == 0)
            return devices[i];
    return NULL;
}

/* Returns entry `rank` of the list; the last one also serves all later
 * ranks. */
static const char *entry_of(const char *list, unsigned rank, size_t *ret_len)
{
    for (;; list += *ret_len + 1) {
        *ret_len = strcspn(list, ",");
        if (rank-- == 0 || list[*ret_len] == '\0')
            return list;
    }
}

/* Sets *ret to the device's number: that of the entry ("cuda:1"), else `local`
 * modulo the number of devices. */
static enum pst_status number_of(const struct pst_device *device,
                                 const char *entry, size_t len, unsigned local,
                                 unsigned *ret, struct pst_diag *diag)
{
    struct pst_device_info info;
    const size_t name = strlen(device->name);
    char *end = NULL;
    enum pst_status status;

    *ret = 0;
    if (len > name) {
        *ret = (unsigned)strtoul(entry + name + 1, &end, 10);
        if (end == entry + name + 1 || end != entry + len)
            return pst_diag_set(diag, PST_E_DEVICE_NAME,
                                "--device %.*s: after \":\" there must be the "
                                "number of a device",
                                (int)len, entry);
    }
    if (device->probe == NULL)
        return PST_OK;
    status = device->probe(*ret, &info, diag);
    if (status == PST_OK && len == name)
        *ret = local % PST_MAX(info.number, 1);
    return status;
}

enum pst_status pst_device_named(const char *list, unsigned rank,
                                 const struct pst_device **ret,
                                 struct pst_diag *diag)
{
    size_t len;
    const char *entry = entry_of(list, rank, &len);

    *ret = find_device(entry, strcspn(entry, ":,"));
    if (*ret == NULL)
        return pst_diag_set(diag, PST_E_DEVICE_NAME,
                            "--device %.*s: there are cpu, cuda and cuda:N",
                            (int)len, entry);
    return PST_OK;
}

enum pst_status pst_device_find(const char *list, unsigned rank, unsigned local,
                                const struct pst_device **ret,
                                unsigned *ret_ordinal, struct pst_diag *diag)
{
    size_t len;
    const char *entry = entry_of(list, rank, &len);
    enum pst_status status = pst_device_named(list, rank, ret, diag);

    return status == PST_OK
               ? number_of(*ret, entry, len, local, ret_ordinal, diag)
               : status;
}

enum pst_status pst_device_refuse_tf32(const struct pst_device *device,
                                       unsigned rank, struct pst_diag *diag)
{
    return device->check_tf32 != NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_DEVICE_TF32,
                              "rank %u: the device %s does not multiply in "
                              "TF32: --tf32 is for ranks on GPUs (--device "
                              "cuda)",
                              rank, device->name);
}

const struct pst_device *pst_device_default(void)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
    const char *name = getenv("PENSTOCK_DEVICE");
    const struct pst_device *found =
        name != NULL ? find_device(name, strcspn(name, ":,")) : NULL;

    return found != NULL ? found : &pst_device_cpu;
}
