// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"
#include "stages/ops/core/rows.h"

#define QUERY PST_SDPA_BACKWARD

/* --- shapes -------------------------------------------------------------- */

/* True if batch dimension d of a key or value fits the query's: equal, 1, or
 * with gqa a divisor of the number of heads. The query is never broadcast. */
static bool batch_fits(const struct pst_meta *q, const struct pst_meta *k,
                       unsigned d, bool gqa)
{
    if (gqa && d + 3 == q->rank)
        return k->size[d] > 0 && q->size[d] % k->size[d] == 0;
    return k->size[d] == q->size[d] || k->size[d] == 1;
}

/* Checks q, k and v, which are the arguments from `first` on, and the mask and
 * settings after them. */
static enum pst_status check_operands(const struct pst_infer *c, unsigned first)
{
    const struct pst_meta *t[3], *mask = pst_infer_in(c, first + 3);
    const bool gqa = c->args[first + 7].b;
    const double dropout = c->args[first + 4].f;
    char a[PST_META_TEXT], b[PST_META_TEXT], e[PST_META_TEXT];
    struct pst_meta scores;
    bool fits;

    for (unsigned i = 0; i < 3; i++) {
        enum pst_status status = pst_infer_tensor(c, first + i, &t[i]);

        if (status == PST_OK)
            status = pst_infer_same_dtype(c, first, first + i);
        if (status != PST_OK)
            return status;
    }
    fits = pst_dtype_kind(t[0]->dtype) == PST_KIND_FLOAT && t[0]->rank >= 2 &&
           t[1]->rank == t[0]->rank && t[2]->rank == t[0]->rank &&
           (!gqa || t[0]->rank >= 3);
    if (fits) {
        const unsigned n = t[0]->rank - 2;

        fits = t[0]->size[n + 1] == t[1]->size[n + 1] &&
               t[1]->size[n] == t[2]->size[n];
        for (unsigned d = 0; fits && d < n; d++)
            fits = batch_fits(t[0], t[1], d, gqa) &&
                   t[1]->size[d] == t[2]->size[d];
    }
    if (!fits)
        return pst_infer_fail(c, "query %s, key %s, value %s do not fit",
                              pst_meta_text(t[0], a), pst_meta_text(t[1], b),
                              pst_meta_text(t[2], e));
    if (!(dropout >= 0.0 && dropout <= 1.0))
        return pst_infer_fail(c, "dropout %g is not between 0 and 1", dropout);
    if (mask == NULL)
        return PST_OK;
    scores = *t[0];
    scores.size[scores.rank - 1] = t[1]->size[t[1]->rank - 2];
    if (!pst_meta_broadcast(mask, &scores, &scores) ||
        scores.rank != t[0]->rank ||
        scores.size[scores.rank - 2] != t[0]->size[scores.rank - 2] ||
        (mask->dtype != PST_BOOL &&
         pst_dtype_kind(mask->dtype) != PST_KIND_FLOAT))
        return pst_infer_fail(c, "mask %s does not fit query %s, key %s",
                              pst_meta_text(mask, e), pst_meta_text(t[0], a),
                              pst_meta_text(t[1], b));
    for (unsigned d = 0; d < scores.rank - 2; d++)
        if (scores.size[d] != t[0]->size[d])
            return pst_infer_refuse(c, "mask %s has more batches than query %s",
                                    pst_meta_text(mask, e),
                                    pst_meta_text(t[0], a));
    return PST_OK;
}

static enum pst_status sdpa_infer(struct pst_infer *c)
{
    const struct pst_meta *q = pst_infer_in(c, 0), *v = pst_infer_in(c, 2);
    enum pst_status status = check_operands(c, 0);
    int64_t size[PST_MAX_RANK];

    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d < q->rank; d++)
        size[d] = q->size[d];
    size[q->rank - 1] = v->size[q->rank - 1];
    return pst_infer_set(c, 0, q->dtype, q->rank, size);
}

static enum pst_dtype sums_dtype(const struct pst_meta *q)
{
    return q->dtype == PST_F64 ? PST_F64 : PST_F32;
}

static enum pst_status with_sums_infer(struct pst_infer *c)
{
    const struct pst_meta *q = pst_infer_in(c, 0);
    enum pst_status status = sdpa_infer(c);
    int64_t size[PST_MAX_RANK];

    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d < q->rank; d++)
        size[d] = q->size[d];
    size[q->rank - 1] = 2;
    return pst_infer_set(c, 1, sums_dtype(q), q->rank, size);
}

/* True for a tensor of `cols` numbers for each query row. */
static bool has_rows_of(const struct pst_meta *x, const struct pst_meta *q,
                        int64_t cols)
{
    bool fits = x->rank == q->rank && x->size[q->rank - 1] == cols;

    for (unsigned d = 0; fits && d + 1 < q->rank; d++)
        fits = x->size[d] == q->size[d];
    return fits;
}

