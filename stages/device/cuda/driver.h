// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_DRIVER_H
#define PENSTOCK_STAGES_DEVICE_CUDA_DRIVER_H
/*
 * The CUDA driver, opened at run time: the same binary runs on hosts without
 * one. Any thread; the table is constant once it has been returned.
 */
#include "stages/base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* CUipcMemHandle: gives other processes of the host access to memory of this
 * one. */
struct pst_cuda_handle {
    char bytes[64];
};

struct pst_cuda_driver {
#define X(member, symbol, arguments) int(*member) arguments;
#include "stages/device/cuda/driver.def"
#undef X
};

#define PST_CUDA_NO_MEMORY  2   /* CUDA_ERROR_OUT_OF_MEMORY */
#define PST_CUDA_HAS_ACCESS 704 /* ..._PEER_ACCESS_ALREADY_ENABLED */
#define PST_CUDA_NOT_FOUND  500 /* CUDA_ERROR_NOT_FOUND */
#define PST_CUDA_NOT_READY  600 /* CUDA_ERROR_NOT_READY */
#define PST_CUDA_ATTR_SMS   16  /* multiprocessors */
#define PST_CUDA_ATTR_MAJOR 75  /* compute capability */
#define PST_CUDA_ATTR_MINOR 76
/* CU_POINTER_ATTRIBUTE_MEMORY_TYPE and ..._DEVICE_ORDINAL. */
#define PST_CUDA_POINTER_TYPE   2
#define PST_CUDA_POINTER_DEVICE 9
#define PST_CUDA_TYPE_DEVICE    2 /* CU_MEMORYTYPE_DEVICE */
/* Bytes of shared memory that launches may give a kernel. */
#define PST_CUDA_FUNCTION_SHARED 8
/* CU_STREAM_NON_BLOCKING: the stream does not wait for the default stream. */
#define PST_CUDA_STREAM_NO_DEFAULT 1
/* CU_STREAM_CAPTURE_MODE_RELAXED: calls that are not recorded, such as queries
 * of events, stay permitted while a stream is captured. */
#define PST_CUDA_CAPTURE_RELAXED 2
/* Lowest version of the driver, as cuDriverGetVersion returns it: 12.0, unless
 * nvcc's format of compiled kernels needs a later one
 * (stages/ops/cuda/meson.build). */
#ifndef PST_CUDA_LEAST_DRIVER
#define PST_CUDA_LEAST_DRIVER 12000
#endif
/* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the memory may be another GPU's. */
#define PST_CUDA_IPC_ANY_GPU      1
#define PST_CUDA_LEAST_CAPABILITY 80 /* lowest compute capability: 8.0 */

/* Opens libcuda.so.1 (or the file $PENSTOCK_LIBCUDA) and initializes it, once
 * for the process. PST_ERR_UNSUPPORTED: there is none; diag says which files
 * were tried. */
enum pst_status pst_cuda_open(const struct pst_cuda_driver **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Returns "CUDA_ERROR_...: sentence" in text. */
void pst_cuda_explain(const struct pst_cuda_driver *driver, int error,
                      char *text, size_t size);

#endif
