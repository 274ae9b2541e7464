// SPDX-License-Identifier: Apache-2.0
/* Helpers of all readers of records: interned texts, allocation. */
#include "stages/files/pt2/reader.h"

#include <string.h>

void pst_reader_init(struct pst_reader *r, struct pst_document *doc,
                     struct pst_arena *arena, struct pst_diag *diag)
{
    *r = (struct pst_reader){
        .arena = arena, .doc = doc, .place = &pst_doc_nowhere, .diag = diag};
    pst_arena_init(&r->scratch, PST_TAG_ARCHIVE);
    pst_map_init(&r->texts, PST_TAG_ARCHIVE);
    pst_map_init(&r->exprs, PST_TAG_ARCHIVE);
    pst_map_init(&r->fqns, PST_TAG_ARCHIVE);
    pst_map_init(&r->stacks, PST_TAG_ARCHIVE);
    pst_map_init(&r->traces, PST_TAG_ARCHIVE);
}

void pst_reader_fini(struct pst_reader *r)
{
    pst_map_fini(&r->texts);
    pst_map_fini(&r->exprs);
    pst_map_fini(&r->fqns);
    pst_map_fini(&r->stacks);
    pst_map_fini(&r->traces);
    pst_arena_fini(&r->scratch);
}

enum pst_status pst_read_text(struct pst_reader *r, const char *text,
                              const char **ret)
{
    char *copy = pst_map_get(&r->texts, text);

    if (copy == NULL) {
        copy = pst_arena_strdup(r->arena, text);
        if (copy == NULL || !pst_map_put(&r->texts, text, copy))
            return pst_diag_nomem(r->diag, strlen(text));
    }
    *ret = copy;
    return PST_OK;
}

enum pst_status pst_read_member(struct pst_reader *r,
                                const struct pst_json *object, const char *key,
                                const char *where, const char **ret)
{
    const char *text = pst_json_text(object, key, where, r->diag);

    return text != NULL ? pst_read_text(r, text, ret) : PST_ERR_INPUT;
}

enum pst_status pst_reader_alloc(struct pst_reader *r, size_t n, size_t size,
                                 void *ret)
{
    void *memory = pst_arena_calloc(r->arena, PST_MAX(n, (size_t)1), size);

    if (memory == NULL)
        return pst_diag_nomem(r->diag, n * size);
    memcpy(ret, &memory, sizeof(memory));
    return PST_OK;
}