/* Checks that gradient, result and sums have the shapes of a forward call. */
static enum pst_status check_backward(const struct pst_infer *c)
{
    const struct pst_meta *q = pst_infer_in(c, QUERY);
    const struct pst_meta *v = pst_infer_in(c, QUERY + 2);
    const struct pst_meta *g, *sums, *out = pst_infer_in(c, 1);
    enum pst_status status = pst_infer_tensor(c, 0, &g);
    int64_t width;

    if (status == PST_OK)
        status = pst_infer_tensor(c, 2, &sums);
    if (status == PST_OK)
        status = check_operands(c, QUERY);
    if (status != PST_OK)
        return status;
    width = v->size[v->rank - 1];
    if (!has_rows_of(g, q, width))
        return pst_infer_fail(c, "the gradient does not fit");
    if (out != NULL && (!has_rows_of(out, q, width) || out->dtype != q->dtype))
        return pst_infer_fail(c, "the result does not fit");
    if (!has_rows_of(sums, q, 2) || sums->dtype != sums_dtype(q))
        return pst_infer_fail(c, "the sums do not fit");
    return PST_OK;
}

static enum pst_status backward_infer(struct pst_infer *c)
{
    enum pst_status status = check_backward(c);

    for (unsigned k = 0; status == PST_OK && k < 3; k++)
        status = pst_infer_set_like(c, k, pst_infer_in(c, QUERY)->dtype,
                                    pst_infer_in(c, QUERY + k));
    return status;
}

/* Infers the backward operator that also returns the gradient of the scores. */
static enum pst_status backward_mask_infer(struct pst_infer *c)
{
    const struct pst_meta *q = pst_infer_in(c, QUERY);
    const struct pst_meta *k = pst_infer_in(c, QUERY + 1);
    enum pst_status status = backward_infer(c);
    int64_t size[PST_MAX_RANK];

    if (status != PST_OK)
        return status;
    for (unsigned d = 0; d < q->rank; d++)
        size[d] = q->size[d];
    size[q->rank - 1] = k->size[q->rank - 2];
    return pst_infer_set(c, 3, q->dtype, q->rank, size);
}

/* --- gradient ----------------------------------------------------------- */

/* Emits one node for all gradients, since they share the probabilities. The
 * forward node is sdpa_with_sums, which training programs use
 * (pst_mode_saving). */
static enum pst_status sdpa_vjp(struct pst_vjp *v)
{
    struct pst_value *g = pst_vjp_grad(v, 0), *mask = pst_vjp_in(v, 3);
    const bool with_mask = mask != NULL && pst_vjp_needs(v, 3);
    const struct pst_arg *a = v->node->args;
    struct pst_node *node;

    if (g == NULL || !(with_mask || pst_vjp_needs(v, 0) ||
                       pst_vjp_needs(v, 1) || pst_vjp_needs(v, 2)))
        return v->build.status;
    node = pst_emit_node(
        &v->build,
        with_mask ? &pst_op_sdpa_backward_mask : &pst_op_sdpa_backward,
        PST_ARGS(pst_v(g), pst_v(pst_vjp_out(v, 0)), pst_v(pst_vjp_out(v, 1)),
                 a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]));
    if (node == NULL)
        return v->build.status;
    for (unsigned i = 0; i < 3; i++)
        pst_vjp_set(v, i, node->outs[i]);
    if (with_mask)
        pst_vjp_set(v, 3, pst_vjp_sum_to(v, node->outs[3], &mask->meta));
    return v->build.status;
}

/* Counts two matmuls of 2 L S E operations each; half of that if causal. */
static double product_flops(const struct pst_node *node, unsigned first)
{
    const struct pst_meta *q = &node->args[first].value->meta;
    const struct pst_meta *k = &node->args[first + 1].value->meta;
    const struct pst_meta *v = &node->args[first + 2].value->meta;
    const double width = (double)(q->size[q->rank - 1] + v->size[v->rank - 1]);
    const double rows =
        (double)pst_meta_numel(q) / (double)PST_MAX(q->size[q->rank - 1], 1);

    return 2.0 * rows * (double)k->size[k->rank - 2] * width *
           (node->args[first + 5].b ? 0.5 : 1.0);
}

static double sdpa_flops(const struct pst_node *node)
{
    return product_flops(node, 0);
}

/* Counts the recomputed q k^T and four matmuls, for dv, dp, dq, dk. */
static double sdpa_backward_flops(const struct pst_node *node)
{
    return 2.5 * product_flops(node, QUERY);
}

/* --- kernels ------------------------------------------------------------ */

