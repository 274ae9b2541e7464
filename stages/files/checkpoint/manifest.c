// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/base/untrusted/json_file.h"

#define MAX_MANIFEST ((size_t)256 << 20)
#define MAX_SHARDS   65536u
#define SHARD_END    ".safetensors"

void pst_manifest_init(struct pst_manifest *m)
{
    *m = (struct pst_manifest){0};
    pst_map_init(&m->tensors, PST_TAG_ARCHIVE);
    pst_state_names_init(&m->names);
}

void pst_manifest_fini(struct pst_manifest *m)
{
    pst_state_names_fini(&m->names);
    pst_vec_fini(&m->shards);
    pst_map_fini(&m->tensors);
}

/* Computes the digest of the object as compact text with sorted keys. */
static bool digest_json(const json_t *root, char ret[33])
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        return false;
    pst_digest(text, strlen(text), ret);
    free(text); /* allocated by jansson: free(), not pst_free() */
    return true;
}

static bool get_u64(const json_t *object, const char *key, uint64_t *ret)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

/* Reads the seed, which is stored as text, because it uses all 64 bits and a
 * JSON number cannot hold these. */
static bool get_seed(const json_t *root, uint64_t *ret)
{
    const char *text = json_string_value(json_object_get(root, "seed"));
    char *end;

    if (!text || !isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return !*end && !errno;
}

static bool get_text(const json_t *object, const char *key, char *ret,
                     size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (!text || strlen(text) >= size)
        return false;
    memcpy(ret, text, strlen(text) + 1);
    return true;
}

static enum pst_status report_bad_key(struct pst_diag *diag, const char *what)
{
    return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                        "'%s' is missing or wrong", what);
}

static enum pst_status read_shards(struct pst_manifest *m, const json_t *list,
                                   struct pst_diag *diag)
{
    const size_t n = json_array_size(list);

    if (n == 0 || n > MAX_SHARDS)
        return report_bad_key(diag, "shards");
    for (size_t i = 0; i < n; i++) {
        const json_t *info = json_array_get(list, i);
        struct pst_checkpoint_shard shard;

        /* A name without a path: a manifest must not lead out of its folder. */
        if (!get_text(info, "file", shard.file, sizeof(shard.file)) ||
            !shard.file[0] || shard.file[0] == '.' || strchr(shard.file, '/') ||
            !get_u64(info, "bytes", &shard.bytes) ||
            !get_text(info, "xxh3_128", shard.digest, sizeof(shard.digest)))
            return report_bad_key(diag, "shards");
        if (!pst_vec_push(PST_TAG_ARCHIVE, &m->shards, shard))
            return pst_diag_nomem(diag, n * sizeof(shard));
    }
    return PST_OK;
}

static enum pst_status read_tensors(struct pst_manifest *m, json_t *table,
                                    struct pst_diag *diag)
{
    const char *name;
    json_t *value;

    if (!json_is_object(table))
        return report_bad_key(diag, "tensors");
    json_object_foreach(table, name, value)
    {
        const json_int_t shard = json_integer_value(value);

        if (!json_is_integer(value) || shard < 0 ||
            (uint64_t)shard >= m->shards.n)
            return report_bad_key(diag, "tensors");
        if (!pst_map_put(&m->tensors, name, (void *)(uintptr_t)shard))
            return pst_diag_nomem(diag, strlen(name));
    }
    return PST_OK;
}

/* Reads values that manifests of older programs lack; such manifests count as
 * good. */
static bool read_optional(struct pst_checkpoint_info *info, const json_t *root)
{
    const json_t *is_bad = json_object_get(root, "bad");
    const json_t *time = json_object_get(root, "time");
    const json_t *changes = json_object_get(root, "changes");

    info->bad = json_is_true(is_bad);
    info->time = json_is_integer(time) ? json_integer_value(time) : 0;
    info->reason[0] = info->name[0] = info->identity[0] = info->run[0] = '\0';
    info->changes = info->course = 0;
    if ((json_object_get(root, "name") != NULL &&
         !get_text(root, "name", info->name, sizeof(info->name))) ||
        (json_object_get(root, "identity") != NULL &&
         !get_text(root, "identity", info->identity, sizeof(info->identity))) ||
        (json_object_get(root, "run") != NULL &&
         !get_text(root, "run", info->run, sizeof(info->run))))
        return false;
    if (changes != NULL && !get_u64(root, "changes", &info->changes))
        return false;
    if (json_object_get(root, "course") != NULL &&
        !get_u64(root, "course", &info->course))
        return false;
    return (is_bad == NULL || json_is_boolean(is_bad)) &&
           (json_object_get(root, "reason") == NULL ||
            get_text(root, "reason", info->reason, sizeof(info->reason)));
}

