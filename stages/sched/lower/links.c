// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

#include <stdlib.h>
#include <string.h>

static int compare_from(const void *a, const void *b)
{
    const struct pst_link *x = a, *y = b;

    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static int compare_to(const void *a, const void *b)
{
    const struct pst_link *x = a, *y = b;

    return x->to != y->to ? (x->to > y->to) - (x->to < y->to)
                          : (x->from > y->from) - (x->from < y->from);
}

enum pst_status pst_link_index_init(struct pst_link_index *index,
                                    const struct pst_link *links, size_t n,
                                    unsigned n_stages, struct pst_diag *diag)
{
    const size_t offsets = (size_t)n_stages + 2;

    *index = (struct pst_link_index){
        .by_from = pst_calloc(PST_TAG_PLAN, n, sizeof(*links)),
        .by_to = pst_calloc(PST_TAG_PLAN, n, sizeof(*links)),
        .first_from = pst_calloc(PST_TAG_PLAN, offsets, sizeof(size_t)),
        .first_to = pst_calloc(PST_TAG_PLAN, offsets, sizeof(size_t)),
        .n = n,
        .n_stages = n_stages,
    };
    if (!index->by_from || !index->by_to || !index->first_from ||
        !index->first_to) {
        pst_link_index_fini(index);
        return pst_diag_nomem(diag, n * sizeof(*links));
    }
    for (size_t i = 0; i < n; i++) {
        if (links[i].from < 0 || links[i].from == links[i].to ||
            links[i].from >= (int)n_stages || links[i].to < 0 ||
            links[i].to >= (int)n_stages ||
            (links[i].grad && pst_link_carries(&links[i]))) {
            pst_link_index_fini(index);
            return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                "link %zu goes from stage %d to %d of %u", i,
                                links[i].from, links[i].to, n_stages);
        }
        index->by_from[i] = index->by_to[i] = links[i];
        index->first_from[links[i].from + 1]++;
        index->first_to[links[i].to + 1]++;
    }
    if (n) {
        qsort(index->by_from, n, sizeof(*links), compare_from);
        qsort(index->by_to, n, sizeof(*links), compare_to);
    }
    for (size_t i = 1; i < n; i++) {
        if (compare_from(&index->by_from[i - 1], &index->by_from[i]) == 0) {
            const struct pst_link link = index->by_from[i];

            pst_link_index_fini(index);
            return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                "two links go from stage %d to %d", link.from,
                                link.to);
        }
    }
    for (unsigned s = 0; s <= n_stages; s++) {
        index->first_from[s + 1] += index->first_from[s];
        index->first_to[s + 1] += index->first_to[s];
    }
    return PST_OK;
}

int pst_link_find(const struct pst_link_index *index, int from, int to)
{
    if (from < 0 || from >= (int)index->n_stages)
        return -1;
    for (size_t i = index->first_from[from]; i < index->first_from[from + 1];
         i++)
        if (index->by_from[i].to == to)
            return (int)i;
    return -1;
}

void pst_link_index_fini(struct pst_link_index *index)
{
    pst_free(index->first_to);
    pst_free(index->first_from);
    pst_free(index->by_to);
    pst_free(index->by_from);
    memset(index, 0, sizeof(*index));
}