#define RUN(suffix, set)                                                       \
    static void sdpa_f32_##suffix(const struct pst_call *c)                    \
    {                                                                          \
        pst_sdpa_run(c, &pst_sdpa_loops_##suffix);                             \
    }                                                                          \
    static void sdpa_backward_f32_##suffix(const struct pst_call *c)           \
    {                                                                          \
        pst_sdpa_backward_run(c, &pst_sdpa_loops_##suffix);                    \
    }
PST_SIMD_EACH(RUN)

static const struct pst_kernel sdpa_kernels[] = {
    PST_SIMD_ROWS("sdpa_f32", sdpa_f32, PST_D(F32), PST_K_STRIDED,
                  pst_sdpa_fits, pst_sdpa_scratch, 1e-5),
    {.name = "sdpa_f64",
     .dtypes = PST_D(F64),
     .flags = PST_K_STRIDED,
     .supports = pst_sdpa_fits,
     .scratch = pst_sdpa_f64_scratch,
     .run = pst_sdpa_f64,
     .tolerance = 1e-13},
    {.name = "sdpa_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .scratch = pst_sdpa_ref_scratch,
     .run = pst_sdpa_ref},
};

#define BACKWARD(suffix, set)                                                  \
    {                                                                          \
        .name = "sdpa_backward_f32_" #suffix,                                  \
        .isa = PST_ISA_##set,                                                  \
        .dtypes = PST_D(F32),                                                  \
        .flags = PST_K_STRIDED,                                                \
        .supports = pst_sdpa_backward_fits,                                    \
        .scratch = pst_sdpa_backward_scratch,                                  \
        .run = sdpa_backward_f32_##suffix,                                     \
        .tolerance = 2e-5,                                                     \
        .form = pst_sdpa_backward_form,                                        \
    },
static const struct pst_kernel sdpa_backward_kernels[] = {
    PST_SIMD_EACH(BACKWARD){.name = "sdpa_backward_f64",
                            .dtypes = PST_D(F64),
                            .flags = PST_K_STRIDED,
                            .supports = pst_sdpa_backward_fits,
                            .scratch = pst_sdpa_backward_f64_scratch,
                            .run = pst_sdpa_backward_f64,
                            .tolerance = 1e-13,
                            .form = pst_sdpa_backward_form},
    {.name = "sdpa_backward_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .scratch = pst_sdpa_ref_scratch,
     .run = pst_sdpa_backward_ref,
     .form = pst_sdpa_backward_form},
};

#define SDPA_ARGS "Tensor query, Tensor key, Tensor value, Tensor? attn_mask"

const struct pst_op pst_op_scaled_dot_product_attention = {
    .schema = "aten::scaled_dot_product_attention(" SDPA_ARGS
              "=None, float dropout_p=0., bool is_causal=False, *, float? "
              "scale=None, bool enable_gqa=False) -> Tensor",
    .flags = PST_OP_RANDOM | PST_OP_DROPOUT | PST_OP_ORIGIN,
    .infer = sdpa_infer,
    .vjp = sdpa_vjp,
    .flops = sdpa_flops,
};
PST_CPU_KERNELS(scaled_dot_product_attention, sdpa_kernels);

const struct pst_op pst_op_sdpa_with_sums = {
    .schema = "penstock::sdpa_with_sums(" SDPA_ARGS
              ", float dropout_p, bool is_causal, *, float? scale, bool "
              "enable_gqa) -> (Tensor, Tensor)",
    .flags = PST_OP_RANDOM | PST_OP_DROPOUT | PST_OP_ORIGIN,
    .infer = with_sums_infer,
    .vjp = sdpa_vjp,
    .flops = sdpa_flops,
};
PST_CPU_KERNELS(sdpa_with_sums, sdpa_kernels);

/* A kernel that does not read `output` gets None for it. */
#define BACKWARD_ARGS "Tensor grad_output, Tensor? output, Tensor sums, "

const struct pst_op pst_op_sdpa_backward = {
    .schema = "penstock::sdpa_backward(" BACKWARD_ARGS SDPA_ARGS
              ", float dropout_p, bool is_causal, float? scale, bool "
              "enable_gqa) -> (Tensor, Tensor, Tensor)",
    .flags = PST_OP_RANDOM,
    .infer = backward_infer,
    .vjp = pst_vjp_none,
    .flops = sdpa_backward_flops,
};
PST_CPU_KERNELS(sdpa_backward, sdpa_backward_kernels);

const struct pst_op pst_op_sdpa_backward_mask = {
    .schema = "penstock::sdpa_backward_mask(" BACKWARD_ARGS SDPA_ARGS
              ", float dropout_p, bool is_causal, float? scale, bool "
              "enable_gqa) -> (Tensor, Tensor, Tensor, Tensor)",
    .flags = PST_OP_RANDOM,
    .infer = backward_mask_infer,
    .vjp = pst_vjp_none,
    .flops = sdpa_backward_flops,
};
PST_CPU_KERNELS(sdpa_backward_mask, sdpa_backward_kernels);