/* Reads the manifest from its JSON; removes the digest from root. */
static enum pst_status read_root(struct pst_manifest *m, json_t *root,
                                 struct pst_diag *diag)
{
    uint64_t version, position;
    char want[33], have[33];
    enum pst_status status;

    if (!json_is_object(root) || !get_u64(root, "version", &version))
        return report_bad_key(diag, "version");
    if (version > PST_CHECKPOINT_VERSION)
        return pst_diag_set(diag, PST_E_CHECKPOINT_VERSION,
                            "version %" PRIu64 ", this program reads %d: a "
                            "newer penstock wrote it; use that one",
                            version, PST_CHECKPOINT_VERSION);
    if (version != PST_CHECKPOINT_VERSION)
        return report_bad_key(diag, "version");
    if (!get_text(root, "digest", want, sizeof(want)))
        return report_bad_key(diag, "digest");
    json_object_del(root, "digest");
    if (!digest_json(root, have))
        return pst_diag_nomem(diag, 0);
    if (strcmp(want, have) != 0)
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "is damaged: digest %s, it says %s", have, want);
    memcpy(m->info.digest, have, sizeof(m->info.digest));
    if (!get_u64(root, "step", &m->info.step))
        return report_bad_key(diag, "step");
    if (!get_u64(root, "data_position", &position) || position != m->info.step)
        return report_bad_key(diag, "data_position");
    if (!get_seed(root, &m->info.seed))
        return report_bad_key(diag, "seed");
    if (!get_text(root, "model", m->info.model_digest,
                  sizeof(m->info.model_digest)))
        return report_bad_key(diag, "model");
    if (!get_text(root, "optimizer", m->info.optimizer,
                  sizeof(m->info.optimizer)))
        return report_bad_key(diag, "optimizer");
    if (!read_optional(&m->info, root))
        return report_bad_key(diag, "bad");
    if (!pst_manifest_read_options(&m->info, json_object_get(root, "options")))
        return report_bad_key(diag, "options");
    if (!pst_manifest_read_place(&m->info, root))
        return report_bad_key(diag, "data");
    if (!pst_manifest_read_scale(&m->info, root))
        return report_bad_key(diag, "loss_scale");
    status = pst_manifest_read_updates(m, root, diag);
    if (status == PST_OK)
        status = read_shards(m, json_object_get(root, "shards"), diag);
    if (status == PST_OK)
        status = read_tensors(m, json_object_get(root, "tensors"), diag);
    if (status == PST_OK)
        status = pst_manifest_read_names(m, json_object_get(root, "state_dict"),
                                         diag);
    if (status == PST_OK)
        status = pst_manifest_read_adapters(
            m, json_object_get(root, "adapters"), diag);
    if (status == PST_OK)
        status = pst_manifest_read_changed(m, json_object_get(root, "changed"),
                                           diag);
    return status;
}

enum pst_status pst_manifest_read(const char *step_dir, struct pst_manifest *m,
                                  struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status;
    json_t *root = NULL;
    json_error_t error;
    char *text = NULL;
    size_t size;

    pst_str_addf(&path, "%s/" PST_MANIFEST_FILE, step_dir);
    status = path.failed ? pst_diag_nomem(diag, strlen(step_dir))
                         : pst_json_file_read(path.text, MAX_MANIFEST, &text,
                                              &size, diag);
    if (status != PST_OK)
        goto out;
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    status = root ? read_root(m, root, diag)
                  : pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED, "byte %d: %s",
                                 error.position, error.text);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s", path.text);
out:
    json_decref(root);
    pst_free(text);
    pst_str_fini(&path);
    return status;
}

