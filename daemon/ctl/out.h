// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_OUT_H
#define PENSTOCK_DAEMON_CTL_OUT_H
/*
 * The only way out of the client to a terminal: nothing else in daemon/ctl/
 * writes to standard output or error (tests/daemon/names.py looks). Names come
 * out of files, and may have been made to steer a terminal or to forge lines;
 * here all of them are escaped, whoever prints them. One thread.
 */
#include "daemon/common/config.h"
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <jansson.h>
#include <stdio.h>

/* The format is ours, what it takes for %s and %c is escaped (no %p %n %a). */
void pstctl_printf(FILE *out, const char *fmt, ...) PST_PRINTF(2, 3);
/* A text that began as {.visible = 1}; another one becomes a single line. */
void pstctl_print(FILE *out, const struct pst_str *text);
/* A JSON text of ours, on standard output: its strings get \u escapes. */
void pstctl_print_json(const char *text);
/* What a model generates, as it comes. Bytes stay what they are unless standard
 * output is a terminal. Zero-initialise half; n = 0 ends it. */
struct pstctl_half {
    char bytes[4];
    size_t n;
};
void pstctl_print_bytes(struct pstctl_half *half, const char *bytes, size_t n);

/* Refuses a name of a .safetensors to write that ends as files of another kind
 * do; also: ".json", which the command writes as well; NULL: nothing. */
enum pst_status pstctl_check_output(const char *path, const char *also,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Notes on standard error for options that change nothing with the others. */
void pstctl_note_unused(const struct pstd_config *config);

/* null if x is not finite: JSON has no word for it. */
json_t *pstctl_json_real(double x);
/* A string; bytes that are no UTF-8 become U+FFFD. NULL is "". */
json_t *pstctl_json_text(const char *text);
/* Prints one line on standard output; takes object. */
enum pst_status pstctl_json_print(json_t *object,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
