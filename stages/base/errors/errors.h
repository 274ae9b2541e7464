// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_ERRORS_ERRORS_H
#define PENSTOCK_STAGES_BASE_ERRORS_ERRORS_H
/*
 * The error catalogue. A row stands for one kind of failure that a user can fix
 * in one way: PST_ERROR(NAME, "area.slug", STATUS, cause, remedy). Several
 * places may report the same row; their sentences say what was found, and
 * where. The id is an interface: it is printed, logged and sent to clients, and
 * never changes its meaning. docs/errors.md is generated from these rows.
 */
#include "stages/base/status.h"

#include <stddef.h>

enum pst_error {
    PST_E_NONE, /* no error, or an error from a program that sends no id */
#define PST_ERROR(name, id, status, cause, remedy) PST_E_##name,
#include "stages/base/errors/all.def"
#undef PST_ERROR
    PST_N_ERRORS
};

/* Returns the id ("file.missing"); "" for PST_E_NONE and for unknown
 * numbers. */
const char *pst_error_id(enum pst_error error);
/* Returns the tag that ends a line for people, " [file.missing]"; "" for
 * PST_E_NONE and for unknown numbers. */
const char *pst_error_tag(enum pst_error error);
/* Returns the row's status; PST_OK for PST_E_NONE, PST_ERR_INTERNAL for unknown
 * numbers. */
enum pst_status pst_error_status(enum pst_error error);
/* Return one sentence each: what the error means, and what to do next. */
const char *pst_error_cause(enum pst_error error);
const char *pst_error_remedy(enum pst_error error);

/* Returns the error with this id; PST_E_NONE if no row has it, or if id is
 * NULL. */
enum pst_error pst_error_find(const char *id);

/* Returns the error whose tag ends the line; *ret_len is the length of the text
 * before the tag. */
enum pst_error pst_error_of_line(const char *line, size_t *ret_len);

/* Returns the error for an errno value. */
enum pst_error pst_error_of_errno(int err);

#endif
