// SPDX-License-Identifier: Apache-2.0
#define PST_DIAG_BODIES
#include "stages/base/diag.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/str.h"

void pst_diag_init(struct pst_diag *diag)
{
    if (!diag)
        return;
    diag->status = PST_OK;
    diag->text[0] = '\0';
}

/* Names out of files reach terminals and logs. A text that is too long is cut
 * before a character, never inside. */
static void copy_escaped(char out[PST_DIAG_TEXT], const char *text)
{
    size_t n = 0;

    while (*text != '\0') {
        char shown[PST_VISIBLE];
        const size_t used = pst_visible_char(text, shown);
        const size_t need = strlen(shown);

        if (n + need >= PST_DIAG_TEXT)
            break;
        memcpy(out + n, shown, need);
        n += need;
        text += used;
    }
    out[n] = '\0';
}

/* vsnprintf may have cut a character; that is not a byte which is no UTF-8. */
static void drop_half(char *text, size_t size)
{
    size_t n = strlen(text), back = 1;

    if (n + 1 < size)
        return;
    while (back < 4 && back < n &&
           ((unsigned char)text[n - back] & 0xc0) == 0x80)
        back++;
    if (((unsigned char)text[n - back] & 0x80) &&
        pst_utf8_length(text + n - back) != back)
        text[n - back] = '\0';
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
    drop_half(text, sizeof(text));
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
    drop_half(text, sizeof(text));
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
