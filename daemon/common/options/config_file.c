// SPDX-License-Identifier: Apache-2.0
/* Files of options: a subset of TOML, `name = value` lines. */
#include <stdio.h>
#include <string.h>

#include "daemon/common/config.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"

#define MAX_BYTES ((size_t)1 << 20)

struct reader {
    struct pstd_config *config;
    uint64_t groups;
    const char *path;
    char *at;                     /* the rest of the text */
    size_t line;                  /* number of the line at `at`, from 1 */
    size_t had[PSTD_MAX_OPTIONS]; /* by row: the line that set it; 0: none */
};

static enum pst_status refuse_line(const struct reader *r, const char *what,
                                   struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_OPTION_VALUE, "%s: line %zu: %s", r->path,
                        r->line, what);
}

/* Skips blanks and a comment; newlines too if `lines`. */
static void skip_blanks(struct reader *r, bool lines)
{
    for (;; r->at++) {
        if (*r->at == '#')
            r->at += strcspn(r->at, "\n");
        if (*r->at == '\n' && lines)
            r->line++;
        else if (strchr(" \t\r", *r->at) == NULL || *r->at == '\0')
            return;
    }
}

/* Replaces the character after a backslash by the character that the escape
 * stands for; returns false if there is no such escape. */
static bool unescape_char(char *c)
{
    static const char from[] = "\"\\ntr", to[] = "\"\\\n\t\r";
    const char *found = *c != '\0' ? strchr(from, *c) : NULL;

    if (found != NULL)
        *c = to[found - from];
    return found != NULL;
}

/* Reads a string in place: "..." with \" \\ \n \t \r, or '...'. */
static enum pst_status read_string(struct reader *r, const char **ret,
                                   struct pst_diag *diag)
{
    const char quote = *r->at++;
    char *to = r->at;

    *ret = to;
    for (; *r->at != quote; r->at++) {
        if (*r->at == '\0' || *r->at == '\n')
            return refuse_line(r, "a string does not end in its line", diag);
        if (*r->at == '\\' && quote == '"') {
            r->at++;
            if (!unescape_char(r->at))
                return refuse_line(
                    r,
                    "after \\ in a string there is none of \" \\ n t "
                    "r: write '...' for a text without escapes",
                    diag);
        }
        *to++ = *r->at;
    }
    r->at++;
    *to = '\0';
    return PST_OK;
}

/* Reads a number, true or false in place, and ends it with NUL. *ret_after: the
 * character after it, which the NUL may have replaced. */
static enum pst_status read_word(struct reader *r, const char **ret,
                                 char *ret_after, struct pst_diag *diag)
{
    const size_t n = strcspn(r->at, " \t\r\n,]#");
    char *to = r->at, *const end = r->at + n;
    double number;

    *ret = to;
    *ret_after = *end;
    for (const char *from = r->at; from < end; from++)
        if (*from != '_') /* as in 10_000 */
            *to++ = *from;
    *to = '\0';
    r->at = end;
    if (strcmp(*ret, "true") == 0 || strcmp(*ret, "false") == 0 ||
        pst_parse_f64(*ret + (**ret == '+'), &number))
        return PST_OK;
    return n == 0
               ? refuse_line(r, "there is no value", diag)
               : pst_diag_set(diag, PST_E_OPTION_VALUE,
                              "%s: line %zu: %.80s is no number, and neither "
                              "true nor false: texts are in quotes",
                              r->path, r->line, *ret);
}

/* Sets the option to a value. */
static enum pst_status read_value(struct reader *r, const char *name,
                                  struct pst_diag *diag)
{
    const size_t line = r->line;
    const bool quoted = *r->at == '"' || *r->at == '\'';
    const char *value;
    char after = '\0', *end;
    enum pst_status status = PST_OK;

