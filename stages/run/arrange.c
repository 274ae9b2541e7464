// SPDX-License-Identifier: Apache-2.0
/* Which rank does what: the schedule of a pipeline, lowered and proven, and
 * what part of the microbatches each replica of it has. */
#include <string.h>
#include <strings.h>

#include "stages/compile/recompute.h"
#include "stages/run/engine.h"
#include "stages/run/estimate.h"
#include "stages/run/rank/plan/owners.h"
#include "stages/run/rank/plan/programs.h"
#include "stages/sched/simulate.h"

/* Compute actions that a receive is posted ahead of its use. */
#define EARLY 1

/* --- a rank of the job ---------------------------------------------------- */

enum pst_status pst_engine_plan_rank(const struct pst_engine *engine,
                                     unsigned rank, struct pst_programs *lent,
                                     struct pst_rank **ret,
                                     struct pst_diag *diag)
{
    const unsigned replica = rank / engine->options.ranks;
    struct pst_rank_role role = {
        .plan = engine->plan,
        .uses = &engine->uses,
        .sharing = engine->sharing,
        .options = engine->options,
        .weights = engine->weights,
        .updates = &engine->updates,
        .since = engine->since,
        .scattered_size = pst_scatter_size(engine, rank),
        .replica = replica,
        .rank = rank % engine->options.ranks,
        .sched = pst_engine_schedule_of(engine, replica),
    };

    (void)pst_engine_share(engine, replica, &role.first_mb);
    return pst_rank_new(&role, lent, ret, diag);
}

/* --- what lowering must know of the plan ---------------------------------- */

static bool add_link(struct pst_engine *engine, const struct pst_edge *e)
{
    struct pst_link link = {(int)e->from_stage, (int)e->to_stage,
                            engine->options.train && e->grad_parts > 0};

    for (size_t i = 0; i < engine->links.n; i++) {
        if (engine->links.at[i].from == link.from &&
            engine->links.at[i].to == link.to) {
            engine->links.at[i].grad |= link.grad;
            return true;
        }
    }
    return pst_vec_push(PST_TAG_EXEC, &engine->links, link);
}

static enum pst_status find_shape(struct pst_engine *engine,
                                  struct pst_diag *diag)
{
    const struct pst_plan *plan = engine->plan;
    const bool train = engine->options.train;
    bool ok = true;

    for (size_t i = 0; i < plan->edges.n && ok; i++)
        ok = add_link(engine, &plan->edges.at[i]);
    for (size_t i = 0; i < plan->params.n && ok && train; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        struct pst_shared shared = {(int)i, p->stages, p->n_stages};

        unsigned parts = pst_uses_total(&engine->uses, (unsigned)i);

        if (parts == 0 || (parts == 1 && p->n_stages == 1))
            continue;
        if (p->n_stages > PST_MAX_SHARED_STAGES)
            return pst_diag_set(diag, PST_E_SCHEDULE_LIMITS,
                                "parameter '%s' is used by %u stages, at most "
                                "%d may share one",
                                p->fqn, p->n_stages, PST_MAX_SHARED_STAGES);
        ok = pst_vec_push(PST_TAG_EXEC, &engine->shared, shared);
    }
    return ok ? PST_OK : pst_diag_nomem(diag, plan->edges.n);
}

static bool adds_gradients(const struct pst_action *a)
{
    return a->kind == PST_ACT_B || a->kind == PST_ACT_W;
}

static bool is_message(const struct pst_action *a)
{
    return a->kind >= PST_ACT_SEND_F && a->kind <= PST_ACT_COPY_B;
}

static bool is_stage_sum(const struct pst_action *a)
{
    return a->kind == PST_ACT_REDUCE && a->param < 0;
}

/*
 * Behind the last backward of each stage, and the messages that follow it: its
 * gradients start to be summed over the replicas. This waits for nobody and
 * nothing but the end of the list waits for it, so the proof still holds.
 */
static enum pst_status add_stage_sums(struct pst_schedule *sched, unsigned rank,
                                      struct pst_diag *diag)
{
    unsigned *left = pst_calloc(PST_TAG_EXEC, sched->n_stages, sizeof(*left));
    struct PST_VEC(struct pst_action) out = {0};
    const size_t n = sched->ranks[rank].n;
    bool ok = left != NULL;
    int due = -1;

