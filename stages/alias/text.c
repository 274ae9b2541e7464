// SPDX-License-Identifier: Apache-2.0
#include "stages/alias/text.h"

#include "stages/base/untrusted/budget.h"
#include "stages/files/pt2/json.h"
#include "stages/frontend/functional/functionalise.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

struct reader {
    struct pst_alias_text *text;
    const struct pst_json *tensors;
    struct pst_map names; /* tensors that exist so far */
    struct pst_diag *diag;
    enum pst_status status; /* the first failure */
};

static void fail(struct reader *r, const char *fmt, ...) PST_PRINTF(2, 3);

static void fail(struct reader *r, const char *fmt, ...)
{
    char sentence[600];
    va_list args;

    if (r->status != PST_OK)
        return;
    va_start(args, fmt);
    (void)vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    r->status = pst_diag_set(r->diag, PST_E_ALIAS_TEXT, "%s", sentence);
}

static void no_memory(struct reader *r, size_t bytes)
{
    if (r->status == PST_OK)
        r->status = pst_diag_nomem(r->diag, bytes);
}

/* Returns zeroed memory for n > 0 objects; NULL and a failure if there is no
 * memory. */
static void *space_for(struct reader *r, size_t n, size_t size)
{
    void *ret = pst_arena_calloc(&r->text->arena, n + 1, size);

    if (ret == NULL)
        no_memory(r, n * size);
    return ret;
}

enum pst_dtype pst_alias_text_dtype(const char *name)
{
    static const struct {
        const char *name;
        enum pst_dtype dtype;
    } rows[] = {
        {"float32", PST_F32}, {"float64", PST_F64},   {"int64", PST_I64},
        {"int32", PST_I32},   {"int16", PST_I16},     {"int8", PST_I8},
        {"bool", PST_BOOL},   {"bfloat16", PST_BF16}, {"float16", PST_F16},
        {"uint8", PST_U8},
    };

    for (size_t i = 0; name != NULL && i < PST_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].dtype;
    return PST_N_DTYPES;
}

/* --- members -------------------------------------------------------------- */

/* Fails if the object has a member that is not in `known`, which ends with
 * NULL. */
static void check_members(struct reader *r, const char *what,
                          const struct pst_json *object,
                          const char *const *known)
{
    const struct pst_json *member = NULL;

    while ((member = pst_json_next(object, member)) != NULL) {
        size_t i = 0;

        while (known[i] != NULL && strcmp(known[i], member->key) != 0)
            i++;
        if (known[i] == NULL)
            fail(r, "%s has an unknown member \"%.60s\"", what, member->key);
    }
}

/* Returns a member of an object; NULL if it is missing (a failure if it is
 * needed) or of another kind (always a failure). */
static const struct pst_json *member_of(struct reader *r,
                                        const struct pst_json *object,
                                        const char *key,
                                        enum pst_json_kind kind, bool needed)
{
    const struct pst_json *ret = pst_json_get(object, key);

    if (ret == NULL && needed)
        fail(r, "\"%s\" is missing", key);
    if (ret == NULL || pst_json_is(ret, kind))
        return ret;
    fail(r, "\"%s\" is of the wrong kind", key);
    return NULL;
}

static bool flag_of(struct reader *r, const struct pst_json *object,
                    const char *key)
{
    return pst_json_true(member_of(r, object, key, PST_JSON_BOOL, false));
}

/* --- names ---------------------------------------------------------------- */

/* Checks a name that the text gives to a tensor. A number is not allowed:
 * numbers stand for positions. */
static void check_name(struct reader *r, const char *name)
{
    const size_t n = name != NULL ? strlen(name) : 0;

    if (n == 0 || n > PST_ALIAS_TEXT_NAME || name[0] == '%' ||
        strspn(name, "0123456789") == n) {
        fail(r,
             "a tensor has no name, or one that is a number, begins with %% "
             "or is longer than %u bytes",
             PST_ALIAS_TEXT_NAME);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f)
            fail(r, "the name of a tensor has a space or control character");
}

static void define_name(struct reader *r, const char *name)
{
    if (r->status == PST_OK && !pst_map_put(&r->names, name, r))
        no_memory(r, strlen(name));
}

static void check_defined(struct reader *r, const char *name)
{
    if (r->status == PST_OK && pst_map_get(&r->names, name) == NULL)
        fail(r, "no tensor is called \"%.200s\"", name);
}

/* --- operands ------------------------------------------------------------- */

