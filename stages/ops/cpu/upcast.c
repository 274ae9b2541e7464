// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/upcast.h"

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/pointwise/nd.h"

/* Maximum operands; operators with more run their reference kernel. */
#define MAX_OPERANDS 16

/* The call of the inner kernel, with its operands as f32. */
struct x32 {
    struct pst_call call;
    struct pst_operand in[MAX_OPERANDS], out[MAX_OPERANDS];
    struct pst_meta in_metas[MAX_OPERANDS], out_metas[MAX_OPERANDS];
    size_t size; /* bytes of scratch in use */
};

/* Describes an operand of the inner call in *to: the operand itself, or if it
 * is of 16 bits, its f32 copy in scratch at base + w->size. base NULL: only
 * counts the bytes of scratch, in w->size. */
static void upcast_operand(struct x32 *w, const struct pst_operand *from,
                           char *base, struct pst_operand *to,
                           struct pst_meta *meta)
{
    *to = *from;
    if (!pst_simd_is_16(from->meta->dtype))
        return;
    *meta = *from->meta;
    meta->dtype = PST_F32;
    pst_meta_set_contiguous(meta);
    to->meta = meta;
    to->data = base == NULL || from->data == NULL ? NULL : base + w->size;
    w->size += (pst_meta_bytes(to->meta) + 63) / 64 * 64;
}

static void describe(const struct pst_call *c, char *base, struct x32 *w)
{
    w->call = *c;
    w->call.in = w->in;
    w->call.out = w->out;
    w->size = 0;
    for (unsigned i = 0; i < c->n_in; i++)
        upcast_operand(w, &c->in[i], base, &w->in[i], &w->in_metas[i]);
    for (unsigned i = 0; i < c->n_out; i++)
        upcast_operand(w, &c->out[i], base, &w->out[i], &w->out_metas[i]);
}

static size_t upcast_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_kernel *inner = c->owner;
    struct x32 w;

    describe(c, NULL, &w);
    w.call.owner = inner->owner;
    return w.size +
           (inner->scratch != NULL ? inner->scratch(&w.call, threads) : 0);
}

struct conversion {
    const struct pst_operand *x16, *x32;
    bool back;
};

static void convert_part(void *ctx, unsigned part, unsigned parts)
{
    const struct conversion *v = ctx;
    const enum pst_dtype dtype = v->x16->meta->dtype;
    uint16_t *x16 = v->x16->data;
    float *x32 = v->x32->data;
    int64_t first, last;

    pst_pool_share(pst_meta_numel(v->x32->meta), 64, part, parts, &first,
                   &last);
    if (v->back)
        pst_simd_to_16_best(dtype, pst_cpu_isa())(last - first, x32 + first,
                                                  x16 + first);
    else
        pst_simd_from_16_best(dtype, pst_cpu_isa())(last - first, x16 + first,
                                                    x32 + first);
}

static void convert_operand(const struct pst_call *c,
                            const struct pst_operand *x16,
                            const struct pst_operand *x32, bool back)
{
    struct conversion v = {x16, x32, back};

    if (pst_simd_is_16(x16->meta->dtype) && x16->data != NULL)
        pst_pool_run(
            pst_pool_if(c->pool, pst_meta_numel(x32->meta) >= PST_ND_SERIAL),
            convert_part, &v);
}

static void run_upcast(const struct pst_call *c)
{
    const struct pst_kernel *inner = c->owner;
    struct x32 w;

    describe(c, c->scratch, &w);
    w.call.owner = inner->owner;
    w.call.scratch = (char *)c->scratch + w.size;
    w.call.scratch_size = c->scratch_size - w.size;
    for (unsigned i = 0; i < c->n_in; i++)
        convert_operand(c, &c->in[i], &w.in[i], false);
    inner->run(&w.call);
    for (unsigned i = 0; i < c->n_out; i++)
        convert_operand(c, &c->out[i], &w.out[i], true);
}

/* Returns PST_FORM_NONE for operands that the inner kernel does not read; its
 * other preferences hold for f32 only. */
static enum pst_form upcast_form(const struct pst_call *c, unsigned i)
{
    const struct pst_kernel *inner = c->owner;
    struct x32 w;

    if (inner->form == NULL)
        return PST_FORM_OWN;
    describe(c, NULL, &w);
    w.call.owner = inner->owner;
    return inner->form(&w.call, i) == PST_FORM_NONE ? PST_FORM_NONE
                                                    : PST_FORM_OWN;
}

static const struct pst_kernel widened = {
    .name = "widened",
    .dtypes = PST_D(BF16) | PST_D(F16),
    .scratch = upcast_scratch,
    .run = run_upcast,
    .form = upcast_form,
    .tolerance = 1e-2,
};

const struct pst_kernel *pst_cpu_adapt(const struct pst_kernels *kernels,
                                       struct pst_call *call, enum pst_isa isa)
{
    struct x32 w;

    if (call->n_in > MAX_OPERANDS || call->n_out > MAX_OPERANDS)
        return NULL;
    describe(call, NULL, &w);
    for (unsigned i = 0; i + 1 < kernels->n; i++) {
        if (!pst_kernel_fits(&kernels->at[i], &w.call, isa))
            continue;
        call->owner = &kernels->at[i];
        return &widened;
    }
    return NULL;
}
