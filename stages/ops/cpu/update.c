// SPDX-License-Identifier: Apache-2.0
/* Optimizer steps (tasks of stages/ops/cpu/tasks.h). */
#include "stages/ops/cpu/simd/optim/optim.h"
#include "stages/ops/cpu/tasks.h"

#include <stdatomic.h>

struct update {
    const struct pst_task *task;
    const struct pst_simd_updates *simd;
    atomic_int_fast64_t stayed;
};

void pst_cpu_record_stayed(const struct pst_task *task, int64_t n)
{
    uint64_t *words = task->number > 0 ? task->from[task->n_from - 1] : NULL;

    if (words == NULL || n == 0)
        return;
    words[0] = words[0] > 0 ? words[0] : (uint64_t)task->number;
    words[1] += (uint64_t)n;
}

/* Returns operand k from element i on; NULL if it is absent. */
static float *operand_at(const struct pst_task *task, unsigned k, int64_t i)
{
    return k < task->n_from && task->from[k] != NULL
               ? (float *)task->from[k] + i
               : NULL;
}

/* Elements of the gradient that are limited at a time. */
#define LIMITED 1024

/* Sets to = g * scale, limited to [-most, most]; NaN stays NaN. */
static void limit_gradient(const float *restrict g, float scale, float most,
                           int64_t n, float *restrict to)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] * scale;

        to[i] = x > most ? most : x < -most ? -most : x;
    }
}

/* Defines pst_cpu_update_NAME: each thread runs the loop NAME (simd.h) on
 * elements from i on of the parameter t->to, its gradient and the loop's other
 * operands, with the step's numbers o. With clip_value it gets limited copies
 * of pieces of the gradient, so that the gradient itself stays as it is. */
#define UPDATE(name, ...)                                                      \
    static int64_t name##_piece(const struct update *u, int64_t i,             \
                                int64_t end, const float *g,                   \
                                const struct pst_update *o)                    \
    {                                                                          \
        const struct pst_task *t = u->task;                                    \
                                                                               \
        return u->simd->name(end - i, (float *)t->to + i, g, __VA_ARGS__);     \
    }                                                                          \
    static void name##_part(void *ctx, unsigned part, unsigned parts)          \
    {                                                                          \
        struct update *u = ctx;                                                \
        const struct pst_task *t = u->task;                                    \
        struct pst_update o = *t->update;                                      \
        const float scale = (float)o.grad_scale, most = (float)o.clip_value;   \
        float piece[LIMITED];                                                  \
        int64_t i, end, stayed = 0;                                            \
                                                                               \
        pst_pool_share(t->n, PST_TASK_GRAIN, part, parts, &i, &end);           \
        if (i < end && !(most > 0))                                            \
            stayed = name##_piece(u, i, end, operand_at(t, 0, i), &o);         \
        o.grad_scale = 1;                                                      \
        for (int64_t n; most > 0 && i < end; i += n) {                         \
            n = PST_MIN(end - i, (int64_t)LIMITED);                            \
            limit_gradient(operand_at(t, 0, i), scale, most, n, piece);        \
            stayed += name##_piece(u, i, i + n, piece, &o);                    \
        }                                                                      \
        atomic_fetch_add(&u->stayed, stayed);                                  \
    }                                                                          \
    void pst_cpu_update_##name(const struct pst_task *task)                    \
    {                                                                          \
        struct update u = {task, pst_simd_updates_best(task->isa), 0};         \
                                                                               \
        pst_pool_run(pst_pool_if(task->pool, task->n > PST_TASK_GRAIN),        \
                     name##_part, &u);                                         \
        pst_cpu_record_stayed(task, atomic_load(&u.stayed));                   \
    }

UPDATE(adamw, operand_at(t, 1, i), operand_at(t, 2, i), o->lr, o->beta1,
       o->beta2, o->eps, o->weight_decay, o->bias1, o->bias2, o->grad_scale)
UPDATE(sgd, operand_at(t, 1, i), o->lr, o->momentum, o->dampening,
       o->weight_decay, o->nesterov, o->first, o->grad_scale)
UPDATE(adam, operand_at(t, 1, i), operand_at(t, 2, i), o)
UPDATE(adamax, operand_at(t, 1, i), operand_at(t, 2, i), o)
UPDATE(lion, operand_at(t, 1, i), o)
UPDATE(rmsprop, operand_at(t, 1, i), operand_at(t, 2, i), operand_at(t, 3, i),
       o)
UPDATE(adagrad, operand_at(t, 1, i), o)
UPDATE(adadelta, operand_at(t, 1, i), operand_at(t, 2, i), o)
UPDATE(schedulefree, operand_at(t, 1, i), operand_at(t, 2, i),
       operand_at(t, 3, i), o)
