// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_STR_H
#define PENSTOCK_STAGES_BASE_STR_H
/* Growable text, strict parsing of numbers, and the nearest names for
 * messages. */
#include "stages/base/alloc.h"

#include <stdarg.h>
#include <string.h>

/*
 * A growable text; zero-initialized it is empty. A failed append sets `failed`,
 * and all later ones do nothing, so that callers check once at the end.
 *
 * A text for people begins as {.visible = 1}, since names from files may
 * contain control characters for the terminal: pst_str_addf then escapes the
 * arguments of %s and %c like pst_visible_char, and pst_str_add escapes its
 * text except for newlines. Format strings are never escaped.
 */
struct pst_str {
    char *text; /* NUL-terminated, or NULL while empty */
    size_t len, cap;
    int failed, visible;
};

void pst_str_fini(struct pst_str *s);
void pst_str_add(struct pst_str *s, const char *text);
/* Appends like pst_str_addn if the capacity is too small. */
void pst_str_grow(struct pst_str *s, const char *text, size_t len);

static inline void pst_str_addn(struct pst_str *s, const char *text, size_t len)
{
    if (len >= s->cap - s->len || s->failed) {
        pst_str_grow(s, text, len);
        return;
    }
    if (len > 0) /* if len is 0, text may be NULL */
        memcpy(s->text + s->len, text, len);
    s->len += len;
    s->text[s->len] = '\0';
}

void pst_str_addf(struct pst_str *s, const char *fmt, ...) PST_PRINTF(2, 3);
/* Formats like vsnprintf, but is fast for texts and for whole numbers without
 * padding. The C library's conversions are slow here, because libquadmath
 * registers conversions of its own. */
int pst_vformat(char *out, size_t size, const char *fmt, va_list ap);
int pst_format(char *out, size_t size, const char *fmt, ...) PST_PRINTF(3, 4);
/* Appends a decimal number, faster than pst_str_addf: graphs and plans have a
 * few numbers for each of their nodes. */
void pst_str_add_u64(struct pst_str *s, uint64_t x);
void pst_str_add_i64(struct pst_str *s, int64_t x);
/* Appends text; bytes that are not UTF-8 become U+FFFD. */
void pst_str_add_utf8(struct pst_str *s, const char *text);
/* Appends JSON that a library has written, with hidden characters as \uXXXX:
 * they occur only in strings, where the escape means the same. */
void pst_str_add_json_shown(struct pst_str *s, const char *json);
/* Appends a JSON string with quotes; escapes control characters and quotes. */
void pst_str_add_json(struct pst_str *s, const char *text);
/* Appends a logfmt value, quoted and escaped where needed. */
void pst_str_add_logfmt(struct pst_str *s, const char *text);
/* Returns the text, or "" (never NULL). */
const char *pst_str_text(const struct pst_str *s);

/* Returns the bytes of the UTF-8 character at the beginning of text; 0 at the
 * end, or if it is not valid UTF-8 (overlong, a surrogate, truncated). */
size_t pst_utf8_length(const char *text);

#define PST_VISIBLE 16 /* bytes of a character that is shown, and NUL */

/* Writes the first character of text, escaped if necessary, and a NUL to out.
 * Returns the bytes of text consumed; 0 at its end. Escapes characters that
 * control a terminal (C0, DEL, C1), are invisible or change the direction of
 * text, and bytes that are not UTF-8: \n, \t, \x1b, \u009b. */
size_t pst_visible_char(const char *text, char out[PST_VISIBLE]);
/* Returns 0 if the character of n bytes can be shown unescaped; otherwise its
 * code + 1. */
unsigned pst_utf8_hidden(const char *text, size_t n);
/* Appends text escaped by pst_visible_char; pst_str_add_lines keeps
 * newlines. */
void pst_str_add_visible(struct pst_str *s, const char *text);
void pst_str_add_lines(struct pst_str *s, const char *text);
/* Appends like vsnprintf, but escapes the arguments of %s and %c. Supports no
 * %p, %n and %a. */
void pst_str_vaddf_visible(struct pst_str *s, const char *fmt, va_list ap);

/* Parse a number, which must be the whole text and in range; 0 on failure. */
int pst_parse_i64(const char *text, int64_t *ret) PST_MUST_CHECK;
int pst_parse_f64(const char *text, double *ret) PST_MUST_CHECK;

/* Writes the shortest decimal text that reads back as the same double, or
 * "Infinity", "-Infinity", "NaN". */
void pst_format_f64(double x, char out[32]);

/* Returns the index of the name nearest to `text` by edit distance; -1 if none
 * is near. */
int pst_nearest(const char *text, const char *const *names, size_t n);

int pst_has_prefix(const char *text, const char *prefix);
int pst_has_suffix(const char *text, const char *suffix);

/* Returns XXH3-64, for comparisons within a job. */
uint64_t pst_hash(const void *data, size_t len, uint64_t seed);
/* Writes XXH3-128 as 32 hexadecimal digits and NUL. */
void pst_digest(const void *data, size_t len, char out[33]);
/* Writes 16 bytes as 32 hexadecimal digits and NUL. */
void pst_digest_text(const unsigned char bytes[16], char out[33]);

#endif
