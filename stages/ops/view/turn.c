// SPDX-License-Identifier: Apache-2.0
/* Reorders elements along dimensions: flip, roll. */
#include "stages/ops/core/rows.h"
#include "stages/ops/view/view.h"

/* Element i of dimension d of the result is element (origin + i step) mod size
 * of the input. */
struct turn {
    int64_t origin[PST_MAX_RANK], step[PST_MAX_RANK];
};

static void reorder_ref(const struct pst_call *c, const struct pst_meta *x,
                        const struct turn *t)
{
    struct pst_meta one = {.dtype = x->dtype}, to = *x;
    const size_t size = pst_dtype_size(x->dtype);
    const int64_t n = pst_meta_numel(x);

    pst_meta_set_contiguous(&to);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from = 0;

        for (unsigned d = x->rank; d-- > 0;) {
            const int64_t m = x->size[d];
            const int64_t at = t->origin[d] + rest % m * t->step[d];

            from += (at % m + m) % m * x->stride[d];
            rest /= m;
        }
        pst_view_copy_ref(
            &one, (const char *)c->in[0].data + from * (int64_t)size, &one,
            (char *)c->out[0].data + i * (int64_t)size, c->accumulate);
    }
}

/* Copies strided views instead of single elements: a flipped dimension is read
 * with a negative stride; a rolled dimension is copied in two ranges that
 * exchange their positions. */
static void reorder_windows(const struct pst_call *c, const struct pst_meta *x,
                            const struct turn *t)
{
    const int64_t size = (int64_t)pst_dtype_size(x->dtype);
    struct pst_meta all = *x;
    unsigned count = 1;

    pst_meta_set_contiguous(&all);
    for (unsigned d = 0; d < x->rank; d++)
        count *= t->step[d] > 0 && t->origin[d] != 0 ? 2 : 1;
    for (unsigned w = 0; w < count; w++) {
        struct pst_meta from = *x, to = all;
        int64_t src = 0, dst = 0;
        unsigned rest = w;

        for (unsigned d = 0; d < x->rank; d++) {
            const int64_t n = x->size[d];

            if (t->step[d] < 0) {
                src += t->origin[d] * x->stride[d];
                from.stride[d] = -x->stride[d];
                continue;
            }
            if (t->origin[d] == 0)
                continue;
            from.size[d] = rest % 2 == 0 ? n - t->origin[d] : t->origin[d];
            to.size[d] = from.size[d];
            src += (rest % 2 == 0 ? t->origin[d] : 0) * x->stride[d];
            dst += (rest % 2 == 0 ? 0 : n - t->origin[d]) * all.stride[d];
            rest /= 2;
        }
        pst_view_copy(c->pool, &from, (const char *)c->in[0].data + src * size,
                      &to, (char *)c->out[0].data + dst * size, c->accumulate);
    }
}

static struct turn flip_of(const struct pst_call *c)
{
    const struct pst_meta *x = c->in[0].meta;
    struct turn t = {.origin = {0}};

    for (unsigned d = 0; d < x->rank; d++)
        t.step[d] = 1;
    for (unsigned k = 0; k < c->args[1].n; k++) {
        const int d = pst_meta_dim(x, c->args[1].ints[k]);

        t.step[d] = -1;
        t.origin[d] = x->rank > 0 ? x->size[d] - 1 : 0;
    }
    return t;
}

static void flip_ref(const struct pst_call *c)
{
    const struct turn t = flip_of(c);

    reorder_ref(c, c->in[0].meta, &t);
}

static void flip_run(const struct pst_call *c)
{
    const struct turn t = flip_of(c);

    if (pst_meta_numel(c->in[0].meta) > 0)
        reorder_windows(c, c->in[0].meta, &t);
}

/* Returns the order of roll, and sets *ret_x to its input, which without dims
 * is a single row. */
static struct turn roll_of(const struct pst_call *c, struct pst_meta *ret_x)
{
    struct pst_meta x = *c->in[0].meta;
    struct turn t = {.origin = {0}};

