// SPDX-License-Identifier: Apache-2.0
#include "stages/files/given.h"

#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/untrusted/json_file.h"
#include "stages/base/vec.h"
#include "stages/files/data/list.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#define TAG        PST_TAG_ARCHIVE
#define MAX_INDEX  ((size_t)64 << 20)
#define MAX_SHARDS 4096u

#define TENSORS ".safetensors"
#define INDEX   PST_DATA_SHARD_INDEX

struct pst_given {
    struct pst_arena arena;
    const char *path;
    struct PST_VEC(struct pst_safetensors *) shards;
    struct pst_map names; /* name -> struct pst_safetensors_entry */
};

/* --- the file of a folder ----------------------------------------------- */

/* Number of files with an ending, and the name of one of them. */
struct found {
    unsigned n;
    char name[256];
};

static void record_if_suffix(struct found *found, const char *name,
                             const char *ending)
{
    if (!pst_has_suffix(name, ending) || name[0] == '.' ||
        strlen(name) >= sizeof(found->name))
        return;
    found->n++;
    strcpy(found->name, name);
}

static enum pst_status choose_file(const char *dir, const char *ending,
                                   const struct found *found, const char **ret,
                                   struct pst_diag *diag)
{
    if (found->n > 1)
        return pst_diag_set(diag, PST_E_WEIGHTS_SEVERAL_FILES,
                            "%s holds %u files *%s: name the one that is meant",
                            dir, found->n, ending);
    if (found->n == 1)
        *ret = found->name;
    return PST_OK;
}

static enum pst_status find_file(const char *dir, struct pst_str *ret,
                                 struct pst_diag *diag)
{
    struct found tensors = {0}, indices = {0};
    bool plain = false, usual = false;
    enum pst_status status = PST_OK;
    const char *name = NULL;
    struct dirent *e;
    DIR *d = opendir(dir);

    if (d == NULL)
        return pst_diag_errno(diag, errno, "%s", dir);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while ((e = readdir(d)) != NULL) {
        plain = plain || strcmp(e->d_name, "model" TENSORS) == 0;
        usual = usual || strcmp(e->d_name, "model" INDEX) == 0;
        record_if_suffix(&tensors, e->d_name, TENSORS);
        record_if_suffix(&indices, e->d_name, INDEX);
    }
    closedir(d);
    if (plain)
        name = "model" TENSORS;
    else if (usual)
        name = "model" INDEX;
    if (name == NULL)
        status = choose_file(dir, INDEX, &indices, &name, diag);
    if (status == PST_OK && name == NULL)
        status = choose_file(dir, TENSORS, &tensors, &name, diag);
    if (status == PST_OK && name == NULL)
        status = pst_diag_set(diag, PST_E_WEIGHTS_NONE,
                              "%s holds no file *" TENSORS, dir);
    if (status == PST_OK)
        pst_str_addf(ret, "%s/%s", dir, name);
    return status;
}

/* --- shards --------------------------------------------------------------- */

static enum pst_status open_shard(struct pst_given *given, const char *path,
                                  struct pst_safetensors **ret,
                                  struct pst_diag *diag)
{
    enum pst_status status;

    if (!pst_vec_reserve(TAG, &given->shards, 1))
        return pst_diag_nomem(diag, sizeof(*given->shards.at));
    status = pst_safetensors_open(path, ret, diag);
    if (status == PST_OK)
        given->shards.at[given->shards.n++] = *ret;
    return status;
}

static enum pst_status add_name(struct pst_given *given,
                                const struct pst_safetensors_entry *entry,
                                struct pst_diag *diag)
{
    return pst_map_put(&given->names, entry->name, (void *)entry)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(*entry));
}

/* Adds all tensors of a file. */
static enum pst_status open_file(struct pst_given *given, const char *path,
                                 struct pst_diag *diag)
{
    struct pst_safetensors *st = NULL;
    enum pst_status status = open_shard(given, path, &st, diag);

