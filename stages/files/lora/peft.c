// SPDX-License-Identifier: Apache-2.0
/* Names of adapters as peft writes them. */
#include "stages/files/checkpoint/state_names.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAG   PST_TAG_ARCHIVE
#define SHOWN 10

static enum pst_status report_no_adapters(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_LORA_NONE,
                        "the model has no adapters: split --lora adds them");
}

static bool is_of_adapter(const struct pst_adapters *list, const char *tensor)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i].down, tensor) == 0 ||
            strcmp(list->at[i].up, tensor) == 0)
            return true;
    return false;
}

enum pst_status pst_state_names_merge(struct pst_state_names *names,
                                      struct pst_diag *diag)
{
    size_t n = 0;

    if (names->adapters.n == 0)
        return report_no_adapters(diag);
    for (size_t i = 0; i < names->adapters.n; i++)
        if (names->adapters.at[i].shared)
            return pst_diag_set(
                diag, PST_E_LORA_TIED,
                "the weight of \"%.200s\" is tied to what has no adapter, so "
                "that they cannot be merged: write the adapter (--adapter) "
                "instead",
                names->adapters.at[i].module);
    for (size_t i = 0; i < names->all.n; i++)
        if (!is_of_adapter(&names->adapters, names->all.at[i].tensor))
            names->all.at[n++] = names->all.at[i];
    names->all.n = n;
    names->merges = true;
    return PST_OK;
}

/* --- modules that are trained whole -----------------------------------------
 */

/* Returns the length of the module's name in a key: 1 for "h.weight"; 0: the
 * key has no module. */
static size_t module_of(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot != NULL ? (size_t)(dot - key) : 0;
}

/* True if the module named by the first n bytes of key has an adapter, or
 * contains a module that has one: peft cannot train such a module whole. */
static bool is_adapted(const struct pst_state_names *names, const char *key,
                       size_t n)
{
    for (size_t i = 0; i < names->adapters.n; i++) {
        const char *module = names->adapters.at[i].module;

        if (strncmp(module, key, n) == 0 &&
            (module[n] == '.' || module[n] == '\0'))
            return true;
    }
    return false;
}

/* True if training has changed the tensor, which belongs to no adapter. */
static bool is_trained(const struct pst_state_names *names, const char *tensor)
{
    if (!pst_has_prefix(tensor, "param.") ||
        is_of_adapter(&names->adapters, tensor))
        return false;
    for (size_t i = 0; i < names->changed.n; i++)
        if (strcmp(names->changed.at[i], tensor) == 0)
            return true;
    return false;
}

/* True if the parameter was trained, so that its whole module is saved. */
static bool makes_whole(const struct pst_state_names *names,
                        const struct pst_state_name *name)
{
    const size_t n = module_of(name->key);

    return n > 0 && is_trained(names, name->tensor) &&
           !is_adapted(names, name->key, n);
}

/* True if the key belongs to a module that is saved whole. */
static bool is_whole(const struct pst_state_names *names, const char *key)
{
    for (size_t i = 0; i < names->all.n; i++) {
        const char *other = names->all.at[i].key;
        const size_t n = module_of(other);

        if (n > 0 && strncmp(key, other, n) == 0 && key[n] == '.' &&
            makes_whole(names, &names->all.at[i]))
            return true;
    }
    return false;
}

/* True if a module that is saved whole has the tensor. */
static bool is_saved(const struct pst_state_names *names, const char *tensor)
{
    for (size_t i = 0; i < names->all.n; i++)
        if (strcmp(names->all.at[i].tensor, tensor) == 0 &&
            is_whole(names, names->all.at[i].key))
            return true;
    return false;
}

