// SPDX-License-Identifier: Apache-2.0
/* Reads arguments: unions whose tag determines the payload. */
#include "stages/base/str.h"
#include "stages/files/pt2/reader.h"

#include <string.h>

/* Tags of the unions; all begin with "as_". */
static const char *const tags[] = {
#define PST_DOC_TAG(kind, tag) tag,
    PST_DOC_ARG_LIST(PST_DOC_TAG)
#undef PST_DOC_TAG
};

static enum pst_status report_wrong_tag(struct pst_reader *r, const char *what,
                                        const struct pst_doc_arg *arg)
{
    return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                        "%s: \"%s\" holds something else than it says", what,
                        arg->tag);
}

/* Reads "name" of {"name": ...}. */
static enum pst_status read_name(struct pst_reader *r,
                                 const struct pst_json *json, const char *what,
                                 const struct pst_doc_arg *arg,
                                 const char **ret)
{
    const char *name = pst_json_string(pst_json_get(json, "name"));

    return name != NULL ? pst_read_text(r, name, ret)
                        : report_wrong_tag(r, what, arg);
}

/* Reads the names in a list of tensors. In a list of optional tensors each item
 * is in turn an as_tensor or an as_none. */
static enum pst_status read_names(struct pst_reader *r,
                                  const struct pst_json *list, const char *what,
                                  struct pst_doc_arg *arg)
{
    const size_t n = pst_json_length(list);
    const char **names;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*names), &names);

    if (!pst_json_is(list, PST_JSON_ARRAY) || n > UINT32_MAX)
        return report_wrong_tag(r, what, arg);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pst_json *item = pst_json_at(list, i);

        if (arg->kind == PST_DOC_OPTIONAL_TENSORS) {
            if (pst_json_get(item, "as_none") != NULL)
                continue;
            item = pst_json_get(item, "as_tensor");
        }
        status = read_name(r, item, what, arg, &names[i]);
    }
    arg->names = names;
    arg->n = (unsigned)n;
    return status;
}

static bool is_literal(enum pst_doc_number_kind kind,
                       const struct pst_json *json, struct pst_doc_number *ret)
{
    *ret = (struct pst_doc_number){.kind = kind};
    if (kind == PST_DOC_NUMBER_FLOAT)
        return pst_json_double(json, &ret->f);
    if (kind == PST_DOC_NUMBER_BOOL) {
        ret->b = pst_json_true(json);
        return pst_json_is(json, PST_JSON_BOOL);
    }
    ret->i = pst_json_integer(json);
    return pst_json_is(json, PST_JSON_INTEGER);
}

/* Reads {"as_name": ...} or a tagged literal, in as_sym_int and similar
 * unions. */
static enum pst_status read_symbol(struct pst_reader *r,
                                   const struct pst_json *json,
                                   const char *what, struct pst_doc_arg *arg)
{
    static const struct {
        const char *tag;
        enum pst_doc_number_kind kind;
    } literals[] = {{"as_int", PST_DOC_NUMBER_INT},
                    {"as_float", PST_DOC_NUMBER_FLOAT},
                    {"as_bool", PST_DOC_NUMBER_BOOL}};
    const struct pst_json *payload;
    const char *tag = pst_json_union(json, &payload, what, r->diag);

    if (tag == NULL)
        return PST_ERR_INPUT;
    if (strcmp(tag, "as_name") == 0 && pst_json_is(payload, PST_JSON_STRING)) {
        arg->number.kind = PST_DOC_NUMBER_NAME;
        return pst_read_text(r, pst_json_string(payload), &arg->number.name);
    }
    for (size_t i = 0; i < PST_COUNT(literals); i++)
        if (strcmp(tag, literals[i].tag) == 0 &&
            is_literal(literals[i].kind, payload, &arg->number))
            return PST_OK;
    return report_wrong_tag(r, what, arg);
}

/* Reads a list of literals; integers may also be names of numbers, or have no
 * tag. */
static enum pst_status read_numbers(struct pst_reader *r,
                                    const struct pst_json *list,
                                    const char *what,
                                    enum pst_doc_number_kind kind,
                                    struct pst_doc_arg *arg)
{
    const size_t n = pst_json_length(list);
    struct pst_doc_number *numbers;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*numbers), &numbers);

    if (!pst_json_is(list, PST_JSON_ARRAY) || n > UINT32_MAX)
        return report_wrong_tag(r, what, arg);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pst_json *item = pst_json_at(list, i);
        const struct pst_json *name = pst_json_get(item, "as_name");

        if (kind == PST_DOC_NUMBER_INT && pst_json_is(name, PST_JSON_STRING)) {
            numbers[i].kind = PST_DOC_NUMBER_NAME;
            status = pst_read_text(r, pst_json_string(name), &numbers[i].name);
            continue;
        }
        if (kind == PST_DOC_NUMBER_INT && pst_json_is(item, PST_JSON_OBJECT) &&
            name == NULL)
            item = pst_json_get(item, "as_int");
        if (!is_literal(kind, item, &numbers[i]))
            status = report_wrong_tag(r, what, arg);
    }
    arg->numbers = numbers;
    arg->n = (unsigned)n;
    return status;
}

