// SPDX-License-Identifier: Apache-2.0
#include "stages/run/engine.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/compile/hosted.h"
#include "stages/files/data.h"
#include "stages/layout/layout.h"
#include "stages/ops/rates/rates.h"
#include "stages/run/claims.h"
#include "stages/run/facts.h"
#include "stages/run/lanes.h"
#include "stages/run/peers.h"
#include "stages/run/rank/step/agree.h"
#include "stages/run/rank/step/stash.h"
#include "stages/tune/choose.h"

/* Number of rounds over the local ranks, without progress, between two reads of
 * the clock. */
#define WATCH_EVERY 128
/* Seconds that a round may take. On a host with too few processors it may take
 * 10 ms; then each round reads the clock, since a process that does not read it
 * for a second counts as stopped. WATCH_FIRST: two early rounds that read the
 * clock to find this out. */
#define WATCH_SLOW     1e-3
#define WATCH_FIRST(i) ((i) == 8 || (i) == 16)

/* A rank that has waited for T seconds sleeps for T / NAP_SHARE between two
 * rounds, if that is at least NAP_MIN, and for at most NAP_MAX. This leaves the
 * processor to others, and delays a message by at most .4 % of the wait for it.
 */
#define NAP_SHARE 256
#define NAP_MIN   10e-6 /* seconds */
#define NAP_MAX   200e-6
#define NAP_SLACK 1000ul /* ns by which timers may be late; usually 50 000 */

/* --- construction --------------------------------------------------------- */

/* Creates engine->since and engine->unread. `since` has the plan's counts until
 * those of a checkpoint are loaded. */
static enum pst_status count_init(struct pst_engine *engine,
                                  struct pst_diag *diag)
{
    const size_t n = engine->grid->plan->params.n;

    engine->since = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*engine->since));
    engine->unread = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(void *));
    if (engine->since == NULL || engine->unread == NULL)
        return pst_diag_nomem(diag, n * sizeof(*engine->since));
    for (size_t i = 0; i < n; i++)
        engine->since[i] = engine->grid->plan->params.at[i].since;
    return PST_OK;
}

static enum pst_status engine_alloc(struct pst_plan *plan,
                                    const struct pst_exec_options *options,
                                    struct pst_engine **ret,
                                    struct pst_diag *diag)
{
    struct pst_engine *engine = pst_calloc(PST_TAG_EXEC, 1, sizeof(*engine));
    struct pst_exec_options settled = *options;
    enum pst_status status;

    if (engine == NULL)
        return pst_diag_nomem(diag, sizeof(*engine));
    status = pst_exec_choose(plan, &settled, diag);
    engine->limits[0] = engine->limits[1] = INFINITY;
    if (!settled.train ||
        (settled.loss_scale.kind == PST_LOSS_SCALE_AUTO &&
         (plan->autocast == NULL || strcmp(plan->autocast, "f16") != 0)))
        settled.loss_scale.kind = PST_LOSS_SCALE_NONE;
    if (settled.loss_scale.kind == PST_LOSS_SCALE_AUTO)
        settled.loss_scale.kind = PST_LOSS_SCALE_DYNAMIC;
    engine->scaler = pst_loss_scaler_begin(&settled.loss_scale);
    engine->step_scale = engine->scaler.scale;
    if (status == PST_OK)
        status = pst_engine_counts_init(engine, plan, &settled, diag);
    if (status == PST_OK)
        status = count_init(engine, diag);
    if (status != PST_OK) {
        pst_engine_free(engine);
        return status;
    }
    *ret = engine;
    return PST_OK;
}

void pst_engine_free(struct pst_engine *engine)
{
    if (engine == NULL)
        return;
    pst_lanes_free(engine->lanes);
    pst_free(engine->since);
    for (size_t i = 0;
         engine->unread != NULL && i < engine->grid->plan->params.n; i++)
        pst_free(engine->unread[i]);
    pst_free(engine->unread);
    pst_free(engine->borrowed);
    pst_engine_counts_fini(engine);
    pst_free(engine->scattered);
    pst_pool_free(engine->pool);
    pst_vec_fini(&engine->processors);
    pst_free(engine);
}

bool pst_engine_is_stuck(const struct pst_engine *engine)
{
    return engine != NULL && engine->lanes != NULL &&
           pst_lanes_are_stuck(engine->lanes);
}

/* Returns the digest of a schedule's actions. Costs and files may differ
 * between hosts, so the digest leaves them out. */
