// SPDX-License-Identifier: Apache-2.0
#include "tests/split/golden/golden.h"

#include "stages/base/str.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *golden_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static size_t add_cases(const char *dir, const char *file, struct golden *ret,
                        size_t n)
{
    const int stem = (int)(strlen(file) - strlen(".json"));
    char path[512];
    json_error_t error;
    json_t *root, *splits;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    root = json_load_file(path, 0, &error);
    splits = json_object_get(root, "splits");
    for (size_t i = 0; i < json_array_size(splits) && n < GOLDEN_MAX; i++) {
        struct golden *golden = &ret[n++];

        snprintf(golden->name, sizeof(golden->name),
                 json_array_size(splits) > 1 ? "%.*s #%zu" : "%.*s", stem, file,
                 i + 1);
        snprintf(golden->model, sizeof(golden->model), "%s/%.*s.pt2", dir, stem,
                 file);
        snprintf(golden->numbers, sizeof(golden->numbers),
                 "%s/%.*s.safetensors", dir, stem, file);
        golden->file = json_incref(root);
        golden->split = json_array_get(splits, i);
    }
    json_decref(root);
    return n;
}

size_t golden_load(const char *dir, struct golden *ret)
{
    struct dirent **names;
    const int n_names = scandir(dir, &names, NULL, alphasort);
    size_t n = 0;

    if (n_names < 0)
        return 0;
    for (int i = 0; i < n_names; i++) {
        if (pst_has_suffix(names[i]->d_name, ".json"))
            n = add_cases(dir, names[i]->d_name, ret, n);
        free(names[i]);
    }
    free(names);
    return n;
}

void golden_clear(struct golden *goldens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_decref(goldens[i].file);
}

static void add_owners(const struct golden *golden,
                       struct pst_split_options *ret)
{
    static char specs[16][256];
    static const char *owner[16];
    const json_t *names = json_object_get(golden->file, "changed_buffers");

    ret->owner = owner;
    for (; ret->n_owner < json_array_size(names); ret->n_owner++) {
        assert_true(ret->n_owner < PST_COUNT(specs));
        snprintf(specs[ret->n_owner], sizeof(specs[0]), "%s=0",
                 json_string_value(json_array_get(names, ret->n_owner)));
        owner[ret->n_owner] = specs[ret->n_owner];
    }
}

/* Reads the cuts of a golden, such as {"fqn": "BEGINNING"}, as "fqn:begin". */
struct pst_split_options golden_options(const struct golden *golden)
{
    static char specs[16][256];
    static const char *at[16];
    json_t *spec = json_object_get(golden->split, "at"), *value;
    struct pst_split_options ret = {.at = at};
    const char *key;

    add_owners(golden, &ret);
    if (!json_is_object(spec))
        return ret;
    json_object_foreach(spec, key, value)
    {
        const bool end = strcmp(json_string_value(value), "END") == 0;

        assert_true(ret.n_at < PST_COUNT(specs));
        snprintf(specs[ret.n_at], sizeof(specs[0]), "%s:%s", key,
                 end ? "end" : "begin");
        at[ret.n_at] = specs[ret.n_at];
        ret.n_at++;
    }
    return ret;
}
