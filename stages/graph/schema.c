// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/schema.h"

#include "stages/base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 64
#define MAX_NAME   128
#define MAX_LIST   16

struct parser {
    const char *text, *at; /* whole text, next character */
    struct pst_arena *arena;
    struct pst_diag *diag;
};

static enum pst_status report_syntax(struct parser *p, const char *what)
{
    return pst_diag_set(p->diag, PST_E_OP_SCHEMA,
                        "operator schema \"%.200s\", character %zu: %s",
                        p->text, (size_t)(p->at - p->text) + 1, what);
}

static enum pst_status no_memory(struct parser *p)
{
    return pst_diag_nomem(p->diag, 0);
}

static void skip_blanks(struct parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

/* Skips blanks. If `token` follows, consumes it and returns true. */
static bool accept_token(struct parser *p, const char *token)
{
    skip_blanks(p);
    if (!pst_has_prefix(p->at, token))
        return false;
    p->at += strlen(token);
    return true;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Reads a word of letters, digits, "_" and the characters in `more`. */
static enum pst_status read_word(struct parser *p, const char *more,
                                 char ret[MAX_NAME])
{
    size_t n = 0;

    skip_blanks(p);
    while (is_word(p->at[n]) || (p->at[n] != '\0' && strchr(more, p->at[n])))
        n++;
    if (n == 0)
        return report_syntax(p, "a name is missing");
    if (n >= MAX_NAME)
        return report_syntax(p, "the name is too long");
    memcpy(ret, p->at, n);
    ret[n] = '\0';
    p->at += n;
    return PST_OK;
}

/* --- types -------------------------------------------------------------- */

static const struct {
    const char *name;
    enum pst_type type, list; /* list IGNORED: no lists of this type */
} type_rows[] = {
    {"Tensor", PST_TYPE_TENSOR, PST_TYPE_TENSORS},
    {"int", PST_TYPE_INT, PST_TYPE_INTS},
    {"SymInt", PST_TYPE_INT, PST_TYPE_INTS},
    {"float", PST_TYPE_FLOAT, PST_TYPE_FLOATS},
    {"bool", PST_TYPE_BOOL, PST_TYPE_BOOLS},
    {"Scalar", PST_TYPE_SCALAR, PST_TYPE_FLOATS},
    {"str", PST_TYPE_STRING, PST_TYPE_IGNORED},
    {"ScalarType", PST_TYPE_DTYPE, PST_TYPE_IGNORED},
    {"Device", PST_TYPE_IGNORED, PST_TYPE_IGNORED},
    {"Layout", PST_TYPE_IGNORED, PST_TYPE_IGNORED},
    {"MemoryFormat", PST_TYPE_IGNORED, PST_TYPE_IGNORED},
    {"Generator", PST_TYPE_IGNORED, PST_TYPE_IGNORED},
};

/* Reads an alias annotation: "(a!)", "(a -> *)". */
static enum pst_status read_alias(struct parser *p, struct pst_param *ret)
{
    if (*p->at != '(')
        return PST_OK;
    ret->shared = true;
    for (p->at++; *p->at != ')'; p->at++) {
        if (*p->at == '!')
            ret->written = true;
        else if (*p->at == '\0' || strchr("->*| ,", *p->at) == NULL)
            if (!isalpha((unsigned char)*p->at))
                return report_syntax(p, "the alias annotation is wrong");
    }
    p->at++;
    return PST_OK;
}

/* Reads a type: "Tensor(a!)?[]", "int[2]?", "SymInt[1]". */
static enum pst_status read_type(struct parser *p, struct pst_param *ret)
{
    char name[MAX_NAME];
    enum pst_status status = read_word(p, "", name);
    size_t row = 0;
    bool hole;

    if (status != PST_OK)
        return status;
    while (row < PST_COUNT(type_rows) && strcmp(type_rows[row].name, name) != 0)
        row++;
    if (row == PST_COUNT(type_rows)) {
        p->at -= strlen(name);
        return report_syntax(p, "the type is not supported");
    }
    ret->type = type_rows[row].type;
    status = read_alias(p, ret);
    if (status != PST_OK)
        return status;
    hole = *p->at == '?';
    p->at += hole;
    ret->optional = hole;
    if (*p->at != '[')
        return PST_OK;
    p->at++;
    if (hole && ret->type != PST_TYPE_TENSOR)
        return report_syntax(p, "the type is not supported");
    if (type_rows[row].list == PST_TYPE_IGNORED)
        return report_syntax(p, "there is no list of this type");
    ret->type = hole ? PST_TYPE_OPTIONAL_TENSORS : type_rows[row].list;
    while (isdigit((unsigned char)*p->at) && ret->fixed < 1000)
        ret->fixed = ret->fixed * 10 + (unsigned)(*p->at++ - '0');
    if (*p->at++ != ']') {
        p->at--;
        return report_syntax(p, "\"]\" is missing");
    }
    status = read_alias(p, ret);
    ret->optional = *p->at == '?';
    p->at += ret->optional;
    return status;
}

/* --- defaults ----------------------------------------------------------- */

static enum pst_status read_number(struct parser *p, struct pst_arg *ret)
{
    char text[MAX_NAME];
    enum pst_status status = read_word(p, "+-.", text);

    if (status != PST_OK)
        return status;
    if (pst_parse_i64(text, &ret->i))
        ret->kind = PST_ARG_INT;
    else if (pst_parse_f64(text, &ret->f))
        ret->kind = PST_ARG_FLOAT;
    else
        return report_syntax(p, "the default is not a number");
    return PST_OK;
}

static enum pst_status read_list(struct parser *p, struct pst_arg *ret)
{
    double floats[MAX_LIST];
    int64_t ints[MAX_LIST];
    bool floating = false;
    unsigned n = 0;

    while (!accept_token(p, "]")) {
        struct pst_arg item;
        enum pst_status status;

        if (n == MAX_LIST)
            return report_syntax(p, "the default is too long");
        if (n > 0 && !accept_token(p, ","))
            return report_syntax(p, "\",\" or \"]\" is missing");
        if (accept_token(p, "True") || accept_token(p, "False"))
            return report_syntax(p, "lists of bool have no defaults");
        status = read_number(p, &item);
        if (status != PST_OK)
            return status;
        floating = floating || item.kind == PST_ARG_FLOAT;
        floats[n] = item.kind == PST_ARG_INT ? (double)item.i : item.f;
        ints[n++] = item.kind == PST_ARG_INT ? item.i : 0;
    }
    ret->n = n;
    if (floating) {
        ret->kind = PST_ARG_FLOATS;
        ret->floats = pst_arena_memdup(p->arena, floats, n * sizeof(floats[0]));
    } else {
        ret->kind = PST_ARG_INTS;
        ret->ints = pst_arena_memdup(p->arena, ints, n * sizeof(ints[0]));
    }
    return ret->ints == NULL ? no_memory(p) : PST_OK;
}

static enum pst_status read_string(struct parser *p, char quote,
                                   struct pst_arg *ret)
{
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    while (*p->at != quote && *p->at != '\0') {
        p->at += *p->at == '\\' && p->at[1] != '\0';
        pst_str_addn(&text, p->at++, 1);
    }
    if (*p->at != quote) {
        status = report_syntax(p, "the text has no end");
    } else {
        p->at++;
        ret->kind = PST_ARG_STRING;
        ret->s = text.failed ? NULL
                             : pst_arena_strdup(p->arena, pst_str_text(&text));
        if (ret->s == NULL)
            status = no_memory(p);
    }
    pst_str_fini(&text);
    return status;
}

static bool dtype_default(const char *name, enum pst_dtype *ret)
{
    static const struct {
        const char *name;
        enum pst_dtype dtype;
    } words[] = {{"float", PST_F32},
                 {"double", PST_F64},
                 {"long", PST_I64},
                 {"int", PST_I32},
                 {"bool", PST_BOOL}};

    for (size_t i = 0; i < PST_COUNT(words); i++) {
        if (strcmp(words[i].name, name) == 0) {
            *ret = words[i].dtype;
            return true;
        }
    }
    return false;
}

/* Reads a default value that is a name of a number or enum, as in
 * native_functions.yaml ("Mean"). */
static enum pst_status read_word_default(struct parser *p,
                                         const struct pst_param *param,
                                         struct pst_arg *ret)
{
    static const char *const reductions[] = {"None", "Mean", "Sum"};
    char word[MAX_NAME];
    enum pst_status status = read_word(p, "", word);
    enum pst_dtype dtype;

    if (status != PST_OK)
        return status;
    if (strcmp(word, "None") == 0) {
        ret->kind = PST_ARG_NONE;
        return PST_OK;
    }
    if (strcmp(word, "True") == 0 || strcmp(word, "False") == 0) {
        ret->kind = PST_ARG_BOOL;
        ret->b = word[0] == 'T';
        return PST_OK;
    }
    if (strcmp(word, "inf") == 0 || strcmp(word, "nan") == 0) {
        ret->kind = PST_ARG_FLOAT;
        ret->f = word[0] == 'i' ? __builtin_inf() : __builtin_nan("");
        return PST_OK;
    }
    if (param->type == PST_TYPE_DTYPE && dtype_default(word, &dtype)) {
        ret->kind = PST_ARG_DTYPE;
        ret->i = dtype;
        return PST_OK;
    }
    for (int i = 1; param->type == PST_TYPE_INT && i < 3; i++) {
        if (strcmp(word, reductions[i]) == 0) {
            ret->kind = PST_ARG_INT;
            ret->i = i;
            return PST_OK;
        }
    }
    if (param->type == PST_TYPE_IGNORED)
        return PST_OK;
    return report_syntax(p, "the default is not understood");
}

static enum pst_status read_default(struct parser *p,
                                    const struct pst_param *param,
                                    struct pst_arg *ret)
{
    enum pst_status status;

    memset(ret, 0, sizeof(*ret));
    skip_blanks(p);
    if (*p->at == '[') {
        p->at++;
        return read_list(p, ret);
    }
    if (*p->at == '"' || *p->at == '\'') {
        const char quote = *p->at++;

        return read_string(p, quote, ret);
    }
    if (isalpha((unsigned char)*p->at))
        return read_word_default(p, param, ret);
    status = read_number(p, ret);
    if (status == PST_OK && param->type == PST_TYPE_DTYPE) {
        enum pst_dtype dtype = PST_F32;

        if (ret->kind != PST_ARG_INT || !pst_dtype_from_aten(ret->i, &dtype))
            return report_syntax(p, "the default is not a dtype that we have");
        ret->kind = PST_ARG_DTYPE;
        ret->i = dtype;
    }
    return status;
}

/* --- a whole schema ----------------------------------------------------- */

static enum pst_status read_param(struct parser *p, struct pst_param *ret)
{
    char name[MAX_NAME];
    enum pst_status status = read_type(p, ret);

    if (status == PST_OK)
        status = read_word(p, "", name);
    if (status != PST_OK)
        return status;
    ret->name = pst_arena_strdup(p->arena, name);
    if (ret->name == NULL)
        return no_memory(p);
    if (strcmp(name, "pin_memory") == 0)
        ret->type = PST_TYPE_IGNORED;
    if (!accept_token(p, "="))
        return PST_OK;
    ret->has_default = true;
    return read_default(p, ret, &ret->def);
}

static enum pst_status read_params(struct parser *p, struct pst_schema *ret)
{
    struct pst_param params[MAX_PARAMS];
    bool keyword_only = false;
    unsigned n = 0;

    memset(params, 0, sizeof(params));
    for (bool first = true; !accept_token(p, ")"); first = false) {
        enum pst_status status;

        if (!first && !accept_token(p, ","))
            return report_syntax(p, "\",\" or \")\" is missing");
        if (accept_token(p, "*")) {
            if (keyword_only)
                return report_syntax(p, "a second \"*\"");
            keyword_only = true;
            continue;
        }
        if (n == MAX_PARAMS)
            return report_syntax(p, "too many arguments");
        status = read_param(p, &params[n++]);
        if (status != PST_OK)
            return status;
    }
    ret->n_args = n;
    ret->args = pst_arena_memdup(p->arena, params, n * sizeof(params[0]));
    return ret->args == NULL ? no_memory(p) : PST_OK;
}

static enum pst_status read_return(struct parser *p, struct pst_schema *ret)
{
    struct pst_param param = {0};
    enum pst_status status = read_type(p, &param);

    if (status != PST_OK)
        return status;
    if ((param.type != PST_TYPE_TENSOR && param.type != PST_TYPE_TENSORS) ||
        param.optional)
        return report_syntax(p, "only tensors can be returned");
    if (*p->at == ' ') { /* name of the result */
        char name[MAX_NAME];

        status = read_word(p, "", name);
        if (status != PST_OK)
            return status;
    }
    ret->n_returns++;
    ret->shares_result = param.shared && ret->n_returns == 1;
    ret->list_return = ret->list_return || param.type == PST_TYPE_TENSORS;
    return PST_OK;
}

static enum pst_status read_returns(struct parser *p, struct pst_schema *ret)
{
    enum pst_status status = PST_OK;

    if (!accept_token(p, "->"))
        return report_syntax(p, "\"->\" is missing");
    if (!accept_token(p, "(")) {
        status = read_return(p, ret);
    } else if (!accept_token(p, ")")) {
        do
            status = read_return(p, ret);
        while (status == PST_OK && accept_token(p, ","));
        if (status == PST_OK && !accept_token(p, ")"))
            status = report_syntax(p, "\")\" is missing");
    }
    if (status == PST_OK && ret->list_return && ret->n_returns != 1)
        status = report_syntax(p, "a list of results among others");
    skip_blanks(p);
    if (status == PST_OK && *p->at != '\0')
        status = report_syntax(p, "text after the end");
    return status;
}

static enum pst_status read_name(struct parser *p, struct pst_schema *ret)
{
    char space[MAX_NAME], name[MAX_NAME];
    enum pst_status status = read_word(p, "", space);

    if (status != PST_OK)
        return status;
    if (!accept_token(p, "::"))
        return report_syntax(p, "\"::\" is missing");
    status = read_word(p, ".", name);
    if (status != PST_OK)
        return status;
    ret->name = pst_arena_printf(p->arena, "%s.%s%s", space, name,
                                 strchr(name, '.') ? "" : ".default");
    if (ret->name == NULL)
        return no_memory(p);
    return accept_token(p, "(") ? PST_OK : report_syntax(p, "\"(\" is missing");
}

enum pst_status pst_schema_parse(const char *text, struct pst_arena *arena,
                                 struct pst_schema *ret, struct pst_diag *diag)
{
    struct parser p = {text, text, arena, diag};
    struct pst_schema schema = {0};
    enum pst_status status = read_name(&p, &schema);

    if (status == PST_OK)
        status = read_params(&p, &schema);
    if (status == PST_OK)
        status = read_returns(&p, &schema);
    for (unsigned i = 0; status == PST_OK && i < schema.n_args; i++) {
        if (!schema.args[i].has_default)
            continue;
        status =
            pst_schema_coerce(&schema, i, &schema.args[i].def, arena, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag, "default");
    }
    if (status == PST_OK)
        *ret = schema;
    return status;
}

int pst_schema_arg(const struct pst_schema *schema, const char *name)
{
    for (unsigned i = 0; i < schema->n_args; i++)
        if (strcmp(schema->args[i].name, name) == 0)
            return (int)i;
    return -1;
}

const struct pst_arg *pst_node_arg(const struct pst_node *node,
                                   const char *name)
{
    const int i = pst_schema_arg(node->schema, name);

    return i < 0 ? NULL : &node->args[i];
}
