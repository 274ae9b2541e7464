// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/import/model_json.h"

#include "stages/base/checked.h"

#include <math.h>
#include <string.h>

/* Names of all codes that PyTorch writes, for messages. */
static const char *const dtype_names[] = {
    "unknown",        "uint8",           "int8",
    "int16",          "int32",           "int64",
    "float16",        "float32",         "float64",
    "complex32",      "complex64",       "complex128",
    "bool",           "bfloat16",        "type 14",
    "type 15",        "type 16",         "type 17",
    "type 18",        "type 19",         "type 20",
    "type 21",        "type 22",         "type 23",
    "type 24",        "type 25",         "type 26",
    "type 27",        "uint16",          "float8_e4m3fn",
    "float8_e5m2",    "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "uint32",          "uint64",
};

const char *pst_json_dtype_name(int64_t code)
{
    if (code < 0 || code >= (int64_t)PST_COUNT(dtype_names))
        return "an unknown type";
    return dtype_names[code];
}

bool pst_json_is_complex(int64_t code, enum pst_dtype *ret_part)
{
    *ret_part = code == 11 ? PST_F64 : PST_F32;
    return code == 10 || code == 11;
}

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

bool pst_json_static_int(const json_t *json, int64_t *ret)
{
    if (json_is_object(json))
        json = json_object_get(json, "as_int");
    if (!json_is_integer(json))
        return false;
    *ret = json_integer_value(json);
    return true;
}

enum pst_status pst_json_expr(const json_t *json,
                              const struct pst_symbols *symbols,
                              struct pst_arena *arena, const char *where,
                              const char **ret_text, struct pst_number *ret,
                              struct pst_diag *diag)
{
    static const struct pst_symbols none;
    const char *text = pst_json_text(json, "expr_str", where, diag);
    const struct pst_expr *tree;
    enum pst_status status = text != NULL ? PST_OK : PST_ERR_INPUT;

    if (status == PST_OK)
        status = pst_expr_parse(arena, text, &tree, diag);
    if (status == PST_OK)
        status = pst_expr_print(arena, tree, ret_text, diag);
    if (status == PST_OK)
        status = pst_symbols_eval(symbols != NULL ? symbols : &none, *ret_text,
                                  ret, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s", where);
    return status;
}

struct sizes {
    const struct pst_symbols *symbols;
    struct pst_arena *arena;
    const char *where;
    struct pst_diag *diag;
};

/* A SymInt >= 0; *ret_text is its expression or NULL. */
static enum pst_status read_size(const struct sizes *s, const json_t *json,
                                 const char *key, int64_t *ret,
                                 const char **ret_text)
{
    const json_t *expr = json_object_get(json, "as_expr");
    struct pst_number x = {0};
    enum pst_status status;

    *ret_text = NULL;
    if (expr != NULL) {
        status = pst_json_expr(expr, s->symbols, s->arena, s->where, ret_text,
                               &x, s->diag);
        if (status != PST_OK)
            return status;
        *ret = x.kind == PST_NUMBER_EXACT && x.d == 1 ? x.n : -1;
    }
    if ((expr == NULL && !pst_json_static_int(json, ret)) || *ret < 0)
        return pst_diag_set(s->diag, PST_ERR_INPUT, "%s: %s is no integer >= 0",
                            s->where, key);
    return PST_OK;
}

/* Sizes or strides; texts may be NULL. */
static enum pst_status read_sizes(const struct sizes *s, const json_t *list,
                                  const char *key, int64_t *ret,
                                  const char **texts)
{
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        char name[32];
        const char *text;
        enum pst_status status;

        snprintf(name, sizeof(name), "%s[%zu]", key, i);
        status = read_size(s, item, name, &ret[i], &text);
        if (status != PST_OK)
            return status;
        if (texts != NULL)
            texts[i] = text;
    }
    return PST_OK;
}

/* Complex numbers are pairs: one more dimension, the last, of two parts. */
static enum pst_status make_pairs(struct pst_json_tensor *t, const char *where,
                                  struct pst_diag *diag)
{
    bool fits =
        t->meta.rank < PST_MAX_RANK && !PST_MUL(t->offset, 2, &t->offset);