static uint64_t digest_of(const struct pst_schedule *s)
{
    uint64_t hash = 0;

    for (unsigned r = 0; r < s->n_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].n; i++) {
            const struct pst_action *a = &s->ranks[r].at[i];
            const int parts[] = {(int)r,        a->kind,       a->stage,
                                 a->microbatch, a->peer_stage, a->param};

            hash = pst_hash(parts, sizeof(parts), hash);
        }
    return hash;
}

/* Checks that all ranks have the same plan and options. */
static enum pst_status compare_ranks(struct pst_engine *engine,
                                     struct pst_diag *diag)
{
    const struct pst_exec_options *o = &engine->grid->options;
    const struct pst_optim_options *p = &o->optim;
    struct pst_facts f = {0};
    enum pst_status status;
    const char *better;

    pst_facts_add(&f, "the plan", "%s", engine->grid->plan->digest);
    pst_facts_add(&f, "the grid of ranks", "%ux%u", o->replicas, o->ranks);
    for (unsigned i = 0; i < engine->grids.n; i++) {
        const struct pst_grid *grid = &engine->grids.at[i];

        pst_facts_add(&f, "the number of microbatches",
                      "%u, %u of them smaller", grid->options.microbatches,
                      o->tail != NULL ? o->n_tail : 0);
        pst_facts_add(&f, "the schedule", "%s %016llx", grid->sched->name,
                      (unsigned long long)digest_of(grid->sched));
    }
    pst_facts_add(&f, "what microbatches weigh", "%s",
                  o->weigh != NULL ? "given"
                  : o->weigh_equal ? "equal"
                                   : "by rows");
    pst_facts_add(&f, "the seed", "%llu", (unsigned long long)o->seed);
    pst_facts_add(&f, "the number of threads (--threads)", "%u", o->threads);
    pst_facts_add(&f, "the devices (--device)", "%s",
                  o->devices != NULL ? o->devices : o->device->name);
    pst_facts_add(&f, "the instruction set", "%s", pst_isa_name(pst_cpu_isa()));
    pst_facts_add(&f, "the kernels of OpenBLAS", "%s",
                  pst_device_cpu.tuned_for(&better));
    pst_facts_add(&f, "how products of bf16 run", "%s",
                  !o->bf16               ? "not at all"
                  : pst_rates_use_bf16() ? "in bf16"
                                         : "in f32 (penstock calibrate)");
    pst_facts_add(&f, "the operands of f32 matmuls (--tf32)", "%s",
                  o->tf32 ? "TF32" : "f32");
    pst_facts_add(&f, "how logits are computed (--no-chunked-loss)", "%s",
                  o->whole_logits ? "whole" : "by chunks");
    pst_facts_add(&f, "what replicas share (--shard)",
                  "%s by %s, window %u, gathered as %s",
                  o->shard_by != NULL ? o->shard_by
                                      : pst_sharing_word(o->shard),
                  o->shard_rows ? "rows" : "elements", o->unshard_window,
                  o->gather_bf16 ? "bf16" : "f32");
    pst_facts_add(&f, "what a step does", "train %d, outputs %d, scatter %d",
                  o->train, o->keep_outputs, o->scatter);
    pst_facts_add(&f, "the gradients of inputs that are kept", "%zu of %016llx",
                  engine->grid->plan->parts.n,
                  (unsigned long long)pst_hash(
                      engine->grid->plan->parts.at,
                      engine->grid->plan->parts.n *
                          sizeof(engine->grid->plan->parts.at[0]),
                      0));
    if (o->train && p->row != NULL)
        pst_facts_add(
            &f, "the optimizer",
            "%s, lr %.17g, decay %.17g, momentum %.17g/%.17g/%d, "
            "betas %.17g %.17g, eps %.17g, alpha %.17g/%d, rho "
            "%.17g, lr-decay %.17g, muon %.17g/%d, adafactor "
            "%.17g/%.17g/%.17g, states %s, ema %.17g, clip %.17g/%.17g, rate "
            "%d/%llu/%llu/%.17g",
            p->row->name, p->lr, p->weight_decay, p->momentum, p->dampening,
            p->nesterov, p->beta1, p->beta2, p->eps, p->alpha, p->centered,
            p->rho, p->lr_decay, p->ns_steps, p->match_rms_adamw,
            p->beta2_decay, p->eps2, p->clip_threshold,
            pst_optim_store_name(p->store), p->ema, p->clip_norm, p->clip_value,
            (int)p->lr_schedule, (unsigned long long)p->warmup_steps,
            (unsigned long long)p->total_steps, p->min_lr_ratio);
    else
        pst_facts_add(&f, "the optimizer", "none");
    pst_facts_add(&f, "the loss scale (--loss-scale)", "%d, %.17g/%.17g/%llu",
                  (int)o->loss_scale.kind, o->loss_scale.init,
                  o->loss_scale.least,
                  (unsigned long long)o->loss_scale.interval);
    pst_facts_add(&f, "the groups of parameters (--group)",
                  "%s, without decay: %s",
                  o->groups != NULL ? o->groups : "none",
                  o->no_decay != NULL ? o->no_decay : "none");
    status = pst_facts_compare(&f, engine->transport, diag);
    pst_facts_fini(&f);
    return status;
}

