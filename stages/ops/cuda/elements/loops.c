// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/elements/loops.h"

#include <string.h>

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/cpu/simd/loops.h"

static const struct {
    pst_loop_fn loop;
    enum pst_cuda_fn fn;
} loops[] = {
#define ROW(name)                        {pst_loop_##name##_any, PST_FN_pst_loop_##name},
#define LOOP(name, n, expr)              ROW(name)
#define GUARDED(name, n, expr, ok, slow) ROW(name)
#define RANGED(name, n, expr, ok, slow)  ROW(name)
#define QUESTION(name, n, expr)          ROW(name)
#define LOGIC(name, n, expr)             ROW(name)
#define INTEGER(name, n, expr)           ROW(name)
#define COMPARE(name, n, expr)           ROW(name)
#define CHOICE(name, expr)               ROW(name)
#include "stages/ops/cpu/simd/loops.def"
#undef ROW
};

bool pst_cuda_is_loop(const struct pst_kernel *kernel)
{
    return (kernel->flags & PST_PW_IS_LOOP) != 0;
}

static bool find_loop(pst_loop_fn loop, enum pst_cuda_fn *ret)
{
    for (size_t i = 0; i < PST_COUNT(loops); i++)
        if (loops[i].loop == loop) {
            *ret = loops[i].fn;
            return true;
        }
    return false;
}

float pst_cuda_loop_number(const struct pst_pw_use *use, unsigned k)
{
    const float x = (float)pst_pw_number(use->arg[k]);
    uint16_t bits;

    if (use->rounds == PST_F32 || use->as[k] != PST_F32)
        return x;
    pst_simd_to_16_best(use->rounds, PST_ISA_ANY)(1, &x, &bits);
    return (float)pst_load_f64(use->rounds, &bits, 0);
}

/* Sets operand k of the loop; false if its dtype has no device type. Bool loops
 * need no conversion: any byte but 0 is true. */
static bool set_operand(const struct pst_pw_use *use, unsigned k,
                        struct pst_cuda_loop *p)
{
    const struct pst_operand *x = use->x[k];

    if (x == NULL) {
        p->number[k] = pst_cuda_loop_number(use, k);
        p->whole[k] = use->as[k] == PST_BOOL ? pst_pw_number(use->arg[k]) != 0.0
                                             : pst_pw_integer(use->arg[k]);
        return true;
    }
    p->x[k] = x->data;
    return pst_cuda_type_of(x->meta->dtype, &p->type[k]);
}

static enum pst_cuda_plain plain_of(const struct pst_cuda_loop *p, unsigned n)
{
    bool f32 = p->y_type == PST_CUDA_F32 && p->rounds == PST_CUDA_F32;

    if (p->nd.rank != 1 || !pst_cuda_is_real(p->y_type) || p->accumulate ||
        p->nd.stride[0][0] != 1)
        return PST_CUDA_NOT_PLAIN;
    for (unsigned k = 0; k < n; k++) {
        if (p->x[k] == NULL)
            continue;
        if (p->nd.stride[k + 1][0] != 1 || !pst_cuda_is_real(p->type[k]))
            return PST_CUDA_NOT_PLAIN;
        f32 = f32 && p->type[k] == PST_CUDA_F32;
    }
    return f32 ? PST_CUDA_PLAIN_F32 : PST_CUDA_PLAIN_16;
}

void pst_cuda_loop_run(const struct pst_kernel *kernel,
                       const struct pst_call *frame)
{
    const struct pst_meta *metas[4] = {frame->out[0].meta};
    struct pst_cuda_context *c = frame->stream;
    struct pst_pw_use use = {0};
    struct pst_cuda_loop p = {.y = frame->out[0].data,
                              .accumulate = frame->accumulate};
    enum pst_cuda_fn fn = PST_N_CUDA_FN;
    bool ok;

    pst_pw_describe(kernel, frame, &use);
    ok = find_loop(use.loop, &fn) &&
         pst_cuda_type_of(frame->out[0].meta->dtype, &p.y_type) &&
         pst_cuda_type_of(use.rounds, &p.rounds);
    for (unsigned k = 0; k < use.n && ok; k++) {
        ok = set_operand(&use, k, &p);
        metas[k + 1] = use.x[k] != NULL ? use.x[k]->meta : NULL;
    }
    if (!ok) {
        (void)pst_cuda_check(c, 1, kernel->name);
        return;
    }
    memcpy(p.s, use.s, sizeof(p.s));
    if (!pst_cuda_nd_make(use.n + 1, metas, &p.nd))
        return;
    p.plain = plain_of(&p, use.n);
    pst_cuda_launch_n(c, fn, p.nd.numel, &p);
}
