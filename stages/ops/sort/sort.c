// SPDX-License-Identifier: Apache-2.0
/* sort, topk, kthvalue, medians, mode: values and where they stood. */
#include "stages/ops/sort/sort.h"

/* --- sort, topk --------------------------------------------------------------
 */

/* The first `keep` of every lane in order. */
static void sort_lanes(const struct pst_call *c, int64_t dim, bool descending,
                       int64_t keep)
{
    const struct pst_lane l = pst_lane_of(&c->in[0].meta, dim);
    struct pst_sort_item *items = c->scratch;

    for (int64_t k = 0; k < pst_lane_count(&l); k++) {
        const int64_t first = pst_lane_first(&l, k, l.size);
        const int64_t to = pst_lane_first(&l, k, keep);

        pst_sort_load(&c->in[0], first, l.inner, l.size, items);
        pst_sort_items(items, items + l.size, l.size, descending);
        for (int64_t i = 0; i < keep; i++)
            pst_sort_store(c, to + i * l.inner,
                           first + items[i].index * l.inner, items[i].index);
    }
}

static int64_t lane_size(const struct pst_meta *x, int64_t dim)
{
    return pst_lane_of(x, dim).size;
}

static void sort_ref(const struct pst_call *c)
{
    sort_lanes(c, c->args[1].i, c->args[2].b,
               lane_size(&c->in[0].meta, c->args[1].i));
}

static void sort_stable_ref(const struct pst_call *c)
{
    sort_lanes(c, c->args[2].i, c->args[3].b,
               lane_size(&c->in[0].meta, c->args[2].i));
}

static void topk_ref(const struct pst_call *c)
{
    sort_lanes(c, c->args[2].i, c->args[3].b, c->args[1].i);
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

/* k among the elements of dimension dim_arg. */
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

#define ROW(id, text, how, scratch_fn, kernel, gradient)                       \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#kernel, PST_ISA_ANY, PST_D_ANY, 0, NULL, scratch_fn, kernel, 0.0},   \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .infer = (how),                                                        \
        .vjp = pst_vjp_formula,                                                \
        .formula = (gradient),                                                 \
        PST_KERNELS(id##_kernels),                                             \
    }

#define PUT_BACK "self: scatter_add(zeros_like(self), dim, result1, grad)"

ROW(sort,
    "sort(Tensor self, int dim=-1, bool descending=False) -> "
    "(Tensor values, Tensor indices)",
    infer_sort, scratch_1, sort_ref, PUT_BACK);
ROW(sort_stable,
    "sort.stable(Tensor self, *, bool? stable, int dim=-1, "
    "bool descending=False) -> (Tensor values, Tensor indices)",
    infer_sort_stable, scratch_2, sort_stable_ref, PUT_BACK);
ROW(topk,
    "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, "
    "bool sorted=True) -> (Tensor values, Tensor indices)",
    infer_topk, scratch_2, topk_ref, PUT_BACK);

/* --- one element of a lane
 * ----------------------------------------------------- */

/* Position in the sorted lane. */
typedef int64_t (*choice_fn)(const struct pst_call *c,
                             const struct pst_sort_item *items, int64_t n);

static void choose(const struct pst_call *c, const struct pst_lane *l,
                   choice_fn fn)
{
    struct pst_sort_item *items = c->scratch;

    for (int64_t k = 0; k < pst_lane_count(l); k++) {
        const int64_t first = pst_lane_first(l, k, l->size);
        int64_t at;

        if (l->size == 0)
            continue;
        pst_sort_load(&c->in[0], first, l->inner, l->size, items);
        pst_sort_items(items, items + l->size, l->size, false);
        at = items[fn(c, items, l->size)].index;
        pst_sort_store(c, k, first + at * l->inner, at);
    }
}

static int64_t numbers(const struct pst_sort_item *items, int64_t n)
{
    while (n > 0 && items[n - 1].key == PST_SORT_NAN)
        n--;
    return n;
}

static bool is_float(const struct pst_call *c)
{
    return pst_dtype_kind(c->in[0].meta.dtype) == PST_KIND_FLOAT;
}

/* The lower one of two; a NaN wins. */
static int64_t median_at(const struct pst_call *c,
                         const struct pst_sort_item *items, int64_t n)
{
    const int64_t m = is_float(c) ? numbers(items, n) : n;

    return m < n ? m : (n - 1) / 2;
}

static int64_t nanmedian_at(const struct pst_call *c,
                            const struct pst_sort_item *items, int64_t n)
{
    const int64_t m = is_float(c) ? numbers(items, n) : n;

    return m == 0 ? 0 : (m - 1) / 2;
}

static int64_t kth_at(const struct pst_call *c,
                      const struct pst_sort_item *items PST_UNUSED,
                      int64_t n PST_UNUSED)
{
    return c->args[1].i - 1;
}

/* The most frequent one, the smallest of them, its last place. */
static int64_t mode_at(const struct pst_call *c PST_UNUSED,
                       const struct pst_sort_item *items, int64_t n)
{
    int64_t best = 0, longest = 0, run = 0;

    for (int64_t i = 0; i < n; i++) {
        run = i > 0 && items[i].key == items[i - 1].key ? run + 1 : 1;
        if (run > longest) {
            longest = run;
            best = i;
        }
    }
    return best;
}

#define CHOICE(name, dim_arg, fn)                                              \
    static void name##_ref(const struct pst_call *c)                           \
    {                                                                          \
        const struct pst_lane l =                                              \
            pst_lane_of(&c->in[0].meta, c->args[dim_arg].i);                   \
                                                                               \
        choose(c, &l, fn);                                                     \
    }
CHOICE(kthvalue, 2, kth_at)
CHOICE(median_dim, 1, median_at)
CHOICE(nanmedian_dim, 1, nanmedian_at)
CHOICE(mode, 1, mode_at)

static void median_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_all(&c->in[0].meta);

    choose(c, &l, median_at);
}

static void nanmedian_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_all(&c->in[0].meta);

    choose(c, &l, nanmedian_at);
}

static enum pst_status infer_one(struct pst_infer *c)
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

#define PUT_ONE                                                                \
    "self: scatter_add(zeros_like(self), dim, "                                \
    "kept(result1, self, dim, keepdim), kept(grad, self, dim, keepdim))"
/* Divided among those that equal the result. */
#define PUT_ALL                                                                \
    "hits = isnan(self) == isnan(result) ? "                                   \
    "logical_or(isnan(self), self == result) : False;"                         \
    "self: hits ? grad / sum(hits) : 0"

ROW(kthvalue,
    "kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    infer_kthvalue, scratch_2, kthvalue_ref, PUT_ONE);
ROW(median_dim,
    "median.dim(Tensor self, int dim, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    infer_one, scratch_1, median_dim_ref, PUT_ONE);
ROW(nanmedian_dim,
    "nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    infer_one, scratch_1, nanmedian_dim_ref, PUT_ONE);
ROW(mode,
    "mode(Tensor self, int dim=-1, bool keepdim=False) -> "
    "(Tensor values, Tensor indices)",
    infer_one, scratch_1, mode_ref, PUT_ONE);
ROW(median, "median(Tensor self) -> Tensor", infer_median, scratch_all,
    median_ref, PUT_ALL);
ROW(nanmedian, "nanmedian(Tensor self) -> Tensor", infer_median, scratch_all,
    nanmedian_ref, PUT_ALL);
