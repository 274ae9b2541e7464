// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_TARGETS_TARGET_H
#define PENSTOCK_TESTS_FUZZ_TARGETS_TARGET_H
/*
 * Fuzz targets: one function for each reader of untrusted bytes. It takes any
 * bytes; a crash, a sanitizer report or abort() is a finding. Input that is
 * accepted must be the same after it was printed and read back. Input that is
 * refused must give one sentence for the user. One thread.
 */
#include "stages/graph/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/targets/change.h"

/* Each target has a function of change.h, and the largest input that is worth
 * its time. */
#define FUZZ_TARGET_LIST(X)                                                    \
    /* the container of a .pt2 */                                              \
    X(zip, bytes, 16384)                                                       \
    /* a whole .pt2 with corrected checksums: all of import */                 \
    X(model, zip, 16384)                                                       \
    /* the program's JSON */                                                   \
    X(document, json, 16384)                                                   \
    /* the JSON table of what a .pt2 stores */                                 \
    X(payloads, json, 8192)                                                    \
    /* a whole .safetensors file */                                            \
    X(safetensors, bytes, 8192)                                                \
    /* shards of weights with the index of a model hub */                      \
    X(index, json, 4096)                                                       \
    /* a file of tokens, and its index */                                      \
    X(tokens, bytes, 4096)                                                     \
    /* plan.pb with a corrected digest */                                      \
    X(plan, wire, 8192)                                                        \
    /* manifest.json of a checkpoint with a corrected digest */                \
    X(manifest, json, 8192)                                                    \
    /* frames of the control socket */                                         \
    X(frame, bytes, 8192)                                                      \
    /* tensors for a served model */                                           \
    X(request, wire, 8192)                                                     \
    /* a schedule as text */                                                   \
    X(csv, text, 4096)                                                         \
    /* measured costs as JSON */                                               \
    X(costs, json, 4096)                                                       \
    /* a program on operands that share memory, as JSON */                     \
    X(program, json, 4096)                                                     \
    /* words of a command line, one per line */                                \
    X(options, options, 1024)                                                  \
    /* symbolic expressions */                                                 \
    X(expr, bytes, 1024)                                                       \
    /* a graph as text */                                                      \
    X(graph, text, 8192)                                                       \
    /* a line of a log */                                                      \
    X(line, bytes, 1024)                                                       \
    /* a flight record, and the rank that it blames */                         \
    X(flight, flight, 1024)

#define FUZZ_TARGET_ROW(name, change, most)                                    \
    bool fuzz_##name(const uint8_t *data, size_t size);
FUZZ_TARGET_LIST(FUZZ_TARGET_ROW)
#undef FUZZ_TARGET_ROW

struct fuzz_target {
    const char *name;
    /* True if the bytes were accepted. */
    bool (*run)(const uint8_t *data, size_t size);
    fuzz_change_fn change;
    size_t most; /* bytes of an input */
};

/* Terminated by a row of NULL. */
extern const struct fuzz_target fuzz_targets[];
/* Returns the target of that name; NULL: there is none. */
const struct fuzz_target *fuzz_find(const char *name);

/* Returns the path of a file in memory with these bytes; valid until the next
 * call. */
const char *fuzz_file(const void *data, size_t size);
/* Returns a folder of this process, which becomes its working folder; made by
 * the first call. */
const char *fuzz_folder(void);
/* Writes a file in that folder. */
void fuzz_put(const char *name, const void *data, size_t size);
/* Returns memory for at least one byte; free with free(). */
void *fuzz_alloc(size_t size);
/* Returns a copy with a NUL at its end; free with free(). */
char *fuzz_text(const uint8_t *data, size_t size);

/* Aborts (a finding) if a bool has a byte other than 0 and 1. */
void fuzz_check_values(enum pst_dtype dtype, const void *data, size_t bytes);
/* Aborts, which is a finding, unless the claim holds. */
void fuzz_check(bool claim, const char *what);
/* Checks a refusal: not an internal error, and a message of one line. Returns
 * false. */
bool fuzz_refused(enum pst_status status, const struct pst_diag *diag);

#endif