enum pst_status pst_engine_new(struct pst_plan *plan,
                               struct pst_transport *transport,
                               const struct pst_exec_options *options,
                               struct pst_engine **ret, struct pst_diag *diag)
{
    unsigned size = transport->ops->size(transport);
    struct pst_engine *engine;
    enum pst_status status = engine_alloc(plan, options, &engine, diag);

    if (status != PST_OK)
        return status;
    if (size != pst_grid_size(engine->grid)) {
        status = pst_diag_set(diag, PST_E_RUN_RANKS,
                              "%u ranks are needed, %u were started",
                              pst_grid_size(engine->grid), size);
        pst_engine_free(engine);
        return status;
    }
    engine->transport = transport;
    if (!transport->ops->one_process)
        engine->first = transport->ops->rank(transport);
    else
        /* all ranks are in rank 0's process: inputs need not be sent */
        for (unsigned i = 0; i < engine->grids.n; i++)
            engine->grids.at[i].options.scatter = false;
    status = compare_ranks(engine, diag);
    if (status == PST_OK)
        status = pst_scatter_init(engine, diag);
    if (status == PST_OK)
        status =
            pst_engine_agree(engine, pst_engine_plan_ranks(engine, diag), diag);
    pst_joint_free_cached(
        plan); /* frees joint graphs of stages on other ranks */
    if (status == PST_OK)
        status = pst_engine_agree(
            engine, pst_engine_check_headroom(engine, diag), diag);
    if (status == PST_OK)
        status = pst_engine_agree(engine, pst_engine_start_ranks(engine, diag),
                                  diag);
    if (status == PST_OK)
        status = pst_engine_connect(engine, diag);
    if (status != PST_OK) {
        pst_engine_free(engine);
        return status;
    }
    *ret = engine;
    return PST_OK;
}

/* --- steps -------------------------------------------------------------- */

/* Rounds without progress. */
struct idleness {
    unsigned rounds;
    double since; /* time of the first reading of the clock; 0: none yet */
    double last;  /* time of the last one, after `read` rounds */
    unsigned read;
    bool slow;  /* rounds are slow */
    double nap; /* seconds */
};

/* Ends a round without progress. */
static enum pst_status wait_a_while(struct pst_engine *engine,
                                    struct idleness *idle,
                                    struct pst_diag *diag)
{
    if (++idle->rounds % (idle->slow ? 1 : WATCH_EVERY) == 0 ||
        WATCH_FIRST(idle->rounds)) {
        const double now = pst_now();
        const enum pst_status status = pst_engine_watch(engine, diag);

        if (status != PST_OK)
            return status;
        if (idle->since == 0)
            idle->since = idle->last = now;
        idle->slow =
            now - idle->last > WATCH_SLOW * (idle->rounds - idle->read);
        idle->last = now;
        idle->read = idle->rounds;
        idle->nap = PST_MIN((now - idle->since) / NAP_SHARE, NAP_MAX);
    }
    if (idle->nap >= NAP_MIN) {
        /* Restored below: the thread may belong to a program that uses the
         * library. */
        const int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

        (void)prctl(PR_SET_TIMERSLACK, NAP_SLACK, 0, 0, 0);
        (void)usleep((useconds_t)(idle->nap * 1e6));
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)PST_MAX(slack, 0), 0, 0,
                    0);
    } else if (idle->rounds > 100) {
        sched_yield();
    }
    return PST_OK;
}

static enum pst_status drive_ranks(struct pst_engine *engine,
                                   struct pst_diag *diag)
{
    struct idleness idle = {0};

