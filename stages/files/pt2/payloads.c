// SPDX-License-Identifier: Apache-2.0
/* Tables of what is stored: which window of which record a name is. */
#include "stages/files/pt2/reader.h"

static enum pst_status read_payload(struct pst_reader *r, const char *fqn,
                                    const json_t *json,
                                    struct pst_doc_payload *ret)
{
    const json_t *meta = json_object_get(json, "tensor_meta");
    struct pst_doc_tensor *tensor;
    enum pst_status status;

    ret->is_param = json_is_true(json_object_get(json, "is_param"));
    ret->raw = json_is_false(json_object_get(json, "use_pickle"));
    status = pst_read_text(r, fqn, &ret->fqn);
    if (status == PST_OK)
        status = pst_read_member(r, json, "path_name", fqn, &ret->path);
    if (status != PST_OK || meta == NULL || json_is_null(meta))
        return status;
    status = pst_read_room(r, 1, sizeof(*tensor), &tensor);
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
    const json_t *config;
    enum pst_status status;
    const char *fqn;
    json_t *json, *item;

    *ret = (struct pst_doc_payloads){.n = 0};
    pst_arena_init(&ret->arena, PST_TAG_ARCHIVE);
    status = pst_json_parse(what, text, len, &json, diag);
    if (status != PST_OK)
        return status;
    pst_reader_init(&r, NULL, &ret->arena, diag);
    config = pst_json_member(json, "config", JSON_OBJECT, what, diag);
    status = config == NULL ? PST_ERR_INPUT
                            : pst_read_room(&r, json_object_size(config),
                                            sizeof(*ret->at), &ret->at);
    json_object_foreach((json_t *)config, fqn, item)
    {
        if (status == PST_OK)
            status = read_payload(&r, fqn, item, &ret->at[ret->n++]);
    }
    pst_reader_fini(&r);
    json_decref(json);
    return status;
}

void pst_payloads_fini(struct pst_doc_payloads *payloads)
{
    pst_arena_fini(&payloads->arena);
}
