// SPDX-License-Identifier: Apache-2.0
#include "stages/files/lora/alphas.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/untrusted/json_file.h"

#define TAG        PST_TAG_ARCHIVE
#define CONFIG     "adapter_config.json"
#define MAX_CONFIG ((size_t)16 << 20)
#define ALPHA      8.0 /* alpha if the configuration has none, as in peft */

struct pst_alphas {
    const struct pst_given *files;
    struct pst_str path;
    json_t *config; /* content of adapter_config.json; NULL: there is none */
};

void pst_alphas_key(const char *module, struct pst_str *ret)
{
    pst_str_addf(ret, "lora_alpha %s", module);
}

void pst_alphas_value(double alpha, char ret[32])
{
    pst_format_f64(alpha, ret);
}

static enum pst_status read_config(struct pst_alphas *a, struct pst_diag *diag)
{
    json_error_t error;
    char *text = NULL;
    size_t size = 0;
    enum pst_status status;

    if (access(a->path.text, F_OK) != 0)
        return errno == ENOENT
                   ? PST_OK
                   : pst_diag_errno(diag, errno, "%s", a->path.text);
    status = pst_json_file_read(a->path.text, MAX_CONFIG, &text, &size, diag);
    if (status != PST_OK)
        return status;
    a->config = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    pst_free(text);
    if (a->config == NULL)
        return pst_diag_set(diag, PST_E_LORA_CONFIG, "%s: byte %d: %s",
                            a->path.text, error.position, error.text);
    if (!json_is_object(a->config))
        return pst_diag_set(diag, PST_E_LORA_CONFIG, "%s: is not an object",
                            a->path.text);
    return PST_OK;
}

enum pst_status pst_alphas_open(const struct pst_given *files,
                                struct pst_alphas **ret, struct pst_diag *diag)
{
    const char *path = pst_given_path(files), *slash = strrchr(path, '/');
    struct pst_alphas *a = pst_calloc(TAG, 1, sizeof(*a));
    enum pst_status status;

    if (a == NULL)
        return pst_diag_nomem(diag, sizeof(*a));
    a->files = files;
    if (slash != NULL)
        pst_str_addn(&a->path, path, (size_t)(slash - path) + 1);
    pst_str_add(&a->path, CONFIG);
    status = a->path.failed ? pst_diag_nomem(diag, strlen(path))
                            : read_config(a, diag);
    if (status != PST_OK) {
        pst_alphas_close(a);
        return status;
    }
    *ret = a;
    return PST_OK;
}

void pst_alphas_close(struct pst_alphas *alphas)
{
    if (alphas == NULL)
        return;
    json_decref(alphas->config);
    pst_str_fini(&alphas->path);
    pst_free(alphas);
}

/* --- peft's configuration ------------------------------------------------- */

static bool is_set(const struct pst_alphas *a, const char *key)
{
    return json_is_true(json_object_get(a->config, key));
}

static enum pst_status report_wrong_key(const struct pst_alphas *a,
                                        const char *what, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_LORA_CONFIG, "%s: \"%.200s\" is wrong",
                        a->path.text, what);
}

/* Reads a key of "alpha_pattern" that is a plain name, with dots escaped or
 * not. *ret_all: anchored with "^", so that it is the whole name. *ret_plain
 * false: the key is a regular expression that only peft can evaluate. */
static void read_pattern(const char *key, struct pst_str *ret, bool *ret_all,
                         bool *ret_plain)
{
    size_t n;

    *ret_all = key[0] == '^';
    *ret_plain = true;
    key += *ret_all;
    for (n = strlen(key); n > 0 && key[n - 1] == '$'; n--)
        ;
    for (size_t i = 0; i < n; i++) {
        const bool quoted = key[i] == '\\' && i + 1 < n;

        i += quoted;
        if (!quoted && strchr("^$*+?{}[]\\|()", key[i]) != NULL)
            *ret_plain = false;
        pst_str_addn(ret, key + i, 1);
    }
}

static bool ends_with_name(const char *module, const char *name, bool all)
{
    const size_t n = strlen(module), m = strlen(name);

    if (strcmp(module, name) == 0)
        return true;
    return !all && n > m + 1 && module[n - m - 1] == '.' &&
           strcmp(module + n - m, name) == 0;
}

