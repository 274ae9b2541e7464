// SPDX-License-Identifier: Apache-2.0
/* Reads a whole program: version, graph, signature, ranges. */
#include "stages/files/pt2/reader.h"

#include <string.h>

static enum pst_status read_version(struct pst_reader *r,
                                    const struct pst_json *json)
{
    const struct pst_json *version = pst_json_get(json, "schema_version");
    const struct pst_json *major = pst_json_get(version, "major");
    const char *torch = pst_json_string(pst_json_get(json, "torch_version"));
    const struct pst_json *verifiers = pst_json_get(json, "verifiers");

    if (!pst_json_is(major, PST_JSON_INTEGER))
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "the model has no \"schema_version\"");
    if (pst_json_integer(major) != 8)
        return pst_diag_set(r->diag, PST_E_PT2_VERSION,
                            "schema version %lld is not supported, only 8: "
                            "save the model again with torch >= 2.9",
                            (long long)pst_json_integer(major));
    for (size_t i = 0; i < pst_json_length(verifiers); i++) {
        const char *name = pst_json_string(pst_json_at(verifiers, i));

        if (name != NULL && strcmp(name, "TRAINING") == 0)
            r->doc->training = true;
        if (name != NULL && strcmp(name, "ATEN") == 0)
            r->doc->functional = true;
    }
    return pst_read_text(r, torch != NULL ? torch : "", &r->doc->torch_version);
}

/* --- signature ---------------------------------------------------------- */

static const struct spec_row {
    const char *tag, *key;
} spec_rows[] = {
#define PST_DOC_TAG(kind, tag, key) {tag, key},
    PST_DOC_SPEC_LIST(PST_DOC_TAG)
#undef PST_DOC_TAG
};

/* Reads the payload of a known kind; for other kinds keeps only the tag. */
static enum pst_status read_payload(struct pst_reader *r,
                                    const struct pst_json *json,
                                    struct pst_doc_spec *spec)
{
    const char *key = spec_rows[spec->kind].key;
    const struct pst_json *arg = pst_json_get(json, "arg");

    switch (spec->kind) {
    case PST_DOC_SPEC_PARAMETER:
    case PST_DOC_SPEC_BUFFER:
    case PST_DOC_SPEC_CONSTANT:
    case PST_DOC_SPEC_BUFFER_MUTATION:
    case PST_DOC_SPEC_PARAMETER_MUTATION:
    case PST_DOC_SPEC_INPUT_MUTATION: {
        enum pst_status status =
            pst_read_member(r, json, key, spec->tag, &spec->target);

        if (status == PST_OK)
            status = pst_read_named(r, arg, spec->tag, &spec->arg);
        spec->persistent = pst_json_true(pst_json_get(json, "persistent"));
        return status;
    }
    case PST_DOC_SPEC_USER_INPUT:
    case PST_DOC_SPEC_USER_OUTPUT:
        return pst_read_arg(r, arg, spec->tag, spec->tag, &spec->arg);
    case PST_DOC_SPEC_CONSTANT_INPUT:
        return pst_read_arg(r, pst_json_get(json, "value"), spec->tag,
                            spec->tag, &spec->arg);
    case PST_DOC_SPEC_CUSTOM_OBJECT:
    case PST_DOC_SPEC_TOKEN:
    case PST_DOC_SPEC_OTHER:
        break;
    }
    return PST_OK;
}

static enum pst_status read_spec(struct pst_reader *r,
                                 const struct pst_json *json, const char *where,
                                 struct pst_doc_spec *spec)
{
    const struct pst_json *payload;
    const char *tag = pst_json_union(json, &payload, where, r->diag);
    enum pst_status status;

    if (tag == NULL)
        return PST_ERR_INPUT;
    spec->kind = PST_DOC_SPEC_OTHER;
    spec->arg.kind = PST_DOC_OTHER;
    spec->arg.tag = "";
    status = pst_read_text(r, tag, &spec->tag);
    for (size_t i = 0; i < PST_COUNT(spec_rows); i++)
        if (strcmp(tag, spec_rows[i].tag) == 0)
            spec->kind = (enum pst_doc_spec_kind)i;
    if (status != PST_OK || spec->kind == PST_DOC_SPEC_OTHER)
        return status;
    return read_payload(r, payload, spec);
}

static enum pst_status read_specs(struct pst_reader *r,
                                  const struct pst_json *list,
                                  const char *where, size_t *ret_n,
                                  const struct pst_doc_spec **ret)
{
    const size_t n = pst_json_length(list);
    struct pst_doc_spec *specs;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*specs), &specs);

    if (!pst_json_is(list, PST_JSON_ARRAY))
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "the model has no signature");
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = read_spec(r, pst_json_at(list, i), where, &specs[i]);
    if (status == PST_OK) {
        *ret = specs;
        *ret_n = n;
    }
    return status;
}

