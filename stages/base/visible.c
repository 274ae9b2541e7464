// SPDX-License-Identifier: Apache-2.0
/* Escapes text so that it can be printed to a terminal, a log or a picture. */
#include "stages/base/str.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned code_of(const unsigned char *p, size_t n)
{
    unsigned code = n == 1 ? p[0] : p[0] & (0x7fu >> n);

    for (size_t i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3fu);
    return code;
}

/* True for C0, DEL and C1, which control terminals, for direction marks and
 * line separators, which change how a text is displayed, and for invisible
 * marks. */
static int is_hidden(unsigned code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
           code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0xfeff ||
           (code >= 0xfff9 && code <= 0xfffb);
}

unsigned pst_utf8_hidden(const char *text, size_t n)
{
    const unsigned code = code_of((const unsigned char *)text, n);

    return is_hidden(code) ? code + 1 : 0;
}

size_t pst_visible_char(const char *text, char out[PST_VISIBLE])
{
    const size_t n = pst_utf8_length(text);
    const unsigned hidden = n > 0 ? pst_utf8_hidden(text, n) : 0;

    if (*text == '\0') {
        out[0] = '\0';
        return 0;
    }
    if (n > 0 && !hidden) {
        memcpy(out, text, n);
        out[n] = '\0';
    } else if (*text == '\n' || *text == '\t') {
        memcpy(out, *text == '\n' ? "\\n" : "\\t", 3);
    } else if (n > 1) {
        (void)snprintf(out, PST_VISIBLE, "\\u%04x", hidden - 1);
    } else {
        (void)snprintf(out, PST_VISIBLE, "\\x%02x", (unsigned char)*text);
    }
    return n > 0 ? n : 1;
}

/* Appends text, escaped. keep: a control character that stays as it is; NUL:
 * none. */
static void add_visible(struct pst_str *s, const char *text, char keep)
{
    char shown[PST_VISIBLE];

    while (*text != '\0') {
        if (*text == keep) {
            pst_str_addn(s, text++, 1);
        } else {
            text += pst_visible_char(text, shown);
            pst_str_addn(s, shown, strlen(shown));
        }
    }
}

void pst_str_add_visible(struct pst_str *s, const char *text)
{
    add_visible(s, text, '\0');
}

void pst_str_add_lines(struct pst_str *s, const char *text)
{
    add_visible(s, text, '\n');
}

/* One conversion specification, such as "%-12.*s". */
struct conversion {
    char flags[8], type, length; /* 'l' or 'L' (long long), 'z', 'j', 't' */
    int width, precision;        /* -1: not given */
};

static const char *read_number(const char *p, va_list *ap, int *ret)
{
    if (*p == '*') {
        *ret = va_arg(*ap, int);
        return p + 1;
    }
    *ret = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        *ret = 10 * *ret + (*p - '0');
    return p;
}

/* Parses a conversion; p is after the '%'. Returns the position after it. */
static const char *read_conversion(const char *p, va_list *ap,
                                   struct conversion *c)
{
    size_t n = 0;

    *c = (struct conversion){.width = -1, .precision = -1};
    for (; *p != '\0' && strchr("-+ #0", *p) != NULL; p++)
        if (n + 1 < sizeof(c->flags))
            c->flags[n++] = *p;
    if (*p == '*' || (*p >= '1' && *p <= '9'))
        p = read_number(p, ap, &c->width);
    if (*p == '.')
        p = read_number(p + 1, ap, &c->precision);
    for (; *p != '\0' && strchr("hlzjt", *p) != NULL; p++)
        c->length = *p == 'l' && c->length == 'l' ? 'L' : *p;
    c->type = *p;
    return *p != '\0' ? p + 1 : p;
}

/* Appends at most `precision` bytes of text, escaped, padded to `width`
 * bytes. */
static void add_text(struct pst_str *s, const struct conversion *c,
                     const char *text)
{
    struct pst_str part = {0}, shown = {0};
    size_t pad;

    text = text != NULL ? text : "(null)";
    pst_str_addn(&part, text,
                 c->precision >= 0 ? strnlen(text, (size_t)c->precision)
                                   : strlen(text));
    pst_str_add_visible(&shown, pst_str_text(&part));
    pad = c->width > 0 && (size_t)c->width > shown.len
              ? (size_t)c->width - shown.len
              : 0;
    for (size_t i = 0; strchr(c->flags, '-') == NULL && i < pad; i++)
        pst_str_addn(s, " ", 1);
    pst_str_addn(s, pst_str_text(&shown), shown.len);
    for (size_t i = 0; strchr(c->flags, '-') != NULL && i < pad; i++)
        pst_str_addn(s, " ", 1);
    s->failed |= part.failed | shown.failed;
    pst_str_fini(&part);
    pst_str_fini(&shown);
}

static int64_t read_integer(char length, va_list *ap)
{
    switch (length) {
    case 'l':
        return va_arg(*ap, long);
    case 'L':
        return va_arg(*ap, long long);
    case 'z':
    case 't':
        return va_arg(*ap, ptrdiff_t);
    case 'j':
        return va_arg(*ap, intmax_t);
    default:
        return va_arg(*ap, int);
    }
}

static void add_number(struct pst_str *s, const struct conversion *c,
                       va_list *ap)
{
    const bool whole = strchr("diouxX", c->type) != NULL;
    char spec[48], number[512];
    int n = snprintf(spec, sizeof(spec), "%%%s", c->flags);

    if (c->width >= 0)
        n += snprintf(spec + n, sizeof(spec) - (size_t)n, "%d", c->width);
    if (c->precision >= 0)
        n += snprintf(spec + n, sizeof(spec) - (size_t)n, ".%d", c->precision);
    (void)snprintf(spec + n, sizeof(spec) - (size_t)n, "%s%c",
                   whole ? "ll" : "", c->type);
    if (!whole) {
        n = snprintf(number, sizeof(number), spec, va_arg(*ap, double));
    } else {
        int64_t value = read_integer(c->length, ap);

        if (c->length == '\0' && c->type != 'd' && c->type != 'i')
            value = (int64_t)(unsigned)value;
        n = snprintf(number, sizeof(number), spec, (long long)value);
    }
    pst_str_addn(s, number, n > 0 ? PST_MIN((size_t)n, sizeof(number) - 1) : 0);
}

void pst_str_vaddf_visible(struct pst_str *s, const char *fmt, va_list from)
{
    va_list ap;

    va_copy(ap, from);
    while (*fmt != '\0') {
        const size_t plain = strcspn(fmt, "%");
        struct conversion c;
        char letter[2] = {0};

        pst_str_addn(s, fmt, plain);
        fmt += plain;
        if (*fmt == '\0')
            break;
        fmt = read_conversion(fmt + 1, &ap, &c);
        if (c.type == 's') {
            add_text(s, &c, va_arg(ap, const char *));
        } else if (c.type == 'c') {
            letter[0] = (char)va_arg(ap, int);
            add_text(s, &c, letter);
        } else if (c.type == '%') {
            pst_str_addn(s, "%", 1);
        } else if (c.type != '\0' && strchr("diouxXeEfFgG", c.type) != NULL) {
            add_number(s, &c, &ap);
        } else {
            s->failed = 1; /* unsupported conversion */
            break;
        }
    }
    va_end(ap);
}
