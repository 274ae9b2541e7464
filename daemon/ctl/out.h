// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_OUT_H
#define PENSTOCK_DAEMON_CTL_OUT_H
/*
 * The only output functions of the client: nothing else in daemon/ctl/ writes
 * to standard output or error (tests/daemon/escaped_names.py checks). Names
 * come from files and may be made to control a terminal or to forge lines; all
 * of them are escaped here. One thread.
 */
#include "daemon/common/config.h"
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <jansson.h>
#include <stdio.h>

/* Prints with a trusted format; arguments of %s and %c are escaped (no %p %n
 * %a). */
void pstctl_printf(FILE *out, const char *fmt, ...) PST_PRINTF(2, 3);
/* Prints a text that was built with {.visible = 1}, which escapes names. If the
 * text was built without it, newlines are escaped, too. */
void pstctl_print(FILE *out, const struct pst_str *text);
/* Flushes the output. */
void pstctl_flush(FILE *out);
/* Prints JSON text that this program has made on standard output; strings get
 * \u escapes. */
void pstctl_print_json(const char *text);
/* Incomplete UTF-8 character at the end of the bytes printed so far. */
struct pstctl_half {
    char bytes[4];
    size_t n;
};
/* Prints generated text as it arrives. Bytes are unchanged unless standard
 * output is a terminal. Zero-initialise half; n = 0 ends the text. */
void pstctl_print_bytes(struct pstctl_half *half, const char *bytes, size_t n);

/* Refuses an output path with the ending of a kind of file other than
 * safetensors. also: another ending that the command can write (".json"), or
 * NULL. */
enum pst_status pstctl_check_output(const char *path, const char *also,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Prints notes on standard error for options that have no effect together with
 * the other options. */
void pstctl_note_unused(const struct pstd_config *config);

/* Returns a JSON number; null if x is not finite, since JSON cannot represent
 * such numbers. */
json_t *pstctl_json_real(double x);
/* Returns a JSON string; invalid UTF-8 becomes U+FFFD. NULL becomes "". */
json_t *pstctl_json_text(const char *text);
/* Prints a JSON object as one line on standard output; takes object. */
enum pst_status pstctl_json_print(json_t *object,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
