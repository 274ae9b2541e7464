// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data/list.h"

#include <float.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "stages/base/str.h"

#define MAX_TEXT 4096 /* maximum bytes of an item */

/* --- the text ------------------------------------------------------------- */

static bool path_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* An item of the text. */
struct item {
    char name[MAX_TEXT]; /* without the weight */
    const char *weight;  /* text after the colon, within name; NULL: none */
};

/* Reads the item at *text, and moves *text after its comma, or sets it to NULL
 * after the last one. The text after the last colon is a weight if it is a
 * number. False: the item is too long. */
static bool next_item(const char **text, bool whole, struct item *ret)
{
    const size_t n = whole ? strlen(*text) : strcspn(*text, ",");
    char *colon;
    double ignored;

    ret->weight = NULL;
    if (n >= sizeof(ret->name))
        return false;
    memcpy(ret->name, *text, n);
    ret->name[n] = '\0';
    *text = (*text)[n] == ',' ? *text + n + 1 : NULL;
    colon = strrchr(ret->name, ':');
    if (whole || colon == NULL || path_exists(ret->name) ||
        !pst_parse_f64(colon + 1, &ignored))
        return true;
    *colon = '\0';
    ret->weight = colon + 1;
    return true;
}

bool pst_data_has_tensors(const char *path)
{
    return pst_has_suffix(path, ".safetensors") ||
           pst_has_suffix(path, PST_DATA_SHARD_INDEX);
}

bool pst_data_list_has_tensors(const char *text)
{
    struct item item;

    return next_item(&text, path_exists(text), &item) &&
           pst_data_has_tensors(item.name);
}

void pst_data_list_add_absolute(const char *text, const char *directory,
                                struct pst_str *out)
{
    const bool whole = path_exists(text);

    for (const char *at = text; at != NULL;) {
        const size_t n = whole ? strlen(at) : strcspn(at, ",");

        if (n > 0 && at[0] != '/')
            pst_str_addf(out, "%s/", directory);
        pst_str_addn(out, at, n);
        pst_str_addn(out, at + n, at[n] != '\0');
        at = at[n] != '\0' ? at + n + 1 : NULL;
    }
}

/* --- files ---------------------------------------------------------------- */

/* True for an index that is beside files of data: patterns such as "web*" match
 * it, too, but it holds no data. */
static bool is_index(const char *path, const char *pattern)
{
    return pst_has_suffix(path, ".idx") || pst_has_suffix(path, ".index") ||
           (pst_has_suffix(path, PST_DATA_SHARD_INDEX) &&
            !pst_has_suffix(pattern, ".json"));
}

static enum pst_status add_file(struct pst_data_list *list, const char *path,
                                struct pst_diag *diag)
{
    const char *copy = pst_arena_strdup(&list->arena, path);

    if (list->files.n >= PST_DATA_MAX_FILES)
        return pst_diag_set(diag, PST_E_DATA_LIST,
                            "these are more than %d files, the last one of "
                            "them %s",
                            PST_DATA_MAX_FILES, path);
    if (copy == NULL || !pst_vec_push(PST_TAG_ARCHIVE, &list->files, copy))
        return pst_diag_nomem(diag, strlen(path) + 1);
    return PST_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds the files that match a pattern. */
static enum pst_status expand_pattern(struct pst_data_list *list,
                                      const char *pattern,
                                      struct pst_diag *diag)
{
    const size_t before = list->files.n;
    enum pst_status status = PST_OK;
    glob_t found = {0};
    const int code = glob(pattern, GLOB_NOSORT, NULL, &found);

