// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_HOST_H
#define PENSTOCK_STAGES_DEVICE_HOST_H
/* Device functions for devices whose memory is the host's. */
#include "stages/device/device.h"

/* Allocates memory, in huge pages if it is large. */
enum pst_status pst_host_open(unsigned ordinal, size_t size,
                              struct pst_device_memory *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Each thread of the pool touches a part of the pages: the kernel clears pages
 * at the speed of one core, on the NUMA node of the thread that touches them.
 */
void pst_host_touch(struct pst_device_memory *mem, struct pst_pool *pool);
void pst_host_close(struct pst_device_memory *mem);
/* There is one queue, which is synchronous: work is done when the call returns.
 */
void pst_host_copy(struct pst_device_memory *mem, enum pst_queue queue,
                   void *to, const void *from, size_t size);
void pst_host_zero(struct pst_device_memory *mem, void *to, size_t size);
void pst_host_record(struct pst_device_memory *mem, enum pst_queue queue,
                     struct pst_event *event);
void pst_host_wait(struct pst_device_memory *mem, enum pst_queue queue,
                   const struct pst_event *event);
enum pst_status pst_host_poll(struct pst_device_memory *mem,
                              const struct pst_event *event);
double pst_host_time(struct pst_device_memory *mem,
                     const struct pst_event *event);

/* Reserves addresses; physical memory is allocated only when they are used.
 * Returns NULL on failure. */
void *pst_host_reserve(size_t size);
void pst_host_release(void *at, size_t size);
/* Writes to diag why an allocation of `size` bytes failed; err is an errno. */
enum pst_status pst_host_refused(size_t size, int err, struct pst_diag *diag);

#endif