static json_t *make_shards(const struct pst_manifest *m)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < m->shards.n; i++) {
        const struct pst_checkpoint_shard *s = &m->shards.at[i];
        json_t *info = json_pack("{s:s, s:I, s:s}", "file", s->file, "bytes",
                                 (json_int_t)s->bytes, "xxh3_128", s->digest);

        if (json_array_append_new(list, info) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *make_tensors(const struct pst_manifest *m)
{
    json_t *table = json_object();

    for (size_t i = 0; table && i < m->tensors.n; i++) {
        const struct pst_map_entry *t = &m->tensors.entries[i];
        json_t *shard = json_integer((json_int_t)(uintptr_t)t->value);

        if (json_object_set_new(table, t->key, shard) != 0) {
            json_decref(table);
            return NULL;
        }
    }
    return table;
}

/* Makes a JSON string; the text may have been cut inside a character. */
static json_t *make_string(const char *text)
{
    json_t *string = NULL;

    for (size_t n = strlen(text); string == NULL; n--) {
        string = json_stringn(text, n);
        if (n == 0)
            break;
    }
    return string;
}

/* Adds the optional values that are known. */
static bool add_known(const struct pst_manifest *m, json_t *root)
{
    const struct pst_checkpoint_info *info = &m->info;

    return (info->changes == 0 ||
            json_object_set_new(root, "changes",
                                json_integer((json_int_t)info->changes)) ==
                0) &&
           (info->course == 0 ||
            json_object_set_new(root, "course",
                                json_integer((json_int_t)info->course)) == 0) &&
           (info->run[0] == '\0' ||
            json_object_set_new(root, "run", json_string(info->run)) == 0) &&
           pst_manifest_add_updates(m, root) &&
           pst_manifest_add_scale(info, root) &&
           pst_manifest_add_place(info, root) &&
           (info->options[0] == '\0' ||
            json_object_set_new(root, "options",
                                pst_manifest_make_options(info)) == 0) &&
           (info->name[0] == '\0' ||
            json_object_set_new(root, "name", make_string(info->name)) == 0) &&
           (info->identity[0] == '\0' ||
            json_object_set_new(root, "identity",
                                json_string(info->identity)) == 0) &&
           (!m->has_names ||
            json_object_set_new(root, "state_dict",
                                pst_manifest_make_names(m)) == 0) &&
           (m->names.adapters.n == 0 ||
            (json_object_set_new(root, "adapters",
                                 pst_manifest_make_adapters(m)) == 0 &&
             json_object_set_new(root, "changed",
                                 pst_manifest_make_changed(m)) == 0));
}

/* Returns the text of the file; NULL if memory is out. */
static char *make_text(const struct pst_manifest *m)
{
    char seed[32], digest[33], *text = NULL;
    json_t *root;

    snprintf(seed, sizeof(seed), "%" PRIu64, m->info.seed);
    root = json_pack("{s:i, s:I, s:I, s:s, s:s, s:s, s:I, s:b, s:o, s:o, s:o}",
                     "version", PST_CHECKPOINT_VERSION, "step",
                     (json_int_t)m->info.step, "data_position",
                     (json_int_t)m->info.step, "seed", seed, "model",
                     m->info.model_digest, "optimizer", m->info.optimizer,
                     "time", (json_int_t)m->info.time, "bad", (int)m->info.bad,
                     "reason", make_string(m->info.reason), "shards",
                     make_shards(m), "tensors", make_tensors(m));
    if (root != NULL && add_known(m, root) && digest_json(root, digest) &&
        json_object_set_new(root, "digest", json_string(digest)) == 0)
        text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    return text;
}

enum pst_status pst_manifest_write(const char *step_dir,
                                   const struct pst_manifest *m,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    char *text = make_text(m);
    enum pst_status status;

    pst_str_addf(&path, "%s/" PST_MANIFEST_FILE, step_dir);
    status = !text || path.failed
                 ? pst_diag_nomem(diag, strlen(step_dir))
                 : pst_file_write(path.text, text, strlen(text), diag);
    pst_str_fini(&path);
    free(text); /* allocated by jansson: free(), not pst_free() */
    return status;
}

void pst_checkpoint_step_dir(const char *dir, uint64_t step,
                             struct pst_str *ret)
{
    pst_str_addf(ret, "%s/step-%08" PRIu64, dir, step);
}

/* Checks whether a step has a manifest: *ret is false only if it does not
 * exist, since a step that cannot be examined may be a checkpoint. Allocates
 * nothing: an allocation failure must not report a checkpoint as incomplete.
 * Paths beyond PATH_MAX cannot be opened anyway. */
enum pst_status pst_checkpoint_is_complete(const char *dir, uint64_t step,
                                           bool *ret, struct pst_diag *diag)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "%s/step-%08" PRIu64 "/" PST_MANIFEST_FILE,
             dir, step);
    *ret = lstat(path, &st) == 0;
    if (*ret || errno == ENOENT || errno == ENOTDIR)
        return PST_OK;
    return pst_diag_errno(diag, errno, "cannot look for the manifest %s", path);
}