/* Returns the first regular expression before the key `end` (NULL: of all) with
 * another value; NULL if there is none. */
static const char *find_conflict(json_t *patterns, const char *end,
                                 double alpha)
{
    const char *key;
    json_t *value;

    json_object_foreach(patterns, key, value)
    {
        struct pst_str name = {0};
        bool all, plain;

        if (key == end)
            return NULL;
        read_pattern(key, &name, &all, &plain);
        pst_str_fini(&name);
        if (!plain && json_number_value(value) != alpha)
            return key;
    }
    return NULL;
}

/* Finds the first key that matches the module. Regular expressions before that
 * key might match, too: their values must be equal. */
static enum pst_status find_pattern(const struct pst_alphas *a,
                                    const char *module, double *ret,
                                    struct pst_diag *diag)
{
    json_t *patterns = json_object_get(a->config, "alpha_pattern"), *value;
    const char *match = NULL, *unread, *key;

    if (patterns == NULL || json_is_null(patterns))
        return PST_OK;
    if (!json_is_object(patterns))
        return report_wrong_key(a, "alpha_pattern", diag);
    json_object_foreach(patterns, key, value)
    {
        struct pst_str name = {0};
        bool all, plain;

        if (!json_is_number(value))
            return report_wrong_key(a, key, diag);
        read_pattern(key, &name, &all, &plain);
        if (plain && ends_with_name(module, pst_str_text(&name), all)) {
            *ret = json_number_value(value);
            match = key;
        }
        pst_str_fini(&name);
        if (match != NULL)
            break;
    }
    unread = find_conflict(patterns, match, *ret);
    if (unread != NULL)
        return pst_diag_set(diag, PST_E_LORA_KIND,
                            "%s: whether the expression \"%.200s\" means "
                            "\"%.200s\" is not known: write names there",
                            a->path.text, unread, module);
    return PST_OK;
}

static enum pst_status find_in_config(const struct pst_alphas *a,
                                      const char *module, int64_t rank,
                                      double *ret, struct pst_diag *diag)
{
    const json_t *alpha = json_object_get(a->config, "lora_alpha");
    const json_t *type = json_object_get(a->config, "peft_type");
    enum pst_status status;

    if (json_is_string(type) && strcmp(json_string_value(type), "LORA") != 0)
        return pst_diag_set(diag, PST_E_LORA_KIND,
                            "%s: adapters of type \"%.60s\", not LORA",
                            a->path.text, json_string_value(type));
    if (is_set(a, "use_dora"))
        return pst_diag_set(diag, PST_E_LORA_KIND,
                            "%s: use_dora: weights are scaled as well, which "
                            "--lora does not do",
                            a->path.text);
    if (alpha != NULL && !json_is_number(alpha))
        return report_wrong_key(a, "lora_alpha", diag);
    *ret = alpha != NULL ? json_number_value(alpha) : ALPHA;
    status = find_pattern(a, module, ret, diag);
    /* its scale is alpha / sqrt(rank) */
    if (status == PST_OK && is_set(a, "use_rslora"))
        *ret *= sqrt((double)rank);
    return status;
}

/* --- lookup --------------------------------------------------------------- */

enum pst_status pst_alphas_find(const struct pst_alphas *alphas,
                                const char *module, int64_t rank, bool peft,
                                double *ret, bool *ret_known,
                                struct pst_diag *diag)
{
    struct pst_str key = {0};
    const char *text;
    bool failed;

    pst_alphas_key(module, &key);
    failed = key.failed;
    text = failed ? NULL : pst_given_metadata(alphas->files, key.text);
    pst_str_fini(&key);
    if (failed)
        return pst_diag_nomem(diag, strlen(module));
    *ret_known = true;
    if (text != NULL)
        return pst_parse_f64(text, ret)
                   ? PST_OK
                   : pst_diag_set(diag, PST_E_LORA_CONFIG,
                                  "%s: the alpha of \"%.200s\" is not a number",
                                  pst_given_path(alphas->files), module);
    if (peft && alphas->config != NULL)
        return find_in_config(alphas, module, rank, ret, diag);
    *ret_known = false;
    return PST_OK;
}
