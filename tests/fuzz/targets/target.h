// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_TARGETS_TARGET_H
#define PENSTOCK_TESTS_FUZZ_TARGETS_TARGET_H
/*
 * Fuzz targets: a function for each reader of untrusted bytes. It takes any
 * bytes; a crash, a sanitizer's report or abort() is a finding. What is
 * accepted has to print and read back to the same; what is refused has to have
 * one sentence for a user. One thread.
 */
#include "stages/graph/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_TARGET_LIST(X)                                                    \
    X(zip)         /* the container of a .pt2 */                               \
    X(model)       /* a whole .pt2, checksums made right: all of import */     \
    X(document)    /* the program's JSON */                                    \
    X(payloads)    /* the JSON table of what a .pt2 stores */                  \
    X(safetensors) /* header and data */                                       \
    X(index)       /* shards of weights by a model hub's index */              \
    X(plan)        /* plan.pb, digest made right */                            \
    X(manifest)    /* manifest.json of a checkpoint, digest made right */      \
    X(frame)       /* frames of the control socket */                          \
    X(request)     /* tensors for a served model */                            \
    X(csv)         /* a schedule as text */                                    \
    X(costs)       /* measured costs as JSON */                                \
    X(options)     /* words of a command line, a line each */                  \
    X(expr)        /* symbolic expressions */                                  \
    X(graph)       /* a graph as text */                                       \
    X(line)        /* a line of a log */                                       \
    X(flight)      /* a flight record, and whom it blames */

#define FUZZ_TARGET_ROW(name)                                                  \
    bool fuzz_##name(const uint8_t *data, size_t size);
FUZZ_TARGET_LIST(FUZZ_TARGET_ROW)
#undef FUZZ_TARGET_ROW

struct fuzz_target {
    const char *name;
    /* True if the bytes were accepted. */
    bool (*run)(const uint8_t *data, size_t size);
};

/* Ends with a row of NULL. */
extern const struct fuzz_target fuzz_targets[];
/* NULL if there is none of that name. */
const struct fuzz_target *fuzz_find(const char *name);

/* Path of a file in memory with these bytes; until the next call. */
const char *fuzz_file(const void *data, size_t size);
/* A folder of this process, which it works in; made by the first call. */
const char *fuzz_folder(void);
/* Writes a file of that folder. */
void fuzz_put(const char *name, const void *data, size_t size);
/* A copy with NUL behind it; by free(). */
char *fuzz_text(const uint8_t *data, size_t size);

/* A finding unless bytes of a bool are 0 or 1, as values are. */
void fuzz_check_values(enum pst_dtype dtype, const void *data, size_t bytes);
/* Aborts unless the claim holds: a finding. */
void fuzz_check(bool claim, const char *what);
/* Of what was refused: never our own fault, one line that says something.
 * Returns false. */
bool fuzz_refused(enum pst_status status, const struct pst_diag *diag);

#endif
