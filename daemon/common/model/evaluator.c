// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/evaluator.h"

#include <string.h>

#include "daemon/common/setup.h"
#include "stages/sched/generate.h"

void pstd_evaluator_init(struct pstd_evaluator *e,
                         const struct pst_engine *from, struct pst_plan *of)
{
    *e = (struct pstd_evaluator){.from = from, .plan = of};
    pst_sched_print_place(pst_engine_schedule(from), &e->places);
}

enum pst_status pstd_evaluator_read_start(void *ctx, unsigned i, void *dst,
                                          struct pst_diag *diag)
{
    const struct pstd_evaluator *e = ctx;

    return pst_engine_read_start(e->from, e->plan, i, dst, diag);
}

enum pst_status pstd_evaluator_cut(struct pstd_evaluator *e,
                                   struct pst_diag *diag)
{
    return pst_eval_cut_init(&e->cut, e->plan, false, pstd_evaluator_read_start,
                             e, diag);
}

enum pst_status pstd_evaluator_options(struct pstd_evaluator *e,
                                       const struct pstd_config *config,
                                       const struct pst_exec_options *training,
                                       struct pst_exec_options *ret,
                                       struct pst_diag *diag)
{
    const enum pst_status status =
        e->places.failed
            ? pst_diag_nomem(diag, e->places.len)
            : pstd_exec_options(config, training->ranks, false, ret, diag);

    if (status != PST_OK)
        return status;
    ret->device = training->device;
    ret->ordinal = training->ordinal;
    ret->devices = training->devices;
    ret->replicas = training->replicas;
    ret->place = pst_str_text(&e->places);
    ret->recompute = NULL;
    if (ret->shard_by != NULL && strcmp(ret->shard_by, "auto") == 0)
        ret->shard_by = pst_sharing_word(pst_engine_shard(e->from));
    ret->no_undo = true; /* each pass begins with the current values */
    ret->side_by_side = training->side_by_side;
    ret->flights = training->flights;
    ret->lends_inputs = training->lends_inputs;
    return PST_OK;
}

enum pst_status pstd_evaluator_start(struct pstd_evaluator *e,
                                     struct pst_plan *plan,
                                     struct pst_transport *transport,
                                     const struct pst_exec_options *options,
                                     struct pst_diag *diag)
{
    const enum pst_status status =
        pst_engine_new(plan, transport, options, &e->engine, diag);

    if (status != PST_OK)
        return status;
    return pst_transport_agree(
        transport, pst_engine_borrow_values(e->engine, e->from, diag), diag);
}

void pstd_evaluator_fini(struct pstd_evaluator *e)
{
    pst_engine_free(e->engine);
    pst_eval_cut_fini(&e->cut);
    pst_str_fini(&e->places);
    *e = (struct pstd_evaluator){0};
}
