// SPDX-License-Identifier: Apache-2.0
#include "stages/files/lora/adapters.h"

#include <math.h>
#include <string.h>

#define TAG PST_TAG_PLAN

enum pst_status pst_adapters_add(struct pst_adapters *list,
                                 struct pst_arena *arena,
                                 const struct pst_adapter *adapter,
                                 struct pst_diag *diag)
{
    struct pst_adapter copy = *adapter;

    copy.module = pst_arena_strdup(arena, adapter->module);
    copy.weight = pst_arena_strdup(arena, adapter->weight);
    copy.down = pst_arena_strdup(arena, adapter->down);
    copy.up = pst_arena_strdup(arena, adapter->up);
    return copy.module != NULL && copy.weight != NULL && copy.down != NULL &&
                   copy.up != NULL && pst_vec_push(TAG, list, copy)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(copy));
}

const struct pst_adapter *pst_adapters_of(const struct pst_adapters *list,
                                          const char *weight)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i].weight, weight) == 0)
            return &list->at[i];
    return NULL;
}

static bool is_matrix(const struct pst_meta *meta)
{
    return meta != NULL && meta->rank == 2 &&
           pst_dtype_kind(meta->dtype) == PST_KIND_FLOAT;
}

enum pst_status pst_adapter_check(const struct pst_adapter *adapter,
                                  const struct pst_meta *weight,
                                  const struct pst_meta *down,
                                  const struct pst_meta *up,
                                  struct pst_diag *diag)
{
    const int in = adapter->transposed ? 0 : 1;

    if (is_matrix(weight) && is_matrix(down) && is_matrix(up) &&
        isfinite(adapter->alpha) && down->dtype == up->dtype &&
        down->size[0] > 0 && down->size[0] == up->size[1] &&
        down->size[1] == weight->size[in] &&
        up->size[0] == weight->size[1 - in])
        return PST_OK;
    return pst_diag_set(diag, PST_E_LORA_CONFIG,
                        "the adapter of \"%.200s\" is wrong: \"%.200s\" and "
                        "\"%.200s\" do not fit \"%.200s\"",
                        adapter->module, adapter->down, adapter->up,
                        adapter->weight);
}