    engine->awake = (struct pst_awake){0};
    for (;;) {
        unsigned done = 0, moved = 0;

        for (unsigned i = 0; i < engine->n_local; i++) {
            struct pst_rank *r = engine->ranks[i];
            const uint64_t moves = pst_rank_moves(r);
            enum pst_status status;

            if (pst_rank_is_done(r)) {
                done++;
                continue;
            }
            status = pst_rank_advance(r);
            if (status != PST_OK && status != PST_AGAIN)
                return status;
            moved += status == PST_OK || pst_rank_moves(r) != moves;
        }
        if (done == engine->n_local)
            return PST_OK;
        if (moved > 0) {
            idle = (struct idleness){0};
            engine->awake = (struct pst_awake){0};
        } else {
            const enum pst_status status = wait_a_while(engine, &idle, diag);

            if (status != PST_OK)
                return status;
        }
    }
}

/* Returns the share of the step's time in which a rank does not work, as mean
 * over the ranks. Ranks that end early wait for the last one, so the whole step
 * counts. In the first step the ranks have reported no optimizer time: that of
 * this rank stands for all. */
static double bubble_of(const struct pst_decision *v,
                        const struct pst_times *mine)
{
    const double optim = v->fault ? 0 : v->optim > 0 ? v->optim : mine->optim;

    return mine->step > 0 ? PST_MAX(0, 1 - (v->work + optim) / mine->step) : 0;
}

/* True if `fill` itself measures how long it takes. A rank that receives its
 * inputs from rank 0 has no data (ctx is NULL). */
static bool measures_itself(const struct pst_source *source)
{
    return source->fill == pst_data_fill && source->ctx != NULL;
}

/* Returns the seconds in `fill` in this step. */
static double waited_for_data(const struct pst_source *source)
{
    return measures_itself(source)
               ? pst_data_seconds(source->ctx) - source->seconds
               : source->seconds;
}

/* Fills the result of a step, before its update is counted: lr is the learning
 * rate of that update, even if it is skipped. */
static void fill_result(const struct pst_engine *engine,
                        struct pst_step_result *ret)
{
    const struct pst_decision *v = pst_rank_decision(engine->ranks[0]);
    struct pst_times times = pst_rank_times(engine->ranks[0]);

    times.wait_data = waited_for_data(&engine->source);
    *ret = (struct pst_step_result){
        .loss = v->loss,
        .losses = v->losses,
        .grad_norm = v->norm,
        .lr = engine->grid->options.train
                  ? pst_lr_at(&engine->grid->options.optim, engine->updates)
                  : 0,
        .loss_scale = engine->step_scale,
        .applied = !v->fault,
        .overflow = v->overflow,
        .overflow_text = pst_rank_decision_text(engine->ranks[0]),
        .diverged = v->diverged,
        .spiked = v->spiked,
        .stayed_step = v->stayed.n > 0 ? v->stayed.step : 0,
        .stayed_text = pst_rank_decision_stayed(engine->ranks[0]),
        .no_targets = v->no_targets,
        .microbatch = v->microbatch,
        .backward = v->backward,
        .control = v->control,
        .times = times,
        .bubble = bubble_of(v, &times),
    };
}

/* A pst_fill_fn that measures how long another one takes; ctx is a struct
 * pst_source. Local ranks on threads take turns in it (lanes.h). */
static enum pst_status fill_timed(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    struct pst_source *source = ctx;
    const double begin = pst_now();
    const enum pst_status status =
        source->fill(source->ctx, step, microbatch, input, dst, diag);

    source->seconds += pst_now() - begin;
    return status;
}

static enum pst_status run_ranks(struct pst_engine *engine,
                                 struct pst_diag *diag)
{
    const enum pst_status status = engine->lanes != NULL
                                       ? pst_lanes_run(engine->lanes, diag)
                                       : drive_ranks(engine, diag);

    engine->transport->has_failed |= status != PST_OK;
    return status;
}

/* Runs the step up to the decision whether it is applied. */
static enum pst_status make_step(struct pst_engine *engine, uint64_t step,
                                 pst_fill_fn fill, void *fill_ctx,
                                 unsigned control,
                                 const struct pst_trace_order *trace,
                                 struct pst_diag *diag)
{
    enum pst_status status;

