// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_SERVE_TENSORS_H
#define PENSTOCK_DAEMON_CTL_SERVE_TENSORS_H
/* Tensors of requests to a served model and of its answers, and their files.
 * One thread. */
#include "daemon/common/control/frame.h"
#include "stages/base/vec.h"
#include "stages/graph/tensor.h"

struct pstctl_tensor {
    char *name; /* name and data are owned */
    struct pst_meta meta;
    unsigned char *data; /* contiguous */
};

struct pstctl_tensors {
    struct PST_VEC(struct pstctl_tensor) all;
};

typedef Pst__Control__Signature pstctl_signature;

void pstctl_tensors_fini(struct pstctl_tensors *t);
/* Adds a named tensor with uninitialised data. */
enum pst_status pstctl_tensors_add(struct pstctl_tensors *t, const char *name,
                                   const struct pst_meta *meta,
                                   struct pstctl_tensor **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Reads FILE.safetensors, .json or .csv. Tensors of .json and .csv get the
 * dtypes of the signature. */
enum pst_status pstctl_tensors_read(const char *path, const pstctl_signature *s,
                                    struct pstctl_tensors *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Writes JSON to FILE.json, and safetensors to a file with another name; NULL:
 * prints JSON on standard output. */
enum pst_status pstctl_tensors_write(const char *path,
                                     const struct pstctl_tensors *t,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Readers and writers of text formats (text.c). */
enum pst_status pstctl_tensors_read_json(const char *path,
                                         const pstctl_signature *s,
                                         struct pstctl_tensors *ret,
                                         struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_tensors_read_csv(const char *path,
                                        const pstctl_signature *s,
                                        struct pstctl_tensors *ret,
                                        struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstctl_tensors_write_json(const char *path,
                                          const struct pstctl_tensors *t,
                                          struct pst_diag *diag) PST_MUST_CHECK;

#endif