    if (*r->at == '{')
        return refuse_line(r, "tables { } are not read here", diag);
    if (strncmp(r->at, "\"\"\"", 3) == 0 || strncmp(r->at, "'''", 3) == 0)
        return refuse_line(r, "strings of several lines are not read here",
                           diag);
    status = quoted ? read_string(r, &value, diag)
                    : read_word(r, &value, &after, diag);
    if (status != PST_OK)
        return status;
    end = r->at;
    status = pstd_config_set(r->config, r->groups, name, value, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s: line %zu", r->path, line);
    if (!quoted)
        *end = after;
    return status;
}

/* Reads [a, b, ...] after the first bracket. */
static enum pst_status read_array(struct reader *r, const char *name,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (;;) {
        skip_blanks(r, true);
        if (*r->at == ']')
            break;
        if (*r->at == '[')
            return refuse_line(r, "an array within an array is not read here",
                               diag);
        status = read_value(r, name, diag);
        if (status != PST_OK)
            return status;
        skip_blanks(r, true);
        if (*r->at == ',')
            r->at++;
        else if (*r->at != ']')
            return refuse_line(r, "an array has neither , nor ] after a value",
                               diag);
    }
    r->at++;
    return PST_OK;
}

/* Reads the name before '='; refuses a name that the file has had
 * before. */
static enum pst_status read_name(struct reader *r, const char **ret,
                                 struct pst_diag *diag)
{
    const size_t n = strspn(r->at, "abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    size_t n_rows;
    const struct pstd_option *row, *rows = pstd_options(&n_rows);
    char *const name = r->at;

    if (*name == '@')
        return refuse_line(r, "a file of options cannot name another one",
                           diag);
    if (*name == '[')
        return refuse_line(
            r, "tables [ ] are not read here: options have no groups", diag);
    if (pst_has_prefix(name, "--"))
        return refuse_line(r, "names have no dashes before them here", diag);
    r->at += n;
    skip_blanks(r, false);
    if (n == 0 || *r->at != '=')
        return refuse_line(r, "this is not NAME = VALUE", diag);
    r->at++;
    name[n] = '\0';
    *ret = name;
    row = pstd_option_find(r->groups, name);
    if (row == NULL)
        return PST_OK; /* pstd_config_set() refuses it, with the nearest name */
    if (r->had[row - rows] > 0)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: line %zu: %s is already in line %zu; several "
                            "values of a repeatable option are an array: [a, "
                            "b]",
                            r->path, r->line, name, r->had[row - rows]);
    r->had[row - rows] = r->line;
    return PST_OK;
}

static enum pst_status read_line(struct reader *r, struct pst_diag *diag)
{
    const char *name = "";
    enum pst_status status = read_name(r, &name, diag);
    const struct pstd_option *row;

    if (status != PST_OK)
        return status;
    skip_blanks(r, false);
    if (*r->at != '[') {
        status = read_value(r, name, diag);
    } else {
        row = pstd_option_find(r->groups, name);
        if (row != NULL && row->type != PSTD_LIST && row->type != PSTD_RULES &&
            row->type != PSTD_SETS)
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "%s: line %zu: %s has one value: it is not "
                                "repeatable",
                                r->path, r->line, name);
        r->at++;
        status = read_array(r, name, diag);
    }
    if (status != PST_OK)
        return status;
    skip_blanks(r, false);
    if (*r->at != '\n' && *r->at != '\0')
        return refuse_line(r, "there is more after the value", diag);
    return PST_OK;
}

enum pst_status pstd_config_read_text(struct pstd_config *config,
                                      uint64_t groups, const char *path,
                                      char *text, size_t size,
                                      struct pst_diag *diag)
{
    struct reader r = {.config = config,
                       .groups = groups & ~PSTD_OPT_ALL,
                       .path = path,
                       .at = text,
                       .line = 1};
    struct pst_str utf8 = {0};
    enum pst_status status = PST_OK;

    pst_str_add_utf8(&utf8, text);
    if (utf8.failed)
        status = pst_diag_nomem(diag, size);
    else if (strlen(text) != size || strcmp(pst_str_text(&utf8), text) != 0)
        status = pst_diag_set(diag, PST_E_OPTION_VALUE,
                              "%s is not a text in UTF-8", path);
    pst_str_fini(&utf8);
    while (status == PST_OK) {
        skip_blanks(&r, true);
        if (*r.at == '\0')
            break;
        status = read_line(&r, diag);
    }
    return status;
}

enum pst_status pstd_config_read(struct pstd_config *config, uint64_t groups,
                                 const char *path, struct pst_diag *diag)
{
    char *text = NULL;
    size_t size;
    enum pst_status status = pst_file_read(path, MAX_BYTES, &text, &size, diag);

    if (status == PST_OK)
        status = pstd_config_read_text(config, groups, path, text, size, diag);
    pst_free(text);
    return status;
}
