// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/text/scan.h"

#include "stages/graph/sizes/symbol.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pst_status pst_scan_fail(const struct pst_scan *s, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return pst_diag_set(s->diag, PST_E_GRAPH_TEXT, "graph text, line %u: %s",
                        s->line, text);
}

static void skip_blanks(struct pst_scan *s)
{
    while (*s->at == ' ' || *s->at == '\t')
        s->at++;
}

void pst_scan_lines(struct pst_scan *s)
{
    for (;;) {
        skip_blanks(s);
        if (*s->at != '\n')
            return;
        s->at++;
        s->line++;
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool pst_scan_is_next(struct pst_scan *s, const char *token)
{
    size_t n;

    skip_blanks(s);
    if (*s->at != *token) /* fast path: the time of parsing goes into tokens */
        return false;
    n = strlen(token);
    if (strncmp(s->at, token, n) != 0)
        return false;
    return !is_word(token[n - 1]) || !is_word(s->at[n]);
}

bool pst_scan_accept(struct pst_scan *s, const char *token)
{
    if (!pst_scan_is_next(s, token))
        return false;
    s->at += strlen(token);
    return true;
}

enum pst_status pst_scan_expect(struct pst_scan *s, const char *token)
{
    if (pst_scan_accept(s, token))
        return PST_OK;
    return pst_scan_fail(s, "\"%s\" is missing before \"%.*s\"", token,
                         (int)PST_MIN(strcspn(s->at, "\n"), (size_t)20), s->at);
}

enum pst_status pst_scan_word(struct pst_scan *s, const char *more, char **ret)
{
    size_t n = 0;

    skip_blanks(s);
    if (*s->at == '"')
        return pst_scan_quoted(s, ret);
    while (isalnum((unsigned char)s->at[n]) ||
           (s->at[n] != '\0' && strchr(more, s->at[n]) != NULL))
        n++;
    if (n == 0)
        return pst_scan_fail(s, "a name is missing before \"%.*s\"",
                             (int)PST_MIN(strcspn(s->at, "\n"), (size_t)20),
                             s->at);
    *ret = pst_arena_strndup(s->arena, s->at, n);
    s->at += n;
    return *ret == NULL ? pst_diag_nomem(s->diag, n) : PST_OK;
}

/* Encodes a character of the basic plane as UTF-8; returns the number of
 * bytes. */
static size_t put_code(unsigned long code, char *out)
{
    size_t n = 0;

    if (code < 0x80) {
        out[n++] = (char)code;
        return n;
    }
    if (code < 0x800) {
        out[n++] = (char)(0xc0 | code >> 6);
    } else {
        out[n++] = (char)(0xe0 | code >> 12);
        out[n++] = (char)(0x80 | (code >> 6 & 0x3f));
    }
    out[n++] = (char)(0x80 | (code & 0x3f));
    return n;
}

/* Decodes the escape after "\\" to UTF-8 and returns the number of bytes, never
 * more than the escape itself has; 0 if print.c writes no such escape. */
static size_t decode_escape(struct pst_scan *s, char *out)
{
    const char c = *s->at++;
    char hex[5] = "";
    unsigned long code;

    switch (c) {
    case '"':
    case '\\':
        *out = c;
        return 1;
    case 'n':
    case 't':
        *out = c == 'n' ? '\n' : '\t';
        return 1;
    case 'u':
        for (int i = 0; i < 4 && isxdigit((unsigned char)*s->at); i++)
            hex[i] = *s->at++;
        code = strtoul(hex, NULL, 16);
        if (strlen(hex) < 4 || code == 0 || (code >= 0xd800 && code < 0xe000))
            return 0;
        return put_code(code, out);
    default:
        s->at--;
        return 0;
    }
}

enum pst_status pst_scan_quoted(struct pst_scan *s, char **ret)
{
    size_t n = 0, max, used;
    char *out;

    skip_blanks(s);
    if (*s->at != '"')
        return pst_scan_fail(s, "a quoted text is missing");
    s->at++;
    max = strcspn(s->at, "\n");
    out = pst_arena_alloc(s->arena, max + 1);
    if (out == NULL)
        return pst_diag_nomem(s->diag, max + 1);
    while (*s->at != '"') {
        if (*s->at == '\0' || *s->at == '\n')
            return pst_scan_fail(s, "a quoted text has no end");
        if (*s->at != '\\') {
            out[n++] = *s->at++;
            continue;
        }
        s->at++;
        used = decode_escape(s, out + n);
        if (used == 0)
            return pst_scan_fail(s, "an escape in a text is wrong");
        n += used;
    }
    s->at++;
    *ret = out;
    return PST_OK;
}

/* Copies the characters of a number into buf and returns their number; 0 if
 * there are none or too many. */
static size_t number_text(struct pst_scan *s, char buf[64])
{
    size_t n = 0;

    skip_blanks(s);
    while (n < 63 && (isalnum((unsigned char)s->at[n]) ||
                      (s->at[n] != '\0' && strchr("+-.:", s->at[n]))))
        n++;
    memcpy(buf, s->at, n);
    buf[n] = '\0';
    return n;
}

enum pst_status pst_scan_i64(struct pst_scan *s, int64_t *ret)
{
    char buf[64];
    const size_t n = number_text(s, buf);

    if (!pst_parse_i64(buf, ret))
        return pst_scan_fail(s, "\"%s\" is not an integer", buf);
    s->at += n;
    return PST_OK;
}

enum pst_status pst_scan_number(struct pst_scan *s, struct pst_arg *ret)
{
    char buf[64], *end;
    const size_t n = number_text(s, buf);

    memset(ret, 0, sizeof(*ret));
    if (pst_parse_i64(buf, &ret->i)) {
        ret->kind = PST_ARG_INT;
    } else if (pst_has_prefix(buf, "nan:") && n == 20) {
        const uint64_t bits = strtoull(buf + 4, &end, 16);

        ret->kind = PST_ARG_FLOAT;
        memcpy(&ret->f, &bits, sizeof(bits));
        if (*end != '\0' || ret->f == ret->f)
            return pst_scan_fail(s, "\"%s\" is not a number", buf);
    } else if (pst_parse_f64(buf, &ret->f)) {
        ret->kind = PST_ARG_FLOAT;
    } else {
        return pst_scan_fail(s, "\"%s\" is not a number", buf);
    }
    s->at += n;
    return PST_OK;
}

/* Parses and prints the expression again, so that the result is canonical. */
enum pst_status pst_scan_expr(struct pst_scan *s, const char **ret)
{
    const struct pst_expr *expr;
    enum pst_status status;
    size_t n;
    char *text;

    *ret = NULL;
    if (*s->at != '{')
        return PST_OK;
    n = strcspn(s->at, "}\n");
    if (s->at[n] != '}')
        return pst_scan_fail(s, "an expression has no end");
    text = pst_arena_strndup(s->arena, s->at + 1, n - 1);
    if (text == NULL)
        return pst_diag_nomem(s->diag, n);
    s->at += n + 1;
    status = pst_expr_parse(s->arena, text, &expr, s->diag);
    if (status == PST_OK)
        status = pst_expr_print(s->arena, expr, ret, s->diag);
    if (status != PST_OK)
        pst_diag_prefix(s->diag, "graph text, line %u", s->line);
    return status;
}

/* Reads up to PST_MAX_RANK integers until `close`; exprs may be NULL. */
static enum pst_status read_sizes(struct pst_scan *s, const char *close,
                                  int64_t *ret, const char **exprs,
                                  unsigned *ret_n)
{
    unsigned n = 0;

    while (!pst_scan_accept(s, close)) {
        enum pst_status status = PST_OK;

        if (n == PST_MAX_RANK)
            return pst_scan_fail(s, "more than %d dimensions", PST_MAX_RANK);
        if (n > 0)
            status = pst_scan_expect(s, ",");
        if (status == PST_OK)
            status = pst_scan_i64(s, &ret[n]);
        if (status == PST_OK && exprs != NULL)
            status = pst_scan_expr(s, &exprs[n]);
        if (status != PST_OK)
            return status;
        n++;
    }
    *ret_n = n;
    return PST_OK;
}

/* Copies the expressions of sizes; *ret is NULL if there are none. */
static enum pst_status keep_dims(struct pst_scan *s, const char *const *exprs,
                                 unsigned rank, const char *const **ret)
{
    bool any = false;

    for (unsigned d = 0; d < rank; d++)
        any = any || exprs[d] != NULL;
    return pst_exprs_copy(s->arena, any ? exprs : NULL, rank, ret, s->diag);
}

enum pst_status pst_scan_meta(struct pst_scan *s, struct pst_meta *ret,
                              const char *const **ret_dims)
{
    const char *exprs[PST_MAX_RANK];
    int64_t size[PST_MAX_RANK];
    enum pst_dtype dtype = PST_F32;
    enum pst_status status;
    unsigned rank = 0, n = 0;
    char *word;

    status = pst_scan_word(s, "", &word);
    if (status != PST_OK)
        return status;
    if (!pst_dtype_from_name(word, &dtype))
        return pst_scan_fail(s, "\"%s\" is not a dtype", word);
    status = pst_scan_expect(s, "[");
    if (status == PST_OK)
        status = read_sizes(s, "]", size, exprs, &rank);
    if (status == PST_OK)
        status = keep_dims(s, exprs, rank, ret_dims);
    if (status != PST_OK)
        return status;
    *ret = pst_meta_make(dtype, rank, size);
    if (pst_scan_accept(s, ":(")) {
        status = read_sizes(s, ")", ret->stride, NULL, &n);
        if (status != PST_OK)
            return status;
        if (n != rank)
            return pst_scan_fail(s, "%u strides for %u sizes", n, rank);
    }
    status = pst_meta_check(ret, s->diag);
    if (status != PST_OK)
        pst_diag_prefix(s->diag, "graph text, line %u", s->line);
    return status;
}