/* Makes the list of modules that are saved whole; null if there are none. */
static json_t *make_whole(const struct pst_state_names *names)
{
    json_t *list = json_array();

    for (size_t i = 0; i < names->all.n; i++) {
        const char *key = names->all.at[i].key;
        const size_t n = module_of(key);
        bool there = !makes_whole(names, &names->all.at[i]);

        for (size_t k = 0; k < json_array_size(list) && !there; k++) {
            const char *other = json_string_value(json_array_get(list, k));

            there = strlen(other) == n && strncmp(other, key, n) == 0;
        }
        if (!there)
            (void)json_array_append_new(list, json_stringn(key, n));
    }
    if (json_array_size(list) > 0)
        return list;
    json_decref(list);
    return json_null();
}

size_t pst_state_names_left_out(const struct pst_state_names *names,
                                struct pst_str *out)
{
    size_t n = 0;

    for (size_t i = 0; i < names->changed.n; i++) {
        const char *tensor = names->changed.at[i];

        if (is_of_adapter(&names->adapters, tensor) || is_saved(names, tensor))
            continue;
        if (n < SHOWN)
            pst_str_addf(out, "%s\"%.120s\"", n > 0 ? ", " : "",
                         strchr(tensor, '.') + 1);
        else if (n == SHOWN)
            pst_str_add(out, ", ...");
        n++;
    }
    return n;
}

/* --- peft ----------------------------------------------------------------- */

/* True if the module's name as a target would also match other modules of the
 * state: peft matches any name that ends with it. */
static bool is_ambiguous(const struct pst_state_names *names,
                         const char *module)
{
    const size_t n = strlen(module);

    for (size_t i = 0; i < names->all.n; i++) {
        const char *key = names->all.at[i].key, *dot = strrchr(key, '.');

        if (dot != NULL && (size_t)(dot - key) > n &&
            dot[-(ptrdiff_t)n - 1] == '.' && strncmp(dot - n, module, n) == 0)
            return true;
    }
    return false;
}

static void add_quoted(struct pst_str *text, const char *name)
{
    for (; *name != '\0'; name++) {
        if (strchr(".^$*+?{}[]\\|()", *name) != NULL)
            pst_str_add(text, "\\");
        pst_str_addn(text, name, 1);
    }
}

static const struct pst_state_name *find_part(
    const struct pst_state_names *names, const char *module, size_t n,
    const char *part)
{
    for (size_t i = 0; i < names->all.n; i++) {
        const char *key = names->all.at[i].key;

        if (strncmp(key, module, n) == 0 && strcmp(key + n, part) == 0)
            return &names->all.at[i];
    }
    return NULL;
}

static bool is_same(const struct pst_state_name *a,
                    const struct pst_state_name *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a->tensor, b->tensor) == 0;
}

/* True if the module named by the first n bytes of key has the adapter, too,
 * although peft may not see it as a module of its own. */
static bool shares_adapter(const struct pst_state_names *names, size_t adapter,
                           const char *key, size_t n)
{
    const struct pst_adapter *a = &names->adapters.at[adapter];
    const size_t own = strlen(a->module);

    if (!is_same(find_part(names, a->module, own, ".bias"),
                 find_part(names, key, n, ".bias")))
        return false;
    for (size_t i = 0; i < names->adapters.n; i++) {
        const char *module = names->adapters.at[i].module;

        if (strlen(module) == n && strncmp(module, key, n) == 0)
            return i > adapter; /* a pair is counted once */
    }
    return !a->shared;
}

size_t pst_state_names_shared_adapters(const struct pst_state_names *names,
                                       struct pst_str *out)
{
    size_t found = 0;

    for (size_t i = 0; i < names->adapters.n; i++) {
        const char *module = names->adapters.at[i].module;
        const struct pst_state_name *weight =
            find_part(names, module, strlen(module), ".weight");

        for (size_t k = 0; weight != NULL && k < names->all.n; k++) {
            const struct pst_state_name *other = &names->all.at[k];
            const size_t n = strlen(other->key);

            if (other == weight || !is_same(weight, other) ||
                !pst_has_suffix(other->key, ".weight") ||
                !shares_adapter(names, i, other->key, n - strlen(".weight")))
                continue;
            if (found < SHOWN)
                pst_str_addf(out, "%s\"%.120s\" and \"%.*s\"",
                             found > 0 ? ", " : "", module,
                             (int)PST_MIN(n - strlen(".weight"), (size_t)120),
                             other->key);
            else if (found == SHOWN)
                pst_str_add(out, ", ...");
            found++;
        }
    }
    return found;
}