    for (size_t i = 0; status == PST_OK && i < pst_safetensors_count(st); i++) {
        const struct pst_safetensors_entry *entry = pst_safetensors_at(st, i);
        const struct pst_safetensors_entry *other =
            pst_map_get(&given->names, entry->name);

        status = other == NULL
                     ? add_name(given, entry, diag)
                     : pst_diag_set(diag, PST_E_WEIGHTS_TWICE,
                                    "%s: \"%.200s\" is in %s, too", path,
                                    entry->name, other->file->path);
    }
    return status;
}

/* Opens the .safetensors files that match a pattern. */
static enum pst_status open_pattern(struct pst_given *given,
                                    struct pst_diag *diag)
{
    struct pst_data_list list;
    enum pst_status status = pst_data_list_match(given->path, &list, diag);
    size_t n = 0;

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < list.files.n && status == PST_OK; i++) {
        if (!pst_has_suffix(list.files.at[i], TENSORS))
            continue;
        n++;
        status = open_file(given, list.files.at[i], diag);
    }
    if (status == PST_OK && n == 0)
        status = pst_diag_set(diag, PST_E_WEIGHTS_NONE,
                              "%s: no file *" TENSORS " matches", given->path);
    pst_data_list_fini(&list);
    return status;
}

/* --- index ---------------------------------------------------------------- */

/* True for a file name without a path: an index must not lead out of its
 * folder. */
static bool is_file_name(const char *name)
{
    return name != NULL && name[0] != '\0' && name[0] != '.' &&
           strchr(name, '/') == NULL && strlen(name) < 256;
}

/* Returns the shard of that name in the index's folder, opening it once. */
static enum pst_status find_shard(struct pst_given *given,
                                  struct pst_map *opened, const char *name,
                                  struct pst_safetensors **ret,
                                  struct pst_diag *diag)
{
    const char *slash = strrchr(given->path, '/');
    const size_t n = slash != NULL ? (size_t)(slash - given->path) + 1 : 0;
    struct pst_str path = {0};
    enum pst_status status;
    struct stat st;

    *ret = pst_map_get(opened, name);
    if (*ret != NULL)
        return PST_OK;
    if (opened->n >= MAX_SHARDS)
        return pst_diag_set(diag, PST_E_WEIGHTS_SHARDS,
                            "it names more than %u files", MAX_SHARDS);
    pst_str_addn(&path, given->path, n);
    pst_str_add(&path, name);
    if (path.failed)
        status = pst_diag_nomem(diag, n);
    else if (stat(path.text, &st) != 0 && errno == ENOENT)
        status = pst_diag_set(diag, PST_E_WEIGHTS_INDEX,
                              "it names \"%s\", which is missing", name);
    else
        status = open_shard(given, path.text, ret, diag);
    if (status == PST_OK && !pst_map_put(opened, name, *ret))
        status = pst_diag_nomem(diag, strlen(name));
    pst_str_fini(&path);
    return status;
}

static enum pst_status read_map(struct pst_given *given, json_t *map,
                                struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    struct pst_map opened;
    const char *name;
    json_t *file;

    if (!json_is_object(map))
        return pst_diag_set(diag, PST_E_WEIGHTS_INDEX,
                            "it has no object \"weight_map\"");
    pst_map_init(&opened, TAG);
    json_object_foreach(map, name, file)
    {
        const struct pst_safetensors_entry *entry = NULL;
        struct pst_safetensors *st = NULL;

        if (!is_file_name(json_string_value(file)))
            status = pst_diag_set(
                diag, PST_E_WEIGHTS_INDEX,
                "\"%.200s\" is to be in \"%.200s\", which is "
                "no file of this folder",
                name, json_is_string(file) ? json_string_value(file) : "?");
        if (status == PST_OK)
            status =
                find_shard(given, &opened, json_string_value(file), &st, diag);
        if (status == PST_OK) {
            entry = pst_safetensors_find(st, name);
            status = entry != NULL
                         ? add_name(given, entry, diag)
                         : pst_diag_set(diag, PST_E_WEIGHTS_INDEX,
                                        "\"%.200s\" is not in \"%s\"", name,
                                        json_string_value(file));
        }
        if (status != PST_OK)
            break;
    }
    pst_map_fini(&opened);
    return status;
}

