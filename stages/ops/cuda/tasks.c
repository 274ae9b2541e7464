// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/tasks.h"

#include <math.h>

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/cpu/tasks.h"
#include "stages/ops/cuda/fallback.h"
#include "stages/ops/cuda/launch.h"

void pst_cuda_seed(const struct pst_task *task)
{
    struct pst_cuda_fill p = {.nd = {.rank = 1, .numel = 1, .size = {1}},
                              .to = task->to,
                              .bytes = (uint32_t)pst_dtype_size(task->dtype)};

    pst_store_f64(task->dtype, &p.wide, 0, task->number);
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_fill, 1, &p);
}

void pst_cuda_copy_task(const struct pst_task *task)
{
    const struct pst_meta *const metas[2] = {task->to_meta, task->meta};
    struct pst_cuda_copy p = {.to = task->to,
                              .from = task->from[0],
                              .bytes =
                                  (uint32_t)pst_dtype_size(task->meta->dtype)};

    if (pst_cuda_nd_make(2, metas, &p.nd))
        pst_cuda_launch_n(task->stream, PST_FN_pst_task_copy, p.nd.numel, &p);
}

void pst_cuda_sum(const struct pst_task *task)
{
    const enum pst_cuda_fn fn = task->dtype == PST_F64
                                    ? PST_FN_pst_task_sum_f64
                                    : PST_FN_pst_task_sum_f32;
    struct pst_cuda_sum p = {.to = task->to, .n = task->n};

    if ((task->dtype != PST_F32 && task->dtype != PST_F64) ||
        task->n_from > PST_CUDA_SUM) {
        pst_cuda_task_on_host(task, pst_cpu_sum);
        return;
    }
    p.n_from = task->n_from;
    for (unsigned i = 0; i < p.n_from; i++)
        p.from[i] = task->from[i];
    pst_cuda_launch_n(task->stream, fn, task->n, &p);
}

void pst_cuda_sumsq(const struct pst_task *task)
{
    struct pst_cuda_context *c = task->stream;
    const int64_t blocks = (task->n + PST_CUDA_BLOCK - 1) / PST_CUDA_BLOCK;
    struct pst_cuda_sumsq p = {.to = task->to,
                               .from = task->from[0],
                               .n = task->n,
                               .blocks =
                                   (uint32_t)PST_MIN(blocks, PST_CUDA_SUMSQ)};

    p.partial = (double *)(uintptr_t)c->spare; // NOLINT
    pst_cuda_launch(c, PST_FN_pst_task_sumsq, p.blocks, 1, &p);
    pst_cuda_launch(c, PST_FN_pst_task_sumsq_end, 1, 1, &p);
}

void pst_cuda_downcast(const struct pst_task *task)
{
    const struct pst_cuda_convert p = {
        .to = task->to, .from = task->from[0], .n = task->n};

    pst_cuda_launch_n(task->stream, PST_FN_pst_task_narrow, task->n, &p);
}

/* Converts in place: the bf16 values are the upper half of `to`. A launch
 * converts the first half of what is left, whose results end where the values
 * of the second half begin; the last block reads all before it writes. */
void pst_cuda_upcast(const struct pst_task *task)
{
    float *to = task->to;
    const uint16_t *from = (const uint16_t *)to + task->n;
    int64_t left = task->n;

    while (left > 0) {
        const bool last = left <= PST_CUDA_BLOCK;
        const int64_t n = last ? left : left / 2;
        const struct pst_cuda_convert p = {.to = to, .from = from, .n = n};

        pst_cuda_launch_n(
            task->stream,
            last ? PST_FN_pst_task_upcast_last : PST_FN_pst_task_upcast, n, &p);
        to += n;
        from += n;
        left -= n;
    }
}

/* --- optimizers ----------------------------------------------------------- */

/* Exponential moving averages are computed on the host. */
void pst_cuda_ema(const struct pst_task *task)
{
    pst_cuda_task_on_host(task, pst_cpu_ema);
}