    pst_alive_step(step);
    pst_alive_progress();
    engine->changes++;
    engine->source = (struct pst_source){fill, fill_ctx, 0};
    if (measures_itself(&engine->source)) {
        engine->source.seconds = pst_data_seconds(fill_ctx);
    } else if (fill != NULL) {
        fill = fill_timed;
        fill_ctx = &engine->source;
    }
    status = pst_engine_weigh(engine, step, diag);
    if (status == PST_OK)
        status = pst_engine_scatter(engine, step, fill, fill_ctx, diag);
    engine->transport->has_failed |= status == PST_ERR_PEER;
    if (status != PST_OK)
        return status;
    if (engine->grid->options.scatter && !pst_engine_is_zero(engine)) {
        fill = pst_scattered_fill;
        fill_ctx = engine;
    }
    if (engine->lanes != NULL) {
        pst_lanes_source(engine->lanes, fill, fill_ctx);
        fill = pst_lanes_fill;
        fill_ctx = engine->lanes;
    }
    for (unsigned i = 0; i < engine->n_local; i++) {
        pst_rank_set_diag(engine->ranks[i], diag);
        pst_rank_begin(engine->ranks[i], step, fill, fill_ctx, control, trace);
        if (!engine->grid->options.scatter || pst_engine_is_zero(engine))
            pst_rank_lend(engine->ranks[i], engine->lend, engine->lend_ctx);
        if (engine->holds)
            pst_rank_hold(engine->ranks[i]);
    }
    if (engine->fault_text[0] != '\0')
        pst_rank_note_fault(engine->ranks[0], engine->fault_error,
                            engine->fault_text);
    engine->fault_text[0] = '\0';
    engine->lend = NULL;
    engine->new_grads = false;
    engine->step_scale = engine->scaler.scale;
    return run_ranks(engine, diag);
}

enum pst_status pst_engine_step(struct pst_engine *engine, uint64_t step,
                                pst_fill_fn fill, void *fill_ctx,
                                unsigned control, struct pst_step_result *ret,
                                struct pst_diag *diag)
{
    const struct pst_decision *decision;
    enum pst_status status;

    ret->control = 0;
    status = make_step(engine, step, fill, fill_ctx, control, NULL, diag);
    if (status != PST_OK)
        return status;
    fill_result(engine, ret);
    decision = pst_rank_decision(engine->ranks[0]);
    if (ret->overflow || (ret->applied && !engine->holds))
        pst_loss_scaler_update(&engine->grid->options.loss_scale, ret->overflow,
                               &engine->scaler);
    ret->overflows = engine->scaler.overflows;
    if (ret->overflow)
        return PST_OK;
    if (!ret->applied)
        return pst_diag_set(diag, (enum pst_error)decision->fault,
                            "step %llu was not applied: %s",
                            (unsigned long long)step + 1,
                            pst_rank_decision_text(engine->ranks[0]));
    if (engine->grid->options.train && !engine->holds)
        engine->updates++;
    return PST_OK;
}

void pst_engine_limit(struct pst_engine *engine, double loss, double norm)
{
    engine->limits[0] = loss;
    engine->limits[1] = norm;
}

enum pst_status pst_engine_backward(struct pst_engine *engine, uint64_t step,
                                    pst_fill_fn fill, void *fill_ctx,
                                    struct pst_step_result *ret,
                                    struct pst_diag *diag)
{
    enum pst_status status;

    engine->holds = true;
    status = pst_engine_step(engine, step, fill, fill_ctx, 0, ret, diag);
    engine->holds = false;
    return status;
}

enum pst_status pst_engine_update(struct pst_engine *engine, double *ret_norm,
                                  struct pst_diag *diag)
{
    const struct pst_decision *decision;
    enum pst_status status;

    pst_alive_progress();
    engine->changes++;
    for (unsigned i = 0; i < engine->n_local; i++) {
        pst_rank_set_diag(engine->ranks[i], diag);
        pst_rank_resume(engine->ranks[i], engine->new_grads);
    }
    engine->new_grads = false;
    status = run_ranks(engine, diag);
    if (status != PST_OK)
        return status;
    decision = pst_rank_decision(engine->ranks[0]);
    if (decision->fault)
        return pst_diag_set(diag, (enum pst_error)decision->fault,
                            "the update was not made: %s",
                            pst_rank_decision_text(engine->ranks[0]));
    *ret_norm = decision->norm;
    engine->updates++;
    pst_loss_scaler_update(&engine->grid->options.loss_scale, false,
                           &engine->scaler);
    return PST_OK;
}

void pst_engine_lend(struct pst_engine *engine, pst_lend_fn lend, void *ctx)
{
    engine->lend = lend;
    engine->lend_ctx = ctx;
}

void pst_engine_refuse(struct pst_engine *engine, const struct pst_diag *why)
{
    engine->fault_error = why->error;
    (void)snprintf(engine->fault_text, sizeof(engine->fault_text),
                   "rank %u: %.500s", engine->first, why->text);
}