    if (c->args[2].n == 0) {
        const int64_t n = pst_meta_numel(&x);

        x = pst_meta_make(x.dtype, 1, &n);
    }
    for (unsigned d = 0; d < x.rank; d++)
        t.step[d] = 1;
    for (unsigned k = 0; k < c->args[1].n; k++) {
        const int d =
            c->args[2].n == 0 ? 0 : pst_meta_dim(&x, c->args[2].ints[k]);

        if (x.rank > 0 && x.size[d] > 0)
            t.origin[d] =
                ((t.origin[d] - c->args[1].ints[k] % x.size[d]) % x.size[d] +
                 x.size[d]) %
                x.size[d];
    }
    *ret_x = x;
    return t;
}

static void roll_ref(const struct pst_call *c)
{
    struct pst_meta x;
    const struct turn t = roll_of(c, &x);

    reorder_ref(c, &x, &t);
}

static void roll_run(const struct pst_call *c)
{
    struct pst_meta x;
    const struct turn t = roll_of(c, &x);

    if (pst_meta_numel(&x) > 0)
        reorder_windows(c, &x, &t);
}

static enum pst_status infer_flip(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    for (unsigned k = 0; status == PST_OK && k < c->args[1].n; k++) {
        unsigned dim;

        status = pst_infer_dim_at(c, c->args[1].ints[k], x, &dim);
    }
    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

static enum pst_status infer_roll(struct pst_infer *c)
{
    const struct pst_arg *shifts = &c->args[1], *dims = &c->args[2];
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK && shifts->n != dims->n &&
        !(dims->n == 0 && shifts->n == 1))
        status = pst_infer_fail(c, "%u shifts for %u dimensions", shifts->n,
                                dims->n);
    for (unsigned k = 0; status == PST_OK && k < dims->n; k++) {
        unsigned dim;

        status = pst_infer_dim_at(c, dims->ints[k], x, &dim);
    }
    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

static enum pst_status flip_vjp(struct pst_vjp *v)
{
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_flip,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)), v->node->args[1])));
}

static enum pst_status roll_vjp(struct pst_vjp *v)
{
    const struct pst_arg *shifts = &v->node->args[1];
    const struct pst_arg *dims = &v->node->args[2];
    const struct pst_meta *x = &pst_vjp_in(v, 0)->meta;
    int64_t *back =
        pst_arena_calloc(&v->build.graph->arena, shifts->n, sizeof(*back));

    if (back == NULL)
        return v->build.status =
                   pst_diag_nomem(v->build.diag, shifts->n * sizeof(*back));
    for (unsigned k = 0; k < shifts->n; k++) {
        const int64_t n = dims->n == 0 ? pst_meta_numel(x)
                          : x->rank > 0
                              ? x->size[pst_meta_dim(x, dims->ints[k])]
                              : 1;

        back[k] = n > 0 ? -(shifts->ints[k] % n) : 0;
    }
    return pst_vjp_set(
        v, 0,
        pst_vjp_emit(v, &pst_op_roll,
                     PST_ARGS(pst_v(pst_vjp_grad(v, 0)),
                              pst_ints(back, shifts->n), v->node->args[2])));
}

static const struct pst_kernel flip_kernels[] = {
    {"flip_windows", PST_ISA_ANY, PST_D_ANY,
     PST_K_STRIDED | PST_K_ACCUMULATE | PST_VIEW_IS_COPIES, NULL, NULL,
     flip_run, 0.0},
    {"flip_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED | PST_K_ACCUMULATE, NULL,
     NULL, flip_ref, 0.0},
};
/* The kernels need contiguous tensors: without dims, the input is read as one
 * row. */
static const struct pst_kernel roll_kernels[] = {
    {"roll_windows", PST_ISA_ANY, PST_D_ANY,
     PST_K_ACCUMULATE | PST_VIEW_IS_COPIES, NULL, NULL, roll_run, 0.0},
    {"roll_ref", PST_ISA_ANY, PST_D_ANY, PST_K_ACCUMULATE, NULL, NULL, roll_ref,
     0.0},
};

const struct pst_op pst_op_flip = {
    .schema = "aten::flip(Tensor self, int[] dims) -> Tensor",
    .infer = infer_flip,
    .vjp = flip_vjp,
};
PST_CPU_KERNELS(flip, flip_kernels);

const struct pst_op pst_op_roll = {
    .schema = "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> "
              "Tensor",
    .infer = infer_roll,
    .vjp = roll_vjp,
};
PST_CPU_KERNELS(roll, roll_kernels);