static void *state(const struct pst_task *task, unsigned k)
{
    return k < task->n_from ? task->from[k] : NULL;
}

static struct pst_cuda_update update_of(const struct pst_task *task)
{
    struct pst_cuda_update p = {.p = task->to,
                                .g = task->from[0],
                                .n = task->n,
                                .gscale = (float)task->update->grad_scale};

    if (task->update->clip_value > 0) /* `set` has changed it */
        (void)pst_cuda_check(task->stream, 1,
                             "gradients cannot be limited by --clip-value");
    if (task->number > 0) {
        p.number = (unsigned long long)task->number;
        p.stayed = task->from[task->n_from - 1];
    }
    return p;
}

void pst_cuda_update_adamw(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.v = state(task, 2);
    p.keep = (float)(1.0 - u->lr * u->weight_decay);
    p.b1 = (float)(1.0 - u->beta1);
    p.b2 = (float)u->beta2;
    p.c2 = (float)(1.0 - u->beta2);
    p.root = (float)(1.0 / sqrt(u->bias2));
    p.step = (float)(u->lr / u->bias1);
    p.eps = (float)u->eps;
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_adamw, task->n, &p);
}

void pst_cuda_update_sgd(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.lr = (float)u->lr;
    p.mu = (float)u->momentum;
    p.damp = (float)(1.0 - u->dampening);
    p.decay = (float)u->weight_decay;
    p.nesterov = u->nesterov;
    p.first = u->first;
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_sgd, task->n, &p);
}

/* Returns the parameters of an update that begins with g = g * grad_scale +
 * weight_decay * p and has at most two states. */
static struct pst_cuda_update decayed_of(const struct pst_task *task)
{
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.v = state(task, 2);
    p.decay = (float)task->update->weight_decay;
    p.eps = (float)task->update->eps;
    p.lr = (float)task->update->lr;
    return p;
}

/* Sets the weights of a moving average: the old value's, and the rest. */
static void set_weights(struct pst_cuda_update *p, double weight)
{
    p->b2 = (float)weight;
    p->c2 = (float)(1.0 - weight);
}

void pst_cuda_update_adam(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = decayed_of(task);

    p.b1 = (float)(1.0 - u->beta1);
    set_weights(&p, u->beta2);
    p.root = (float)(1.0 / sqrt(u->bias2));
    p.step = (float)(u->lr / u->bias1);
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_adam, task->n, &p);
}

void pst_cuda_update_adamax(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = decayed_of(task);

    p.b1 = (float)(1.0 - u->beta1);
    p.b2 = (float)u->beta2;
    p.step = (float)(u->lr / u->bias1);
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_adamax, task->n, &p);
}

void pst_cuda_update_lion(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.keep = (float)(1.0 - u->lr * u->weight_decay);
    p.b1 = (float)u->beta1;
    p.c1 = (float)(1.0 - u->beta1);
    set_weights(&p, u->beta2);
    p.lr = (float)u->lr;
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_lion, task->n, &p);
}

/* States that are not used are NULL for the kernel. */
void pst_cuda_update_rmsprop(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = decayed_of(task);

    p.v = state(task, 1);
    p.m = u->momentum != 0 ? state(task, 2) : NULL;
    p.mean = u->centered ? state(task, 3) : NULL;
    p.mu = (float)u->momentum;
    set_weights(&p, u->alpha);
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_rmsprop, task->n, &p);
}

void pst_cuda_update_adagrad(const struct pst_task *task)
{
    struct pst_cuda_update p = decayed_of(task);

    p.step = (float)(task->update->lr / task->update->lr_divisor);
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_adagrad, task->n, &p);
}

void pst_cuda_update_adadelta(const struct pst_task *task)
{
    struct pst_cuda_update p = decayed_of(task);

    set_weights(&p, task->update->rho);
    pst_cuda_launch_n(task->stream, PST_FN_pst_task_adadelta, task->n, &p);
}
