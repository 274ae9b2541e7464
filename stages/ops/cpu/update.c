// SPDX-License-Identifier: Apache-2.0
/* Optimizer steps (tasks of stages/ops/cpu/tasks.h). */
#include "stages/ops/cpu/simd/optim.h"
#include "stages/ops/cpu/tasks.h"

#include <stdatomic.h>

struct update {
    const struct pst_task *task;
    const struct pst_simd_updates *simd;
    atomic_int_fast64_t stayed;
};

void pst_cpu_note_stayed(const struct pst_task *task, int64_t n)
{
    uint64_t *words = task->number > 0 ? task->from[task->n_from - 1] : NULL;

    if (words == NULL || n == 0)
        return;
    words[0] = words[0] > 0 ? words[0] : (uint64_t)task->number;
    words[1] += (uint64_t)n;
}

/* Returns operand k from element i on; NULL if it is absent. */
static float *at(const struct pst_task *task, unsigned k, int64_t i)
{
    return k < task->n_from && task->from[k] != NULL
               ? (float *)task->from[k] + i
               : NULL;
}

/* Defines pst_cpu_update_NAME: each thread runs the loop NAME (simd.h) on
 * elements from i on of the parameter t->to, its gradient and the loop's other
 * operands, with the step's numbers o. */
#define UPDATE(name, ...)                                                      \
    static void name##_part(void *ctx, unsigned part, unsigned parts)          \
    {                                                                          \
        struct update *u = ctx;                                                \
        const struct pst_task *t = u->task;                                    \
        const struct pst_update *o = t->update;                                \
        int64_t i, end;                                                        \
                                                                               \
        pst_pool_share(t->n, PST_TASK_GRAIN, part, parts, &i, &end);           \
        if (i < end)                                                           \
            atomic_fetch_add(&u->stayed,                                       \
                             u->simd->name(end - i, (float *)t->to + i,        \
                                           at(t, 0, i), __VA_ARGS__));         \
    }                                                                          \
    void pst_cpu_update_##name(const struct pst_task *task)                    \
    {                                                                          \
        struct update u = {task, pst_simd_updates_best(task->isa), 0};         \
                                                                               \
        pst_pool_run(pst_pool_if(task->pool, task->n > PST_TASK_GRAIN),        \
                     name##_part, &u);                                         \
        pst_cpu_note_stayed(task, atomic_load(&u.stayed));                     \
    }

UPDATE(adamw, at(t, 1, i), at(t, 2, i), o->lr, o->beta1, o->beta2, o->eps,
       o->weight_decay, o->bias1, o->bias2, o->grad_scale)
UPDATE(sgd, at(t, 1, i), o->lr, o->momentum, o->dampening, o->weight_decay,
       o->nesterov, o->first, o->grad_scale)
UPDATE(adam, at(t, 1, i), at(t, 2, i), o)
UPDATE(adamax, at(t, 1, i), at(t, 2, i), o)
UPDATE(lion, at(t, 1, i), o)
UPDATE(rmsprop, at(t, 1, i), at(t, 2, i), at(t, 3, i), o)
UPDATE(adagrad, at(t, 1, i), o)
UPDATE(adadelta, at(t, 1, i), at(t, 2, i), o)
