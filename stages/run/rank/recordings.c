// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/recordings.h"

#include <stdio.h>
#include <string.h>

#include "stages/compile/hosted.h"
#include "stages/layout/layout.h"

/* Minimum number of kernels and copies of a recording: fewer are launched as
 * fast without one. */
#define LEAST 3

/* True if the device can record the instruction. The first kernel tells: an
 * instruction with several kernels has only kernels that can be recorded
 * (bind.c). */
static bool is_recorded(const struct pst_instr *instr)
{
    return instr->kind == PST_INSTR_COPY ||
           (instr->kind == PST_INSTR_KERNELS &&
            pst_hosted_can_record(&instr->run->at[instr->begin]));
}

/* Returns the number of kernels and copies. */
static unsigned count_work(const struct pst_instr *instr)
{
    return instr->kind == PST_INSTR_KERNELS ? instr->end - instr->begin
           : instr->kind == PST_INSTR_COPY  ? 1
                                            : 0;
}

bool pst_recordings_bind(struct pst_rank_action *x, struct pst_arena *heap)
{
    for (unsigned i = 0; i < x->n_instrs;) {
        unsigned end = i, work = 0;

        for (; end < x->n_instrs && is_recorded(&x->instrs[end]); end++)
            work += count_work(&x->instrs[end]);
        if (work >= LEAST) {
            struct pst_recording *made =
                pst_arena_calloc(heap, 1, sizeof(*made));

            if (made == NULL)
                return false;
            made->n_lent = x->n_lent;
            made->lent = x->base + (x->n_bases - x->n_lent);
            for (unsigned k = 0; k < PST_RECORDED_SETS; k++) {
                made->made[k].at = pst_arena_calloc(heap, x->n_lent + 1,
                                                    sizeof(*made->made[k].at));
                if (made->made[k].at == NULL)
                    return false;
            }
            made->n = end - i;
            x->instrs[i].recording = made;
        }
        i = PST_MAX(end, i + 1);
    }
    return true;
}

static bool can_record_list(const struct pst_program *program)
{
    const struct pst_exec_list *l =
        program != NULL ? &program->lists[PST_LIST_P] : NULL;

    for (unsigned i = 0; l != NULL && i < l->n; i++)
        if (!pst_hosted_can_record(&l->at[i]))
            return false;
    return l != NULL && l->n >= LEAST;
}

bool pst_recordings_init(struct pst_step *step, const struct pst_layout *layout,
                         unsigned n_stages, bool records,
                         struct pst_arena *heap)
{
    unsigned counted = 0;

    step->prepares =
        pst_arena_calloc(heap, 2 * (size_t)n_stages, sizeof(*step->prepares));
    if (step->prepares == NULL)
        return false;
    for (unsigned s = 0; s < n_stages && records; s++) {
        step->prepares[2 * s].n = can_record_list(layout->stages[s].program);
        step->prepares[2 * s + 1].n = can_record_list(layout->stages[s].tail);
    }
    for (size_t i = 0; i < layout->params.n; i++)
        counted += layout->params.at[i].counted;
    step->measure.n = records && counted > 1;
    return true;
}

/* Records what `work` enqueues. */
static void record(struct pst_recorded_work *made, struct pst_step *step,
                   struct pst_device_memory *mem, void (*work)(void *ctx),
                   void *ctx)
{
    const struct pst_recorder *recorder = mem->device->recorder;
    struct pst_recorded *all = &step->recorded;
    const double begin = pst_now();
    const char *why = "";

    recorder->begin(mem);
    step->records = true;
    work(ctx);
    step->records = false;
    made->handle = recorder->end(mem, &made->nodes, &why);
    made->state =
        made->handle != NULL ? PST_RECORDING_MADE : PST_RECORDING_REFUSED;
    all->seconds += pst_now() - begin;
    if (made->handle == NULL && all->why[0] == '\0')
        (void)snprintf(all->why, sizeof(all->why), "%s", why);
}

/* Returns to the state before the first step. */
static void forget(struct pst_recorded_work *made,
                   struct pst_device_memory *mem)
{
    if (made->handle != NULL)
        mem->device->recorder->free(mem, made->handle);
    *made = (struct pst_recorded_work){.at = made->at};
}

