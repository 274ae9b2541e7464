// SPDX-License-Identifier: Apache-2.0
/* sort, topk, kthvalue, medians: values and their indices. */
#include "stages/ops/sort/radix.h"

/* --- sort, topk ----------------------------------------------------------- */

/* True if equal elements keep the order of their indices: in PyTorch they do if
 * `stable` requests it, and where it uses radix sort. */
static bool is_stable(const struct pst_call *c, const struct pst_arg *stable,
                      bool descending)
{
    const struct pst_meta *x = c->in[0].meta;

    if (stable != NULL && stable->kind == PST_ARG_BOOL && stable->b)
        return true;
    return x->rank == 1 && !descending && x->size[0] >= 32768 &&
           pst_dtype_kind(x->dtype) == PST_KIND_INT;
}

static void sort_lanes(const struct pst_call *c, int64_t dim, bool descending,
                       bool stable)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, dim);
    struct pst_sort_item *items = c->scratch;

    for (int64_t k = 0; k < pst_lane_count(&l); k++) {
        const int64_t first = pst_lane_first(&l, k, l.size);
        struct pst_sort_pair *pairs = pst_sort_load_pairs(
            &c->in[0], first, l.inner, l.size, descending, items);

        if (!stable)
            pst_sort_unstable(pairs, l.size);
        for (int64_t i = 0; i < l.size && !stable; i++)
            items[i].index = pairs[i].index;
        if (stable)
            pst_sort_items(items, items + l.size, l.size, descending);
        for (int64_t i = 0; i < l.size; i++)
            pst_sort_store(c, first + i * l.inner,
                           first + items[i].index * l.inner, items[i].index);
    }
}

static int64_t lane_size(const struct pst_meta *x, int64_t dim)
{
    return pst_lane_of(x, dim).size;
}

static void sort_ref(const struct pst_call *c)
{
    const bool descending = c->args[2].b;

    sort_lanes(c, c->args[1].i, descending, is_stable(c, NULL, descending));
}

static void sort_stable_ref(const struct pst_call *c)
{
    const bool descending = c->args[3].b;

    sort_lanes(c, c->args[2].i, descending,
               is_stable(c, &c->args[1], descending));
}

static void topk_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[2].i);
    const int64_t keep = c->args[1].i;
    for (int64_t k = 0; k < pst_lane_count(&l); k++) {
        const int64_t first = pst_lane_first(&l, k, l.size);
        const int64_t to = pst_lane_first(&l, k, keep);
        struct pst_sort_pair *pairs = pst_sort_load_pairs(
            &c->in[0], first, l.inner, l.size, c->args[3].b, c->scratch);

        pst_sort_select(pairs, l.size, keep, c->args[4].b);
        for (int64_t i = 0; i < keep; i++)
            pst_sort_store(c, to + i * l.inner,
                           first + pairs[i].index * l.inner, pairs[i].index);
    }
}

/* Runs the fast kernel (sort/radix.h). */
static void sort_run(const struct pst_call *c)
{
    const bool descending = c->args[2].b;

    pst_sort_all(c, c->args[1].i, descending, is_stable(c, NULL, descending));
}

static void sort_stable_run(const struct pst_call *c)
{
    const bool descending = c->args[3].b;

    pst_sort_all(c, c->args[2].i, descending,
                 is_stable(c, &c->args[1], descending));
}

static void topk_run(const struct pst_call *c)
{
    pst_sort_topk(c, c->args[2].i, c->args[1].i, c->args[3].b, c->args[4].b);
}

static size_t pairs_1(const struct pst_call *c, unsigned threads)
{
    const int64_t n = lane_size(c->in[0].meta, c->args[1].i);

    return pst_sort_pairs(n, threads);
}

static size_t pairs_2(const struct pst_call *c, unsigned threads)
{
    const int64_t n = lane_size(c->in[0].meta, c->args[2].i);

    return pst_sort_pairs(n, threads);
}

