// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_ERRORS_ERRORS_H
#define PENSTOCK_STAGES_BASE_ERRORS_ERRORS_H
/*
 * The catalogue of errors. A row is what a user can do something about in one
 * way: PST_ERROR(NAME, "area.slug", STATUS, cause, remedy). Several places may
 * report the same row; their sentences say what was found, and where. The id is
 * an interface: it is printed, logged and sent to clients, and never changes
 * its meaning. docs/errors.md is made of these rows.
 */
#include "stages/base/status.h"

#include <stddef.h>

enum pst_error {
    PST_E_NONE, /* no error, or one of a program that sends no id */
#define PST_ERROR(name, id, status, cause, remedy) PST_E_##name,
#include "stages/base/errors/all.def"
#undef PST_ERROR
    PST_N_ERRORS
};

/* "file.missing"; "" of PST_E_NONE and of numbers that are no error. */
const char *pst_error_id(enum pst_error error);
/* " [file.missing]": how a line for people ends; "" likewise. */
const char *pst_error_tag(enum pst_error error);
/* PST_OK of PST_E_NONE, PST_ERR_INTERNAL of numbers that are no row. */
enum pst_status pst_error_status(enum pst_error error);
/* A sentence each: what it means, and what to do next. */
const char *pst_error_cause(enum pst_error error);
const char *pst_error_remedy(enum pst_error error);

/* PST_E_NONE: nothing has this id, or it is NULL. */
enum pst_error pst_error_find(const char *id);

/* Of a line that ends with a tag; *ret_len: of the text in front of it. */
enum pst_error pst_error_of_line(const char *line, size_t *ret_len);

/* Of a number of errno. */
enum pst_error pst_error_of_errno(int err);

#endif