static enum pst_status open_index(struct pst_given *given,
                                  struct pst_diag *diag)
{
    enum pst_status status;
    json_error_t error;
    char *text = NULL;
    size_t size = 0;
    json_t *root;

    status = pst_json_file_read(given->path, MAX_INDEX, &text, &size, diag);
    if (status != PST_OK)
        return status;
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    status = root == NULL
                 ? pst_diag_set(diag, PST_E_WEIGHTS_INDEX, "byte %d: %s",
                                error.position, error.text)
                 : read_map(given, json_object_get(root, "weight_map"), diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s", given->path);
    json_decref(root);
    pst_free(text);
    return status;
}

/* ----------------------------------------------------------------------------
 */

enum pst_status pst_given_open(const char *path, struct pst_given **ret,
                               struct pst_diag *diag)
{
    struct pst_given *given = pst_calloc(TAG, 1, sizeof(*given));
    struct pst_str file = {0};
    enum pst_status status = PST_OK;
    bool pattern = false;
    struct stat st;

    if (given == NULL)
        return pst_diag_nomem(diag, sizeof(*given));
    pst_arena_init(&given->arena, TAG);
    pst_map_init(&given->names, TAG);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        status = find_file(path, &file, diag);
    } else {
        pattern = pst_data_list_is_pattern(path);
        if (!pattern && stat(path, &st) != 0)
            status = errno == ENOENT
                         ? pst_diag_set(diag, PST_E_FILE_MISSING,
                                        "%s: there is no such file", path)
                         : pst_diag_errno(diag, errno, "%s", path);
        pst_str_add(&file, path);
    }
    if (status == PST_OK) {
        given->path = pst_arena_strdup(&given->arena, pst_str_text(&file));
        if (file.failed || given->path == NULL)
            status = pst_diag_nomem(diag, strlen(path));
        else if (pattern)
            status = open_pattern(given, diag);
        else if (pst_has_suffix(given->path, ".json"))
            status = open_index(given, diag);
        else
            status = open_file(given, given->path, diag);
    }
    pst_str_fini(&file);
    if (status != PST_OK) {
        pst_given_close(given);
        return status;
    }
    *ret = given;
    return PST_OK;
}

void pst_given_close(struct pst_given *given)
{
    if (given == NULL)
        return;
    for (size_t i = 0; i < given->shards.n; i++)
        pst_safetensors_close(given->shards.at[i]);
    pst_vec_fini(&given->shards);
    pst_map_fini(&given->names);
    pst_arena_fini(&given->arena);
    pst_free(given);
}

const char *pst_given_path(const struct pst_given *given)
{
    return given->path;
}

size_t pst_given_files(const struct pst_given *given)
{
    return given->shards.n;
}

const struct pst_file *pst_given_file(const struct pst_given *given, size_t i)
{
    return pst_safetensors_file(given->shards.at[i]);
}

enum pst_status pst_given_load(struct pst_given *given, uint64_t most,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < given->shards.n && status == PST_OK; i++)
        if (pst_given_file(given, i)->size <= most)
            status = pst_safetensors_load(given->shards.at[i], diag);
    return status;
}

size_t pst_given_count(const struct pst_given *given)
{
    return given->names.n;
}

const char *pst_given_name(const struct pst_given *given, size_t i)
{
    return given->names.entries[i].key;
}

const char *pst_given_metadata(const struct pst_given *given, const char *key)
{
    const char *text = NULL;

    for (size_t i = 0; i < given->shards.n && text == NULL; i++)
        text = pst_safetensors_metadata(given->shards.at[i], key);
    return text;
}

const struct pst_safetensors_entry *pst_given_find(
    const struct pst_given *given, const char *name)
{
    const struct pst_safetensors_entry *entry =
        pst_map_get(&given->names, name);

    for (size_t i = 0; i < given->shards.n && entry == NULL; i++) {
        const char *kept = pst_safetensors_metadata(given->shards.at[i], name);

        if (kept != NULL)
            entry = pst_map_get(&given->names, kept);
    }
    return entry;
}
