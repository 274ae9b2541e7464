// SPDX-License-Identifier: Apache-2.0
/* Options as text: values, --help, dump. */
#include "daemon/common/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/options/sets.h"
#include "stages/files/data/list.h"
#include "stages/run/facts.h"

size_t pstd_path_length(const char *paths)
{
    for (size_t n = strcspn(paths, ":");;
         n += 1 + strcspn(paths + n + 1, ":")) {
        struct pst_str path = {0};
        struct stat st;
        bool is_file;

        pst_str_addn(&path, paths, n);
        is_file = n > 0 && !path.failed && stat(path.text, &st) == 0 &&
                  S_ISREG(st.st_mode);
        pst_str_fini(&path);
        if (is_file)
            return n;
        if (paths[n] == '\0')
            return strcspn(paths, ":");
    }
}

/* Appends the paths of a list as absolute ones. dir: folder that relative paths
 * refer to; "": unknown, so that they stay relative. */
static void add_absolute(const char *text, const char *dir, struct pst_str *out)
{
    for (;; text++) {
        const size_t n = pstd_path_length(text);

        if (n > 0 && text[0] != '/' && dir[0] != '\0')
            pst_str_addf(out, "%s/", dir);
        pst_str_addn(out, text, n);
        text += n;
        if (*text == '\0')
            return;
        pst_str_add(out, ":");
    }
}

const char *pstd_option_path(const struct pstd_option *row, const char *text)
{
    const char *choice = row->value;

    if (row->type == PSTD_PATH)
        return text;
    if (row->type != PSTD_SOURCE)
        return NULL;
    while (choice != NULL) {
        const char *end = strchr(choice, '|');
        const size_t name = strcspn(choice, ":|");

        if (choice[name] == ':' && strncmp(text, choice, name + 1) == 0 &&
            text[name + 1] != '\0')
            return text + name + 1;
        choice = end != NULL ? end + 1 : NULL;
    }
    return NULL;
}

bool pstd_config_text(const struct pstd_config *config,
                      const struct pstd_option *row, struct pst_str *out)
{
    const void *at = pstd_config_member(config, row);
    const struct pstd_grid *grid = at;
    const struct pstd_from *from = at;
    char number[32], dir[4096];
    const char *text, *path;

    switch (row->type) {
    case PSTD_FLAG:
        pst_str_add(out, *(const bool *)at ? "1" : "0");
        return true;
    case PSTD_UINT:
        pst_str_addf(out, "%llu", *(const unsigned long long *)at);
        return true;
    case PSTD_REAL:
    case PSTD_MIB:
        if (isnan(*(const double *)at))
            return false;
        pst_format_f64(*(const double *)at, number);
        pst_str_add(out, number);
        return true;
    case PSTD_LIST:
        return false;
    case PSTD_GRID:
        if (grid->replicas > 1)
            pst_str_addf(out, "%llux", (unsigned long long)grid->replicas);
        pst_str_addf(out, "%llu", (unsigned long long)grid->ranks);
        return grid->ranks > 0;
    case PSTD_FROM:
        if (from->on && from->step > 0)
            pst_str_addf(out, "%llu", (unsigned long long)from->step);
        else
            pst_str_add(out, !from->on ? "no" : from->if_any ? "auto" : "yes");
        return true;
    case PSTD_EVERY:
        pstd_every_print(at, out);
        return true;
    case PSTD_RAMP:
        pstd_ramp_print(at, out);
        return true;
    case PSTD_TEXT:
    case PSTD_SOURCE:
    case PSTD_CHOICE:
    case PSTD_RULES:
    case PSTD_POINTS:
    case PSTD_PATH:
    case PSTD_PATHS:
    case PSTD_FILES:
    case PSTD_SETS:
        break;
    }
    text = *(const char *const *)at;
    if (text == NULL)
        return false;
    if (getcwd(dir, sizeof(dir)) == NULL)
        dir[0] = '\0';
    if (row->type == PSTD_FILES && dir[0] != '\0') {
        pst_data_list_add_absolute(text, dir, out);
        return true;
    }
    if (row->type == PSTD_PATHS) {
        add_absolute(text, dir, out);
        return true;
    }
    if (row->type == PSTD_SETS && dir[0] != '\0') {
        pstd_sets_add_absolute(text, dir, out);
        return true;
    }
    path = pstd_option_path(row, text);
    if (path != NULL && path[0] != '/' && dir[0] != '\0') {
        pst_str_addn(out, text, (size_t)(path - text));
        pst_str_addf(out, "%s/", dir);
        text = path;
    }
    pst_str_add(out, text);
    return true;
}