    for (unsigned s = 0; ok && s < sched->n_stages; s++)
        left[s] = sched->n_microbatches;
    for (size_t i = 0; ok && i <= n; i++) {
        const struct pst_action *a = &sched->ranks[rank].at[i];
        struct pst_action sum = {.kind = PST_ACT_REDUCE,
                                 .stage = (int16_t)due,
                                 .microbatch = -1,
                                 .peer_stage = -1,
                                 .peer = -1,
                                 .param = -1};

        if (due >= 0 && (i == n || !is_message(a))) {
            ok = pst_vec_push(PST_TAG_EXEC, &out, sum);
            due = -1;
        }
        if (i == n || is_stage_sum(a))
            continue; /* a CSV may have them elsewhere */
        ok = ok && pst_vec_push(PST_TAG_EXEC, &out, *a);
        if (adds_gradients(a) && --left[a->stage] == 0)
            due = a->stage;
    }
    pst_free(left);
    if (!ok) {
        pst_vec_fini(&out);
        return pst_diag_nomem(diag, n * sizeof(struct pst_action));
    }
    pst_vec_fini(&sched->ranks[rank]);
    sched->ranks[rank].at = out.at;
    sched->ranks[rank].n = out.n;
    sched->ranks[rank].cap = out.cap;
    return PST_OK;
}

/* A list with messages stays as it is, even where a buffer cannot travel so. */
static enum pst_status explain_carried(const struct pst_engine *engine,
                                       enum pst_status status,
                                       struct pst_diag *diag)
{
    for (size_t i = 0; i < engine->plan->edges.n; i++) {
        const struct pst_edge *e = &engine->plan->edges.at[i];

        if (e->carries == NULL || status != PST_ERR_INPUT)
            continue;
        pst_diag_prefix(diag,
                        "buffer \"%s\" goes from microbatch to microbatch, "
                        "stage %u begins with what stage %u has left",
                        e->carries, e->to_stage, e->from_stage);
        return status;
    }
    return status;
}

/* Values that are gathered where they are used: of which stages, and how soon.
 * A window of groups reaches over as many stages ahead, at most. */
static enum pst_status add_unshards(const struct pst_engine *engine,
                                    struct pst_schedule *sched,
                                    struct pst_diag *diag)
{
    const struct pst_rank_role role = {.plan = engine->plan,
                                       .uses = &engine->uses,
                                       .sharing = engine->sharing,
                                       .options = engine->options};
    const struct pst_plan *plan = engine->plan;
    bool *stages = pst_calloc(PST_TAG_EXEC, sched->n_stages, sizeof(*stages));
    enum pst_status status = PST_OK;
    bool any = false;

    if (stages == NULL)
        return pst_diag_nomem(diag, sched->n_stages * sizeof(*stages));
    for (unsigned i = 0; i < plan->params.n; i++)
        for (unsigned k = 0; k < plan->params.at[i].n_stages; k++)
            if (pst_role_gathers(&role, i))
                any = stages[plan->params.at[i].stages[k]] = true;
    if (any)
        status = pst_schedule_unshard(sched, engine->options.unshard_window + 1,
                                      stages, diag);
    pst_free(stages);
    return status;
}

/* Messages, proof and sums. */
static enum pst_status complete(const struct pst_engine *engine,
                                struct pst_schedule *sched,
                                struct pst_diag *diag)
{
    enum pst_status status =
        pst_schedule_carry(sched, engine->links.at, engine->links.n, diag);

    if (status == PST_OK)
        status = pst_schedule_lower(sched, engine->links.at, engine->links.n,
                                    engine->shared.at, engine->shared.n, EARLY,
                                    diag);
    status = explain_carried(engine, status, diag);
    if (status == PST_OK)
        status = add_unshards(engine, sched, diag);
    if (status == PST_OK)
        status = pst_schedule_check(sched, engine->links.at, engine->links.n,
                                    engine->shared.at, engine->shared.n, diag);
    for (unsigned k = 0; status == PST_OK && engine->options.replicas > 1 &&
                         sched->train && k < sched->n_ranks;
         k++)
        status = add_stage_sums(sched, k, diag);
    return status;
}

/* Time and memory of a schedule of "auto", as it will be run. */
struct appraiser {
    struct pst_engine *engine;
    struct pst_schedule **place; /* in the engine, of the one at hand */
    unsigned first;              /* rank of the job that is its rank 0 */
    struct pst_str asked;        /* where stages have to be; "": anywhere */
    struct pst_costs model;
    struct pst_programs programs;
};

