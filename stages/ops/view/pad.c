// SPDX-License-Identifier: Apache-2.0
/* Padding with constants. */
#include "stages/base/checked.h"
#include "stages/ops/view/view.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"
#include "stages/ops/pointwise/pointwise.h"

#include <string.h>

/* --- constant_pad_nd, pad ------------------------------------------------- */

/* Infers the padded sizes. `pad` lists pairs (before, after), beginning with
 * the last dimension; negative numbers crop. */
static enum pst_status infer_pad(struct pst_infer *c)
{
    const struct pst_arg *pad = &c->args[1];
    const struct pst_meta *x;
    struct pst_meta to;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pad->n % 2 != 0 || pad->n / 2 > x->rank)
        return pst_infer_fail(c, "%u paddings for %u dimensions", pad->n,
                              x->rank);
    to = *x;
    for (unsigned k = 0; k < pad->n / 2; k++) {
        const unsigned d = x->rank - 1 - k;
        int64_t size;

        if (PST_ADD(x->size[d], pad->ints[2 * k], &size) ||
            PST_ADD(size, pad->ints[2 * k + 1], &size) || size < 0)
            return pst_infer_fail(c,
                                  "dimension %u of size %lld is padded by "
                                  "%lld and %lld",
                                  d, (long long)x->size[d],
                                  (long long)pad->ints[2 * k],
                                  (long long)pad->ints[2 * k + 1]);
        to.size[d] = size;
    }
    return pst_infer_set_like(c, 0, x->dtype, &to);
}

/* Sets every element to the value. */
static void fill_output(const struct pst_operand *out, double value)
{
    const int64_t n = pst_meta_numel(out->meta);

    for (int64_t i = 0; i < n; i++)
        pst_store_f64(out->meta->dtype, out->data, i, value);
}

/* Fills out[0] with the value, then copies to it the window of in[0] that
 * remains: from offset src of in[0] to offset dst of out[0]. */
static void pad_into(const struct pst_call *c, const struct pst_arg *value,
                     bool reference)
{
    const struct pst_arg *pad = &c->args[1];
    const size_t size = pst_dtype_size(c->out[0].meta->dtype);
    struct pst_meta from = *c->in[0].meta, to = *c->out[0].meta;
    const struct pst_meta one = {.dtype = PST_F64};
    const double number =
        value->kind == PST_ARG_NONE ? 0.0 : pst_pw_number(value);
    int64_t src = 0, dst = 0;

    for (unsigned k = 0; k < pad->n / 2; k++) {
        const unsigned d = from.rank - 1 - k;
        const int64_t before = pad->ints[2 * k];
        const int64_t skip = before < 0 ? -before : 0;
        const int64_t lead = before > 0 ? before : 0;
        const int64_t n = PST_MIN(from.size[d] - PST_MIN(skip, from.size[d]),
                                  to.size[d] - PST_MIN(lead, to.size[d]));

        src += skip * from.stride[d];
        dst += lead * to.stride[d];
        from.size[d] = to.size[d] = n;
    }
    if (reference)
        fill_output(&c->out[0], number);
    else
        pst_view_copy(c->pool, &one, &number, c->out[0].meta, c->out[0].data,
                      false);
    if (pst_meta_numel(&to) == 0)
        return;
    if (reference)
        pst_view_copy_ref(
            &from, (const char *)c->in[0].data + src * (int64_t)size, &to,
            (char *)c->out[0].data + dst * (int64_t)size, false);
    else
        pst_view_copy(c->pool, &from,
                      (const char *)c->in[0].data + src * (int64_t)size, &to,
                      (char *)c->out[0].data + dst * (int64_t)size, false);
}

static void constant_pad_nd_run(const struct pst_call *c)
{
    pad_into(c, &c->args[2], false);
}

/* Pads row by row; a row consists of the last padded dimension and all
 * dimensions after it. For each dimension: lead: padding elements before x;
 * skip: elements that are cropped from the start of x; both: elements that are
 * copied. */
struct rows {
    const struct pst_call *c;
    uint64_t value; /* the padding value, as the bytes of an element */
    unsigned last;  /* the last padded dimension */
    int64_t inner;  /* elements per index of dimension `last` */
    int64_t lead[PST_MAX_RANK], skip[PST_MAX_RANK], both[PST_MAX_RANK];
};

#define FILL(name, type)                                                       \
    static void name(void *dst, uint64_t value, int64_t n)                     \
    {                                                                          \
        type *y = dst;                                                         \
                                                                               \
        for (int64_t i = 0; i < n; i++)                                        \
            y[i] = (type)value;                                                \
    }
FILL(fill_1, uint8_t)
FILL(fill_2, uint16_t)
FILL(fill_4, uint32_t)
FILL(fill_8, uint64_t)

