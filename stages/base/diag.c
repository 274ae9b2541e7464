// SPDX-License-Identifier: Apache-2.0
#define PST_DIAG_BODIES
#include "stages/base/diag.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pst_diag_init(struct pst_diag *diag)
{
    if (!diag)
        return;
    diag->status = PST_OK;
    diag->text[0] = '\0';
}

/* Names out of files reach terminals and logs: no control characters. A text
 * that is too long is cut before a UTF-8 sequence, never inside. */
static void copy_escaped(char out[PST_DIAG_TEXT], const char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0, start = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        const int control = *p < 0x20 || *p == 0x7f;
        const size_t need = !control ? 1 : *p == '\n' || *p == '\t' ? 2 : 4;

        if ((*p & 0xc0) != 0x80)
            start = n; /* first byte of a character */
        if (n + need >= PST_DIAG_TEXT) {
            n = start;
            break;
        }
        if (!control) {
            out[n++] = (char)*p;
            continue;
        }
        out[n++] = '\\';
        if (*p == '\n' || *p == '\t') {
            out[n++] = *p == '\n' ? 'n' : 't';
            continue;
        }
        out[n++] = 'x';
        out[n++] = hex[*p >> 4];
        out[n++] = hex[*p & 15];
    }
    out[n] = '\0';
}

enum pst_status pst_diag_set(struct pst_diag *diag, enum pst_status status,
                             const char *fmt, ...)
{
    char text[PST_DIAG_TEXT];
    va_list ap;

    if (!diag)
        return status;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    diag->status = status;
    copy_escaped(diag->text, text);
    return status;
}

void pst_diag_prefix(struct pst_diag *diag, const char *fmt, ...)
{
    char text[2 * PST_DIAG_TEXT];
    size_t n;
    va_list ap;

    if (!diag)
        return;
    va_start(ap, fmt);
    vsnprintf(text, PST_DIAG_TEXT, fmt, ap);
    va_end(ap);
    n = strlen(text);
    snprintf(text + n, sizeof(text) - n, ": %s", diag->text);
    copy_escaped(diag->text, text);
}

enum pst_status pst_diag_errno(struct pst_diag *diag, int err, const char *fmt,
                               ...)
{
    const enum pst_status status = err == ENOMEM ? PST_ERR_NOMEM : PST_ERR_IO;
    char text[PST_DIAG_TEXT], why[128];
    va_list ap;

    if (!diag)
        return status;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return pst_diag_set(diag, status, "%s: %s", text,
                        strerror_r(err, why, sizeof(why)));
}

enum pst_status pst_diag_nomem(struct pst_diag *diag, size_t bytes)
{
    return pst_diag_set(diag, PST_ERR_NOMEM, "out of memory (%zu bytes)",
                        bytes);
}