static void read_tensor(struct reader *r, const struct pst_json *tensor,
                        unsigned i)
{
    static const char *const known[] = {"dtype",  "requires_grad", "storage",
                                        "offset", "sizes",         "strides",
                                        NULL};
    struct pst_alias_program_operand *o = &r->text->operands[i];
    const struct pst_json *dtype;

    if (!pst_json_is(tensor, PST_JSON_OBJECT)) {
        fail(r, "\"%.200s\" is not described by an object", o->as.name);
        return;
    }
    check_members(r, o->as.name, tensor, known);
    dtype = member_of(r, tensor, "dtype", PST_JSON_STRING, false);
    if (dtype != NULL) {
        r->text->dtypes[i] = pst_alias_text_dtype(pst_json_string(dtype));
        if (r->text->dtypes[i] == PST_N_DTYPES)
            fail(r, "\"%.200s\": there is no dtype \"%.60s\"", o->as.name,
                 pst_json_string(dtype));
    }
    if (flag_of(r, tensor, "requires_grad"))
        o->leaf = o->as.name;
}

/* Adds an operand; position < 0: it is no argument. */
static void add_operand(struct reader *r, const char *name, int position)
{
    struct pst_alias_text *text = r->text;
    const struct pst_json *tensor = pst_json_get(r->tensors, name);
    const unsigned i = text->n_operands;
    struct pst_alias_program_operand *o = &text->operands[i];

    text->n_operands++;
    text->dtypes[i] = PST_N_DTYPES;
    o->as.name = name;
    o->as.tensor = tensor != NULL
                       ? (unsigned)(tensor - pst_json_next(r->tensors, NULL))
                       : (unsigned)pst_json_members(r->tensors);
    o->as.hidden = position < 0;
    o->from_before = tensor == NULL;
    if (position >= 0) {
        o->again = pst_arena_printf(&text->arena, "%d", position);
        if (o->again == NULL)
            no_memory(r, sizeof(*o));
    }
    if (tensor == NULL)
        return;
    read_tensor(r, tensor, i);
    define_name(r, name);
    if (o->again != NULL)
        define_name(r, o->again);
}

static void read_operands(struct reader *r, const struct pst_json *root)
{
    const struct pst_json *args =
        member_of(r, root, "args", PST_JSON_ARRAY, true);
    const size_t n = pst_json_length(args), all = pst_json_members(r->tensors);
    const struct pst_json *tensor = NULL;

    if (n > PST_ALIAS_TEXT_OPERANDS || all > PST_ALIAS_TEXT_OPERANDS)
        fail(r, "the program has more than %u operands",
             PST_ALIAS_TEXT_OPERANDS);
    if (r->status != PST_OK)
        return;
    r->text->operands = space_for(r, n + all, sizeof(*r->text->operands));
    r->text->dtypes = space_for(r, n + all, sizeof(*r->text->dtypes));
    for (size_t i = 0; i < n && r->status == PST_OK; i++) {
        const char *name = pst_json_string(pst_json_at(args, i));

        check_name(r, name);
        if (r->status == PST_OK)
            add_operand(r, name, (int)i);
    }
    r->text->n_args = r->text->n_operands;
    while (pst_json_get(root, "before") != NULL && r->status == PST_OK &&
           (tensor = pst_json_next(r->tensors, tensor)) != NULL) {
        check_name(r, tensor->key);
        if (r->status == PST_OK && pst_map_get(&r->names, tensor->key) == NULL)
            add_operand(r, tensor->key, -1);
    }
}

/* Called after the operators of `before` have been read: fails if one of them
 * should have made an argument and has not, and defines the arguments' other
 * names. */
static void define_made(struct reader *r)
{
    for (unsigned i = 0; i < r->text->n_args && r->status == PST_OK; i++) {
        const struct pst_alias_program_operand *o = &r->text->operands[i];

        if (!o->from_before)
            continue;
        if (pst_map_get(&r->names, o->as.name) == NULL)
            fail(r,
                 "argument \"%.200s\" is neither in \"tensors\" nor made by "
                 "\"before\"",
                 o->as.name);
        define_name(r, o->again);
    }
}

/* --- arguments ------------------------------------------------------------ */

static bool is_name(const struct pst_json *x)
{
    const char *text = pst_json_string(x);

    return text != NULL && text[0] == '%';
}

/* Returns the kind that all elements of a list have; numbers are real if one
 * of them is. *ret_mixed: they have none in common. */
