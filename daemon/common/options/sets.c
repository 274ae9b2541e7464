// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/options/sets.h"

#include <string.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "stages/files/data/list.h"

/* Returns the length of NAME in "NAME=..."; 0: the text has another form. */
static size_t name_length(const char *text)
{
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-");

    return text[n] == '=' ? n : 0;
}

static bool is_named(const char *text)
{
    return name_length(text) > 0 && access(text, F_OK) != 0;
}

/* Adds the set "NAME=FILES", a text of n bytes; replaces a set of the same
 * name. */
static enum pst_status add_set(const char *who, const char *text, size_t n,
                               struct pst_arena *arena, struct pstd_sets *ret,
                               struct pst_diag *diag)
{
    const size_t name = name_length(text);
    struct pstd_set set = {.name = ""};
    unsigned i = 0;

    if (name == 0 || name >= n || n - name == 1)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: \"%.*s\" is not NAME=FILES: of several sets, "
                            "each has a name and files",
                            who, (int)n, text);
    if (name > PSTD_SET_NAME)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: the name %.*s has more than %d letters", who,
                            (int)name, text, PSTD_SET_NAME);
    memcpy(set.name, text, name);
    while (i < ret->n && strcmp(ret->at[i].name, set.name) != 0)
        i++;
    if (i == PSTD_MAX_SETS)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: there are more than %d sets", who,
                            PSTD_MAX_SETS);
    set.files =
        pst_arena_printf(arena, "%.*s", (int)(n - name - 1), text + name + 1);
    if (set.files == NULL)
        return pst_diag_nomem(diag, n);
    ret->at[i] = set;
    ret->n = PST_MAX(ret->n, i + 1);
    return PST_OK;
}

enum pst_status pstd_sets_read(const char *who, const char *text,
                               struct pst_arena *arena, struct pstd_sets *ret,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    ret->n = 0;
    if (!is_named(text)) {
        *ret = (struct pstd_sets){.n = 1};
        ret->at[0].files = pst_arena_strdup(arena, text);
        return ret->at[0].files != NULL ? PST_OK
                                        : pst_diag_nomem(diag, strlen(text));
    }
    while (status == PST_OK && *text != '\0') {
        const size_t n = strcspn(text, ";");

        status = add_set(who, text, n, arena, ret, diag);
        text += n + (text[n] != '\0');
    }
    return status;
}

enum pst_status pstd_sets_each(const char *who, const char *text,
                               pstd_set_fn take, void *ctx,
                               struct pst_diag *diag)
{
    struct pst_arena arena;
    struct pstd_sets sets;
    enum pst_status status;

    pst_arena_init(&arena, PST_TAG_DAEMON);
    status = pstd_sets_read(who, text, &arena, &sets, diag);
    for (unsigned i = 0; status == PST_OK && i < sets.n; i++)
        status = take(ctx, &sets.at[i], diag);
    pst_arena_fini(&arena);
    return status;
}

static enum pst_status print_sets(const struct pstd_sets *sets,
                                  struct pst_arena *arena, const char **ret,
                                  struct pst_diag *diag)
{
    struct pst_str text = {0};

    for (unsigned i = 0; i < sets->n; i++)
        pst_str_addf(&text, "%s%s%s%s", i > 0 ? ";" : "", sets->at[i].name,
                     sets->at[i].name[0] != '\0' ? "=" : "", sets->at[i].files);
    *ret = text.failed ? NULL : pst_arena_strdup(arena, pst_str_text(&text));
    pst_str_fini(&text);
    return *ret != NULL ? PST_OK : pst_diag_nomem(diag, 1);
}

enum pst_status pstd_sets_join(const char *who, const char *before,
                               const char *more, struct pst_arena *arena,
                               const char **ret, struct pst_diag *diag)
{
    struct pstd_sets sets;
    struct pst_str both = {0};
    enum pst_status status;

    if (before != NULL && is_named(before) != is_named(more))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "%s: of \"%s\" and \"%s\" one has a name and one "
                            "has not: of several sets, each is NAME=FILES",
                            who, before, more);
    if (before == NULL || !is_named(more))
        pst_str_add(&both, more);
    else
        pst_str_addf(&both, "%s;%s", before, more);
    status = both.failed ? pst_diag_nomem(diag, both.len)
                         : pstd_sets_read(who, both.text, arena, &sets, diag);
    if (status == PST_OK)
        status = print_sets(&sets, arena, ret, diag);
    pst_str_fini(&both);
    return status;
}

void pstd_sets_add_absolute(const char *text, const char *directory,
                            struct pst_str *out)
{
    struct pst_arena arena;
    struct pstd_sets sets;
    struct pst_diag ignored;

    pst_arena_init(&arena, PST_TAG_DAEMON);
    /* The stored value was valid: reading it fails only for lack of memory. */
    if (pstd_sets_read("", text, &arena, &sets, &ignored) != PST_OK) {
        sets.n = 0;
        out->failed = true;
    }
    for (unsigned i = 0; i < sets.n; i++) {
        pst_str_addf(out, "%s%s%s", i > 0 ? ";" : "", sets.at[i].name,
                     sets.at[i].name[0] != '\0' ? "=" : "");
        pst_data_list_add_absolute(sets.at[i].files, directory, out);
    }
    pst_arena_fini(&arena);
}
