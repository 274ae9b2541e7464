// SPDX-License-Identifier: Apache-2.0
#include "stages/base/str.h"

#include "stages/base/checked.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_NAME 255 /* longer names are not compared by edit distance */

void pst_str_fini(struct pst_str *s)
{
    pst_free(s->text);
    *s = (struct pst_str){.visible = s->visible};
}

/* Reserves `more` bytes and the NUL. */
static int reserve_bytes(struct pst_str *s, size_t more)
{
    size_t need, cap;
    char *text;

    if (s->failed)
        return 0;
    if (PST_ADD(s->len, more, &need) || need >= SIZE_MAX / 2) {
        s->failed = 1;
        return 0;
    }
    if (need < s->cap)
        return 1;
    cap = PST_MAX(2 * s->cap, need + 1);
    cap = PST_MAX(cap, (size_t)64);
    text = pst_realloc(PST_TAG_BASE, s->text, cap);
    if (!text) {
        s->failed = 1;
        return 0;
    }
    s->text = text;
    s->cap = cap;
    return 1;
}

void pst_str_add(struct pst_str *s, const char *text)
{
    if (s->visible)
        pst_str_add_lines(s, text);
    else
        pst_str_addn(s, text, strlen(text));
}

void pst_str_grow(struct pst_str *s, const char *text, size_t len)
{
    if (reserve_bytes(s, len))
        pst_str_addn(s, text, len);
}

/* --- formats ------------------------------------------------------------ */

/* A buffer that may be too small for its text; n counts the bytes of the whole
 * text. */
struct sink {
    char *out;
    size_t size, n;
};

static void put_text(struct sink *s, const char *text, size_t len)
{
    if (s->n < s->size && len > 0)
        memcpy(s->out + s->n, text, PST_MIN(len, s->size - s->n));
    s->n += len;
}

/* Writes the digits of x at the end of the buffer; returns the index of the
 * first one. */
static size_t write_decimal(char digits[20], uint64_t x)
{
    size_t at = 20; /* 2^64 - 1 has 20 digits */

    do {
        digits[--at] = (char)('0' + x % 10);
        x /= 10;
    } while (x > 0);
    return at;
}

static void put_decimal(struct sink *s, uint64_t x, bool negative)
{
    char digits[20];
    const size_t at = write_decimal(digits, x);

    if (negative)
        put_text(s, "-", 1);
    put_text(s, digits + at, sizeof(digits) - at);
}

static void put_signed(struct sink *s, int64_t x)
{
    put_decimal(s, x < 0 ? 0 - (uint64_t)x : (uint64_t)x, x < 0);
}

/* Formats one conversion; p points after its '%'. Returns the position after
 * the conversion; NULL if only vsnprintf can format it. */
static const char *put_conversion(struct sink *s, const char *p, va_list *ap)
{
    size_t max = SIZE_MAX;
    const char *text;
    int longs = 0;

    if (*p == '%') {
        put_text(s, "%", 1);
        return p + 1;
    }
    if (p[0] == '.' && p[1] == '*') {
        const int precision = va_arg(*ap, int);

        max = precision < 0 ? SIZE_MAX : (size_t)precision;
        p += 2;
    } else if (p[0] == '.') {
        for (max = 0, p++; isdigit((unsigned char)*p) && max < 100000; p++)
            max = 10 * max + (size_t)(*p - '0');
    }
    if (*p == 's') {
        text = va_arg(*ap, const char *);
        if (text == NULL)
            return NULL;
        put_text(s, text, strnlen(text, max));
        return p + 1;
    }
    if (max != SIZE_MAX)
        return NULL;
    for (; *p == 'l' || *p == 'z'; p++)
        longs++;
    if (*p == 'u')
        put_decimal(s, longs ? va_arg(*ap, uint64_t) : va_arg(*ap, unsigned),
                    false);
    else if (*p == 'd')
        put_signed(s, longs ? va_arg(*ap, int64_t) : va_arg(*ap, int));
    else
        return NULL;
    return p + 1;
}

_Static_assert(sizeof(long) == 8 && sizeof(long long) == 8 &&
                   sizeof(size_t) == 8,
               "a number with l, ll or z has 64 bits");

