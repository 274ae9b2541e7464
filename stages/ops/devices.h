// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_DEVICES_H
#define PENSTOCK_STAGES_OPS_DEVICES_H
/* All devices of this build, and which of them a rank uses. */
#include "stages/device/device.h"

/* Finds the kind of device that `list` (see pst_device_find) names for a rank,
 * whether or not the host has such a device. PST_ERR_USAGE: there is no such
 * name. */
enum pst_status pst_device_named(const char *list, unsigned rank,
                                 const struct pst_device **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Finds the device of a rank in the value of --device: a list of names, "cpu",
 * "cuda" or "cuda:N", separated by commas, one for each rank; the last one is
 * for all further ranks. N is the number of the GPU as the driver counts them
 * for this process. A rank with plain "cuda" gets GPU `local` modulo the number
 * of GPUs, where `local` is the number of the rank on its host.
 *
 * PST_ERR_USAGE: there is no such name. PST_ERR_UNSUPPORTED: the host has no
 * such device; diag names it.
 */
enum pst_status pst_device_find(const char *list, unsigned rank, unsigned local,
                                const struct pst_device **ret,
                                unsigned *ret_ordinal,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Refuses --tf32 (PST_ERR_USAGE) if the rank's kind of device never multiplies
 * in TF32. Whether the device on this host can is checked by its check_tf32. */
enum pst_status pst_device_refuse_tf32(const struct pst_device *device,
                                       unsigned rank,
                                       struct pst_diag *diag) PST_MUST_CHECK;

#endif
