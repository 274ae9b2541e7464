// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_DIAG_H
#define PENSTOCK_STAGES_BASE_DIAG_H
/*
 * Diagnostics for users: the first detector of a failure writes one sentence
 * that names cause and place, and its row of the error catalogue; callers pass
 * it on, perhaps with a prefix. Every function here accepts diag == NULL.
 */
#include "stages/base/errors/errors.h"

#define PST_DIAG_TEXT 4096

struct pst_diag {
    enum pst_status status;
    enum pst_error error;     /* row of the error catalogue */
    char text[PST_DIAG_TEXT]; /* control characters are escaped on write */
};

void pst_diag_init(struct pst_diag *diag);

/* Overwrites *diag; returns the row's status, for "return
 * pst_diag_set(...)". */
enum pst_status pst_diag_set(struct pst_diag *diag, enum pst_error error,
                             const char *fmt, ...) PST_PRINTF(3, 4);

/* Passes on the failure of another function, perhaps reworded: status and row
 * stay those of `first`, which may be diag itself. */
enum pst_status pst_diag_pass(struct pst_diag *diag,
                              const struct pst_diag *first, const char *fmt,
                              ...) PST_PRINTF(3, 4);

/* Reports a failure found by another process, or by a function without a diag.
 * Returns `status`; the row may be PST_E_NONE. */
enum pst_status pst_diag_carry(struct pst_diag *diag, enum pst_error error,
                               enum pst_status status, const char *fmt, ...)
    PST_PRINTF(4, 5);

/* Puts "prefix: " before the text. */
void pst_diag_prefix(struct pst_diag *diag, const char *fmt, ...)
    PST_PRINTF(2, 3);

/* Writes "TEXT: strerror(err)", with the row for that errno
 * (pst_error_of_errno). */
enum pst_status pst_diag_errno(struct pst_diag *diag, int err, const char *fmt,
                               ...) PST_PRINTF(3, 4);

/* Writes "out of memory (N bytes)". */
enum pst_status pst_diag_nomem(struct pst_diag *diag, size_t bytes);

/* Macros for the analyzer: it sees one file at a time, so it cannot know that
 * these functions return an error. */
#if defined(__clang_analyzer__) && !defined(PST_DIAG_BODIES)
void pst_diag_say(struct pst_diag *diag, ...);
#define pst_diag_set(diag, error, ...)                                         \
    (pst_diag_say(diag, error, __VA_ARGS__), PST_ERR_INTERNAL)
#define pst_diag_pass(diag, first, ...)                                        \
    (pst_diag_say(diag, first, __VA_ARGS__), PST_ERR_INTERNAL)
#define pst_diag_carry(diag, error, status, ...)                               \
    (pst_diag_say(diag, error, __VA_ARGS__), (status))
#define pst_diag_errno(diag, ...) (pst_diag_say(diag, __VA_ARGS__), PST_ERR_IO)
#define pst_diag_nomem(diag, ...)                                              \
    (pst_diag_say(diag, __VA_ARGS__), PST_ERR_NOMEM)
#endif

#endif