static void fill_row(size_t size, char *dst, uint64_t value, int64_t n)
{
    if (size == 4)
        fill_4(dst, value, n);
    else if (size == 8)
        fill_8(dst, value, n);
    else if (size == 2)
        fill_2(dst, value, n);
    else
        fill_1(dst, value, n);
}

static void rows_part(void *ctx, unsigned part, unsigned parts)
{
    const struct rows *r = ctx;
    const struct pst_meta *x = r->c->in[0].meta, *y = r->c->out[0].meta;
    const size_t size = pst_dtype_size(y->dtype);
    const int64_t length = y->size[r->last] * r->inner;
    const int64_t lead = r->lead[r->last] * r->inner;
    const int64_t n = r->both[r->last] * r->inner;
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(y) / length, 1, part, parts, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        char *dst = (char *)r->c->out[0].data + (size_t)(row * length) * size;
        int64_t rest = row, src = r->skip[r->last] * x->stride[r->last];
        bool inside = n > 0;

        for (unsigned d = r->last; d-- > 0;) {
            const int64_t at = rest % y->size[d] - r->lead[d];

            inside = inside && at >= 0 && at < r->both[d];
            src += (at + r->skip[d]) * x->stride[d];
            rest /= y->size[d];
        }
        if (!inside) {
            fill_row(size, dst, r->value, length);
            continue;
        }
        fill_row(size, dst, r->value, lead);
        memcpy(dst + (size_t)lead * size,
               (const char *)r->c->in[0].data + (size_t)src * size,
               (size_t)n * size);
        fill_row(size, dst + (size_t)(lead + n) * size, r->value,
                 length - lead - n);
    }
}

static bool rows_support(const struct pst_call *c)
{
    return pst_meta_is_contiguous(c->in[0].meta);
}

static void constant_pad_nd_rows(const struct pst_call *c)
{
    const struct pst_arg *pad = &c->args[1];
    const struct pst_meta *x = c->in[0].meta, *y = c->out[0].meta;
    const double value =
        c->args[2].kind == PST_ARG_NONE ? 0.0 : pst_pw_number(&c->args[2]);
    struct rows r = {.c = c, .inner = 1};

    if (pst_meta_numel(y) == 0)
        return;
    if (x->rank == 0) {
        pad_into(c, &c->args[2], false);
        return;
    }
    pst_store_f64(y->dtype, &r.value, 0, value);
    for (unsigned d = 0; d < x->rank; d++) {
        const unsigned k = x->rank - 1 - d;
        const int64_t before = k < pad->n / 2 ? pad->ints[2 * k] : 0;

        r.lead[d] = PST_MAX(before, 0);
        r.skip[d] = PST_MAX(-before, 0);
        r.both[d] = PST_MIN(x->size[d] - PST_MIN(r.skip[d], x->size[d]),
                            y->size[d] - PST_MIN(r.lead[d], y->size[d]));
        if (x->size[d] != y->size[d] || before != 0)
            r.last = d;
    }
    for (unsigned d = r.last + 1; d < y->rank; d++)
        r.inner *= y->size[d];
    pst_pool_run(pst_pool_if(c->pool, pst_meta_numel(y) >= PST_ND_SERIAL),
                 rows_part, &r);
}

static void constant_pad_nd_ref(const struct pst_call *c)
{
    pad_into(c, &c->args[2], true);
}

/* Pads the gradient by the negated numbers, which crops added elements and pads
 * cropped ones. */
static enum pst_status pad_vjp(struct pst_vjp *v)
{
    const struct pst_arg *pad = &v->node->args[1];
    int64_t back[2 * PST_MAX_RANK];

    for (unsigned k = 0; k < pad->n; k++)
        back[k] = -pad->ints[k];
    return pst_vjp_set(v, 0,
                       pst_vjp_emit(v, &pst_op_constant_pad_nd,
                                    PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                                             pst_ints(back, pad->n))));
}

static const struct pst_kernel constant_pad_nd_kernels[] = {
    {"constant_pad_nd_rows", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED,
     rows_support, NULL, constant_pad_nd_rows, 0.0},
    {"constant_pad_nd", PST_ISA_ANY, PST_D_ANY,
     PST_K_STRIDED | PST_VIEW_IS_COPIES, NULL, NULL, constant_pad_nd_run, 0.0},
    {"constant_pad_nd_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     constant_pad_nd_ref, 0.0},
};
const struct pst_op pst_op_constant_pad_nd = {
    .schema = "aten::constant_pad_nd(Tensor self, SymInt[] pad, "
              "Scalar value=0) -> Tensor",
    .infer = infer_pad,
    .vjp = pad_vjp,
};
PST_CPU_KERNELS(constant_pad_nd, constant_pad_nd_kernels);
