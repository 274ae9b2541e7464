// SPDX-License-Identifier: Apache-2.0
/*
 * ZB-V (Qi et al., 2023): each rank has two stages, r on the way forth and 2P -
 * 1 - r on the way back, so the last stage is on the rank of the first, and its
 * gradients start there. I and W are separate, W fills the gaps: if F, I and W
 * take equal time and messages none, only the ramps are idle. A rank holds at
 * most 2P (stage, microbatch) pairs: the memory of 1F1B, where it holds P
 * microbatches of one stage twice as large.
 *
 * The order is generated for at least 2P - 1 microbatches; those that do not
 * exist are removed.
 */
#include "stages/sched/generate.h"

struct zb_v {
    struct pst_sched_list list;
    unsigned out, back; /* first and second stage of the rank */
    unsigned n;         /* microbatches, including additional ones */
    /* Number of F, I and W done on each of the two stages. */
    unsigned f_out, f_back, i_out, i_back, w_out, w_back;
};

static void add_action(struct zb_v *z, enum pst_action_kind kind,
                       unsigned stage, unsigned *count)
{
    if (*count >= z->list.sched->n_microbatches)
        pst_sched_list_idle(&z->list, 1);
    pst_sched_list_add(&z->list, kind, stage, (*count)++);
}

static void forward_out(struct zb_v *z)
{
    add_action(z, PST_ACT_F, z->out, &z->f_out);
}

static void forward_back(struct zb_v *z)
{
    add_action(z, PST_ACT_F, z->back, &z->f_back);
}

static void input_out(struct zb_v *z)
{
    add_action(z, PST_ACT_I, z->out, &z->i_out);
}

static void input_back(struct zb_v *z)
{
    add_action(z, PST_ACT_I, z->back, &z->i_back);
}

static void weight_out(struct zb_v *z)
{
    add_action(z, PST_ACT_W, z->out, &z->w_out);
}

static void weight_back(struct zb_v *z)
{
    add_action(z, PST_ACT_W, z->back, &z->w_back);
}

static void fill_rank(struct zb_v *z, unsigned r, unsigned ranks)
{
    pst_sched_list_start(&z->list, r, 3);
    pst_sched_list_idle(&z->list, r);
    for (unsigned i = 0; i < 2 * (ranks - r) - 1; i++)
        forward_out(z);
    for (unsigned i = 0; i < r; i++) {
        forward_back(z);
        forward_out(z);
    }
    for (unsigned i = 0; i < ranks - r; i++) {
        forward_back(z);
        input_back(z);
        weight_back(z);
    }
    while (z->f_back < z->f_out || z->f_out < z->n) {
        if (z->f_out < z->n)
            forward_out(z);
        input_out(z);
        weight_out(z);
        forward_back(z);
        input_back(z);
        weight_back(z);
    }
    for (unsigned i = 0; i < r; i++) {
        input_out(z);
        input_back(z);
    }
    for (unsigned i = 0; i < ranks - r; i++) {
        input_out(z);
        weight_out(z);
    }
    while (z->w_back < z->i_back)
        weight_back(z);
    while (z->w_out < z->i_out)
        weight_out(z);
}

enum pst_status pst_sched_generate_zb_v(struct pst_schedule *sched,
                                        struct pst_diag *diag)
{
    const unsigned ranks = sched->n_ranks;
    struct zb_v z = {.list = {sched}};

    for (unsigned r = 0; r < ranks; r++) {
        z = (struct zb_v){
            .list = z.list,
            .out = r,
            .back = 2 * ranks - 1 - r,
            .n = PST_MAX(2 * ranks - 1, sched->n_microbatches),
        };
        fill_rank(&z, r, ranks);
    }
    return pst_sched_list_end(&z.list, diag);
}
