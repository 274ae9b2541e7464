// SPDX-License-Identifier: Apache-2.0
/* searchsorted and bucketize: positions of numbers in sorted rows. */
#include "stages/ops/sort/sort.h"

#include "stages/ops/index/bounds.h"
#include "stages/ops/pointwise/pointwise.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A row of n elements in ascending order, which may be the order of a
 * permutation (sorter). */
struct row {
    const struct pst_operand *sorted, *sorter;
    int64_t first, n;
    bool right;
};

/* Represents any 64-bit integer and any double exactly, because PyTorch
 * compares integers exactly. */
typedef long double number;
_Static_assert(LDBL_MANT_DIG >= 64, "a long double holds any int64_t");

static number load(enum pst_dtype dtype, const void *data, int64_t i)
{
    return pst_dtype_kind(dtype) == PST_KIND_FLOAT
               ? (number)pst_load_f64(dtype, data, i)
               : (number)pst_load_i64(dtype, data, i);
}

/* Returns the number of an argument, wrapped to the sorted dtype if it is an
 * integer. */
static number number_of(enum pst_dtype dtype, const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_FLOAT
               ? (number)arg->f
               : (number)pst_pw_wrap(dtype, pst_pw_integer(arg));
}

static number element_at(const struct row *r, int64_t i)
{
    if (r->sorter != NULL && r->sorter->data != NULL)
        i = pst_load_i64(r->sorter->meta->dtype, r->sorter->data, r->first + i);
    return load(r->sorted->meta->dtype, r->sorted->data, r->first + i);
}

/* Returns the number of elements before x (or equal to x, if `right`); NaN
 * comes last. */
static int64_t search_row(const struct row *r, number x)
{
    int64_t low = 0, high = r->n;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const number e = element_at(r, middle);
        const bool before = r->right ? !(e > x) && !(isnan(e) && !isnan(x))
                                     : !(e >= x) && !isnan(e);

        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Searches rows of `sorted`: one row, or as many as x has. If x is NULL,
 * searches for the number `value` instead of the elements of x. */
static void search_all(const struct pst_call *c,
                       const struct pst_operand *sorted,
                       const struct pst_operand *x, const struct pst_arg *value,
                       const struct pst_operand *sorter, bool right)
{
    const struct pst_operand *out = &c->out[0];
    const struct pst_meta *m = sorted->meta;
    const int64_t n = m->rank > 0 ? m->size[m->rank - 1] : 1;
    const int64_t width =
        x != NULL && x->meta->rank > 0 ? x->meta->size[x->meta->rank - 1] : 1;
    struct row r = {sorted, sorter, 0, n, right};

    for (int64_t i = 0; i < pst_meta_numel(out->meta); i++) {
        if (m->rank > 1)
            r.first = i / width * n;
        pst_store_i64(out->meta->dtype, out->data, i,
                      search_row(&r, x != NULL
                                         ? load(x->meta->dtype, x->data, i)
                                         : number_of(m->dtype, value)));
    }
}

/* True if arguments 3 and 4 of searchsorted select the right side. */
static bool is_right(const struct pst_arg *right, const struct pst_arg *side)
{
    return right->b ||
           (side->kind == PST_ARG_STRING && strcmp(side->s, "right") == 0);
}

/* True if the sorter's elements are places in a row of n; otherwise reports a
 * fault of the call. */
static bool check_sorter(const struct pst_call *c,
                         const struct pst_operand *sorter, int64_t n)
{
    const int64_t *at = sorter->data;

    for (int64_t i = 0; at != NULL && i < pst_meta_numel(sorter->meta); i++)
        if (!pst_index_check(c, at[i], n))
            return false;
    return true;
}

static void searchsorted_ref(const struct pst_call *c)
{
    const bool tensor = c->args[1].kind == PST_ARG_VALUE;
    const struct pst_meta *sorted = c->in[0].meta;
    const struct pst_operand *sorter = &c->in[tensor ? 2 : 1];

    if (!check_sorter(c, sorter, sorted->size[sorted->rank - 1]))
        return;
    search_all(c, &c->in[0], tensor ? &c->in[1] : NULL, &c->args[1], sorter,
               is_right(&c->args[3], &c->args[4]));
}

static void bucketize_ref(const struct pst_call *c)
{
    const bool tensor = c->args[0].kind == PST_ARG_VALUE;

    search_all(c, &c->in[tensor ? 1 : 0], tensor ? &c->in[0] : NULL,
               &c->args[0], NULL, c->args[3].b);
}

static enum pst_status infer_search(struct pst_infer *c, unsigned sorted,
                                    unsigned number)
{
    const enum pst_dtype to = c->args[2].b ? PST_I32 : PST_I64;
    const struct pst_meta *s, *x = pst_infer_in(c, number);
    enum pst_status status = pst_infer_tensor(c, sorted, &s);

    if (status != PST_OK)
        return status;
    if (x == NULL && s->rank == 1)
        return pst_infer_set(c, 0, to, 0, NULL);
    if (x == NULL || s->rank == 0)
        return pst_infer_fail(c, "needs one sorted row");
    for (unsigned d = 0; s->rank > 1 && d + 1 < s->rank; d++)
        if (s->rank != x->rank || s->size[d] != x->size[d])
            return pst_infer_fail(c, "the rows do not fit the numbers");
    return pst_infer_set_like(c, 0, to, x);
}

static enum pst_status infer_searchsorted(struct pst_infer *c)
{
    const struct pst_meta *sorted = pst_infer_in(c, 0);
    const struct pst_meta *sorter = pst_infer_in(c, 5);

    if (c->args[3].b && c->args[4].kind == PST_ARG_STRING &&
        strcmp(c->args[4].s, "left") == 0)
        return pst_infer_fail(c, "side and right contradict each other");
    if (sorter != NULL &&
        (sorter->dtype != PST_I64 || !pst_meta_same_shape(sorter, sorted)))
        return pst_infer_fail(c, "the sorter needs the shape of the sorted "
                                 "tensor, and dtype i64");
    return infer_search(c, 0, 1);
}

static enum pst_status infer_bucketize(struct pst_infer *c)
{
    const struct pst_meta *boundaries = pst_infer_in(c, 1);

    if (boundaries != NULL && boundaries->rank > 1)
        return pst_infer_fail(c, "boundaries need one dimension");
    return infer_search(c, 1, 0);
}

#define ROW(id, kernel, text, how)                                             \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#kernel, PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, kernel, 0.0},         \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text " -> Tensor",                                  \
        .infer = (how),                                                        \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

ROW(searchsorted_Tensor, searchsorted_ref,
    "searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, "
    "bool out_int32=False, bool right=False, str? side=None, "
    "Tensor? sorter=None)",
    infer_searchsorted);
ROW(searchsorted_Scalar, searchsorted_ref,
    "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, "
    "bool out_int32=False, bool right=False, str? side=None, "
    "Tensor? sorter=None)",
    infer_searchsorted);
ROW(bucketize_Tensor, bucketize_ref,
    "bucketize.Tensor(Tensor self, Tensor boundaries, *, "
    "bool out_int32=False, bool right=False)",
    infer_bucketize);
ROW(bucketize_Scalar, bucketize_ref,
    "bucketize.Scalar(Scalar self, Tensor boundaries, *, "
    "bool out_int32=False, bool right=False)",
    infer_bucketize);