/* Appends text, wrapped in lines from column `from` to 79. */
static void add_wrapped(struct pst_str *out, const char *text, size_t from)
{
    size_t column = from;

    while (*text != '\0') {
        const size_t word = strcspn(text, " ");

        if (column > from && column + 1 + word > 79) {
            pst_str_addf(out, "\n%*s", (int)from, "");
            column = from;
        } else if (column > from) {
            pst_str_add(out, " ");
            column++;
        }
        pst_str_addn(out, text, word);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    pst_str_add(out, "\n");
}

struct pstd_option_help pstd_option_help(const struct pstd_option *row,
                                         const struct pstd_option_help *own)
{
    struct pstd_option_help h = {row->name, row->help, row->value, row->start};

    while (own != NULL && own->name != NULL && strcmp(own->name, h.name) != 0)
        own++;
    if (own != NULL && own->name != NULL) {
        h.help = own->help != NULL ? own->help : h.help;
        h.value = own->value != NULL ? own->value : h.value;
        h.start = own->start != NULL ? own->start : h.start;
    }
    return h;
}

/* Appends a value such as "a|b|c" from column `from` on; long ones are wrapped
 * after a '|'. Returns the column after it. */
static size_t add_value(struct pst_str *out, const char *value, size_t from)
{
    size_t column = from;

    while (*value != '\0') {
        size_t n = strcspn(value, "|");

        n += value[n] == '|';
        if (column > from && column + n > 79) {
            pst_str_addf(out, "\n%*s", (int)from, "");
            column = from;
        }
        pst_str_addn(out, value, n);
        column += n;
        value += n;
    }
    return column;
}

struct helper {
    const struct pstd_option_help *own;
    struct pst_str *out;
};

static void add_help(void *ctx, const struct pstd_option *row,
                     const char *title)
{
    enum { COLUMN = 28 };
    const struct helper *h = ctx;
    const struct pstd_option_help help = pstd_option_help(row, h->own);
    struct pst_str *out = h->out, text = {0};
    size_t start, used;

    if (title != NULL && !pst_has_suffix(pst_str_text(out), "\n\n"))
        pst_str_add(out, "\n");
    if (title != NULL)
        pst_str_addf(out, "%s:\n", title);
    start = out->len;
    if (row->letter != 0)
        pst_str_addf(out, "  -%c, --%s", row->letter, row->name);
    else
        pst_str_addf(out, "  --%s", row->name);
    used = out->len - start;
    if (help.value != NULL && row->type == PSTD_FROM) {
        pst_str_addf(out, "[=%s]", help.value);
        used = out->len - start;
    } else if (help.value != NULL) {
        pst_str_add(out, " ");
        used = add_value(out, help.value, used + 1);
    }
    if (used + 2 > COLUMN)
        pst_str_addf(out, "\n%*s", COLUMN, "");
    else
        pst_str_addf(out, "%*s", (int)(COLUMN - used), "");
    pst_str_add(&text, help.help);
    if (help.start != NULL)
        pst_str_addf(&text, " [%s]", help.start);
    add_wrapped(out, pst_str_text(&text), COLUMN);
    pst_str_fini(&text);
}

void pstd_config_help(uint64_t groups, const struct pstd_option_help *own,
                      struct pst_str *out)
{
    struct helper h = {own, out};

    pstd_options_visit(groups, add_help, &h);
}

void pstd_config_dump(const struct pstd_config *config, uint64_t groups,
                      struct pst_str *out)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};

        if (rows[i].groups & groups) {
            if (pstd_config_text(config, &rows[i], &text))
                pst_str_addf(out, "%s=%s\n", rows[i].name, pst_str_text(&text));
            pst_str_fini(&text);
        }
    }
}

void pstd_config_facts(const struct pstd_config *config, uint64_t groups,
                       struct pst_facts *facts)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};
        char name[40];
        bool any;

        if (!(rows[i].groups & groups))
            continue;
        any = pstd_config_text(config, &rows[i], &text);
        (void)snprintf(name, sizeof(name), "--%s", rows[i].name);
        pst_facts_add(
            facts, name, "%s",
            !any ? "not given"
            : rows[i].type == PSTD_PATH || rows[i].type == PSTD_PATHS ||
                    rows[i].type == PSTD_FILES || rows[i].type == PSTD_SETS
                ? "given"
                : pst_str_text(&text));
        pst_str_fini(&text);
    }
}

void pstd_config_given_text(const struct pstd_config *config, uint64_t groups,
                            struct pst_str *out)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};

        if ((rows[i].groups & groups) && config->given[i] &&
            pstd_config_text(config, &rows[i], &text)) {
            const char *value = pst_str_text(&text);
            const bool quoted =
                *value == '\0' || strpbrk(value, " \"\\") != NULL;

            pst_str_addf(out, "%s%s=%s", out->len > 0 ? " " : "", rows[i].name,
                         quoted ? "\"" : "");
            for (; *value != '\0'; value++)
                pst_str_addf(out, "%s%c",
                             *value == '"' || *value == '\\' ? "\\" : "",
                             *value);
            pst_str_add(out, quoted ? "\"" : "");
            out->failed |= text.failed;
        }
        pst_str_fini(&text);
    }
}

bool pstd_config_next_given(char **at, const char **ret_name,
                            const char **ret_value)
{
    char *const name = *at + strspn(*at, " ");
    char *to = strchr(name, '=');
    const char *from;
    bool quoted;

    if (to == NULL || to == name)
        return false;
    *to++ = '\0';
    *ret_name = name;
    *ret_value = to;
    from = to;
    quoted = *from == '"';
    from += quoted;
    while (*from != '\0' && *from != (quoted ? '"' : ' ')) {
        if (quoted && *from == '\\' && from[1] != '\0')
            from++;
        *to++ = *from++;
    }
    *at = (char *)from + (*from != '\0');
    *to = '\0';
    return true;
}
