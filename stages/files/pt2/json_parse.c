// SPDX-License-Identifier: Apache-2.0
/* The JSON parser: one pass over the text. The elements of a container are
 * collected on a stack, above those of the enclosing containers, until its
 * end. */
#include "stages/files/pt2/json.h"

#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/files/pt2/texts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *p, *end; /* rest of the text, which ends with NUL */
    struct pst_arena *arena;
    struct pst_texts texts; /* cache of parsed texts */
    struct PST_VEC(struct pst_json) stack;
    unsigned depth;
    enum pst_status status; /* PST_OK, or why parsing has stopped */
    /* description of the error at p, for PST_ERR_INPUT */
    const char *wrong;
};

/* --- failures ----------------------------------------------------------- */

static bool fail(struct parser *s, enum pst_status status, const char *wrong)
{
    s->status = status;
    s->wrong = wrong;
    return false;
}

static bool fail_syntax(struct parser *s, const char *text)
{
    return fail(s, PST_ERR_INPUT, text);
}

/* --- texts -------------------------------------------------------------- */

static void skip_space(struct parser *s)
{
    while (*s->p <= ' ' &&
           (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

/* Reads four hexadecimal digits; false if there are none. */
static bool read_hex(const char *p, unsigned *ret)
{
    unsigned code = 0;

    for (int i = 0; i < 4; i++) {
        const char c = p[i];
        const unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                               : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                               : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                      : 16;

        if (digit == 16)
            return false;
        code = code << 4 | digit;
    }
    *ret = code;
    return true;
}

static char *put_code(char *out, unsigned code)
{
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *out++ = (char)(0xe0 | code >> 12);
        } else {
            *out++ = (char)(0xf0 | code >> 18);
            *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        }
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    *out++ = (char)(0x80 | (code & 0x3f));
    return out;
}

/* Reads \uXXXX, with p at the u; two of them (a surrogate pair) above
 * U+FFFF. */
static bool read_code(struct parser *s, char **out)
{
    unsigned code, low;

    if (!read_hex(s->p + 1, &code))
        return fail_syntax(s, "an escape of a text is damaged");
    if (code >= 0xd800 && code < 0xdc00 && s->p[5] == '\\' && s->p[6] == 'u' &&
        read_hex(s->p + 7, &low) && low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
        s->p += 6;
    }
    if (code == 0 || (code >= 0xd800 && code < 0xe000))
        return fail_syntax(s, "an escape of a text is not a character");
    s->p += 5;
    *out = put_code(*out, code);
    return true;
}

static bool read_escape(struct parser *s, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *which;

    s->p++;
    if (*s->p == 'u')
        return read_code(s, out);
    which = *s->p != '\0' ? strchr(from, *s->p) : NULL;
    if (which == NULL)
        return fail_syntax(s, "an escape of a text is damaged");
    *(*out)++ = to[which - from];
    s->p++;
    return true;
}

/* True if all eight bytes are plain characters: below 0x80, at least 0x20, no
 * quote, no backslash. Subtracting from a byte that is too small borrows, which
 * sets its top bit; if all bytes are plain, nothing borrows. */
static bool is_plain(const char *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), top = ones << 7;
    uint64_t x, quote, slash;

    memcpy(&x, p, sizeof(x));
    quote = x ^ (ones * '"');
    slash = x ^ (ones * '\\');
    return ((x | (x - ones * 0x20) | (quote - ones) | (slash - ones)) & top) ==
           0;
}

/* Advances p past plain characters. */
static bool skip_plain(struct parser *s)
{
    for (;;) {
        const unsigned char c = (unsigned char)*s->p;

        if (s->end - s->p >= 8 && is_plain(s->p)) {
            s->p += 8;
            continue;
        }
        if (c == '"' || c == '\\')
            return true;
        if (c < 0x20)
            return fail_syntax(s, s->p == s->end
                                      ? "a text has no end"
                                      : "a text has a control character");
        if (c < 0x80) {
            s->p++;
            continue;
        }
        const size_t n = pst_utf8_length(s->p);

        if (n == 0)
            return fail_syntax(s, "a text is not UTF-8");
        s->p += n;
    }
}

/* Decodes a text with escapes, which does not make it longer. */
static bool read_escaped(struct parser *s, const char *from, const char **ret)
{
    const char *end = s->p;
    char *text, *out;

    while (*end != '"' && end < s->end)
        end += *end == '\\' && end + 1 < s->end ? 2 : 1;
    text = pst_arena_alloc(s->arena, (size_t)(end - from) + 1);
    if (text == NULL)
        return fail(s, PST_ERR_NOMEM, NULL);
    s->p = from;
    for (out = text;;) {
        const char *plain = s->p;

        if (!skip_plain(s))
            return false;
        memcpy(out, plain, (size_t)(s->p - plain));
        out += s->p - plain;
        if (*s->p == '"')
            break;
        if (!read_escape(s, &out))
            return false;
    }
    *out = '\0';
    *ret = text;
    return true;
}

/* Finds the quote that ends the text at `from`: the first one after an even
 * number of backslashes. NULL: there is none. */
static const char *find_quote(const struct parser *s, const char *from)
{
    const char *quote = from, *p;

    while ((quote = memchr(quote, '"', (size_t)(s->end - quote))) != NULL) {
        for (p = quote; p > from && p[-1] == '\\';)
            p--;
        if ((quote - p) % 2 == 0)
            break;
        quote++;
    }
    return quote;
}

static bool read_string(struct parser *s, const char **ret)
{
    const char *from = ++s->p, *quote = find_quote(s, from);

    *ret = NULL;
    if (quote != NULL)
        *ret = pst_texts_find(&s->texts, from, (size_t)(quote - from));
    if (*ret != NULL) {
        s->p = quote + 1;
        return true;
    }
    if (!skip_plain(s))
        return false;
    if (*s->p == '"')
        *ret = pst_arena_strndup(s->arena, from, (size_t)(s->p - from));
    else if (!read_escaped(s, from, ret))
        return false;
    if (*ret == NULL ||
        !pst_texts_add(&s->texts, from, (size_t)(s->p - from), *ret))
        return fail(s, PST_ERR_NOMEM, NULL);
    s->p++;
    return true;
}

/* --- numbers and words -------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Converts an integer with an optional minus sign, like strtoll. */
static int64_t whole_number(const char *from, const char *end)
{
    const bool negative = *from == '-';
    int64_t value = 0;

    if (end - from > 18)
        return strtoll(from, NULL, 10);
    for (from += negative; from < end; from++)
        value = 10 * value + (*from - '0');
    return negative ? -value : value;
}

/* Skips digits; fails if there are none. */
static bool skip_digits(struct parser *s)
{
    if (!is_digit(*s->p))
        return fail_syntax(s, "a number is damaged");
    while (is_digit(*s->p))
        s->p++;
    return true;
}

static bool read_number(struct parser *s, struct pst_json *ret)
{
    const char *from = s->p;
    bool whole = true;

    if (*s->p == '-')
        s->p++;
    if (*s->p == '0')
        s->p++;
    else if (!skip_digits(s))
        return false;
    if (*s->p == '.') {
        whole = false;
        s->p++;
        if (!skip_digits(s))
            return false;
    }
    if (*s->p == 'e' || *s->p == 'E') {
        whole = false;
        s->p++;
        if (*s->p == '+' || *s->p == '-')
            s->p++;
        if (!skip_digits(s))
            return false;
    }
    errno = 0;
    if (whole) {
        ret->kind = PST_JSON_INTEGER;
        ret->integer = whole_number(from, s->p);
    } else {
        ret->kind = PST_JSON_REAL;
        ret->real = strtod(from, NULL);
    }
    if (whole ? errno == ERANGE : isinf(ret->real))
        return fail(s, PST_ERR_UNSUPPORTED, NULL);
    return true;
}

static bool read_word(struct parser *s, struct pst_json *ret)
{
    static const struct {
        const char *text;
        struct pst_json json;
    } words[] = {
        {"true", {.kind = PST_JSON_BOOL, .boolean = true}},
        {"false", {.kind = PST_JSON_BOOL}},
        {"null", {.kind = PST_JSON_NULL}},
    };

    for (size_t i = 0; i < PST_COUNT(words); i++) {
        if (strncmp(s->p, words[i].text, strlen(words[i].text)) != 0)
            continue;
        s->p += strlen(words[i].text);
        *ret = words[i].json;
        return true;
    }
    return fail_syntax(s, s->p == s->end ? "it ends too soon"
                                         : "no value begins so");
}

/* --- containers --------------------------------------------------------- */

/* Moves the elements on the stack, from index `first` on, into the
 * container. */
static bool end_container(struct parser *s, size_t first, struct pst_json *ret)
{
    const size_t n = s->stack.n - first;

    if (n >= UINT32_MAX)
        return fail_syntax(s, "a list is too long");
    ret->n = (uint32_t)n;
    ret->at = n == 0 ? NULL /* there may be no stack yet */
                     : pst_arena_memdup(s->arena, s->stack.at + first,
                                        n * sizeof(*s->stack.at));
    if (n > 0 && ret->at == NULL)
        return fail(s, PST_ERR_NOMEM, NULL);
    s->stack.n = first;
    s->depth--;
    if (ret->kind == PST_JSON_ARRAY)
        return true;
    switch (pst_json_index(ret, s->arena)) {
    case PST_OK:
        return true;
    case PST_ERR_NOMEM:
        return fail(s, PST_ERR_NOMEM, NULL);
    default:
        return fail_syntax(s, "duplicate object key");
    }
}

static bool read_value(struct parser *s, struct pst_json *ret);

/* Reads an element of a container: a key and its value if `keyed`, else a
 * value. */
static bool read_element(struct parser *s, bool keyed)
{
    struct pst_json element = {.key = NULL};
    const char *key = NULL;

    if (keyed) {
        if (*s->p != '"')
            return fail_syntax(s, "a key is expected");
        if (!read_string(s, &key))
            return false;
        skip_space(s);
        if (*s->p != ':')
            return fail_syntax(s, "\":\" is expected");
        s->p++;
        skip_space(s);
    }
    if (!read_value(s, &element))
        return false;
    element.key = key;
    return pst_vec_push(PST_TAG_ARCHIVE, &s->stack, element) ||
           fail(s, PST_ERR_NOMEM, NULL);
}

static bool read_container(struct parser *s, struct pst_json *ret)
{
    const bool keyed = *s->p == '{';
    const char end = keyed ? '}' : ']';
    const size_t first = s->stack.n;

    ret->kind = keyed ? PST_JSON_OBJECT : PST_JSON_ARRAY;
    if (++s->depth > PST_JSON_MAX_DEPTH)
        return fail_syntax(s, NULL);
    s->p++;
    skip_space(s);
    while (*s->p != end) {
        if (!read_element(s, keyed))
            return false;
        skip_space(s);
        if (*s->p == end)
            break;
        if (*s->p != ',')
            return fail_syntax(s, s->p == s->end
                                      ? "it ends too soon"
                                      : "\",\" or an end is expected");
        s->p++;
        skip_space(s);
        if (*s->p == end)
            return fail_syntax(s, "a value is missing after \",\"");
    }
    s->p++;
    return end_container(s, first, ret);
}

static bool read_value(struct parser *s, struct pst_json *ret)
{
    switch (*s->p) {
    case '{':
    case '[':
        return read_container(s, ret);
    case '"':
        ret->kind = PST_JSON_STRING;
        return read_string(s, &ret->text);
    default:
        return *s->p == '-' || is_digit(*s->p) ? read_number(s, ret)
                                               : read_word(s, ret);
    }
}

/* --- the text ----------------------------------------------------------- */

/* Finds the last "target" before byte `at`, since its value names the node with
 * the error. */
static void name_target(const char *text, size_t at, char *out, size_t size)
{
    static const char key[] = "\"target\": \"";
    const char *found = NULL;
    size_t n;

    out[0] = '\0';
    for (const char *p = text;
         (p = memmem(p, at - (size_t)(p - text), key, sizeof(key) - 1));) {
        p += sizeof(key) - 1;
        found = p;
    }
    if (found == NULL)
        return;
    n = strcspn(found, "\"");
    snprintf(out, size, ", in a node of %.*s", (int)PST_MIN(n, size / 2),
             found);
}

static bool read_whole(struct parser *s, struct pst_json *json)
{
    skip_space(s);
    if (*s->p != '{' && *s->p != '[')
        return fail_syntax(s, "\"[\" or \"{\" is expected");
    if (!read_value(s, json))
        return false;
    skip_space(s);
    return s->p == s->end || fail_syntax(s, "there is text after its end");
}

enum pst_status pst_json_parse(const char *what, const char *text, size_t len,
                               struct pst_arena *arena,
                               const struct pst_json **ret,
                               struct pst_diag *diag)
{
    struct parser s = {.p = text, .end = text + len, .arena = arena};
    struct pst_json *json = pst_arena_alloc(arena, sizeof(*json));
    char target[160];
    const bool good = json != NULL && read_whole(&s, json);
    const size_t at = (size_t)(s.p - text);

    pst_texts_fini(&s.texts);
    pst_vec_fini(&s.stack);
    if (good) {
        *ret = json;
        return PST_OK;
    }
    if (json == NULL || s.status == PST_ERR_NOMEM)
        return pst_diag_nomem(diag, len);
    if (s.status == PST_ERR_UNSUPPORTED) {
        name_target(text, at, target, sizeof(target));
        return pst_diag_set(diag, PST_E_PT2_NUMBER,
                            "%s: a number at byte %zu does not fit 64 bits%s",
                            what, at, target);
    }
    if (s.wrong == NULL)
        return pst_diag_set(diag, PST_E_PT2_JSON,
                            "%s: JSON is nested more than %d levels deep", what,
                            PST_JSON_MAX_DEPTH);
    return pst_diag_set(diag, PST_E_PT2_JSON,
                        "%s: not valid JSON at byte %zu: %s", what, at,
                        s.wrong);
}