    if (code == GLOB_NOSPACE) {
        globfree(&found);
        return pst_diag_nomem(diag, MAX_TEXT);
    }
    for (size_t i = 0; i < found.gl_pathc && status == PST_OK; i++)
        if (!is_index(found.gl_pathv[i], pattern))
            status = add_file(list, found.gl_pathv[i], diag);
    globfree(&found);
    if (status == PST_OK && list->files.n == before)
        status =
            pst_diag_set(diag, PST_E_DATA_LIST,
                         "%s: no file with tokens or tensors matches", pattern);
    if (status == PST_OK)
        qsort(list->files.at + before, list->files.n - before,
              sizeof(*list->files.at), compare_names);
    return status;
}

bool pst_data_list_is_pattern(const char *text)
{
    return !path_exists(text) && strpbrk(text, "*?[") != NULL;
}

static enum pst_status add_files(struct pst_data_list *list, const char *name,
                                 struct pst_diag *diag)
{
    return pst_data_list_is_pattern(name) ? expand_pattern(list, name, diag)
                                          : add_file(list, name, diag);
}

/* --- sources -------------------------------------------------------------- */

static enum pst_status read_weight(const struct item *item, double *ret,
                                   struct pst_diag *diag)
{
    *ret = 1;
    if (item->weight == NULL)
        return PST_OK;
    if (pst_parse_f64(item->weight, ret) && *ret >= 0 && *ret <= DBL_MAX)
        return PST_OK;
    return pst_diag_set(diag, PST_E_DATA_LIST,
                        "%s:%s: a weight is a number of 0 or more", item->name,
                        item->weight);
}

/* Adds an item: a source if it has a weight, else files of the only source. */
static enum pst_status add_item(struct pst_data_list *list, const char *text,
                                const struct item *item, struct pst_diag *diag)
{
    struct pst_data_item *source = &list->sources[list->n];
    const bool weighted = item->weight != NULL, first = list->files.n == 0;
    enum pst_status status;

    if (*item->name == '\0')
        return pst_diag_set(diag, PST_E_DATA_LIST, "%s: a name is empty", text);
    if (!first && weighted != list->weighted)
        return pst_diag_set(diag, PST_E_DATA_LIST,
                            "%s: give each file a weight, or none of them",
                            text);
    if (weighted && list->n == PST_DATA_MAX_SOURCES)
        return pst_diag_set(diag, PST_E_DATA_LIST,
                            "%s: these are more than %d sources", text,
                            PST_DATA_MAX_SOURCES);
    list->weighted = weighted;
    if (!weighted && !first)
        source = &list->sources[--list->n];
    else
        *source = (struct pst_data_item){.first = list->files.n};
    source->text = pst_arena_strdup(&list->arena, weighted ? item->name : text);
    if (source->text == NULL)
        return pst_diag_nomem(diag, strlen(text) + 1);
    status = read_weight(item, &source->weight, diag);
    if (status == PST_OK)
        status = add_files(list, item->name, diag);
    source->n = list->files.n - source->first;
    list->n++;
    return status;
}

static enum pst_status check_weights(const struct pst_data_list *list,
                                     const char *text, struct pst_diag *diag)
{
    double sum = 0;

    for (unsigned i = 0; i < list->n; i++)
        sum += list->sources[i].weight;
    return sum > 0 ? PST_OK
                   : pst_diag_set(diag, PST_E_DATA_LIST,
                                  "%s: all weights are 0", text);
}

enum pst_status pst_data_list_read(const char *text, struct pst_data_list *ret,
                                   struct pst_diag *diag)
{
    const bool whole = path_exists(text);
    enum pst_status status = PST_OK;
    struct item item;

    *ret = (struct pst_data_list){0};
    pst_arena_init(&ret->arena, PST_TAG_ARCHIVE);
    for (const char *at = text; at != NULL && status == PST_OK;)
        status =
            next_item(&at, whole, &item)
                ? add_item(ret, text, &item, diag)
                : pst_diag_set(diag, PST_E_DATA_LIST,
                               "a name is longer than %d bytes", MAX_TEXT - 1);
    if (status == PST_OK)
        status = check_weights(ret, text, diag);
    if (status != PST_OK)
        pst_data_list_fini(ret);
    return status;
}

enum pst_status pst_data_list_match(const char *pattern,
                                    struct pst_data_list *ret,
                                    struct pst_diag *diag)
{
    enum pst_status status;

    *ret = (struct pst_data_list){.n = 1};
    pst_arena_init(&ret->arena, PST_TAG_ARCHIVE);
    status = expand_pattern(ret, pattern, diag);
    ret->sources[0] =
        (struct pst_data_item){.text = pattern, .weight = 1, .n = ret->files.n};
    if (status != PST_OK)
        pst_data_list_fini(ret);
    return status;
}

void pst_data_list_fini(struct pst_data_list *list)
{
    pst_vec_fini(&list->files);
    pst_arena_fini(&list->arena);
}
