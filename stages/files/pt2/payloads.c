// SPDX-License-Identifier: Apache-2.0
/* Reads tables of stored tensors: for each name, the record and the view of
 * it. */
#include "stages/files/pt2/reader.h"

static enum pst_status read_payload(struct pst_reader *r, const char *fqn,
                                    const struct pst_json *json,
                                    struct pst_doc_payload *ret)
{
    const struct pst_json *meta = pst_json_get(json, "tensor_meta");
    struct pst_doc_tensor *tensor;
    enum pst_status status;

    ret->is_param = pst_json_true(pst_json_get(json, "is_param"));
    ret->raw = pst_json_false(pst_json_get(json, "use_pickle"));
    status = pst_read_text(r, fqn, &ret->fqn);
    if (status == PST_OK)
        status = pst_read_member(r, json, "path_name", fqn, &ret->path);
    if (status != PST_OK || meta == NULL || pst_json_is(meta, PST_JSON_NULL))
        return status;
    status = pst_reader_alloc(r, 1, sizeof(*tensor), &tensor);
    if (status == PST_OK)
        status = pst_read_tensor(r, meta, fqn, tensor);
    if (status == PST_OK)
        ret->tensor = tensor;
    return status;
}

enum pst_status pst_payloads_parse(const char *what, const char *text,
                                   size_t len, struct pst_doc_payloads *ret,
                                   struct pst_diag *diag)
{
    struct pst_reader r;
    const struct pst_json *config;
    enum pst_status status;
    const struct pst_json *json;

    *ret = (struct pst_doc_payloads){.n = 0};
    pst_arena_init(&ret->arena, PST_TAG_ARCHIVE);
    pst_reader_init(&r, NULL, &ret->arena, diag);
    status = pst_json_parse(what, text, len, &r.scratch, &json, diag);
    if (status != PST_OK)
        goto done;
    config = pst_json_member(json, "config", PST_JSON_OBJECT, what, diag);
    status = config == NULL ? PST_ERR_INPUT
                            : pst_reader_alloc(&r, pst_json_members(config),
                                               sizeof(*ret->at), &ret->at);
    for (const struct pst_json *item = NULL;
         status == PST_OK && (item = pst_json_next(config, item)) != NULL;)
        status = read_payload(&r, item->key, item, &ret->at[ret->n++]);
done:
    pst_reader_fini(&r);
    return status;
}

void pst_payloads_fini(struct pst_doc_payloads *payloads)
{
    pst_arena_fini(&payloads->arena);
}