/* --- ranges ------------------------------------------------------------- */

static bool read_bound(const struct pst_json *json, int64_t none, int64_t *ret)
{
    *ret = none;
    if (json == NULL || pst_json_is(json, PST_JSON_NULL))
        return true;
    *ret = pst_json_integer(json);
    return pst_json_is(json, PST_JSON_INTEGER);
}

static enum pst_status read_ranges(struct pst_reader *r,
                                   const struct pst_json *json)
{
    struct pst_doc_range *range;
    enum pst_status status;

    if (json != NULL && !pst_json_is(json, PST_JSON_OBJECT))
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "\"range_constraints\" is not an object");
    status =
        pst_reader_alloc(r, pst_json_members(json), sizeof(*range), &range);
    r->doc->ranges = range;
    for (const struct pst_json *item = NULL;
         (item = pst_json_next(json, item)) != NULL;) {
        struct pst_doc_expr *expr = NULL;

        if (status != PST_OK)
            return status;
        if (!read_bound(pst_json_get(item, "min_val"), INT64_MIN,
                        &range->min) ||
            !read_bound(pst_json_get(item, "max_val"), INT64_MAX,
                        &range->max) ||
            range->min > range->max)
            return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                                "the range of %s is none", item->key);
        status = pst_read_expr_text(r, item->key, "a range", &expr);
        range->expr = expr;
        range++;
        r->doc->n_ranges++;
    }
    return status;
}

static enum pst_status read_guards(struct pst_reader *r,
                                   const struct pst_json *json)
{
    const size_t n = pst_json_length(json);
    const char **guards;
    enum pst_status status = pst_reader_alloc(r, n, sizeof(*guards), &guards);
    size_t k = 0;

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const char *text = pst_json_string(pst_json_at(json, i));

        if (text != NULL)
            status = pst_read_text(r, text, &guards[k++]);
    }
    if (status == PST_OK) {
        r->doc->guards = guards;
        r->doc->n_guards = k;
    }
    return status;
}

/* --- the document ------------------------------------------------------- */

static enum pst_status read_program(struct pst_reader *r, const char *what,
                                    const struct pst_json *json)
{
    const struct pst_json *module, *graph = NULL, *signature;
    struct pst_document *doc = r->doc;
    enum pst_status status = read_version(r, json);

    if (status != PST_OK)
        return status;
    module =
        pst_json_member(json, "graph_module", PST_JSON_OBJECT, what, r->diag);
    if (module != NULL)
        graph = pst_json_member(module, "graph", PST_JSON_OBJECT,
                                "graph_module", r->diag);
    if (graph == NULL)
        return PST_ERR_INPUT;
    signature = pst_json_get(module, "signature");
    status = pst_read_calls(r, module);
    if (status == PST_OK)
        status = read_specs(r, pst_json_get(signature, "input_specs"),
                            "an input of the signature", &doc->n_inputs,
                            &doc->inputs);
    if (status == PST_OK)
        status = read_specs(r, pst_json_get(signature, "output_specs"),
                            "an output of the signature", &doc->n_outputs,
                            &doc->outputs);
    if (status == PST_OK)
        status = pst_read_graph(r, graph, &doc->graph);
    if (status == PST_OK)
        status = read_ranges(r, pst_json_get(json, "range_constraints"));
    if (status == PST_OK)
        status = read_guards(r, pst_json_get(json, "guards_code"));
    return status;
}

enum pst_status pst_document_parse(const char *what, const char *text,
                                   size_t len, struct pst_document **ret,
                                   struct pst_diag *diag)
{
    struct pst_document *doc;
    struct pst_reader r;
    enum pst_status status;
    const struct pst_json *json;

    doc = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*doc));
    if (doc == NULL)
        return pst_diag_nomem(diag, sizeof(*doc));
    pst_arena_init(&doc->arena, PST_TAG_ARCHIVE);
    pst_reader_init(&r, doc, &doc->arena, diag);
    status = pst_json_parse(what, text, len, &r.scratch, &json, diag);
    if (status == PST_OK)
        status = read_program(&r, what, json);
    pst_reader_fini(&r);
    if (status == PST_OK)
        *ret = doc;
    else
        pst_document_free(doc);
    return status;
}

void pst_document_free(struct pst_document *document)
{
    if (document == NULL)
        return;
    for (struct pst_doc_graph *g = document->graphs; g != NULL; g = g->next) {
        pst_map_fini(&g->tensors);
        pst_map_fini(&g->numbers);
    }
    pst_arena_fini(&document->arena);
    pst_free(document);
}