enum pst_status pst_engine_check_update(struct pst_engine *engine,
                                        struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->n_local; i++) {
        const struct pst_stayed stayed = pst_rank_take_stayed(engine->ranks[i]);
        const struct pst_rank_role *role = pst_rank_role(engine->ranks[i]);
        char text[PST_FAULT_TEXT];

        if (status == PST_OK)
            status = pst_rank_device_check(pst_rank_device(engine->ranks[i]),
                                           pst_role_number(role),
                                           " in the update", diag);
        if (stayed.n == 0 || status != PST_OK)
            continue;
        pst_stayed_describe(&stayed, role, pst_role_number(role), text,
                            sizeof(text));
        status = pst_diag_set(diag, PST_E_RUN_NOT_FINITE, "%s", text);
    }
    return pst_engine_agree(engine, status, diag);
}

enum pst_status pst_engine_trace(struct pst_engine *engine, uint64_t step,
                                 pst_fill_fn fill, void *fill_ctx,
                                 const struct pst_step_result *of,
                                 struct pst_str *ret, int *ret_microbatch,
                                 struct pst_diag *diag)
{
    const struct pst_trace_order order = {of->microbatch, of->backward};
    const struct pst_decision *decision;
    enum pst_status status;

    /* Values derived from parameters are computed again, so that they are
     * checked, too. */
    for (unsigned i = 0; i < engine->n_local; i++)
        pst_rank_params_changed(engine->ranks[i]);
    status = make_step(engine, step, fill, fill_ctx, 0, &order, diag);
    if (status != PST_OK)
        return status;
    decision = pst_rank_decision(engine->ranks[0]);
    pst_str_add(ret, pst_rank_decision_text(engine->ranks[0]));
    *ret_microbatch =
        decision->microbatch >= 0 ? decision->microbatch : of->microbatch;
    return PST_OK;
}

struct pst_times pst_engine_reported(const struct pst_engine *engine,
                                     unsigned rank, unsigned *ret_microbatches)
{
    return pst_rank_reported(engine->ranks[0], rank, ret_microbatches);
}

/* --- queries ------------------------------------------------------------ */

const char *pst_engine_recompute(const struct pst_engine *engine)
{
    return engine->grid->options.recompute != NULL
               ? engine->grid->options.recompute
               : "none";
}

const char *pst_engine_stash_place(const struct pst_engine *engine)
{
    return engine->grid->options.stash != NULL ? engine->grid->options.stash
                                               : "none";
}

enum pst_sharing pst_engine_shard(const struct pst_engine *engine)
{
    return engine->grid->options.shard;
}

const struct pst_schedule *pst_engine_schedule(const struct pst_engine *engine)
{
    return engine->grid->sched;
}

unsigned pst_engine_n_local(const struct pst_engine *engine)
{
    return engine->n_local;
}

size_t pst_engine_high_water(const struct pst_engine *engine, unsigned local)
{
    return pst_rank_device(engine->ranks[local])->high_water;
}

enum pst_status pst_engine_list_hosted(const struct pst_engine *engine,
                                       unsigned local,
                                       struct pst_hosted_list *list,
                                       struct pst_diag *diag)
{
    const struct pst_layout *layout = pst_rank_layout(engine->ranks[local]);
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < engine->grid->sched->n_stages; s++)
        if (layout->stages[s].program != NULL && status == PST_OK)
            status = pst_hosted_add(list, layout->stages[s].program, diag);
    return status;
}

struct pst_recorded pst_engine_recorded(const struct pst_engine *engine,
                                        unsigned local)
{
    return pst_rank_recorded(engine->ranks[local]);
}

void pst_engine_print_kernels(const struct pst_engine *engine,
                              struct pst_str *out)
{
    static const char *const lists[] = {"P", "F", "B", "W"};

    for (unsigned k = 0; k < engine->n_local; k++) {
        const struct pst_layout *layout = pst_rank_layout(engine->ranks[k]);

        for (unsigned s = 0; s < engine->grid->sched->n_stages; s++) {
            const struct pst_program *p = layout->stages[s].program;

            for (int l = 0; p != NULL && l < PST_N_LISTS; l++)
                for (unsigned i = 0; i < p->lists[l].n; i++)
                    pst_str_addf(out, "stage %u %s %-40s %s\n", s, lists[l],
                                 p->lists[l].at[i].node->schema->name,
                                 p->lists[l].at[i].kernel->name);
        }
    }
}