    for (unsigned i = 0; i < t->meta.rank && fits; i++)
        fits = !PST_MUL(t->meta.stride[i], 2, &t->meta.stride[i]);
    if (!fits)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s: complex tensors of %u dimensions or of this "
                            "size are not supported",
                            where, t->meta.rank);
    t->meta.size[t->meta.rank] = 2;
    t->meta.stride[t->meta.rank++] = 1;
    return pst_meta_check(&t->meta, diag);
}

/* Elements from the storage's begin to behind the last one must fit. */
static enum pst_status check_extent(const struct pst_json_tensor *t,
                                    const char *where, struct pst_diag *diag)
{
    int64_t last = t->offset, step;

    if (pst_meta_numel(&t->meta) == 0)
        return PST_OK;
    for (unsigned i = 0; i < t->meta.rank; i++)
        if (PST_MUL(t->meta.size[i] - 1, t->meta.stride[i], &step) ||
            PST_ADD(last, step, &last))
            last = INT64_MAX;
    if (last > INT64_MAX / 16)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "%s: sizes and strides are out of range", where);
    return PST_OK;
}

enum pst_status pst_json_tensor(const json_t *json, const char *where,
                                const struct pst_symbols *symbols,
                                struct pst_arena *arena,
                                struct pst_json_tensor *ret,
                                struct pst_diag *diag)
{
    const struct sizes at = {symbols, arena, where, diag};
    const json_t *sizes, *strides, *dtype, *layout, *grad, *offset;
    struct pst_json_tensor t = {0};
    enum pst_status status;
    const char *text;
    int64_t code;
    bool pairs;

    /* The first that is missing is named. */
    if ((sizes = pst_json_member(json, "sizes", JSON_ARRAY, where, diag)) ==
            NULL ||
        (strides = pst_json_member(json, "strides", JSON_ARRAY, where, diag)) ==
            NULL ||
        (dtype = pst_json_member(json, "dtype", JSON_INTEGER, where, diag)) ==
            NULL ||
        (layout = pst_json_member(json, "layout", JSON_INTEGER, where, diag)) ==
            NULL ||
        (grad = pst_json_member(json, "requires_grad", JSON_TRUE, where,
                                diag)) == NULL)
        return PST_ERR_INPUT;
    code = json_integer_value(dtype);
    pairs = pst_json_is_complex(code, &t.meta.dtype);
    if (!pairs && !pst_dtype_from_pt2(code, &t.meta.dtype))
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s: dtype %s is not supported", where,
                            pst_json_dtype_name(code));
    if (json_integer_value(layout) != 7)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s: only strided tensors are supported", where);
    if (json_array_size(sizes) != json_array_size(strides))
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "%s: %zu sizes but %zu strides", where,
                            json_array_size(sizes), json_array_size(strides));
    if (json_array_size(sizes) > PST_MAX_RANK)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s: tensors of more than %d dimensions are not "
                            "supported",
                            where, PST_MAX_RANK);
    t.meta.rank = (unsigned)json_array_size(sizes);
    t.requires_grad = json_is_true(grad);
    status = read_sizes(&at, sizes, "sizes", t.meta.size, t.dims);
    if (status == PST_OK)
        status = read_sizes(&at, strides, "strides", t.meta.stride, NULL);
    if (status != PST_OK)
        return status;
    status = pst_meta_check(&t.meta, diag);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "%s", where);
        return status;
    }
    offset = json_object_get(json, "storage_offset");
    if (offset != NULL)
        status = read_size(&at, offset, "storage_offset", &t.offset, &text);
    if (status == PST_OK && pairs)
        status = make_pairs(&t, where, diag);
    if (status == PST_OK)
        status = check_extent(&t, where, diag);
    for (unsigned i = 0; i < t.meta.rank; i++)
        t.symbolic = t.symbolic || t.dims[i] != NULL;
    if (status == PST_OK)
        *ret = t;
    return status;
}