static enum pst_status appraise_memory(struct appraiser *a,
                                       struct pst_candidate *ret,
                                       struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    ret->peak = -1;
    for (unsigned k = 0; k < (*a->place)->n_ranks && status == PST_OK; k++) {
        const struct pst_memory *memory;
        struct pst_rank *rank;
        double bytes;

        status = pst_engine_plan_rank(a->engine, a->first + k, &a->programs,
                                      &rank, diag);
        if (status != PST_OK)
            break;
        memory = pst_rank_memory(rank);
        bytes = (double)pst_memory_of_host(memory, &a->engine->options);
        if (bytes > ret->peak) {
            ret->peak = bytes;
            ret->fixed =
                (double)(memory->params + memory->grads + memory->optim +
                         memory->buffers + memory->gathered + memory->prepared +
                         memory->workspace);
            ret->rank = k;
        }
        pst_rank_free(rank);
    }
    return status;
}

static enum pst_status appraise(void *ctx, const struct pst_schedule *sched,
                                struct pst_candidate *ret,
                                struct pst_diag *diag)
{
    struct appraiser *a = ctx;
    struct pst_sim sim;
    enum pst_status status = pst_schedule_copy(sched, a->place, diag);

    if (status != PST_OK)
        return status;
    status = complete(a->engine, *a->place, diag);
    if (status == PST_OK)
        status = pst_schedule_simulate(*a->place, &a->model, &sim, diag);
    if (status == PST_OK) {
        ret->step = sim.step;
        ret->bubble = sim.bubble;
        pst_sim_fini(&sim);
        status = appraise_memory(a, ret, diag);
        pst_programs_tidy(&a->programs);
    }
    pst_schedule_free(*a->place);
    *a->place = NULL;
    return status;
}

/* The lists of a pipeline that has that many microbatches. chooses: by whom
 * "auto" lets appraise; else NULL. */
static enum pst_status make_schedule(const struct pst_engine *engine,
                                     unsigned microbatches,
                                     struct appraiser *chooses,
                                     struct pst_schedule **ret,
                                     struct pst_diag *diag)
{
    const struct pst_plan *plan = engine->plan;
    struct pst_schedule *sched = NULL;
    double *costs = pst_calloc(PST_TAG_EXEC, plan->stages.n, sizeof(*costs));
    struct pst_schedule_options options = {
        .name = engine->options.schedule,
        .ranks = engine->options.ranks,
        .stages = (unsigned)plan->stages.n,
        .microbatches = microbatches,
        .replicas = engine->options.replicas,
        .train = engine->options.train,
        .costs = costs,
        .memory_limit = engine->options.memory_limit,
        .place = engine->options.place,
    };
    enum pst_status status;

    if (costs == NULL)
        return pst_diag_nomem(diag, plan->stages.n * sizeof(*costs));
    status = pst_plan_seconds(plan, &engine->options, costs, diag);
    if (status != PST_OK) {
        pst_free(costs);
        return status;
    }
    if (chooses != NULL) {
        options.model = &chooses->model;
        options.appraise = appraise;
        options.appraise_ctx = chooses;
        if (chooses->asked.len > 0)
            options.place = pst_str_text(&chooses->asked);
    }
    status = pst_schedule_make(&options, &sched, diag);
    if (status == PST_OK)
        status = pst_schedule_order(sched, diag);
    if (status == PST_OK)
        status = complete(engine, sched, diag);
    pst_free(costs);
    if (status == PST_OK) {
        *ret = sched;
        return PST_OK;
    }
    if (sched != NULL && sched->lines)
        pst_diag_prefix(diag, "%s", options.name + strlen("csv:"));
    pst_schedule_free(sched);
    return status;
}

/* --- replicas ------------------------------------------------------------- */

unsigned pst_engine_share(const struct pst_engine *engine, unsigned replica,
                          unsigned *ret_first)
{
    const unsigned n = engine->options.microbatches;
    const unsigned r = engine->options.replicas;
    const unsigned more = n % r; /* the first replicas have one more */

    *ret_first = replica * (n / r) + PST_MIN(replica, more);
    return n / r + (replica < more);
}

const struct pst_schedule *pst_engine_schedule_of(
    const struct pst_engine *engine, unsigned replica)
{
    unsigned first;

    return engine->short_sched != NULL &&
                   pst_engine_share(engine, replica, &first) ==
                       engine->short_sched->n_microbatches
               ? engine->short_sched
               : engine->sched;
}