int pst_vformat(char *out, size_t size, const char *fmt, va_list from)
{
    struct sink s = {.out = out, .size = size};
    const char *p = fmt;
    va_list ap;

    va_copy(ap, from);
    while (p != NULL && *p != '\0') {
        const size_t plain = strcspn(p, "%");

        put_text(&s, p, plain);
        p += plain;
        if (*p == '%')
            p = put_conversion(&s, p + 1, &ap);
    }
    va_end(ap);
    if (p == NULL || s.n > INT_MAX)
        return vsnprintf(out, size, fmt, from);
    if (size > 0)
        out[PST_MIN(s.n, size - 1)] = '\0';
    return (int)s.n;
}

int pst_format(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = pst_vformat(out, size, fmt, ap);
    va_end(ap);
    return n;
}

void pst_str_addf(struct pst_str *s, const char *fmt, ...)
{
    va_list ap, again;
    size_t left;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    if (s->visible) {
        pst_str_vaddf_visible(s, fmt, ap);
    } else if (reserve_bytes(s, 1)) {
        /* Text that fits is formatted once. */
        left = s->cap - s->len;
        n = pst_vformat(s->text + s->len, left, fmt, ap);
        if (n >= 0 && (size_t)n >= left && reserve_bytes(s, (size_t)n))
            n = pst_vformat(s->text + s->len, (size_t)n + 1, fmt, again);
        if (n < 0)
            s->failed = 1;
        if (s->failed)
            s->text[s->len] = '\0';
        else
            s->len += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

void pst_str_add_u64(struct pst_str *s, uint64_t x)
{
    char digits[20];
    const size_t at = write_decimal(digits, x);

    pst_str_addn(s, digits + at, sizeof(digits) - at);
}

void pst_str_add_i64(struct pst_str *s, int64_t x)
{
    if (x < 0)
        pst_str_addn(s, "-", 1);
    pst_str_add_u64(s, x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
}

size_t pst_utf8_length(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned long code;
    size_t n;

    if (p[0] < 0x80)
        return p[0] != 0;
    n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    code = p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0; /* a NUL is no continuation byte either */
        code = code << 6 | (p[i] & 0x3fu);
    }
    if ((n == 3 && code < 0x800) || (n == 4 && code < 0x10000) ||
        (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff)
        return 0;
    return n;
}

static void add_code(struct pst_str *s, unsigned code)
{
    char text[16];
    const int n = snprintf(text, sizeof(text), "\\u%04x", code);

    pst_str_addn(s, text, (size_t)n);
}

/* Appends one character of a quoted text, escaped. Bytes that are not UTF-8
 * become U+FFFD, since strict parsers must be able to read the output. Returns
 * the bytes consumed. */
static size_t add_char(struct pst_str *s, const char *p)
{
    const unsigned char c = (unsigned char)*p;
    const size_t n = pst_utf8_length(p);

    if (n == 0)
        pst_str_addn(s, "\xef\xbf\xbd", 3);
    else if (n > 1 && pst_utf8_hidden(p, n))
        add_code(s, pst_utf8_hidden(p, n) - 1);
    else if (n > 1)
        pst_str_addn(s, p, n);
    else if (c == '"' || c == '\\')
        pst_str_addn(s, c == '"' ? "\\\"" : "\\\\", 2);
    else if (c == '\n')
        pst_str_addn(s, "\\n", 2);
    else if (c == '\t')
        pst_str_addn(s, "\\t", 2);
    else if (c < 0x20 || c == 0x7f)
        add_code(s, c);
    else
        pst_str_addn(s, p, 1);
    return n ? n : 1;
}

static void add_quoted(struct pst_str *s, const char *text)
{
    pst_str_addn(s, "\"", 1);
    while (*text)
        text += add_char(s, text);
    pst_str_addn(s, "\"", 1);
}

void pst_str_add_utf8(struct pst_str *s, const char *text)
{
    while (*text != '\0') {
        const size_t n = pst_utf8_length(text);

        pst_str_addn(s, n > 0 ? text : "\xef\xbf\xbd", n > 0 ? n : 3);
        text += n > 0 ? n : 1;
    }
}

void pst_str_add_json(struct pst_str *s, const char *text)
{
    add_quoted(s, text);
}

void pst_str_add_json_shown(struct pst_str *s, const char *json)
{
    while (*json != '\0') {
        const size_t n = pst_utf8_length(json);
        const unsigned hidden = n > 0 ? pst_utf8_hidden(json, n) : 0;

        if (*json == '\n' || (n > 0 && !hidden))
            pst_str_addn(s, json, n);
        else
            add_code(s, n > 0 ? hidden - 1 : 0xfffd);
        json += n > 0 ? n : 1;
    }
}

void pst_str_add_logfmt(struct pst_str *s, const char *text)
{
    int plain = text[0] != '\0';

    for (const char *p = text; *p; p++)
        plain = plain && *p > 0x20 && *p < 0x7f && !strchr("\"=\\", *p);
    if (plain)
        pst_str_add(s, text);
    else
        add_quoted(s, text);
}

const char *pst_str_text(const struct pst_str *s)
{
    return s->text ? s->text : "";
}

int pst_parse_i64(const char *text, int64_t *ret)
{
    const char *digits = text + (*text == '-' || *text == '+');
    long long value;
    char *end;

    if (!isdigit((unsigned char)*digits))
        return 0;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (*end || errno)
        return 0;
    *ret = value;
    return 1;
}

int pst_parse_f64(const char *text, double *ret)
{
    const char *first = text + (*text == '-' || *text == '+');
    double value;
    char *end;

    /* strtod would also take leading spaces, 0x10 and nan(...). */
    if (!isdigit((unsigned char)*first) && *first != '.' &&
        strcasecmp(first, "inf") != 0 && strcasecmp(first, "infinity") != 0 &&
        strcasecmp(first, "nan") != 0)
        return 0;
    if (first[0] == '0' && (first[1] == 'x' || first[1] == 'X'))
        return 0;
    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end)
        return 0;
    if (errno == ERANGE && fabs(value) > 1.0)
        return 0; /* overflow; a number that is too small becomes zero */
    *ret = value;
    return 1;
}

void pst_format_f64(double x, char out[32])
{
    /* A normal double preserves any text of up to 15 digits, so the first try
     * finds every shorter text; denormals have less precision. */
    int digits = fabs(x) >= 0x1p-1022 ? 15 : 1;
    char text[48] = "";

    if (isnan(x) || isinf(x)) {
        snprintf(out, 32, "%s",
                 isnan(x) ? "NaN"
                 : x > 0  ? "Infinity"
                          : "-Infinity");
        return;
    }
    do
        snprintf(text, sizeof(text), "%.*g", digits, x);
    while (strtod(text, NULL) != x && digits++ < 17);
    memcpy(out, text, 32); /* at most 24 characters are in use */
}

/* Returns how many letters are wrong, missing or additional; two neighbors that
 * are exchanged count once. Stops at a distance of `most`, which it returns. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb,
                            size_t most)
{
    size_t rows[3][MAX_NAME + 1]; /* row i of the matrix is rows[i % 3] */

    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], least = i;
        const size_t *up = rows[(i - 1) % 3], *above = rows[(i - 2) % 3];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t change = up[j - 1] + (a[i - 1] != b[j - 1]);

            row[j] = PST_MIN(change, PST_MIN(up[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = PST_MIN(row[j], above[j - 2] + 1);
            least = PST_MIN(least, row[j]);
        }
        /* No later row can have a smaller entry: an exchange reads the row
         * before this one, whose entries may be smaller by 1, but adds 1. */
        if (least >= most)
            return most;
    }
    return rows[na % 3][nb];
}

int pst_nearest(const char *text, const char *const *names, size_t n)
{
    const size_t len = strlen(text);
    /* Up to a third of the letters may be wrong, or two if that is more, but
     * never all. */
    size_t best = PST_MIN(PST_MAX(len / 3, (size_t)2), len ? len - 1 : 0) + 1;
    int found = -1;

    if (len > MAX_NAME)
        return -1;
    for (size_t i = 0; i < n && i <= INT32_MAX; i++) {
        const size_t n_i = strlen(names[i]);
        size_t d;

        /* The distance is at least the difference of the lengths. */
        if (n_i > MAX_NAME || PST_MAX(len, n_i) - PST_MIN(len, n_i) >= best)
            continue;
        d = edit_distance(text, len, names[i], n_i, best);
        if (d < best) {
            best = d;
            found = (int)i;
        }
    }
    return found;
}

int pst_has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

int pst_has_suffix(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);

    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

uint64_t pst_hash(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

void pst_digest_text(const unsigned char bytes[16], char out[33])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < 16; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 0xf];
    }
    out[32] = '\0';
}

void pst_digest(const void *data, size_t len, char out[33])
{
    XXH128_canonical_t bytes;

    XXH128_canonicalFromHash(&bytes, XXH3_128bits(data, len));
    pst_digest_text(bytes.digest, out);
}
