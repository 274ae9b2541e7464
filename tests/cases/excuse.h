// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CASES_EXCUSE_H
#define PENSTOCK_TESTS_CASES_EXCUSE_H
/*
 * Tensors of cases that may differ from PyTorch's: one per line of a text file,
 *
 *     CASE TENSOR reason for the difference
 *
 * with the names of the case's file ("out.0", "grad.x", "after.x"), or
 * "refused" for a program that is not imported. One thread.
 */
#include <stdbool.h>
#include <stddef.h>

struct excuses;

/* Returns owned; NULL, with a message on standard error, if the file cannot be
 * read or a line has no reason. Release with excuses_free, which takes NULL. */
struct excuses *excuses_read(const char *path);
void excuses_free(struct excuses *e);

/* True if the wrong tensor is excused. NULL excuses nothing. */
bool excuses_use(struct excuses *e, const char *name, const char *tensor);

/* Prints the excuses that were not needed and returns their number. */
unsigned excuses_print_stale(const struct excuses *e);

#endif
