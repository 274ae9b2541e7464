// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/sort/sort.h"

#include <math.h>
#include <string.h>

/* Returns an integer for a double such that integers have the order of the
 * doubles. */
static int64_t float_key(double x)
{
    int64_t bits;

    if (isnan(x))
        return PST_SORT_NAN;
    x += 0.0; /* -0 is 0 */
    memcpy(&bits, &x, sizeof(bits));
    return bits < 0 ? (int64_t)(~(uint64_t)bits ^ (1ull << 63)) : bits;
}

void pst_sort_load(const struct pst_operand *x, int64_t first, int64_t inner,
                   int64_t n, struct pst_sort_item *ret)
{
    const enum pst_dtype dtype = x->meta->dtype;
    const bool whole = pst_dtype_kind(dtype) != PST_KIND_FLOAT;

    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i * inner;

        ret[i].key = whole ? pst_load_i64(dtype, x->data, at)
                           : float_key(pst_load_f64(dtype, x->data, at));
        ret[i].index = i;
    }
}

struct pst_sort_pair *pst_sort_load_pairs(const struct pst_operand *x,
                                          int64_t first, int64_t inner,
                                          int64_t n, bool descending,
                                          struct pst_sort_item *scratch)
{
    struct pst_sort_pair *ret = (struct pst_sort_pair *)(scratch + n);

    pst_sort_load(x, first, inner, n, scratch);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = (uint64_t)scratch[i].key ^ (1ull << 63);

        ret[i] = (struct pst_sort_pair){descending ? ~key : key, i};
    }
    return ret;
}

static void merge(const struct pst_sort_item *a, int64_t n_a,
                  const struct pst_sort_item *b, int64_t n_b, bool descending,
                  struct pst_sort_item *to)
{
    int64_t i = 0, k = 0;

    while (i < n_a || k < n_b) {
        const bool second =
            i == n_a || (k < n_b && (descending ? b[k].key > a[i].key
                                                : b[k].key < a[i].key));

        *to++ = second ? b[k++] : a[i++];
    }
}

void pst_sort_items(struct pst_sort_item *items, struct pst_sort_item *spare,
                    int64_t n, bool descending)
{
    struct pst_sort_item *from = items, *to = spare;

    for (int64_t run = 1; run < n; run *= 2) {
        struct pst_sort_item *swap = from;

        for (int64_t i = 0; i < n; i += 2 * run) {
            const int64_t middle = PST_MIN(i + run, n);
            const int64_t end = PST_MIN(middle + run, n);

            merge(from + i, middle - i, from + middle, end - middle, descending,
                  to + i);
        }
        from = to;
        to = swap;
    }
    if (from != items)
        memcpy(items, from, (size_t)n * sizeof(*items));
}

size_t pst_sort_scratch(const struct pst_call *c, int dim)
{
    const struct pst_meta *x = c->in[0].meta;
    const struct pst_lane l = dim < 0 || c->args[dim].kind != PST_ARG_INT
                                  ? pst_lane_all(x)
                                  : pst_lane_of(x, c->args[dim].i);

    return (size_t)l.size * 2 * sizeof(struct pst_sort_item);
}

void pst_sort_store(const struct pst_call *c, int64_t to, int64_t from,
                    int64_t index)
{
    const size_t size = pst_dtype_size(c->in[0].meta->dtype);

    memcpy((char *)c->out[0].data + (size_t)to * size,
           (const char *)c->in[0].data + (size_t)from * size, size);
    if (c->n_out > 1)
        ((int64_t *)c->out[1].data)[to] = index;
}

enum pst_status pst_sort_infer(struct pst_infer *c, unsigned dim_arg, int64_t n,
                               bool keep)
{
    const struct pst_meta *x;
    struct pst_meta to;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, dim_arg, x, &dim);
    if (status != PST_OK)
        return status;
    to = *x;
    if (x->rank > 0 && (n >= 0 || keep)) {
        to.size[dim] = n >= 0 ? n : 1;
    } else if (x->rank > 0) {
        memmove(&to.size[dim], &to.size[dim + 1],
                (x->rank - dim - 1) * sizeof(to.size[0]));
        to.rank--;
    }
    status = pst_infer_set_like(c, 0, x->dtype, &to);
    return status != PST_OK ? status : pst_infer_set_like(c, 1, PST_I64, &to);
}
