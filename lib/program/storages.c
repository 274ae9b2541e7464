// SPDX-License-Identifier: Apache-2.0
/* Derives storages from the addresses of the caller's tensors. */
#include <stdlib.h>

#include "lib/program/program.h"
#include "stages/base/alloc.h"

#define TAG PST_TAG_CLIENT

/* Memory of one operand: the storage given with it, else the bytes from its
 * first to its last element. */
struct range {
    uintptr_t begin, end;
    size_t operand;
};

/* Storage of empty tensors that have no memory. */
static char nothing;

static enum pst_status range_of(const struct penstock_operand *given,
                                const struct pstl_view *view, struct range *ret,
                                struct pst_diag *diag)
{
    const uintptr_t storage = (uintptr_t)given->storage;

    ret->begin = (uintptr_t)view->data;
    ret->end = ret->begin + pst_meta_span(&view->meta);
    if (given->storage == NULL)
        return PST_OK;
    if (storage > UINTPTR_MAX - given->storage_bytes ||
        (view->data != NULL &&
         (ret->begin < storage || ret->end > storage + given->storage_bytes)))
        return pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                            "the tensor of '%.200s' reaches beyond the storage "
                            "that is given with it",
                            given->name);
    ret->begin = storage;
    ret->end = storage + given->storage_bytes;
    return PST_OK;
}

/* Orders ranges by address. Empty ranges, which overlap none, come last. */
static int compare(const void *x, const void *y)
{
    const struct range *a = x, *b = y;
    const bool a_empty = a->begin == a->end, b_empty = b->begin == b->end;

    if (a_empty != b_empty)
        return a_empty ? 1 : -1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return a->operand < b->operand ? -1 : a->operand > b->operand;
}

/* Sets storage and offset of an operand. begin: address of the storage. */
static enum pst_status place_operand(const struct penstock_operand *given,
                                     const struct pstl_view *view,
                                     unsigned storage, uintptr_t begin,
                                     struct pst_alias_operand *ret,
                                     struct pst_diag *diag)
{
    const size_t item = pst_dtype_size(view->meta.dtype);
    const size_t byte = view->data != NULL ? (uintptr_t)view->data - begin : 0;

    ret->storage = storage;
    ret->offset = (int64_t)(byte / item);
    if (byte % item == 0)
        return PST_OK;
    return pst_diag_set(diag, PST_E_ALIAS_UNALIGNED,
                        "E_UNALIGNED: '%.200s' begins at byte %zu of its "
                        "storage%s, which is no multiple of %zu, the size of "
                        "%s",
                        given->name, byte,
                        given->storage == NULL
                            ? " (the memory that it shares with others)"
                            : "",
                        item, pst_dtype_name(view->meta.dtype));
}

/* Places the operands of ranges[from..to), which share one storage. */
static enum pst_status close_storage(const struct range *ranges, size_t from,
                                     size_t to, uintptr_t end,
                                     const struct penstock_operand *given,
                                     const struct pstl_view *views,
                                     struct pst_alias_operand *operands,
                                     unsigned storage, struct pst_diag *diag)
{
    const uintptr_t begin = ranges[from].begin;
    enum pst_status status = PST_OK;

    for (size_t k = from; k < to && status == PST_OK; k++) {
        const size_t i = ranges[k].operand;

        if (given[i].storage != NULL &&
            (ranges[k].begin != begin || ranges[k].end != end))
            return pst_diag_set(
                diag, PST_E_LIBRARY_TENSOR,
                "the storage of '%.200s' overlaps memory of "
                "'%.200s', which is in another one: give both "
                "the same storage",
                given[i].name,
                given[ranges[k > from ? from : to - 1].operand].name);
        status = place_operand(&given[i], &views[i], storage, begin,
                               &operands[i], diag);
    }
    return status;
}

static enum pst_status join_ranges(const struct range *ranges, size_t n,
                                   const struct penstock_operand *given,
                                   const struct pstl_view *views,
                                   struct pst_alias_operand *operands,
                                   struct pst_call_storage *storages,
                                   unsigned *ret_n, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    size_t to;

    *ret_n = 0;
    for (size_t from = 0; from < n && status == PST_OK; from = to) {
        const size_t i = ranges[from].operand;
        uintptr_t end = ranges[from].end;

        for (to = from + 1; to < n && ranges[to].begin < ranges[to].end &&
                            ranges[to].begin < end;
             to++)
            end = PST_MAX(end, ranges[to].end);
        storages[*ret_n] = (struct pst_call_storage){
            given[i].storage != NULL ? given[i].storage : (void *)views[i].data,
            end - ranges[from].begin};
        if (storages[*ret_n].data == NULL)
            storages[*ret_n].data = &nothing;
        status = close_storage(ranges, from, to, end, given, views, operands,
                               *ret_n, diag);
        ++*ret_n;
    }
    return status;
}

enum pst_status pstl_storages_find(const struct penstock_operand *given,
                                   const struct pstl_view *views, size_t n,
                                   struct pst_alias_operand *operands,
                                   struct pst_call_storage *storages,
                                   unsigned *ret_n, struct pst_diag *diag)
{
    struct range *ranges = pst_calloc(TAG, n + 1, sizeof(*ranges));
    enum pst_status status = PST_OK;

    if (ranges == NULL)
        return pst_diag_nomem(diag, n * sizeof(*ranges));
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        ranges[i].operand = i;
        status = range_of(&given[i], &views[i], &ranges[i], diag);
    }
    qsort(ranges, n, sizeof(*ranges), compare);
    if (status == PST_OK)
        status = join_ranges(ranges, n, given, views, operands, storages, ret_n,
                             diag);
    pst_free(ranges);
    return status;
}