static enum pst_status read_text(struct pst_reader *r,
                                 const struct pst_json *json, const char *what,
                                 struct pst_doc_arg *arg)
{
    return pst_json_is(json, PST_JSON_STRING)
               ? pst_read_text(r, pst_json_string(json), &arg->name)
               : report_wrong_tag(r, what, arg);
}

static enum pst_status read_payload(struct pst_reader *r,
                                    const struct pst_json *json,
                                    const char *what, struct pst_doc_arg *arg)
{
    switch (arg->kind) {
    case PST_DOC_TENSOR:
        return read_name(r, json, what, arg, &arg->name);
    case PST_DOC_TENSORS:
    case PST_DOC_OPTIONAL_TENSORS:
        return read_names(r, json, what, arg);
    case PST_DOC_INT:
        return is_literal(PST_DOC_NUMBER_INT, json, &arg->number)
                   ? PST_OK
                   : report_wrong_tag(r, what, arg);
    case PST_DOC_FLOAT:
        return is_literal(PST_DOC_NUMBER_FLOAT, json, &arg->number)
                   ? PST_OK
                   : report_wrong_tag(r, what, arg);
    case PST_DOC_BOOL:
        return is_literal(PST_DOC_NUMBER_BOOL, json, &arg->number)
                   ? PST_OK
                   : report_wrong_tag(r, what, arg);
    case PST_DOC_SYM_INT:
    case PST_DOC_SYM_FLOAT:
    case PST_DOC_SYM_BOOL:
        return read_symbol(r, json, what, arg);
    case PST_DOC_INTS:
    case PST_DOC_SYM_INTS:
        return read_numbers(r, json, what, PST_DOC_NUMBER_INT, arg);
    case PST_DOC_FLOATS:
        return read_numbers(r, json, what, PST_DOC_NUMBER_FLOAT, arg);
    case PST_DOC_BOOLS:
        return read_numbers(r, json, what, PST_DOC_NUMBER_BOOL, arg);
    case PST_DOC_STRING:
    case PST_DOC_OPERATOR:
        return read_text(r, json, what, arg);
    case PST_DOC_SCALAR_TYPE:
    case PST_DOC_MEMORY_FORMAT:
    case PST_DOC_LAYOUT:
        if (!pst_json_is(json, PST_JSON_INTEGER))
            return report_wrong_tag(r, what, arg);
        arg->code = pst_json_integer(json);
        return PST_OK;
    case PST_DOC_GRAPH:
        if (!pst_json_is(json, PST_JSON_OBJECT))
            return report_wrong_tag(r, what, arg);
        return pst_read_graph(r, pst_json_get(json, "graph"), &arg->graph);
    case PST_DOC_COMPLEX:
        return pst_json_double(pst_json_get(json, "real"), &arg->parts[0]) &&
                       pst_json_double(pst_json_get(json, "imag"),
                                       &arg->parts[1])
                   ? PST_OK
                   : report_wrong_tag(r, what, arg);
    case PST_DOC_NONE:
    case PST_DOC_DEVICE:
    case PST_DOC_OTHER:
        break;
    }
    return PST_OK;
}

enum pst_status pst_read_arg(struct pst_reader *r, const struct pst_json *json,
                             const char *where, const char *what,
                             struct pst_doc_arg *ret)
{
    struct pst_doc_arg arg = {.kind = PST_DOC_OTHER};
    enum pst_status status = PST_OK;
    const struct pst_json *payload = NULL;
    bool known;

    arg.tag = pst_json_union(json, &payload, where, r->diag);
    if (arg.tag == NULL)
        return PST_ERR_INPUT;
    known = pst_has_prefix(arg.tag, "as_");
    for (size_t i = 0; known && i < PST_COUNT(tags); i++)
        if (arg.tag[3] == tags[i][3] && strcmp(arg.tag, tags[i]) == 0) {
            arg.kind = (enum pst_doc_arg_kind)i;
            arg.tag = tags[i];
        }
    if (arg.kind == PST_DOC_OTHER)
        status = pst_read_text(r, arg.tag, &arg.tag);
    if (status == PST_OK)
        status = read_payload(r, payload, what, &arg);
    if (status == PST_OK)
        *ret = arg;
    return status;
}

enum pst_status pst_read_args(struct pst_reader *r, const struct pst_json *list,
                              const char *where, unsigned *ret_n,
                              struct pst_doc_arg **ret)
{
    const size_t n = pst_json_length(list);
    struct pst_doc_arg *args;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*args), &args);

    if (n > UINT32_MAX || (list != NULL && !pst_json_is(list, PST_JSON_ARRAY)))
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "%s: its values are no list", where);
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = pst_read_arg(r, pst_json_at(list, i), where, where, &args[i]);
    if (status == PST_OK) {
        *ret = args;
        *ret_n = (unsigned)n;
    }
    return status;
}

enum pst_status pst_read_named(struct pst_reader *r,
                               const struct pst_json *json, const char *where,
                               struct pst_doc_arg *ret)
{
    *ret = (struct pst_doc_arg){.kind = PST_DOC_TENSOR,
                                .tag = tags[PST_DOC_TENSOR]};
    return pst_read_member(r, json, "name", where, &ret->name);
}
