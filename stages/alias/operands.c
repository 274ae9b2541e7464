// SPDX-License-Identifier: Apache-2.0
#include "stages/alias/operands.h"

#include "stages/base/str.h"
#include "stages/frontend/functional/overlap.h"

#include <string.h>

struct analysis {
    const struct pst_alias_operand *operands;
    struct pst_arena *arena;
    struct pst_alias *ret;
    unsigned *root; /* union-find over operands */
    struct pst_diag *diag;
};

static int64_t item_size(const struct pst_alias_operand *o)
{
    return (int64_t)pst_dtype_size(o->meta.dtype);
}

static int64_t begin_of(const struct pst_alias_operand *o)
{
    return o->offset * item_size(o);
}

static int64_t end_of(const struct pst_alias_operand *o)
{
    return begin_of(o) + (int64_t)pst_meta_span(&o->meta);
}

/* The same window in bytes: elements become a last dimension. */
static bool in_bytes(const struct pst_alias_operand *o, struct pst_meta *ret)
{
    if (o->meta.rank == PST_MAX_RANK)
        return false;
    *ret = o->meta;
    ret->dtype = PST_U8;
    for (unsigned d = 0; d < ret->rank; d++)
        ret->stride[d] *= item_size(o);
    ret->size[ret->rank] = item_size(o);
    ret->stride[ret->rank++] = 1;
    return true;
}

/* Have they a byte in common? */
static enum pst_status meet(const struct analysis *a, unsigned i, unsigned k,
                            bool *ret)
{
    const struct pst_alias_operand *x = &a->operands[i], *y = &a->operands[k];
    struct pst_meta u = x->meta, v = y->meta;
    int64_t from = x->offset, to = y->offset;

    *ret = false;
    if (x->storage != y->storage || begin_of(x) >= end_of(y) ||
        begin_of(y) >= end_of(x))
        return PST_OK;
    if (item_size(x) != item_size(y)) {
        if (!in_bytes(x, &u) || !in_bytes(y, &v)) {
            *ret = true;
            return PST_OK;
        }
        from = begin_of(x);
        to = begin_of(y);
    }
    return pst_windows_overlap(&(struct pst_window){&u, from},
                               &(struct pst_window){&v, to}, ret, a->diag);
}

static unsigned root_of(const struct analysis *a, unsigned i)
{
    while (a->root[i] != i)
        i = a->root[i] = a->root[a->root[i]];
    return i;
}

/* A tensor that is passed again, if somebody writes it. */
static void find_twins(const struct analysis *a)
{
    for (unsigned i = 0; i < a->ret->n; i++) {
        bool written = false;
        unsigned first = i;

        for (unsigned k = a->ret->n; k-- > 0;) {
            if (a->operands[k].tensor != a->operands[i].tensor)
                continue;
            written = written || a->operands[k].written;
            first = PST_MIN(first, k);
        }
        a->ret->parts[i] = (struct pst_alias_part){written ? first : i, -1};
    }
}

static enum pst_status refuse_dtypes(const struct analysis *a, unsigned i,
                                     unsigned k)
{
    const struct pst_alias_operand *x = &a->operands[i], *y = &a->operands[k];
    char s[PST_META_TEXT], t[PST_META_TEXT];

    return pst_diag_set(a->diag, PST_ERR_UNSUPPORTED,
                        "E_ALIAS_DTYPE: \"%s\", %s at byte %lld, and \"%s\", "
                        "%s at byte %lld, share memory, and one of them is "
                        "written",
                        x->name, pst_meta_text(&x->meta, s),
                        (long long)begin_of(x), y->name,
                        pst_meta_text(&y->meta, t), (long long)begin_of(y));
}

/* Writes change nothing for operands that do not meet the one that is written:
 * two that are only read stay apart. */
static enum pst_status join_pairs(const struct analysis *a)
{
    for (unsigned i = 0; i < a->ret->n; i++)
        for (unsigned k = i + 1; k < a->ret->n; k++) {
            enum pst_status status;
            unsigned x, y;
            bool found;

            if (a->ret->parts[i].same != i || a->ret->parts[k].same != k ||
                (!a->operands[i].written && !a->operands[k].written))
                continue;
            status = meet(a, i, k, &found);
            if (status != PST_OK)
                return status;
            if (!found)
                continue;
            if (item_size(&a->operands[i]) != item_size(&a->operands[k]))
                return refuse_dtypes(a, i, k);
            x = root_of(a, i);
            y = root_of(a, k);
            a->root[PST_MAX(x, y)] = PST_MIN(x, y);
        }
    return PST_OK;
}

static void widen(struct pst_alias_base *base,
                  const struct pst_alias_operand *o)
{
    base->begin = PST_MIN(base->begin, begin_of(o));
    base->end = PST_MAX(base->end, end_of(o));
    if (o->written) /* the others are casts of what is written */
        base->dtype = o->meta.dtype;
}

