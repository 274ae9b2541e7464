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

int64_t pst_alias_begin(const struct pst_alias_operand *o)
{
    return o->from < o->to ? PST_MIN(o->from, begin_of(o)) : begin_of(o);
}

int64_t pst_alias_end(const struct pst_alias_operand *o)
{
    return o->from < o->to ? PST_MAX(o->to, end_of(o)) : end_of(o);
}

/* Returns the bytes that the program reaches: the operand's window, or a range
 * if it reaches beyond. */
static struct pst_window reach_of(const struct pst_alias_operand *o,
                                  struct pst_meta *bytes)
{
    const int64_t begin = pst_alias_begin(o), n = pst_alias_end(o) - begin;

    if (o->from >= o->to)
        return (struct pst_window){&o->meta, o->offset};
    *bytes = pst_meta_make(PST_U8, 1, &n);
    return (struct pst_window){bytes, begin};
}

/* Sets *ret to whether the operands have a byte in common. */
static enum pst_status operands_overlap(const struct analysis *a, unsigned i,
                                        unsigned k, bool *ret)
{
    const struct pst_alias_operand *x = &a->operands[i], *y = &a->operands[k];
    struct pst_meta bytes[2];
    const struct pst_window u = reach_of(x, &bytes[0]);
    const struct pst_window v = reach_of(y, &bytes[1]);

    *ret = false;
    return x->storage != y->storage ? PST_OK
                                    : pst_windows_overlap(&u, &v, ret, a->diag);
}

static unsigned root_of(const struct analysis *a, unsigned i)
{
    while (a->root[i] != i)
        i = a->root[i] = a->root[a->root[i]];
    return i;
}

/* Sets `parts`: a tensor that is passed several times, and whose content or
 * geometry changes, is passed once, in place of its first operand. */
static void merge_repeated(const struct analysis *a)
{
    for (unsigned i = 0; i < a->ret->n; i++) {
        bool written = false;
        unsigned first = i;

        for (unsigned k = a->ret->n; k-- > 0;) {
            if (a->operands[k].tensor != a->operands[i].tensor)
                continue;
            written = written || a->operands[k].written || a->operands[k].moved;
            first = PST_MIN(first, k);
        }
        a->ret->parts[i] = (struct pst_alias_part){written ? first : i, -1};
    }
}

/* Joins pairs of operands that overlap if one of them is written; two that are
 * only read stay separate. */
static enum pst_status join_pairs(const struct analysis *a)
{
    for (unsigned i = 0; i < a->ret->n; i++)
        for (unsigned k = i + 1; k < a->ret->n; k++) {
            enum pst_status status;
            unsigned x, y;
            bool found;

            if (a->ret->parts[i].same != i || a->ret->parts[k].same != k ||
                a->operands[i].hidden || a->operands[k].hidden ||
                (!a->operands[i].written && !a->operands[k].written))
                continue;
            status = operands_overlap(a, i, k, &found);
            if (status != PST_OK)
                return status;
            if (!found)
                continue;
            x = root_of(a, i);
            y = root_of(a, k);
            a->root[PST_MAX(x, y)] = PST_MIN(x, y);
        }
    return PST_OK;
}

static bool is_alone(const struct analysis *a, unsigned i)
{
    for (unsigned k = 0; k < a->ret->n; k++)
        if (k != i && root_of(a, k) == root_of(a, i))
            return false;
    return true;
}

/* If a component has views of several operands (`root`), joins those operands
 * to it, even if they are not arguments: the code before the call then makes
 * the views on the base. */
static void join_roots(const struct analysis *a)
{
    bool again = true;

    while (again) {
        again = false;
        for (unsigned i = 0; i < a->ret->n; i++) {
            const unsigned x = a->operands[i].root;

            if (a->ret->parts[i].same != i || is_alone(a, i))
                continue;
            for (unsigned k = 0; k < a->ret->n; k++) {
                if (root_of(a, i) != root_of(a, k) ||
                    a->operands[k].root == x || x >= a->ret->n ||
                    root_of(a, x) == root_of(a, i))
                    continue;
                a->root[PST_MAX(root_of(a, x), root_of(a, i))] =
                    PST_MIN(root_of(a, x), root_of(a, i));
                again = true;
            }
        }
    }
}

static void extend_base(struct pst_alias_base *base,
                        const struct pst_alias_operand *o, size_t *item,
                        bool *raw)
{
    base->begin = PST_MIN(base->begin, pst_alias_begin(o));
    base->end = PST_MAX(base->end, pst_alias_end(o));
    if (base->viewed != (int64_t)o->root)
        base->viewed = -1;
    *raw = *raw || *item != pst_dtype_size(o->meta.dtype);
    /* the other operands of the base are bit-cast to this dtype */
    if (o->written)
        base->dtype = o->meta.dtype;
}

static void make_bases(const struct analysis *a, bool absolute)
{
    struct pst_alias *ret = a->ret;

    for (unsigned i = 0; i < ret->n; i++) {
        const struct pst_alias_operand *o = &a->operands[i];
        struct pst_alias_base base = {o->storage,    i,      INT64_MAX, 0,
                                      o->meta.dtype, o->root};
        size_t item = pst_dtype_size(o->meta.dtype);
        bool raw = false;

        if (root_of(a, i) != i || ret->parts[i].same != i || is_alone(a, i))
            continue;
        for (unsigned k = 0; k < ret->n; k++) {
            if (root_of(a, k) != i || ret->parts[k].same != k)
                continue;
            extend_base(&base, &a->operands[k], &item, &raw);
            ret->parts[k].base = (int)ret->n_bases;
        }
        if (raw)
            base.dtype = PST_U8;
        if (raw || absolute)
            base.begin = base.begin / 8 * 8;
        ret->bases[ret->n_bases++] = base;
    }
}

static void count_bytes(const struct analysis *a)
{
    struct pst_alias *ret = a->ret;

    for (unsigned b = 0; b < ret->n_bases; b++)
        ret->bytes += (size_t)(ret->bases[b].end - ret->bases[b].begin);
    for (unsigned i = 0; i < ret->n; i++) {
        bool again = ret->parts[i].same != i || ret->parts[i].base >= 0 ||
                     a->operands[i].hidden;

        /* counts operands with the same bytes once */
        for (unsigned k = 0; k < i && !again; k++)
            again = a->operands[k].storage == a->operands[i].storage &&
                    !a->operands[k].hidden &&
                    begin_of(&a->operands[k]) == begin_of(&a->operands[i]) &&
                    end_of(&a->operands[k]) == end_of(&a->operands[i]);
        if (!again)
            ret->bytes += pst_meta_span(&a->operands[i].meta);
    }
}

/* --- the key -------------------------------------------------------------- */

/* Hashes an operand: the first operands with the same tensor and storage, the
 * offset from the lowest operand in that storage, dtype and shape. The caller's
 * own numbers of tensors and storages do not matter. */
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
                                  unsigned n, bool absolute,
                                  struct pst_arena *arena,
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
    merge_repeated(&a);
    status = join_pairs(&a);
    if (status != PST_OK)
        return status;
    join_roots(&a);
    make_bases(&a, absolute);
    count_bytes(&a);
    ret->key = pst_alias_key(operands, n);
    return PST_OK;
}
