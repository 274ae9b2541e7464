// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/memplan.h"

#include <stdbool.h>
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

static int compare_sizes(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->interval->size != y->interval->size)
        return x->interval->size > y->interval->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct pst_interval *const *x = a, *const *y = b;

    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static int lifetimes_overlap(const struct pst_interval *a,
                             const struct pst_interval *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

/* --- lifetimes ------------------------------------------------------------ */

#define N_SPANS 64

/* Index of the buffers placed so far, by time: time is divided into spans of
 * equal length, and each span lists the buffers that live in it. Of thousands
 * of buffers only a few overlap. */
struct calendar {
    unsigned length; /* length of a span */
    size_t n[N_SPANS];
    struct pst_interval **at[N_SPANS]; /* pointers into `all` */
    struct pst_interval **all;
};

static unsigned first_span(const struct calendar *c,
                           const struct pst_interval *one)
{
    return one->begin / c->length;
}

static unsigned last_span(const struct calendar *c,
                          const struct pst_interval *one)
{
    return one->end / c->length;
}

/* Returns false if out of memory. */
static bool calendar_init(struct calendar *c,
                          const struct pst_interval *intervals, size_t n)
{
    size_t count[N_SPANS] = {0}, all = 0;
    unsigned end = 0;

    *c = (struct calendar){.length = 1};
    for (size_t i = 0; i < n; i++)
        end = PST_MAX(end, intervals[i].end);
    c->length = end / N_SPANS + 1;
    for (size_t i = 0; i < n; i++)
        for (unsigned k = first_span(c, &intervals[i]);
             k <= last_span(c, &intervals[i]); k++) {
            count[k]++;
            all++;
        }
    c->all = pst_calloc(PST_TAG_EXEC, all + 1, sizeof(*c->all));
    if (c->all == NULL)
        return false;
    for (size_t k = 0, at = 0; k < N_SPANS; at += count[k++])
        c->at[k] = c->all + at;
    return true;
}

static void add_interval(struct calendar *c, struct pst_interval *one)
{
    for (unsigned k = first_span(c, one); k <= last_span(c, one); k++)
        c->at[k][c->n[k]++] = one;
}

/* Sets ret to the buffers that live at the same time as `one`, and returns
 * their number. Each is added once, in the first span that both live in. */
static size_t find_overlaps(const struct calendar *c,
                            const struct pst_interval *one,
                            struct pst_interval **ret)
{
    size_t n = 0;

    for (unsigned k = first_span(c, one); k <= last_span(c, one); k++)
        for (size_t i = 0; i < c->n[k]; i++) {
            struct pst_interval *other = c->at[k][i];

            if (k == PST_MAX(first_span(c, one), first_span(c, other)) &&
                lifetimes_overlap(one, other))
                ret[n++] = other;
        }
    return n;
}

/* --- placing -------------------------------------------------------------- */

/* Puts `one` at the lowest offset that is free during its lifetime. */
static void place_interval(struct pst_interval *one,
                           const struct calendar *placed,
                           struct pst_interval **scratch)
{
    const size_t n = find_overlaps(placed, one, scratch);
    size_t at = 0;

    qsort(scratch, n, sizeof(*scratch), compare_offsets);
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
    struct pst_interval **scratch =
        pst_calloc(PST_TAG_EXEC, n + 1, sizeof(struct pst_interval *));
    enum pst_status status = PST_OK;
    struct calendar placed = {0};
    size_t size = 0;

    if (order == NULL || scratch == NULL ||
        !calendar_init(&placed, intervals, n))
        status = pst_diag_nomem(diag, n * sizeof(*order));
    for (size_t i = 0; i < n && status == PST_OK; i++)
        order[i] = (struct ranked){&intervals[i], i};
    if (status == PST_OK)
        qsort(order, n, sizeof(*order), compare_sizes);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        struct pst_interval *one = order[i].interval;

        place_interval(one, &placed, scratch);
        add_interval(&placed, one);
        size =
            PST_MAX(size, pst_size_add(one->offset, pst_mem_round(one->size)));
    }
    pst_free(order);
    pst_free(scratch);
    pst_free(placed.all);
    if (status == PST_OK)
        *ret_size = size;
    return status;
}