/* Makes the list of target names, or a regular expression if the names would
 * match too much. */
static json_t *make_targets(const struct pst_state_names *names)
{
    json_t *list = json_array();
    struct pst_str text = {0};
    bool ambiguous = false, whole = true;

    for (size_t i = 0; i < names->adapters.n; i++) {
        const char *module = names->adapters.at[i].module;

        ambiguous = ambiguous || is_ambiguous(names, module);
        pst_str_add(&text, i > 0 ? "|" : "");
        add_quoted(&text, module);
        whole = json_array_append_new(list, json_string(module)) == 0 && whole;
    }
    if (ambiguous || !whole) {
        json_decref(list);
        list = text.failed || !whole ? NULL : json_string(pst_str_text(&text));
    }
    pst_str_fini(&text);
    return list;
}

/* Adds a value under a key for this module. peft reads keys as regular
 * expressions, which may match at any part of the name: the key begins with
 * "^". */
static void add_pattern(json_t *object, const char *module, json_t *value)
{
    struct pst_str key = {0};

    pst_str_add(&key, "^");
    add_quoted(&key, module);
    if (key.failed)
        json_decref(value);
    else
        (void)json_object_set_new(object, pst_str_text(&key), value);
    pst_str_fini(&key);
}

/* Writes whole numbers as integers, as people do. */
static json_t *make_number(double x)
{
    return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x)
                                           : json_real(x);
}

static json_t *make_config(const struct pst_state_names *names,
                           const int64_t *ranks)
{
    const struct pst_adapters *list = &names->adapters;
    json_t *rank_pattern = json_object(), *alpha_pattern = json_object();
    bool transposed = true;

    for (size_t i = 0; i < list->n; i++) {
        transposed = transposed && list->at[i].transposed;
        if (ranks[i] != ranks[0])
            add_pattern(rank_pattern, list->at[i].module,
                        json_integer(ranks[i]));
        if (list->at[i].alpha != list->at[0].alpha)
            add_pattern(alpha_pattern, list->at[i].module,
                        make_number(list->at[i].alpha));
    }
    return json_pack(
        "{s:s s:n s:n s:s s:b s:b s:b s:n s:n s:o s:f s:o s:I s:n s:o s:n s:o "
        "s:o}",
        "peft_type", "LORA", "auto_mapping", "base_model_name_or_path", "bias",
        "none", "fan_in_fan_out", (int)transposed, "inference_mode", 1,
        "init_lora_weights", 1, "layers_pattern", "layers_to_transform",
        "lora_alpha", make_number(list->at[0].alpha), "lora_dropout", 0.0,
        "modules_to_save", make_whole(names), "r", (json_int_t)ranks[0],
        "revision", "target_modules", make_targets(names), "task_type",
        "rank_pattern", rank_pattern, "alpha_pattern", alpha_pattern);
}

static enum pst_status print_config(const struct pst_state_names *names,
                                    const int64_t *ranks,
                                    struct pst_str *ret_config,
                                    struct pst_diag *diag)
{
    json_t *config = make_config(names, ranks);
    char *text = config == NULL ? NULL : json_dumps(config, JSON_INDENT(2));

    json_decref(config);
    if (text != NULL) {
        pst_str_add(ret_config, text);
        pst_str_add(ret_config, "\n");
    }
    free(text); /* allocated by jansson: free(), not pst_free() */
    return text == NULL || ret_config->failed ? pst_diag_nomem(diag, 0)
                                              : PST_OK;
}

