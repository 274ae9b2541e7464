// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_STR_H
#define PENSTOCK_STAGES_BASE_STR_H
/* Text that grows, strict number parsing, near names for messages. */
#include "stages/base/alloc.h"

#include <stdarg.h>
#include <string.h>

/*
 * Zero-initialised is the empty text. A failed append sets `failed` and all
 * later ones do nothing, so that callers check once at the end.
 *
 * A text for people to see begins as {.visible = 1}. Names in it come out of
 * files, and may have been made to steer a terminal: so what pst_str_addf gets
 * as an argument for %s or %c is escaped there as pst_visible_char does, and
 * what pst_str_add gets, but for ends of lines. Formats are ours and stay.
 */
struct pst_str {
    char *text; /* NUL-terminated, or NULL while empty */
    size_t len, cap;
    int failed, visible;
};

void pst_str_fini(struct pst_str *s);
void pst_str_add(struct pst_str *s, const char *text);
/* pst_str_addn if the capacity is too small. */
void pst_str_grow(struct pst_str *s, const char *text, size_t len);

static inline void pst_str_addn(struct pst_str *s, const char *text, size_t len)
{
    if (len >= s->cap - s->len || s->failed) {
        pst_str_grow(s, text, len);
        return;
    }
    if (len > 0) /* else text may be NULL */
        memcpy(s->text + s->len, text, len);
    s->len += len;
    s->text[s->len] = '\0';
}

void pst_str_addf(struct pst_str *s, const char *fmt, ...) PST_PRINTF(2, 3);
/* vsnprintf, but quick for texts and whole numbers without padding: conversions
 * of the C library are slow here, because a library (libquadmath) registers
 * some of its own. */
int pst_vformat(char *out, size_t size, const char *fmt, va_list ap);
int pst_format(char *out, size_t size, const char *fmt, ...) PST_PRINTF(3, 4);
/* A number in decimal, without the cost of a format: graphs and plans have a
 * few for each of their nodes. */
void pst_str_add_u64(struct pst_str *s, uint64_t x);
void pst_str_add_i64(struct pst_str *s, int64_t x);
/* Bytes that are no UTF-8 become U+FFFD. */
void pst_str_add_utf8(struct pst_str *s, const char *text);
/* JSON that a library has written: what is hidden can only stand in a string
 * there, so an escape means the same. */
void pst_str_add_json_shown(struct pst_str *s, const char *json);
/* JSON string with quotes; control characters and quotes escaped. */
void pst_str_add_json(struct pst_str *s, const char *text);
/* logfmt value: quoted and escaped where needed (operations C). */
void pst_str_add_logfmt(struct pst_str *s, const char *text);
/* The text or "" (never NULL). */
const char *pst_str_text(const struct pst_str *s);

/* Bytes of the UTF-8 character that text begins with; 0 at its end and if it
 * is not valid UTF-8 (overlong, surrogate, cut). */
size_t pst_utf8_length(const char *text);

#define PST_VISIBLE 16 /* bytes of a character that is shown, and NUL */

/* The character that text begins with, as people may see it, with a NUL; 0 at
 * its end, else bytes of text. What steers a terminal (C0, DEL, C1), hides or
 * turns text around is escaped: \n, \t, \x1b, \u009b; so are bytes that are no
 * UTF-8. */
size_t pst_visible_char(const char *text, char out[PST_VISIBLE]);
/* 0 if a character of n bytes may be shown as it is, else its code + 1. */
unsigned pst_utf8_hidden(const char *text, size_t n);
/* The whole text so; with the second one ends of lines stay. */
void pst_str_add_visible(struct pst_str *s, const char *text);
void pst_str_add_lines(struct pst_str *s, const char *text);
/* As vsnprintf, but what %s and %c take is escaped. No %p, %n, %a. */
void pst_str_vaddf_visible(struct pst_str *s, const char *fmt, va_list ap);

/* Whole text must be the number, in range; 0 on failure. */
int pst_parse_i64(const char *text, int64_t *ret) PST_MUST_CHECK;
int pst_parse_f64(const char *text, double *ret) PST_MUST_CHECK;

/* Shortest decimal text that reads back as the same double; Infinity, NaN. */
void pst_format_f64(double x, char out[32]);

/* Index of the name nearest to `text` by edit distance, -1 if none is near. */
int pst_nearest(const char *text, const char *const *names, size_t n);

int pst_has_prefix(const char *text, const char *prefix);
int pst_has_suffix(const char *text, const char *suffix);

/* XXH3-64, for comparisons within a job. */
uint64_t pst_hash(const void *data, size_t len, uint64_t seed);
/* XXH3-128 as 32 hexadecimal digits and NUL. */
void pst_digest(const void *data, size_t len, char out[33]);
/* 16 bytes as 32 hexadecimal digits and NUL. */
void pst_digest_text(const unsigned char bytes[16], char out[33]);

#endif