static void make_bases(const struct analysis *a)
{
    struct pst_alias *ret = a->ret;

    for (unsigned i = 0; i < ret->n; i++) {
        const unsigned root = root_of(a, i);
        const struct pst_alias_operand *o = &a->operands[i];

        if (root == i || ret->parts[i].same != i)
            continue;
        if (ret->parts[root].base < 0) {
            ret->parts[root].base = (int)ret->n_bases;
            ret->bases[ret->n_bases] = (struct pst_alias_base){
                o->storage, root, INT64_MAX, 0, o->meta.dtype};
            widen(&ret->bases[ret->n_bases++], &a->operands[root]);
        }
        ret->parts[i].base = ret->parts[root].base;
        widen(&ret->bases[ret->parts[i].base], o);
    }
}

/* In the order of their first operands. */
static void sort_bases(const struct analysis *a)
{
    struct pst_alias *ret = a->ret;
    struct pst_alias_base base;

    for (unsigned i = 1; i < ret->n_bases; i++)
        for (unsigned k = i;
             k > 0 && ret->bases[k].first < ret->bases[k - 1].first; k--) {
            base = ret->bases[k];
            ret->bases[k] = ret->bases[k - 1];
            ret->bases[k - 1] = base;
        }
    for (unsigned i = 0; i < ret->n; i++)
        for (unsigned b = 0; b < ret->n_bases && ret->parts[i].base >= 0; b++)
            if (ret->bases[b].first == root_of(a, i))
                ret->parts[i].base = (int)b;
}

static void count_bytes(const struct analysis *a)
{
    struct pst_alias *ret = a->ret;

    for (unsigned b = 0; b < ret->n_bases; b++)
        ret->bytes += (size_t)(ret->bases[b].end - ret->bases[b].begin);
    for (unsigned i = 0; i < ret->n; i++) {
        bool again = ret->parts[i].same != i || ret->parts[i].base >= 0;

        for (unsigned k = 0; k < i && !again; k++) /* the same bytes */
            again = a->operands[k].storage == a->operands[i].storage &&
                    begin_of(&a->operands[k]) == begin_of(&a->operands[i]) &&
                    end_of(&a->operands[k]) == end_of(&a->operands[i]);
        if (!again)
            ret->bytes += pst_meta_span(&a->operands[i].meta);
    }
}

/* --- the key -------------------------------------------------------------- */

/* The first operand of the same tensor or storage, and where that storage is
 * looked at first: numbers of the caller's mean nothing. */
static uint64_t key_of(const struct pst_alias_operand *operands, unsigned n,
                       unsigned i, uint64_t key)
{
    const struct pst_alias_operand *o = &operands[i];
    int64_t numbers[4 + 2 * PST_MAX_RANK] = {0}, begin = begin_of(o);
    unsigned tensor = i, storage = i, at = 4;

    for (unsigned k = n; k-- > 0;) {
        if (operands[k].tensor == o->tensor)
            tensor = k;
        if (operands[k].storage != o->storage)
            continue;
        storage = k;
        begin = PST_MIN(begin, begin_of(&operands[k]));
    }
    numbers[0] = tensor;
    numbers[1] = storage;
    numbers[2] = begin_of(o) - begin;
    numbers[3] = (int64_t)o->meta.dtype << 8 | o->meta.rank;
    for (unsigned d = 0; d < o->meta.rank; d++) {
        numbers[at++] = o->meta.size[d];
        numbers[at++] = o->meta.stride[d];
    }
    return pst_hash(numbers, at * sizeof(numbers[0]), key);
}

uint64_t pst_alias_key(const struct pst_alias_operand *operands, unsigned n)
{
    uint64_t key = n;

    for (unsigned i = 0; i < n; i++)
        key = key_of(operands, n, i, key);
    return key;
}

enum pst_status pst_alias_analyse(const struct pst_alias_operand *operands,
                                  unsigned n, struct pst_arena *arena,
                                  struct pst_alias *ret, struct pst_diag *diag)
{
    struct analysis a = {operands, arena, ret, NULL, diag};
    enum pst_status status;

    *ret = (struct pst_alias){.n = n};
    ret->parts = pst_arena_calloc(arena, n + 1, sizeof(*ret->parts));
    ret->bases = pst_arena_calloc(arena, n + 1, sizeof(*ret->bases));
    a.root = pst_arena_calloc(arena, n + 1, sizeof(*a.root));
    if (ret->parts == NULL || ret->bases == NULL || a.root == NULL)
        return pst_diag_nomem(diag, n);
    for (unsigned i = 0; i < n; i++)
        a.root[i] = i;
    find_twins(&a);
    status = join_pairs(&a);
    if (status != PST_OK)
        return status;
    make_bases(&a);
    sort_bases(&a);
    count_bytes(&a);
    ret->key = pst_alias_key(operands, n);
    return PST_OK;
}
