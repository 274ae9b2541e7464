// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_DEVICES_H
#define PENSTOCK_STAGES_OPS_DEVICES_H
/* All devices of this build, and which of them a rank uses. */
#include "stages/device/device.h"

/* Finds the kind of device that the list (see below) names for a rank, whether
 * or not the host has one. PST_ERR_USAGE: there is no such name. */
enum pst_status pst_device_named(const char *list, unsigned rank,
                                 const struct pst_device **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Finds the device of a rank in the value of --device: a list of names, "cpu",
 * "cuda" or "cuda:N", separated by commas, one for each rank; the last one is
 * for all further ranks. N is the number of the GPU as the driver counts them
 * for this process. Without it the GPU's number is `local`, the number of the
 * rank on its host, modulo the number of GPUs.
 *
 * PST_ERR_USAGE: there is no such name. PST_ERR_UNSUPPORTED: the device is not
 * there; diag says what was looked for.
 */
enum pst_status pst_device_find(const char *list, unsigned rank, unsigned local,
                                const struct pst_device **ret,
                                unsigned *ret_ordinal,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Refuses --tf32 (PST_ERR_USAGE) if a rank has a kind of device that never
 * multiplies in TF32; the device's check_tf32 says if this host can. */
enum pst_status pst_device_refuse_tf32(const struct pst_device *device,
                                       unsigned rank,
                                       struct pst_diag *diag) PST_MUST_CHECK;

#endif