/* Adds the keys of modules that are trained whole, among `n` names. */
static enum pst_status add_whole(struct pst_state_names *names,
                                 const struct pst_state_name *all, size_t n,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        struct pst_state_name added = all[i];
        struct pst_str key = {0};

        pst_str_addf(&key, PST_PEFT_PREFIX "%s", all[i].key);
        added.key = pst_str_text(&key);
        status = key.failed ? pst_diag_nomem(diag, strlen(all[i].key))
                            : pst_state_names_add(names, &added, diag);
        pst_str_fini(&key);
    }
    return status;
}

/* Copies the names of modules that are trained whole to the arena. */
static enum pst_status find_whole(struct pst_state_names *names,
                                  struct pst_state_name **ret, size_t *ret_n,
                                  struct pst_diag *diag)
{
    *ret_n = 0;
    *ret = pst_arena_calloc(&names->arena, names->all.n + 1, sizeof(**ret));
    if (*ret == NULL)
        return pst_diag_nomem(diag, names->all.n * sizeof(**ret));
    for (size_t i = 0; i < names->all.n; i++)
        if (is_whole(names, names->all.at[i].key) &&
            !is_of_adapter(&names->adapters, names->all.at[i].tensor))
            (*ret)[(*ret_n)++] = names->all.at[i];
    return PST_OK;
}

static enum pst_status add_key(struct pst_state_names *names,
                               const char *module, const char *name,
                               const char *tensor, struct pst_diag *diag)
{
    struct pst_str key = {0};
    struct pst_state_name added = {.tensor = tensor};
    enum pst_status status;

    pst_str_addf(&key, PST_PEFT_PREFIX "%s.%s.weight", module, name);
    added.key = pst_str_text(&key);
    status = key.failed ? pst_diag_nomem(diag, strlen(module))
                        : pst_state_names_add(names, &added, diag);
    pst_str_fini(&key);
    return status;
}

/* Reads the rank of each adapter from the shape of A. */
static enum pst_status read_ranks(const struct pst_state_names *names,
                                  pst_state_find_fn find, void *ctx,
                                  int64_t *ret, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < names->adapters.n && status == PST_OK; i++) {
        const struct pst_safetensors_entry *down;

        status = find(ctx, names->adapters.at[i].down, &down, diag);
        if (status == PST_OK && down->meta.rank != 2)
            status = pst_diag_set(diag, PST_E_LORA_CONFIG,
                                  "\"%.200s\" is not a matrix",
                                  names->adapters.at[i].down);
        if (status == PST_OK)
            ret[i] = down->meta.size[0];
    }
    return status;
}

enum pst_status pst_state_names_peft(struct pst_state_names *names,
                                     pst_state_find_fn find, void *ctx,
                                     struct pst_str *ret_config,
                                     struct pst_diag *diag)
{
    const struct pst_adapters *list = &names->adapters;
    int64_t *ranks =
        pst_arena_calloc(&names->arena, list->n + 1, sizeof(*ranks));
    struct pst_state_name *whole = NULL;
    size_t n_whole = 0;
    enum pst_status status;

    if (list->n == 0)
        return report_no_adapters(diag);
    if (ranks == NULL)
        return pst_diag_nomem(diag, list->n * sizeof(*ranks));
    status = read_ranks(names, find, ctx, ranks, diag);
    if (status == PST_OK)
        status = print_config(names, ranks, ret_config, diag);
    if (status == PST_OK)
        status = find_whole(names, &whole, &n_whole, diag);
    names->all.n = 0;
    for (size_t i = 0; i < list->n && status == PST_OK; i++) {
        status = add_key(names, list->at[i].module, "lora_A", list->at[i].down,
                         diag);
        if (status == PST_OK)
            status = add_key(names, list->at[i].module, "lora_B",
                             list->at[i].up, diag);
    }
    return status == PST_OK ? add_whole(names, whole, n_whole, diag) : status;
}