static enum pst_json_kind list_kind(const struct pst_json *list,
                                    bool *ret_mixed)
{
    enum pst_json_kind ret = PST_JSON_INTEGER;

    *ret_mixed = false;
    for (size_t i = 0; i < list->n; i++) {
        enum pst_json_kind kind = list->at[i].kind;

        if (kind == PST_JSON_NULL || is_name(&list->at[i]))
            kind = PST_JSON_STRING;
        else if (kind == PST_JSON_STRING)
            *ret_mixed = true;
        if (i > 0 && kind != ret &&
            ((kind != PST_JSON_INTEGER && kind != PST_JSON_REAL) ||
             (ret != PST_JSON_INTEGER && ret != PST_JSON_REAL)))
            *ret_mixed = true;
        ret = i > 0 && kind == PST_JSON_INTEGER ? ret : kind;
    }
    return ret;
}

static void read_names(struct reader *r, const struct pst_json *x,
                       struct pst_alias_program_arg *ret)
{
    const bool list = pst_json_is(x, PST_JSON_ARRAY);
    const size_t n = list ? x->n : 1;
    const char **names = space_for(r, n, sizeof(*names));

    for (size_t i = 0; names != NULL && i < n; i++) {
        const char *name = pst_json_string(list ? &x->at[i] : x);

        names[i] = name != NULL ? name + 1 : NULL;
        if (name != NULL)
            check_defined(r, names[i]);
    }
    ret->names = names;
    ret->n = (unsigned)n;
    ret->kind = list ? PST_PROGRAM_NAMES : PST_PROGRAM_NAME;
}

static void read_numbers(struct reader *r, const struct pst_json *list,
                         enum pst_json_kind kind, struct pst_arg *ret)
{
    double *floats = space_for(r, list->n, sizeof(*floats));
    int64_t *ints = space_for(r, list->n, sizeof(*ints));
    bool *bools = space_for(r, list->n, sizeof(*bools));

    ret->n = list->n;
    for (size_t i = 0; r->status == PST_OK && i < list->n; i++) {
        (void)pst_json_double(&list->at[i], &floats[i]);
        ints[i] = pst_json_integer(&list->at[i]);
        bools[i] = pst_json_true(&list->at[i]);
    }
    if (kind == PST_JSON_REAL) {
        ret->kind = PST_ARG_FLOATS;
        ret->floats = floats;
    } else if (kind == PST_JSON_BOOL) {
        ret->kind = PST_ARG_BOOLS;
        ret->bools = bools;
    } else {
        *ret = pst_ints(ints, list->n);
    }
}

static void read_list(struct reader *r, const struct pst_json *list,
                      struct pst_alias_program_arg *ret)
{
    bool mixed;
    const enum pst_json_kind kind = list_kind(list, &mixed);

    if (mixed || kind == PST_JSON_ARRAY || kind == PST_JSON_OBJECT)
        fail(r, "a list has other elements than tensors, numbers or flags of "
                "one kind");
    else if (kind == PST_JSON_STRING)
        read_names(r, list, ret);
    else
        read_numbers(r, list, kind, &ret->literal);
}

static struct pst_arg text_arg(const struct pst_json *x)
{
    const char *text = pst_json_string(x);
    const enum pst_dtype dtype = pst_alias_text_dtype(text);
    double number;

    if (dtype != PST_N_DTYPES)
        return pst_dtype_arg(dtype);
    return pst_json_double(x, &number) ? pst_f(number) : pst_text(text);
}

static void read_arg(struct reader *r, const struct pst_json *x,
                     struct pst_alias_program_arg *ret)
{
    ret->literal = pst_none();
    switch (x->kind) {
    case PST_JSON_ARRAY:
        read_list(r, x, ret);
        break;
    case PST_JSON_STRING:
        if (is_name(x))
            read_names(r, x, ret);
        else
            ret->literal = text_arg(x);
        break;
    case PST_JSON_INTEGER:
        ret->literal = pst_i(x->integer);
        break;
    case PST_JSON_REAL:
        ret->literal = pst_f(x->real);
        break;
    case PST_JSON_BOOL:
        ret->literal = pst_b(x->boolean);
        break;
    case PST_JSON_NULL:
        break;
    case PST_JSON_OBJECT:
        fail(r, "an argument of an operator is an object");
        break;
    }
}

/* --- operators ------------------------------------------------------------ */

