// SPDX-License-Identifier: Apache-2.0
#include "stages/files/pt2/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Depth of nesting must be known before a recursive parser sees the text. */
static bool depth_fits(const char *text, size_t len)
{
    unsigned depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < len; i++) {
        if (quoted) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                quoted = false;
        } else if (text[i] == '"') {
            quoted = true;
        } else if (text[i] == '{' || text[i] == '[') {
            if (++depth > PST_JSON_MAX_DEPTH)
                return false;
        } else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return true;
}

/* The target that stands last before byte `at`: names the node at fault. */
static void name_target(const char *text, size_t at, char *out, size_t size)
{
    static const char key[] = "\"target\": \"";
    const char *found = NULL;
    size_t n;

    out[0] = '\0';
    for (const char *p = text;
         (p = memmem(p, at - (size_t)(p - text), key, sizeof(key) - 1));) {
        p += sizeof(key) - 1;
        found = p;
    }
    if (found == NULL)
        return;
    n = strcspn(found, "\"");
    snprintf(out, size, ", in a node of %.*s", (int)PST_MIN(n, size / 2),
             found);
}

enum pst_status pst_json_parse(const char *what, const char *text, size_t len,
                               json_t **ret, struct pst_diag *diag)
{
    json_error_t error;
    char target[160];
    size_t at;
    json_t *json;

    if (!depth_fits(text, len))
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "%s: JSON is nested more than %d levels deep", what,
                            PST_JSON_MAX_DEPTH);
    json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (json != NULL) {
        *ret = json;
        return PST_OK;
    }
    if (json_error_code(&error) == json_error_out_of_memory)
        return pst_diag_nomem(diag, len);
    at = error.position < 0 ? 0 : PST_MIN((size_t)error.position, len);
    if (json_error_code(&error) == json_error_numeric_overflow) {
        name_target(text, at, target, sizeof(target));
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s: a number at byte %zu does not fit 64 bits%s",
                            what, at, target);
    }
    return pst_diag_set(diag, PST_ERR_INPUT,
                        "%s: not valid JSON at byte %zu: "
                        "%s",
                        what, at, error.text);
}

static const char *type_name(json_type type)
{
    static const char *const names[] = {"an object",  "a list",   "text",
                                        "an integer", "a number", "a boolean",
                                        "a boolean",  "null"};

    return names[type];
}

json_t *pst_json_member(const json_t *object, const char *key, json_type type,
                        const char *where, struct pst_diag *diag)
{
    json_t *member = json_object_get(object, key);

    if (member == NULL)
        pst_diag_set(diag, PST_ERR_INPUT, "%s: \"%s\" is missing", where, key);
    else if (json_typeof(member) == type ||
             (type == JSON_TRUE && json_is_boolean(member)))
        return member;
    else
        pst_diag_set(diag, PST_ERR_INPUT, "%s: \"%s\" is not %s", where, key,
                     type_name(type));
    return NULL;
}

const char *pst_json_text(const json_t *object, const char *key,
                          const char *where, struct pst_diag *diag)
{
    return json_string_value(
        pst_json_member(object, key, JSON_STRING, where, diag));
}

const char *pst_json_union(const json_t *object, json_t **payload,
                           const char *where, struct pst_diag *diag)
{
    void *iter;

    if (!json_is_object(object) || json_object_size(object) != 1) {
        pst_diag_set(diag, PST_ERR_INPUT,
                     "%s: expected an object with exactly one key", where);
        return NULL;
    }
    iter = json_object_iter((json_t *)object);
    *payload = json_object_iter_value(iter);
    return json_object_iter_key(iter);
}

bool pst_json_double(const json_t *json, double *ret)
{
    const char *text = json_string_value(json);

    if (json_is_number(json))
        *ret = json_number_value(json);
    else if (text != NULL && strcmp(text, "Infinity") == 0)
        *ret = INFINITY;
    else if (text != NULL && strcmp(text, "-Infinity") == 0)
        *ret = -INFINITY;
    else if (text != NULL && strcmp(text, "NaN") == 0)
        *ret = NAN;
    else
        return false;
    return true;
}