static size_t pairs_topk(const struct pst_call *c, unsigned threads)
{
    return pst_sort_topk_scratch(lane_size(c->in[0].meta, c->args[2].i),
                                 c->args[1].i, threads);
}

static size_t scratch_1(const struct pst_call *c, unsigned threads PST_UNUSED)
{
    return pst_sort_scratch(c, 1);
}

static size_t scratch_2(const struct pst_call *c, unsigned threads PST_UNUSED)
{
    return pst_sort_scratch(c, 2);
}

static size_t scratch_all(const struct pst_call *c, unsigned threads PST_UNUSED)
{
    return pst_sort_scratch(c, -1);
}

static enum pst_status infer_sorted(struct pst_infer *c, unsigned dim_arg)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, dim_arg, x, &dim);
    return status != PST_OK
               ? status
               : pst_sort_infer(c, dim_arg, x->rank > 0 ? x->size[dim] : 1,
                                true);
}

static enum pst_status infer_sort(struct pst_infer *c)
{
    return infer_sorted(c, 1);
}

static enum pst_status infer_sort_stable(struct pst_infer *c)
{
    return infer_sorted(c, 2);
}

/* Checks that k is between `least` and the size of the dimension in argument
 * dim_arg. */
static enum pst_status check_k(const struct pst_infer *c, unsigned dim_arg,
                               int64_t least)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, dim_arg, x, &dim);
    if (status == PST_OK && (c->args[1].i < least ||
                             c->args[1].i > (x->rank > 0 ? x->size[dim] : 1)))
        return pst_infer_fail(c, "k = %lld is out of range",
                              (long long)c->args[1].i);
    return status;
}

static enum pst_status infer_topk(struct pst_infer *c)
{
    enum pst_status status = check_k(c, 2, 0);

    return status != PST_OK ? status : pst_sort_infer(c, 2, c->args[1].i, true);
}

#define ROW(id, text, how, fast, scratch_fn, gradient)                         \
    static const struct pst_kernel id##_kernels[] = {                          \
        fast{#id "_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, scratch_fn,          \
             id##_ref, 0.0},                                                   \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .infer = (how),                                                        \
        .vjp = pst_vjp_formula,                                                \
        .formula = (gradient),                                                 \
    };                                                                         \
    PST_CPU_KERNELS(id, id##_kernels)

/* Entries of a kernel table before the reference, for ROW. */
#define DIGITS(id, pairs_fn)                                                   \
    {                                                                          \
        .name = #id "_digits",                                                 \
        .dtypes = PST_D_ANY,                                                   \
        .scratch = pairs_fn,                                                   \
        .run = id##_run,                                                       \
    },
#define NONE

#define PUT_BACK "self: scatter_add(zeros_like(self), dim, result1, grad)"

ROW(sort,
    "sort(Tensor self, int dim=-1, bool descending=False) -> "
    "(Tensor values, Tensor indices)",
    infer_sort, DIGITS(sort, pairs_1), scratch_1, PUT_BACK);
ROW(sort_stable,
    "sort.stable(Tensor self, *, bool? stable, int dim=-1, "
    "bool descending=False) -> (Tensor values, Tensor indices)",
    infer_sort_stable, DIGITS(sort_stable, pairs_2), scratch_2, PUT_BACK);
ROW(topk,
    "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, "
    "bool sorted=True) -> (Tensor values, Tensor indices)",
    infer_topk, DIGITS(topk, pairs_topk), scratch_2, PUT_BACK);

/* --- one element of a lane ------------------------------------------------ */

/* Chooses a position in the ascending order of a lane of n elements, of which
 * the last `nans` are NaN. */
typedef int64_t (*choice_fn)(const struct pst_call *c, int64_t n, int64_t nans);

static void select_element(const struct pst_call *c, const struct pst_lane *l,
                           choice_fn fn)
{
    const bool real = pst_dtype_kind(c->in[0].meta->dtype) == PST_KIND_FLOAT;
    struct pst_sort_item *items = c->scratch;

    for (int64_t k = 0; k < pst_lane_count(l); k++) {
        const int64_t first = pst_lane_first(l, k, l->size);
        int64_t at, nans = 0;

        if (l->size == 0)
            continue;
        pst_sort_load(&c->in[0], first, l->inner, l->size, items);
        pst_sort_items(items, items + l->size, l->size, false);
        while (real && nans < l->size &&
               items[l->size - 1 - nans].key == PST_SORT_NAN)
            nans++;
        at = items[fn(c, l->size, nans)].index;
        pst_sort_store(c, k, first + at * l->inner, at);
    }
}

/* Returns the position of the lower median, or of a NaN if there is one. */
static int64_t median_at(const struct pst_call *c PST_UNUSED, int64_t n,
                         int64_t nans)
{
    return nans > 0 ? n - nans : (n - 1) / 2;
}

static int64_t nanmedian_at(const struct pst_call *c PST_UNUSED, int64_t n,
                            int64_t nans)
{
    return n == nans ? 0 : (n - nans - 1) / 2;
}

#define CHOICE(name, lane, fn)                                                 \
    static void name##_ref(const struct pst_call *c)                           \
    {                                                                          \
        const struct pst_lane l = lane;                                        \
                                                                               \
        select_element(c, &l, fn);                                             \
    }
CHOICE(median_dim, pst_lane_of(c->in[0].meta, c->args[1].i), median_at)
CHOICE(nanmedian_dim, pst_lane_of(c->in[0].meta, c->args[1].i), nanmedian_at)
CHOICE(median, pst_lane_all(c->in[0].meta), median_at)
CHOICE(nanmedian, pst_lane_all(c->in[0].meta), nanmedian_at)

static void kthvalue_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[2].i);

    for (int64_t k = 0; k < pst_lane_count(&l); k++) {
        const int64_t first = pst_lane_first(&l, k, l.size);
        struct pst_sort_pair *pairs = pst_sort_load_pairs(
            &c->in[0], first, l.inner, l.size, false, c->scratch);
        int64_t at;

        pst_sort_kth(pairs, l.size, c->args[1].i - 1);
        at = pairs[c->args[1].i - 1].index;
        pst_sort_store(c, k, first + at * l.inner, at);
    }
}

