// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/memplan.h"

#include <stdlib.h>

#include "stages/base/alloc.h"
#include "stages/base/checked.h"

size_t pst_mem_round(size_t size)
{
    return pst_size_round(size, PST_MEM_ALIGN);
}

struct ranked {
    struct pst_interval *interval;
    size_t index;
};

static int by_size(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->interval->size != y->interval->size)
        return x->interval->size > y->interval->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_offset(const void *a, const void *b)
{
    const struct pst_interval *const *x = a, *const *y = b;

    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static int overlap(const struct pst_interval *a, const struct pst_interval *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

/* Lowest offset for `one` among those placed that live at the same time. */
static void place(struct pst_interval *one, struct pst_interval **placed,
                  size_t n_placed, struct pst_interval **scratch)
{
    size_t n = 0, at = 0;

    for (size_t i = 0; i < n_placed; i++)
        if (overlap(one, placed[i]))
            scratch[n++] = placed[i];
    qsort(scratch, n, sizeof(*scratch), by_offset);
    for (size_t i = 0; i < n; i++) {
        size_t end =
            pst_size_add(scratch[i]->offset, pst_mem_round(scratch[i]->size));

        if (pst_size_add(at, pst_mem_round(one->size)) <= scratch[i]->offset)
            break;
        at = PST_MAX(at, end);
    }
    one->offset = at;
}

enum pst_status pst_mem_pack(struct pst_interval *intervals, size_t n,
                             size_t *ret_size, struct pst_diag *diag)
{
    struct ranked *order = pst_calloc(PST_TAG_EXEC, n, sizeof(*order));
    struct pst_interval **placed =
        pst_calloc(PST_TAG_EXEC, 2 * n + 1, sizeof(struct pst_interval *));
    size_t size = 0;

    if (order == NULL || placed == NULL) {
        pst_free(order);
        pst_free(placed);
        return pst_diag_nomem(diag, n * sizeof(*order));
    }
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){&intervals[i], i};
    qsort(order, n, sizeof(*order), by_size);
    for (size_t i = 0; i < n; i++) {
        struct pst_interval *one = order[i].interval;

        place(one, placed, i, placed + n);
        placed[i] = one;
        size =
            PST_MAX(size, pst_size_add(one->offset, pst_mem_round(one->size)));
    }
    pst_free(order);
    pst_free(placed);
    *ret_size = size;
    return PST_OK;
}
