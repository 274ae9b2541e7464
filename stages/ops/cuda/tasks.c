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

_Static_assert(sizeof(struct pst_cuda_numbers) <= PST_CUDA_SLOT_BYTES,
               "stages/device/cuda/cuda.h");

/* Returns the address of a slot's numbers; NULL for slot 0, which has none. */
static struct pst_cuda_numbers *numbers_at(const struct pst_cuda_context *c,
                                           unsigned slot)
{
    const uint64_t at =
        c->slots_at + (uint64_t)(slot - 1) * PST_CUDA_SLOT_BYTES;

    return slot > 0 ? (struct pst_cuda_numbers *)(uintptr_t)at : NULL; // NOLINT
}

static struct pst_cuda_update update_of(const struct pst_task *task)
{
    struct pst_cuda_update p = {.p = task->to,
                                .g = task->from[0],
                                .n = task->n,
                                .numbers.gscale =
                                    (float)task->update->grad_scale};

    if (task->update->clip_value > 0) /* `set` has changed it */
        (void)pst_cuda_check(task->stream, 1,
                             "gradients cannot be limited by --clip-value");
    if (task->number > 0) {
        p.number = (unsigned long long)task->number;
        p.stayed = task->from[task->n_from - 1];
    }
    return p;
}

/* Enqueues the update; without elements, the kernel that stores its numbers in
 * its slot, from which a recorded update reads them. */
static void enqueue(const struct pst_task *task, enum pst_cuda_fn fn,
                    struct pst_cuda_update *p)
{
    struct pst_cuda_context *c = task->stream;
    const struct pst_cuda_set_numbers set = {.to = numbers_at(c, task->slot),
                                             .numbers = p->numbers};

    if (task->slot > PST_CUDA_SLOTS) {
        (void)pst_cuda_check(c, 1, "an update with an unknown slot");
    } else if (task->slot > 0 && task->n == 0) {
        pst_cuda_launch_n(c, PST_FN_pst_task_numbers, 1, &set);
    } else {
        p->at = set.to;
        pst_cuda_launch_n(c, fn, task->n, p);
    }
}

void pst_cuda_update_adamw(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.v = state(task, 2);
    p.numbers.keep = (float)(1.0 - u->lr * u->weight_decay);
    p.numbers.b1 = (float)(1.0 - u->beta1);
    p.numbers.b2 = (float)u->beta2;
    p.numbers.c2 = (float)(1.0 - u->beta2);
    p.numbers.root = (float)(1.0 / sqrt(u->bias2));
    p.numbers.step = (float)(u->lr / u->bias1);
    p.numbers.eps = (float)u->eps;
    enqueue(task, PST_FN_pst_task_adamw, &p);
}

void pst_cuda_update_sgd(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.numbers.lr = (float)u->lr;
    p.numbers.mu = (float)u->momentum;
    p.numbers.damp = (float)(1.0 - u->dampening);
    p.numbers.decay = (float)u->weight_decay;
    p.numbers.nesterov = u->nesterov;
    p.numbers.first = u->first;
    enqueue(task, PST_FN_pst_task_sgd, &p);
}

/* Returns the parameters of an update that begins with g = g * grad_scale +
 * weight_decay * p and has at most two states. */
static struct pst_cuda_update decayed_of(const struct pst_task *task)
{
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.v = state(task, 2);
    p.numbers.decay = (float)task->update->weight_decay;
    p.numbers.eps = (float)task->update->eps;
    p.numbers.lr = (float)task->update->lr;
    return p;
}

/* Sets the weights of a moving average: b2 (old value) and c2 (new one). */
static void set_weights(struct pst_cuda_update *p, double weight)
{
    p->numbers.b2 = (float)weight;
    p->numbers.c2 = (float)(1.0 - weight);
}

void pst_cuda_update_adam(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = decayed_of(task);

    p.numbers.b1 = (float)(1.0 - u->beta1);
    set_weights(&p, u->beta2);
    p.numbers.root = (float)(1.0 / sqrt(u->bias2));
    p.numbers.step = (float)(u->lr / u->bias1);
    enqueue(task, PST_FN_pst_task_adam, &p);
}

void pst_cuda_update_adamax(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = decayed_of(task);

    p.numbers.b1 = (float)(1.0 - u->beta1);
    p.numbers.b2 = (float)u->beta2;
    p.numbers.step = (float)(u->lr / u->bias1);
    enqueue(task, PST_FN_pst_task_adamax, &p);
}

void pst_cuda_update_lion(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = update_of(task);

    p.m = state(task, 1);
    p.numbers.keep = (float)(1.0 - u->lr * u->weight_decay);
    p.numbers.b1 = (float)u->beta1;
    p.numbers.c1 = (float)(1.0 - u->beta1);
    set_weights(&p, u->beta2);
    p.numbers.lr = (float)u->lr;
    enqueue(task, PST_FN_pst_task_lion, &p);
}

/* States that are not used are NULL for the kernel. */
void pst_cuda_update_rmsprop(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct pst_cuda_update p = decayed_of(task);

    p.v = state(task, 1);
    p.m = u->momentum != 0 ? state(task, 2) : NULL;
    p.mean = u->centered ? state(task, 3) : NULL;
    p.numbers.mu = (float)u->momentum;
    set_weights(&p, u->alpha);
    enqueue(task, PST_FN_pst_task_rmsprop, &p);
}

void pst_cuda_update_adagrad(const struct pst_task *task)
{
    struct pst_cuda_update p = decayed_of(task);

    p.numbers.step = (float)(task->update->lr / task->update->lr_divisor);
    enqueue(task, PST_FN_pst_task_adagrad, &p);
}

void pst_cuda_update_adadelta(const struct pst_task *task)
{
    struct pst_cuda_update p = decayed_of(task);

    set_weights(&p, task->update->rho);
    enqueue(task, PST_FN_pst_task_adadelta, &p);
}