/* Returns the full name of an operator. "aten.clone" means
 * "aten.clone.default"; "aten.add.Tensor" means "aten.add.Scalar" if its
 * argument `other` is a number. */
static const char *full_name(struct reader *r, const char *name,
                             const struct pst_json *second)
{
    const char *last = strrchr(name, '.');
    const bool number = pst_json_is(second, PST_JSON_INTEGER) ||
                        pst_json_is(second, PST_JSON_REAL);
    const struct pst_op *row;

    if (last == strchr(name, '.')) {
        name = pst_arena_printf(&r->text->arena, "%s.default", name);
    } else if (number && strcmp(last, ".Tensor") == 0) {
        row = pst_op_find(name) != NULL ? pst_op_find(name)
                                        : pst_functional_variant(name);
        if (row == NULL || pst_schema_arg(pst_op_schema(row), "other") == 1)
            name = pst_arena_printf(&r->text->arena, "%.*s.Scalar",
                                    (int)(last - name), name);
    }
    if (name == NULL)
        no_memory(r, PST_ALIAS_TEXT_NAME);
    return name;
}

static void read_outs(struct reader *r, const struct pst_json *outs,
                      struct pst_alias_program_op *ret)
{
    const char **names = space_for(r, pst_json_length(outs), sizeof(*names));

    for (size_t i = 0; r->status == PST_OK && i < pst_json_length(outs); i++) {
        const struct pst_json *x = pst_json_at(outs, i);

        names[i] = pst_json_string(x);
        if (!pst_json_is(x, PST_JSON_NULL))
            check_name(r, names[i]);
        if (names[i] != NULL)
            define_name(r, names[i]);
    }
    ret->outs = names;
    ret->n_outs = (unsigned)pst_json_length(outs);
}

static void read_op(struct reader *r, const struct pst_json *op,
                    struct pst_alias_program_op *ret)
{
    static const char *const known[] = {"op",      "args",  "kwargs", "out",
                                        "no_grad", "stage", NULL};
    const struct pst_json *name = member_of(r, op, "op", PST_JSON_STRING, true);
    const struct pst_json *args =
        member_of(r, op, "args", PST_JSON_ARRAY, false);
    const struct pst_json *kwargs =
        member_of(r, op, "kwargs", PST_JSON_OBJECT, false);
    const struct pst_json *stage =
        member_of(r, op, "stage", PST_JSON_INTEGER, false);
    const struct pst_json *outs =
        member_of(r, op, "out", PST_JSON_ARRAY, false);
    const struct pst_json *x = NULL;
    struct pst_alias_program_arg *list = space_for(
        r, pst_json_length(args) + pst_json_members(kwargs), sizeof(*list));

    check_members(r, "an operator", op, known);
    if (name != NULL && strlen(pst_json_string(name)) > PST_ALIAS_TEXT_NAME)
        fail(r, "the name of an operator is longer than %u bytes",
             PST_ALIAS_TEXT_NAME);
    if (pst_json_integer(stage) < 0 ||
        pst_json_integer(stage) >= PST_ALIAS_TEXT_STAGES)
        fail(r, "\"stage\" is not in 0..%u", PST_ALIAS_TEXT_STAGES - 1);
    if (r->status != PST_OK)
        return;
    ret->op = full_name(r, pst_json_string(name), pst_json_at(args, 1));
    ret->no_grad = flag_of(r, op, "no_grad");
    ret->stage = (unsigned)pst_json_integer(stage);
    for (size_t i = 0; r->status == PST_OK && i < pst_json_length(args); i++)
        read_arg(r, pst_json_at(args, i), &list[ret->n_args++]);
    while (r->status == PST_OK && (x = pst_json_next(kwargs, x)) != NULL) {
        list[ret->n_args].keyword = x->key;
        read_arg(r, x, &list[ret->n_args++]);
    }
    ret->args = list;
    if (r->status == PST_OK)
        read_outs(r, outs, ret);
}

static const struct pst_alias_program_op *read_ops(struct reader *r,
                                                   const struct pst_json *list,
                                                   unsigned *ret_n)
{
    const size_t n = pst_json_length(list);
    struct pst_alias_program_op *ret = space_for(r, n, sizeof(*ret));

    *ret_n = (unsigned)n;
    for (size_t i = 0; i < n && r->status == PST_OK; i++) {
        if (!pst_json_is(&list->at[i], PST_JSON_OBJECT))
            fail(r, "an operator is not an object");
        else
            read_op(r, &list->at[i], &ret[i]);
        if (r->status == PST_ERR_INPUT)
            pst_diag_prefix(r->diag, "operator %zu", i);
    }
    return ret;
}