/* Returns the recording for the inputs that are lent now; a new one takes the
 * place of the one that was used least recently. */
static struct pst_recorded_work *find_work(struct pst_recording *of,
                                           struct pst_device_memory *mem)
{
    const size_t bytes = of->n_lent * sizeof(*of->lent);
    struct pst_recorded_work *oldest = &of->made[0];

    of->uses++;
    if (bytes == 0)
        return oldest;
    for (unsigned k = 0; k < PST_RECORDED_SETS; k++) {
        struct pst_recorded_work *made = &of->made[k];

        if (made->used > 0 && memcmp(made->at, of->lent, bytes) == 0) {
            made->used = of->uses;
            return made;
        }
        if (made->used < oldest->used)
            oldest = made;
    }
    forget(oldest, mem);
    memcpy(oldest->at, of->lent, bytes);
    oldest->used = of->uses;
    return oldest;
}

void pst_recording_run(struct pst_recording *of, struct pst_step *step,
                       struct pst_device_memory *mem, void (*work)(void *ctx),
                       void *ctx)
{
    struct pst_recorded_work *made = find_work(of, mem);

    if (made->state == PST_RECORDING_RAN)
        record(made, step, mem, work, ctx);
    if (made->state == PST_RECORDING_MADE)
        mem->device->recorder->replay(mem, made->handle, step->number);
    else
        work(ctx);
    if (made->state == PST_RECORDING_NEW)
        made->state = PST_RECORDING_RAN;
}

void pst_recording_forget(struct pst_recording *of,
                          struct pst_device_memory *mem)
{
    for (unsigned k = 0; of != NULL && k < PST_RECORDED_SETS; k++)
        forget(&of->made[k], mem);
}

void pst_recordings_free(const struct pst_actions *actions, unsigned n_stages,
                         struct pst_step *step, struct pst_device_memory *mem)
{
    for (unsigned i = 0; i < actions->n; i++)
        for (unsigned k = 0; k < actions->at[i].n_instrs; k++)
            pst_recording_forget(actions->at[i].instrs[k].recording, mem);
    for (unsigned i = 0; i < 2 * n_stages && step->prepares != NULL; i++)
        pst_recording_forget(&step->prepares[i], mem);
    pst_recording_forget(&step->measure, mem);
    pst_recording_forget(&step->update, mem);
}

/* Returns the nodes of the first recording that was made; 0: none was. */
static uint64_t count_nodes(const struct pst_recording *of)
{
    for (unsigned k = 0; k < PST_RECORDED_SETS; k++)
        if (of->made[k].state == PST_RECORDING_MADE)
            return of->made[k].nodes;
    return 0;
}

/* Returns the number of kernels and copies of the action; adds those that are
 * replayed to *replayed, and the nodes of their recordings to *nodes. */
static unsigned count_action(const struct pst_rank_action *x,
                             unsigned *replayed, uint64_t *nodes)
{
    unsigned all = 0;

    for (unsigned i = 0; i < x->n_instrs; i++) {
        const struct pst_recording *of = x->instrs[i].recording;
        const uint64_t recorded = of != NULL ? count_nodes(of) : 0;

        all += count_work(&x->instrs[i]);
        *nodes += recorded;
        for (unsigned k = 0; recorded > 0 && k < of->n; k++)
            *replayed += count_work(&x->instrs[i + k]);
    }
    return all;
}

void pst_recordings_count(const struct pst_actions *actions, unsigned n_stages,
                          const struct pst_step *step, struct pst_recorded *ret)
{
    *ret = step->recorded;
    ret->nodes = count_nodes(&step->measure) + count_nodes(&step->update);
    for (unsigned i = 0; i < 2 * n_stages; i++)
        ret->nodes += count_nodes(&step->prepares[i]);
    for (unsigned i = 0; i < actions->n; i++) {
        unsigned replayed = 0;
        const unsigned all =
            count_action(&actions->at[i], &replayed, &ret->nodes);

        ret->actions += all > 0;
        ret->replayed += all > 0 && replayed == all;
        ret->partly += replayed > 0 && replayed < all;
    }
}
