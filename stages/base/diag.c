// SPDX-License-Identifier: Apache-2.0
#define PST_DIAG_BODIES
#include "stages/base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/str.h"

void pst_diag_init(struct pst_diag *diag)
{
    if (!diag)
        return;
    diag->status = PST_OK;
    diag->error = PST_E_NONE;
    diag->text[0] = '\0';
}

/* Copies text, escaping it, since names from files reach terminals and logs. A
 * text that is too long is cut between characters. */
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

/* Removes the incomplete UTF-8 character that vsnprintf leaves where it
 * truncates a text, since copy_escaped would show its bytes as invalid. */
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

static void write_all(struct pst_diag *diag, enum pst_error error,
                      enum pst_status status, const char *fmt, va_list ap)
{
    char text[PST_DIAG_TEXT];

    if (!diag)
        return;
    vsnprintf(text, sizeof(text), fmt, ap);
    drop_half(text, sizeof(text));
    copy_escaped(diag->text, text);
    diag->status = status;
    diag->error = error;
}

enum pst_status pst_diag_set(struct pst_diag *diag, enum pst_error error,
                             const char *fmt, ...)
{
    const enum pst_status status = pst_error_status(error);
    va_list ap;

    va_start(ap, fmt);
    write_all(diag, error, status, fmt, ap);
    va_end(ap);
    return status;
}

enum pst_status pst_diag_pass(struct pst_diag *diag,
                              const struct pst_diag *first, const char *fmt,
                              ...)
{
    /* Read first: `first` may be diag itself, which is overwritten below. */
    const enum pst_status status = first->status;
    va_list ap;

    va_start(ap, fmt);
    write_all(diag, first->error, status, fmt, ap);
    va_end(ap);
    return status;
}

enum pst_status pst_diag_carry(struct pst_diag *diag, enum pst_error error,
                               enum pst_status status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    write_all(diag, error, status, fmt, ap);
    va_end(ap);
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
    const enum pst_error error = pst_error_of_errno(err);
    char text[PST_DIAG_TEXT], why[128];
    va_list ap;

    if (!diag)
        return pst_error_status(error);
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return pst_diag_set(diag, error, "%s: %s", text,
                        strerror_r(err, why, sizeof(why)));
}

enum pst_status pst_diag_nomem(struct pst_diag *diag, size_t bytes)
{
    return pst_diag_set(diag, PST_E_MEMORY_HOST, "out of memory (%zu bytes)",
                        bytes);
}
