// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/elements/copies.h"

#include "stages/ops/cuda/elements/loops.h"
#include "stages/ops/view/view.h"

bool pst_cuda_is_copies(const struct pst_kernel *kernel)
{
    return (kernel->flags & PST_VIEW_IS_COPIES) != 0;
}

/* True if the address is in the device's memory or in an operand of the call,
 * which may be memory of the caller (struct pst_guest); false for a number of
 * the kernel, in host memory. */
static bool is_on_device(const struct pst_call *call, const void *at)
{
    const struct pst_cuda_context *c = call->stream;

    if ((uintptr_t)at >= (uintptr_t)c->base &&
        (uintptr_t)at - (uintptr_t)c->base < c->size)
        return true;
    for (unsigned i = 0; i < call->n_in; i++) {
        const struct pst_operand *x = &call->in[i];

        if (x->data != NULL && x->meta != NULL &&
            (uintptr_t)at >= (uintptr_t)x->data &&
            (uintptr_t)at - (uintptr_t)x->data < pst_meta_span(x->meta))
            return true;
    }
    return false;
}

static void enqueue_fill(struct pst_cuda_context *c, const struct pst_meta *to,
                         void *dst, uint64_t bits)
{
    struct pst_cuda_fill p = {
        .to = dst, .wide = bits, .bytes = (uint32_t)pst_dtype_size(to->dtype)};

    if (pst_cuda_nd_make(1, &to, &p.nd))
        pst_cuda_launch_n(c, PST_FN_pst_task_fill, p.nd.numel, &p);
}

/* Fills dst with the number at src, which is an f64 or i64 in host memory. */
static void fill_number(struct pst_cuda_context *c, const struct pst_meta *from,
                        const void *src, const struct pst_meta *to, void *dst)
{
    uint64_t bits = 0;
    struct pst_meta one = {.dtype = to->dtype};

    pst_view_copy_ref(from, src, &one, &bits, false);
    enqueue_fill(c, to, dst, bits);
}

/* True if element i of both operands is at its address + i, in f32, bf16 or
 * f16. */
static bool is_dense(const struct pst_cuda_cast *p)
{
    return p->nd.rank == 1 && p->nd.stride[0][0] == 1 &&
           p->nd.stride[1][0] == 1 && !p->accumulate &&
           pst_cuda_is_real(p->to_type) && pst_cuda_is_real(p->from_type) &&
           pst_cuda_is_wide(p->to) && pst_cuda_is_wide(p->from);
}

static void enqueue_cast(struct pst_cuda_context *c,
                         const struct pst_cuda_cast *p)
{
    const struct pst_cuda_cast_dense dense = {p->to, p->from, p->nd.numel,
                                              p->to_type, p->from_type};

    if (is_dense(p))
        pst_cuda_launch_n(c, PST_FN_pst_copy_cast_dense, (dense.n + 3) / 4,
                          &dense);
    else
        pst_cuda_launch_n(c, PST_FN_pst_copy_cast, p->nd.numel, p);
}

static void enqueue_copy(void *ctx, const struct pst_meta *from,
                         const void *src, const struct pst_meta *to, void *dst,
                         bool accumulate)
{
    const struct pst_call *call = ctx;
    struct pst_cuda_context *c = call->stream;
    const struct pst_meta *const metas[2] = {to, from};
    struct pst_cuda_cast p = {.to = dst, .from = src, .accumulate = accumulate};
    struct pst_cuda_copy same = {.to = dst, .from = src};

    if (from == NULL) {
        enqueue_fill(c, to, dst, 0);
        return;
    }
    if (!is_on_device(call, src)) {
        fill_number(c, from, src, to, dst);
        return;
    }
    if (!pst_cuda_nd_make(2, metas, &p.nd))
        return;
    if (from->dtype == to->dtype && !accumulate && to->dtype != PST_BOOL) {
        same.nd = p.nd;
        same.bytes = (uint32_t)pst_dtype_size(to->dtype);
        pst_cuda_launch_n(c, PST_FN_pst_task_copy, p.nd.numel, &same);
    } else if (pst_cuda_type_of(from->dtype, &p.from_type) &&
               pst_cuda_type_of(to->dtype, &p.to_type)) {
        enqueue_cast(c, &p);
    } else {
        (void)pst_cuda_check(c, 1, "a copy of a dtype without kernel");
    }
}

void pst_cuda_copies_run(const struct pst_kernel *kernel,
                         const struct pst_call *frame)
{
    pst_view_run_with(kernel, frame, enqueue_copy, (void *)frame);
}