/* True also if the folder cannot be examined, since it may have shards. */
bool pst_checkpoint_has_shards(const char *dir, uint64_t step)
{
    char path[PATH_MAX];
    struct dirent *e;
    bool found = false;
    DIR *d;

    snprintf(path, sizeof(path), "%s/step-%08" PRIu64, dir, step);
    d = opendir(path);
    if (!d)
        return errno != ENOENT && errno != ENOTDIR;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (!found && (e = readdir(d))) {
        const size_t n = strlen(e->d_name), tail = strlen(SHARD_END);

        found = pst_has_prefix(e->d_name, "rank-") && n > tail &&
                strcmp(e->d_name + n - tail, SHARD_END) == 0;
    }
    closedir(d);
    return found;
}

bool pst_checkpoint_is_rest(const char *dir, uint64_t step)
{
    char path[PATH_MAX];
    struct stat st;
    bool complete;

    if (pst_checkpoint_is_complete(dir, step, &complete, NULL) != PST_OK ||
        complete)
        return false;
    snprintf(path, sizeof(path), "%s/step-%08" PRIu64 "/" PST_SAVING_FILE, dir,
             step);
    return lstat(path, &st) == 0 || !pst_checkpoint_has_shards(dir, step);
}

/* Parses the number of a step's directory; accepts only names that we would
 * write ourselves. */
static bool parse_step(const char *name, uint64_t *ret)
{
    char again[40];
    int64_t step;

    if (!pst_has_prefix(name, "step-") ||
        !isdigit((unsigned char)name[strlen("step-")]) ||
        !pst_parse_i64(name + strlen("step-"), &step))
        return false;
    snprintf(again, sizeof(again), "step-%08" PRId64, step);
    *ret = (uint64_t)step;
    return strcmp(name, again) == 0;
}

enum pst_status pst_checkpoint_step_of(const char *path, char **ret_dir,
                                       uint64_t *ret_step,
                                       struct pst_diag *diag)
{
    char *real = realpath(path, NULL), *slash;
    enum pst_status status = PST_OK;

    *ret_dir = NULL;
    if (real == NULL)
        return pst_diag_errno(diag, errno, "cannot find the checkpoint %s",
                              path);
    slash = strrchr(real, '/');
    if (slash != NULL && parse_step(slash + 1, ret_step)) {
        *slash = '\0';
        *ret_dir = pst_strdup(PST_TAG_ARCHIVE, slash > real ? real : "/");
        if (*ret_dir == NULL)
            status = pst_diag_nomem(diag, strlen(real));
    }
    free(real); /* allocated by the C library */
    return status;
}

static int newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x < y) - (x > y);
}

enum pst_status pst_checkpoint_list_all(const char *dir, uint64_t before,
                                        struct pst_checkpoint_steps *ret,
                                        struct pst_diag *diag)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    if (!d && errno == ENOENT)
        return PST_OK;
    if (!d)
        return pst_diag_errno(diag, errno, "cannot list the checkpoints in %s",
                              dir);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while ((errno = 0, e = readdir(d))) {
        uint64_t step;

        if (!parse_step(e->d_name, &step) || step >= before)
            continue;
        if (!pst_vec_push(PST_TAG_ARCHIVE, ret, step)) {
            closedir(d);
            return pst_diag_nomem(diag, ret->n * sizeof(step));
        }
    }
    if (errno) {
        const enum pst_status status = pst_diag_errno(
            diag, errno, "cannot list the checkpoints in %s", dir);

        closedir(d);
        return status;
    }
    closedir(d);
    if (ret->n)
        qsort(ret->at, ret->n, sizeof(*ret->at), newest_first);
    return PST_OK;
}

enum pst_status pst_checkpoint_list(const char *dir,
                                    struct pst_checkpoint_steps *ret,
                                    struct pst_diag *diag)
{
    enum pst_status status =
        pst_checkpoint_list_all(dir, UINT64_MAX, ret, diag);
    size_t n = 0;

    for (size_t i = 0; i < ret->n && status == PST_OK; i++) {
        if (!pst_checkpoint_is_rest(dir, ret->at[i]))
            ret->at[n++] = ret->at[i];
    }
    ret->n = n;
    return status;
}