/* --- memory --------------------------------------------------------------- */

enum pst_status pst_engine_check_memory(const struct pst_engine *engine,
                                        unsigned rank, size_t bytes,
                                        struct pst_diag *diag)
{
    const double limit = engine->options.memory_limit, mib = 1048576.0;
    const struct pst_exec_options *o = &engine->options;

    if (limit <= 0 || (double)bytes <= limit)
        return PST_OK;
    return pst_diag_set(
        diag, PST_E_SCHEDULE_MEMORY,
        "with schedule %s%s%s%s%s%s%s rank %u needs %.2f MiB, %.2f MiB more "
        "than the memory limit: take schedule auto, more stages and ranks, "
        "%s%sor a model exported with smaller microbatches, or raise the limit",
        engine->sched->name, o->recompute != NULL ? ", recompute " : "",
        o->recompute != NULL ? o->recompute : "",
        o->shard_by != NULL ? ", shard " : "",
        o->shard_by != NULL ? o->shard_by : "",
        o->stash != NULL ? ", stash " : "", o->stash != NULL ? o->stash : "",
        rank, (double)bytes / mib, ((double)bytes - limit) / mib,
        o->replicas > 1 && o->shard_by == NULL ? "--shard auto, " : "",
        o->stash == NULL ? "--stash disk:FOLDER, " : "");
}

/* --- all ------------------------------------------------------------------ */

/* The schedules of replicas with `most` and with `least` microbatches. */
static enum pst_status make_schedules(struct pst_engine *engine, unsigned most,
                                      unsigned least, struct appraiser *chooses,
                                      struct pst_diag *diag)
{
    enum pst_status status =
        make_schedule(engine, most, chooses, &engine->sched, diag);

    if (status != PST_OK || most == least)
        return status;
    if (chooses != NULL) {
        chooses->place = &engine->short_sched;
        chooses->first = pst_engine_size(engine) - engine->options.ranks;
        for (unsigned s = 0; s < engine->sched->n_stages; s++)
            pst_str_addf(&chooses->asked, "%s%u=%d", s > 0 ? "," : "", s,
                         engine->sched->rank_of[s]);
        if (chooses->asked.failed)
            return pst_diag_nomem(diag, chooses->asked.len);
    }
    return make_schedule(engine, least, chooses, &engine->short_sched, diag);
}

/* "auto": estimates of time and the memory plan choose. */
static enum pst_status choose_schedules(struct pst_engine *engine,
                                        unsigned most, unsigned least,
                                        struct pst_diag *diag)
{
    struct appraiser a = {.engine = engine, .place = &engine->sched};
    enum pst_status status =
        pst_plan_costs(engine->plan, &engine->options, &a.model, diag);

    if (status != PST_OK)
        return status;
    status = pst_programs_init(&a.programs, a.model.n_stages, diag);
    if (status == PST_OK)
        status = make_schedules(engine, most, least, &a, diag);
    pst_str_fini(&a.asked);
    pst_programs_fini(&a.programs);
    pst_costs_fini(&a.model);
    return status;
}

enum pst_status pst_engine_arrange(struct pst_engine *engine,
                                   struct pst_diag *diag)
{
    unsigned first, most = pst_engine_share(engine, 0, &first);
    unsigned least =
        pst_engine_share(engine, engine->options.replicas - 1, &first);
    const bool chooses = engine->options.train &&
                         strcasecmp(engine->options.schedule, "auto") == 0;
    enum pst_status status = find_shape(engine, diag);

    if (status == PST_OK)
        status =
            pst_recompute_check(engine->plan, engine->options.recompute, diag);
    if (status == PST_OK)
        status = chooses ? choose_schedules(engine, most, least, diag)
                         : make_schedules(engine, most, least, NULL, diag);
    if (status != PST_OK || most == least)
        return status;
    for (unsigned s = 0; s < engine->sched->n_stages && status == PST_OK; s++)
        if (engine->sched->rank_of[s] != engine->short_sched->rank_of[s])
            status = pst_diag_set(
                diag, PST_E_SCHEDULE_REPLICAS,
                "stage %u is not on the same rank in replicas with %u and with "
                "%u microbatches: give a number of microbatches that %u "
                "divides",
                s, most, least, engine->options.replicas);
    return status;
}
