// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/report/line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int parse_hex(const char *at)
{
    int value = 0;

    for (int i = 0; i < 4; i++) {
        const char c = at[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;

        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Writes a code point below 0x10000 as UTF-8; NUL and surrogates, even in
 * pairs, become U+FFFD. Returns the end. */
static char *put_code(char *to, int code)
{
    if (code == 0 || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd;
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Decodes a quoted value in place, since a decoded escape is never longer than
 * the escape. Returns the text after the closing quote; NULL: the value is not
 * valid. */
static char *parse_quoted(char *at, const char **ret)
{
    char *to = at;

    *ret = at;
    while (*at != '"') {
        int code;

        if (*at == '\0')
            return NULL;
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        switch (at[1]) {
        case 'u':
            code = parse_hex(at + 2);
            if (code < 0)
                return NULL;
            to = put_code(to, code);
            at += 6;
            continue;
        case 'n':
            *to++ = '\n';
            break;
        case 't':
            *to++ = '\t';
            break;
        case '"':
        case '\\':
            *to++ = at[1];
            break;
        default:
            return NULL;
        }
        at += 2;
    }
    *to = '\0';
    return at + 1;
}

/* Parses "key=value" and the space after it. Returns the text after that; NULL:
 * the text is no such pair. */
static char *parse_pair(char *at, const char **key, const char **value)
{
    char *end = at + strcspn(at, "= \"");

    if (end == at || *end != '=')
        return NULL;
    *key = at;
    *end++ = '\0';
    if (*end == '"') {
        end = parse_quoted(end + 1, value);
        if (end == NULL || (*end != ' ' && *end != '\0'))
            return NULL;
    } else {
        *value = end;
        end += strcspn(end, " \"");
        if (*end == '"')
            return NULL;
    }
    if (*end == ' ')
        *end++ = '\0';
    return end;
}

static bool read_time(const char *text, double *ret)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    double part = 0;

    if (rest == NULL)
        return false;
    if (*rest == '.')
        part = strtod(rest, NULL);
    *ret = (double)timegm(&tm) + (part >= 0 && part < 1 ? part : 0);
    return true;
}

bool pstctl_line_parse(char *text, struct pstctl_line *ret)
{
    static const char *const head[] = {"ts",  "level", "rank", "stage",
                                       "job", "event", "seq"};
    const char *values[7], *key;
    char *at = text;

    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < 7; i++) {
        at = parse_pair(at, &key, &values[i]);
        if (at == NULL || strcmp(key, head[i]) != 0)
            return false;
    }
    if (!read_time(values[0], &ret->time))
        return false;
    ret->level = values[1];
    ret->rank =
        strcmp(values[2], "-") == 0 ? -1 : (int)strtol(values[2], NULL, 10);
    ret->stage = values[3];
    ret->job = values[4];
    ret->event = values[5];
    ret->seq = strtoull(values[6], NULL, 10);
    ret->n = 0;
    while (*at != '\0' && ret->n < PSTCTL_LINE_FIELDS) {
        at = parse_pair(at, &ret->keys[ret->n], &ret->values[ret->n]);
        if (at == NULL)
            return false;
        ret->n++;
    }
    return ret->rank >= -1;
}

const char *pstctl_line_text(const struct pstctl_line *line, const char *key)
{
    for (size_t i = 0; i < line->n; i++)
        if (strcmp(line->keys[i], key) == 0)
            return line->values[i];
    return "";
}

double pstctl_line_number(const struct pstctl_line *line, const char *key)
{
    const char *text = pstctl_line_text(line, key);
    char *end;
    const double x = strtod(text, &end);

    return end == text ? (double)NAN : x;
}
