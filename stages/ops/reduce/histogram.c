// SPDX-License-Identifier: Apache-2.0
/* Counts elements between edges. */
#include "stages/ops/formula/formula.h"
#include "stages/ops/pointwise/pointwise.h"

#include <math.h>
#include <string.h>

static double load(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, i);
}

/* Sets the smallest and the largest element; changes nothing if x is empty. */
static void find_extremes(const struct pst_operand *x, double *low,
                          double *high)
{
    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        *low = i == 0 ? load(x, 0) : fmin(*low, load(x, i));
        *high = i == 0 ? load(x, 0) : fmax(*high, load(x, i));
    }
}

/* If all elements are equal, both ends of the range are, too: moves each by
 * `by`. */
static void widen_range(double by, double *low, double *high)
{
    if (*low == *high) {
        *low -= by;
        *high += by;
    }
}

/* --- histc: equal bins, computed in the dtype ----------------------------- */

static void histc_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const bool f64 = x->meta->dtype == PST_F64;
    const int64_t bins = c->args[1].i;
    double low = pst_pw_number(&c->args[2]), high = pst_pw_number(&c->args[3]);

    if (low == high)
        find_extremes(x, &low, &high);
    widen_range(1.0, &low, &high);
    memset(out->data, 0, pst_meta_bytes(out->meta));
    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        const double a = load(x, i);
        double at = (a - low) / (high - low);
        int64_t bin;

        if (!(a >= low && a <= high))
            continue;
        if (!f64)
            at = (double)((float)at * (float)bins);
        else
            at *= (double)bins;
        bin = PST_MIN((int64_t)at, bins - 1);
        pst_store_f64(out->meta->dtype, out->data, bin, load(out, bin) + 1.0);
    }
}

/* --- histogram: edges, weights, densities --------------------------------- */

/* Returns the bin that contains a; -1 if a is outside. The last bin includes
 * its upper edge. */
static int64_t find_bin(const struct pst_operand *edges, int64_t bins, double a)
{
    int64_t low = 0, high = bins;

    if (!(a >= load(edges, 0) && a <= load(edges, bins)))
        return -1;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        if (load(edges, middle) <= a)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void count_bins(const struct pst_call *c,
                       const struct pst_operand *weight, bool density)
{
    const struct pst_operand *x = &c->in[0], *out = &c->out[0];
    const struct pst_operand *edges = &c->out[1];
    const int64_t bins = out->meta->size[0];
    double total = 0.0;

    memset(out->data, 0, pst_meta_bytes(out->meta));
    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        const double w = weight->data != NULL ? load(weight, i) : 1.0;
        const int64_t bin = find_bin(edges, bins, load(x, i));

        if (bin < 0)
            continue;
        pst_store_f64(out->meta->dtype, out->data, bin, load(out, bin) + w);
        total += w;
    }
    for (int64_t k = 0; density && k < bins; k++)
        pst_store_f64(out->meta->dtype, out->data, k,
                      load(out, k) / (load(edges, k + 1) - load(edges, k)) /
                          total);
}

/* Returns edge k of bins + 1 edges, computed in the same way as linspace: from
 * the nearer end, in the precision of the dtype. */
static double edge_at(enum pst_dtype dtype, double low, double high, int64_t k,
                      int64_t bins)
{
    double step;

    if (dtype != PST_F64) {
        low = (double)(float)low;
        high = (double)(float)high;
    }
    step = (high - low) / (double)bins;
    if (dtype != PST_F64)
        step = (double)(float)step;
    return k < (bins + 1) / 2 ? low + step * (double)k
                              : high - step * (double)(bins - k);
}

static void histogram_count_ref(const struct pst_call *c)
{
    const struct pst_arg *range = &c->args[2];
    const int64_t bins = c->args[1].i;
    double low = 0.0, high = 1.0; /* ends of the range if x is empty */

    if (range->kind == PST_ARG_FLOATS && range->n == 2) {
        low = range->floats[0];
        high = range->floats[1];
    } else {
        find_extremes(&c->in[0], &low, &high);
    }
    widen_range(0.5, &low, &high);
    for (int64_t k = 0; k <= bins; k++)
        pst_store_f64(c->out[1].meta->dtype, c->out[1].data, k,
                      edge_at(c->out[1].meta->dtype, low, high, k, bins));
    count_bins(c, &c->in[1], c->args[4].b);
}

static void histogram_edges_ref(const struct pst_call *c)
{
    memcpy(c->out[1].data, c->in[1].data, pst_meta_bytes(c->out[1].meta));
    count_bins(c, &c->in[2], c->args[3].b);
}

static enum pst_status check_arguments(struct pst_infer *c, int64_t bins,
                                       int weight)
{
    const struct pst_meta *x;
    const struct pst_meta *w =
        weight >= 0 ? pst_infer_in(c, (unsigned)weight) : NULL;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (bins < 1 || pst_dtype_kind(x->dtype) != PST_KIND_FLOAT ||
        (w != NULL && !pst_meta_same(w, x)))
        return pst_infer_fail(c, "wants a floating tensor, bins, and weights "
                                 "of its shape");
    return pst_infer_set(c, 0, x->dtype, 1, &bins);
}

static enum pst_status infer_histc(struct pst_infer *c)
{
    return check_arguments(c, c->args[1].i, -1);
}

static enum pst_status set_edges(struct pst_infer *c, int64_t bins, int weight)
{
    const int64_t n = bins + 1;
    enum pst_status status = check_arguments(c, bins, weight);

    return status != PST_OK ? status
                            : pst_infer_set(c, 1, c->out[0].dtype, 1, &n);
}

static enum pst_status infer_histogram_count(struct pst_infer *c)
{
    return set_edges(c, c->args[1].i, 3);
}

static enum pst_status infer_histogram_edges(struct pst_infer *c)
{
    const struct pst_meta *edges;
    enum pst_status status = pst_infer_tensor(c, 1, &edges);

    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 1);
    if (status == PST_OK && edges->rank != 1)
        return pst_infer_fail(c, "the edges are no vector");
    return status != PST_OK ? status : set_edges(c, edges->size[0] - 1, 2);
}

#define ROW(id, name, text, how)                                               \
    static const struct pst_kernel name##_kernels[] = {                        \
        {#name "_ref", PST_ISA_ANY, PST_D_FLOAT, 0, NULL, NULL, name##_ref,    \
         0.0},                                                                 \
    };                                                                         \
    const struct pst_op pst_op_##id = {                                        \
        .schema = "aten::" text,                                               \
        .infer = (how),                                                        \
        .vjp = pst_vjp_none,                                                   \
    };                                                                         \
    PST_CPU_KERNELS(id, name##_kernels)
ROW(histc, histc,
    "histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor",
    infer_histc);
ROW(histogram_bin_ct, histogram_count,
    "histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, "
    "Tensor? weight=None, bool density=False) -> "
    "(Tensor hist, Tensor bin_edges)",
    infer_histogram_count);
ROW(histogram_bins_tensor, histogram_edges,
    "histogram.bins_tensor(Tensor self, Tensor bins, *, "
    "Tensor? weight=None, bool density=False) -> "
    "(Tensor hist, Tensor bin_edges)",
    infer_histogram_edges);