enum pst_status pst_sort_infer_one(struct pst_infer *c)
{
    const struct pst_meta *x;
    unsigned dim;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_dim(c, 1, x, &dim);
    if (status == PST_OK && x->rank > 0 && x->size[dim] == 0)
        return pst_infer_fail(c, "dimension %u is empty", dim);
    return status != PST_OK ? status : pst_sort_infer(c, 1, -1, c->args[2].b);
}

static enum pst_status infer_kthvalue(struct pst_infer *c)
{
    enum pst_status status = check_k(c, 2, 1);

    return status != PST_OK ? status : pst_sort_infer(c, 2, -1, c->args[3].b);
}

static enum pst_status infer_median(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK && pst_meta_numel(x) == 0)
        return pst_infer_refuse(c, "an empty tensor");
    return status != PST_OK ? status : pst_infer_set(c, 0, x->dtype, 0, NULL);
}

/* The gradient is divided equally among the elements that equal the result. */
#define PUT_ALL                                                                \
    "hits = isnan(self) == isnan(result) ? "                                   \
    "logical_or(isnan(self), self == result) : False;"                         \
    "self: hits ? grad / sum(hits) : 0"

ROW(kthvalue,
    "kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    infer_kthvalue, NONE, scratch_2, PST_SORT_PUT_ONE);
ROW(median_dim,
    "median.dim(Tensor self, int dim, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    pst_sort_infer_one, NONE, scratch_1, PST_SORT_PUT_ONE);
ROW(nanmedian_dim,
    "nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    pst_sort_infer_one, NONE, scratch_1, PST_SORT_PUT_ONE);
ROW(median, "median(Tensor self) -> Tensor", infer_median, NONE, scratch_all,
    PUT_ALL);
ROW(nanmedian, "nanmedian(Tensor self) -> Tensor", infer_median, NONE,
    scratch_all, PUT_ALL);
