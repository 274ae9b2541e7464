// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/recordings.h"

#include "stages/compile/hosted.h"

/* The least number of kernels and copies of a recording: fewer are launched as
 * fast one by one. */
#define LEAST 3

/* True if the device can record the instruction. One of several kernels has
 * only such kernels (bind.c). */
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
            made->n = end - i;
            x->instrs[i].recording = made;
        }
        i = PST_MAX(end, i + 1);
    }
    return true;
}

void pst_recordings_free(const struct pst_actions *actions,
                         struct pst_device_memory *mem)
{
    for (unsigned i = 0; i < actions->n; i++)
        for (unsigned k = 0; k < actions->at[i].n_instrs; k++) {
            struct pst_recording *made = actions->at[i].instrs[k].recording;

            if (made != NULL && made->handle != NULL)
                mem->device->recorder->free(mem, made->handle);
            if (made != NULL)
                *made = (struct pst_recording){.n = made->n};
        }
}

/* Returns the number of kernels and copies of the action; adds those that are
 * replayed to *replayed, and the nodes of their recordings to *nodes. */
static unsigned count_action(const struct pst_rank_action *x,
                             unsigned *replayed, uint64_t *nodes)
{
    unsigned all = 0;

    for (unsigned i = 0; i < x->n_instrs; i++) {
        const struct pst_recording *made = x->instrs[i].recording;

        all += count_work(&x->instrs[i]);
        if (made == NULL || made->state != PST_RECORDING_MADE)
            continue;
        *nodes += made->nodes;
        for (unsigned k = 0; k < made->n; k++)
            *replayed += count_work(&x->instrs[i + k]);
    }
    return all;
}

void pst_recordings_count(const struct pst_actions *actions,
                          struct pst_recorded *ret)
{
    ret->actions = ret->replayed = ret->partly = 0;
    ret->nodes = 0;
    for (unsigned i = 0; i < actions->n; i++) {
        unsigned replayed = 0;
        const unsigned all =
            count_action(&actions->at[i], &replayed, &ret->nodes);

        ret->actions += all > 0;
        ret->replayed += all > 0 && replayed == all;
        ret->partly += replayed > 0 && replayed < all;
    }
}