static void read_returns(struct reader *r, const struct pst_json *root)
{
    const struct pst_json *list =
        member_of(r, root, "returns", PST_JSON_ARRAY, true);
    const char **ret = space_for(r, pst_json_length(list), sizeof(*ret));

    for (size_t i = 0; r->status == PST_OK && i < pst_json_length(list); i++) {
        ret[i] = pst_json_string(pst_json_at(list, i));
        if (ret[i] == NULL)
            fail(r, "return %zu is not a name", i);
        else
            check_defined(r, ret[i]);
    }
    r->text->program.returns = ret;
    r->text->program.n_returns = (unsigned)pst_json_length(list);
    r->text->backward = flag_of(r, root, "backward");
    if (r->text->backward && pst_json_length(list) == 0)
        fail(r, "\"backward\" needs a loss: \"returns\" is empty");
}

/* --- parsing a program ---------------------------------------------------- */

static void read_program(struct reader *r, const struct pst_json *root)
{
    struct pst_alias_program *program = &r->text->program;
    const struct pst_json *before, *ops;

    if (!pst_json_is(root, PST_JSON_OBJECT)) {
        fail(r, "a program is an object");
        return;
    }
    r->tensors = member_of(r, root, "tensors", PST_JSON_OBJECT, true);
    before = member_of(r, root, "before", PST_JSON_ARRAY, false);
    ops = member_of(r, root, "ops", PST_JSON_ARRAY, true);
    if (r->status == PST_OK)
        read_operands(r, root);
    if (r->status == PST_OK)
        program->before = read_ops(r, before, &program->n_before);
    if (r->status == PST_OK)
        define_made(r);
    if (r->status == PST_OK)
        program->ops = read_ops(r, ops, &program->n_ops);
    if (r->status == PST_OK)
        read_returns(r, root);
}

static enum pst_status parse_program(struct reader *r, const char *text,
                                     size_t size)
{
    const struct pst_json *root;
    struct pst_diag wrong;
    char *copy; /* the parser needs a NUL at the end */

    pst_diag_init(&wrong);
    copy = pst_arena_strndup(&r->text->arena, text, size);
    if (copy == NULL)
        return pst_diag_nomem(r->diag, size);
    if (memchr(text, '\0', size) != NULL)
        return pst_diag_set(r->diag, PST_E_ALIAS_TEXT,
                            "the text of the program has a NUL");
    r->status = pst_json_parse("the program", copy, size, &r->text->arena,
                               &root, &wrong);
    if (r->status == PST_ERR_NOMEM)
        return pst_diag_nomem(r->diag, size);
    if (r->status != PST_OK)
        return pst_diag_set(r->diag, PST_E_ALIAS_TEXT, "%s", wrong.text);
    read_program(r, root);
    return r->status;
}

enum pst_status pst_alias_text_parse(const char *text, size_t size,
                                     struct pst_alias_text **ret,
                                     struct pst_diag *diag)
{
    struct reader r = {.text = pst_calloc(TAG, 1, sizeof(*r.text)),
                       .diag = diag};
    struct pst_budget budget;
    enum pst_status status;

    if (r.text == NULL)
        return pst_diag_nomem(diag, sizeof(*r.text));
    pst_arena_init(&r.text->arena, TAG);
    pst_map_init(&r.names, TAG);
    pst_budget_begin(&budget, size);
    status = size <= PST_ALIAS_TEXT_MAX
                 ? parse_program(&r, text, size)
                 : pst_diag_set(diag, PST_E_ALIAS_TEXT,
                                "the text of the "
                                "program is larger than "
                                "%zu MiB",
                                PST_ALIAS_TEXT_MAX >> 20);
    pst_map_fini(&r.names);
    pst_budget_end(&budget);
    if (status == PST_ERR_NOMEM && budget.exceeded)
        status = pst_diag_set(diag, PST_E_ALIAS_TEXT,
                              "the text of the program needs more memory than "
                              "any text of %zu bytes may",
                              size);
    if (status != PST_OK) {
        pst_alias_text_free(r.text);
        return status;
    }
    *ret = r.text;
    return PST_OK;
}

void pst_alias_text_free(struct pst_alias_text *text)
{
    if (text == NULL)
        return;
    pst_arena_fini(&text->arena);
    pst_free(text);
}
