// SPDX-License-Identifier: Apache-2.0
#include "stages/tune/grid.h"

#include <string.h>
#include <strings.h>

#include "stages/compile/recompute.h"
#include "stages/layout/params/owners.h"
#include "stages/layout/programs.h"
#include "stages/sched/simulate.h"
#include "stages/tune/estimate.h"
#include "stages/tune/sharing.h"

/* Receives are posted this many compute actions before the action that needs
 * their data. */
#define EARLY 1

/* --- a rank of the job ---------------------------------------------------- */

struct pst_rank_role pst_grid_role(const struct pst_grid *grid, unsigned rank)
{
    const unsigned replica = rank / grid->options.ranks;
    struct pst_rank_role ret = {
        .plan = grid->plan,
        .uses = &grid->uses,
        .sharing = grid->sharing,
        .splits = grid->splits,
        .groups = grid->groups.group_of != NULL ? &grid->groups : NULL,
        .options = grid->options,
        .replica = replica,
        .rank = rank % grid->options.ranks,
        .sched = pst_grid_schedule_of(grid, replica),
    };

    (void)pst_grid_share(grid, replica, &ret.first_mb);
    return ret;
}

unsigned pst_grid_size(const struct pst_grid *grid)
{
    return grid->options.ranks * grid->options.replicas;
}

/* --- input of lowering ---------------------------------------------------- */

static bool add_link(struct pst_grid *grid, const struct pst_edge *e)
{
    struct pst_link link = {(int)e->from_stage, (int)e->to_stage,
                            grid->options.train && e->grad_parts > 0};

    for (size_t i = 0; i < grid->links.n; i++) {
        if (grid->links.at[i].from == link.from &&
            grid->links.at[i].to == link.to) {
            grid->links.at[i].grad |= link.grad;
            return true;
        }
    }
    return pst_vec_push(PST_TAG_EXEC, &grid->links, link);
}

static enum pst_status find_shape(struct pst_grid *grid, struct pst_diag *diag)
{
    const struct pst_plan *plan = grid->plan;
    const bool train = grid->options.train;
    bool ok = true;

    for (size_t i = 0; i < plan->edges.n && ok; i++)
        ok = add_link(grid, &plan->edges.at[i]);
    for (size_t i = 0; i < plan->params.n && ok && train; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        struct pst_shared shared = {(int)i, p->stages, p->n_stages};

        unsigned parts = pst_uses_total(&grid->uses, (unsigned)i);

        if (parts == 0 || (parts == 1 && p->n_stages == 1))
            continue;
        if (p->n_stages > PST_MAX_SHARED_STAGES)
            return pst_diag_set(diag, PST_E_SCHEDULE_LIMITS,
                                "parameter '%s' is used by %u stages, at most "
                                "%d may share one",
                                p->fqn, p->n_stages, PST_MAX_SHARED_STAGES);
        ok = pst_vec_push(PST_TAG_EXEC, &grid->shared, shared);
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
 * Inserts a REDUCE for each stage after its last backward and the messages that
 * follow: it starts the reduction of the stage's gradients over replicas. The
 * action waits for nothing, and only the end of the step waits for the
 * reduction, so the proof (pst_schedule_check) still holds.
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
            continue; /* a CSV's own REDUCE is replaced by the one inserted */
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

/* If a schedule cannot pass a buffer from microbatch to microbatch, adds an
 * explanation to its error: a schedule that has messages is not reordered. */
static enum pst_status explain_carried(const struct pst_grid *grid,
                                       enum pst_status status,
                                       struct pst_diag *diag)
{
    for (size_t i = 0; i < grid->plan->edges.n; i++) {
        const struct pst_edge *e = &grid->plan->edges.at[i];

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

/* Adds UNSHARD and RESHARD actions for stages with parameters that are gathered
 * where they are used. With an unshard_window of k groups, values are gathered
 * at most k stages ahead. */
static enum pst_status add_unshards(const struct pst_grid *grid,
                                    struct pst_schedule *sched,
                                    struct pst_diag *diag)
{
    const struct pst_rank_role role = {.plan = grid->plan,
                                       .uses = &grid->uses,
                                       .sharing = grid->sharing,
                                       .options = grid->options};
    const struct pst_plan *plan = grid->plan;
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
        status = pst_schedule_unshard(sched, grid->options.unshard_window + 1,
                                      stages, diag);
    pst_free(stages);
    return status;
}

/* Adds messages and reductions to the compute actions of a schedule, and proves
 * it. */
static enum pst_status complete_schedule(const struct pst_grid *grid,
                                         struct pst_schedule *sched,
                                         struct pst_diag *diag)
{
    enum pst_status status =
        pst_schedule_carry(sched, grid->links.at, grid->links.n, diag);

    if (status == PST_OK)
        status =
            pst_schedule_lower(sched, grid->links.at, grid->links.n,
                               grid->shared.at, grid->shared.n, EARLY, diag);
    status = explain_carried(grid, status, diag);
    if (status == PST_OK)
        status = add_unshards(grid, sched, diag);
    if (status == PST_OK)
        status = pst_schedule_check(sched, grid->links.at, grid->links.n,
                                    grid->shared.at, grid->shared.n, diag);
    for (unsigned k = 0; status == PST_OK && grid->options.replicas > 1 &&
                         sched->train && k < sched->n_ranks;
         k++)
        status = add_stage_sums(sched, k, diag);
    return status;
}

/* Measures candidates of schedule "auto": the time by simulation, the memory by
 * a plan. */
struct evaluator {
    struct pst_grid *grid;
    /* Member of the grid that the candidate is put into for its memory plan. */
    struct pst_schedule **place;
    /* rank 0 of a replica with that schedule, as numbered in the job */
    unsigned first;
    struct pst_str asked; /* required placement of stages; "": any */
    struct pst_costs model;
    struct pst_programs programs;
};

static enum pst_status measure_memory(struct evaluator *a,
                                      struct pst_candidate *ret,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    ret->peak = -1;
    for (unsigned k = 0; k < (*a->place)->n_ranks && status == PST_OK; k++) {
        const struct pst_rank_role role = pst_grid_role(a->grid, a->first + k);
        struct pst_rank_plan plan;
        const struct pst_memory *memory = &plan.layout.memory;
        double bytes = -1;

        status = pst_rank_plan_init(&plan, &role, &a->programs, diag);
        if (status == PST_OK)
            bytes = (double)pst_memory_of_host(memory, &a->grid->options);
        if (bytes > ret->peak) {
            ret->peak = bytes;
            ret->fixed =
                (double)(memory->params + memory->grads + memory->optim +
                         memory->buffers + memory->gathered + memory->prepared +
                         memory->workspace);
            ret->rank = k;
        }
        pst_rank_plan_fini(&plan);
    }
    return status;
}

static enum pst_status evaluate_schedule(void *ctx,
                                         const struct pst_schedule *sched,
                                         struct pst_candidate *ret,
                                         struct pst_diag *diag)
{
    struct evaluator *a = ctx;
    struct pst_sim sim;
    enum pst_status status = pst_schedule_copy(sched, a->place, diag);

    if (status != PST_OK)
        return status;
    status = complete_schedule(a->grid, *a->place, diag);
    if (status == PST_OK)
        status = pst_schedule_simulate(*a->place, &a->model, &sim, diag);
    if (status == PST_OK) {
        ret->step = sim.step;
        ret->bubble = sim.bubble;
        pst_sim_fini(&sim);
        status = measure_memory(a, ret, diag);
        pst_programs_drop_failed(&a->programs);
    }
    pst_schedule_free(*a->place);
    *a->place = NULL;
    return status;
}

/* Creates the schedule of a pipeline with that many microbatches. chooses: the
 * evaluator for "auto"; else NULL. */
static enum pst_status make_schedule(const struct pst_grid *grid,
                                     unsigned microbatches,
                                     struct evaluator *chooses,
                                     struct pst_schedule **ret,
                                     struct pst_diag *diag)
{
    const struct pst_plan *plan = grid->plan;
    struct pst_schedule *sched = NULL;
    double *costs = pst_calloc(PST_TAG_EXEC, plan->stages.n, sizeof(*costs));
    struct pst_schedule_options options = {
        .name = grid->options.schedule,
        .ranks = grid->options.ranks,
        .stages = (unsigned)plan->stages.n,
        .microbatches = microbatches,
        .replicas = grid->options.replicas,
        .train = grid->options.train,
        .costs = costs,
        .memory_limit = grid->options.memory_limit,
        .place = grid->options.place,
    };
    enum pst_status status;

    if (costs == NULL)
        return pst_diag_nomem(diag, plan->stages.n * sizeof(*costs));
    status = pst_plan_seconds(plan, &grid->options, costs, diag);
    if (status != PST_OK) {
        pst_free(costs);
        return status;
    }
    if (chooses != NULL) {
        options.model = &chooses->model;
        options.evaluate = evaluate_schedule;
        options.evaluate_ctx = chooses;
        if (chooses->asked.len > 0)
            options.place = pst_str_text(&chooses->asked);
    }
    status = pst_schedule_make(&options, &sched, diag);
    if (status == PST_OK)
        status = pst_schedule_order(sched, diag);
    if (status == PST_OK)
        status = complete_schedule(grid, sched, diag);
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

unsigned pst_grid_share(const struct pst_grid *grid, unsigned replica,
                        unsigned *ret_first)
{
    const unsigned n = grid->options.microbatches;
    const unsigned r = grid->options.replicas;
    const unsigned more = n % r; /* the first replicas have one more */

    *ret_first = replica * (n / r) + PST_MIN(replica, more);
    return n / r + (replica < more);
}

const struct pst_schedule *pst_grid_schedule_of(const struct pst_grid *grid,
                                                unsigned replica)
{
    unsigned first;

    return grid->short_sched != NULL && pst_grid_share(grid, replica, &first) ==
                                            grid->short_sched->n_microbatches
               ? grid->short_sched
               : grid->sched;
}

/* --- memory --------------------------------------------------------------- */

enum pst_status pst_grid_check_memory(const struct pst_grid *grid,
                                      unsigned rank, size_t bytes,
                                      struct pst_diag *diag)
{
    const double limit = grid->options.memory_limit, mib = 1048576.0;
    const struct pst_exec_options *o = &grid->options;

    if (limit <= 0 || (double)bytes <= limit)
        return PST_OK;
    return pst_diag_set(
        diag, PST_E_SCHEDULE_MEMORY,
        "with schedule %s%s%s%s%s%s%s rank %u needs %.2f MiB, %.2f MiB more "
        "than the memory limit: take schedule auto, more stages and ranks, "
        "%s%sor a model exported with smaller microbatches, or raise the limit",
        grid->sched->name, o->recompute != NULL ? ", recompute " : "",
        o->recompute != NULL ? o->recompute : "",
        o->shard_by != NULL ? ", shard " : "",
        o->shard_by != NULL ? o->shard_by : "",
        o->stash != NULL ? ", stash " : "", o->stash != NULL ? o->stash : "",
        rank, (double)bytes / mib, ((double)bytes - limit) / mib,
        o->replicas > 1 && o->shard_by == NULL ? "--shard auto, " : "",
        o->stash == NULL ? "--stash disk:FOLDER, " : "");
}

/* --- all ------------------------------------------------------------------ */

/* Creates the schedules of replicas with `most` and with `least` microbatches.
 */
static enum pst_status make_schedules(struct pst_grid *grid, unsigned most,
                                      unsigned least, struct evaluator *chooses,
                                      struct pst_diag *diag)
{
    enum pst_status status =
        make_schedule(grid, most, chooses, &grid->sched, diag);

    if (status != PST_OK || most == least)
        return status;
    if (chooses != NULL) {
        chooses->place = &grid->short_sched;
        chooses->first = pst_grid_size(grid) - grid->options.ranks;
        for (unsigned s = 0; s < grid->sched->n_stages; s++)
            pst_str_addf(&chooses->asked, "%s%u=%d", s > 0 ? "," : "", s,
                         grid->sched->rank_of[s]);
        if (chooses->asked.failed)
            return pst_diag_nomem(diag, chooses->asked.len);
    }
    return make_schedule(grid, least, chooses, &grid->short_sched, diag);
}

/* Creates the schedules for "auto", chosen by simulated times and the memory
 * plan. */
static enum pst_status choose_schedules(struct pst_grid *grid, unsigned most,
                                        unsigned least, struct pst_diag *diag)
{
    struct evaluator a = {.grid = grid, .place = &grid->sched};
    enum pst_status status =
        pst_plan_costs(grid->plan, &grid->options, &a.model, diag);

    if (status != PST_OK)
        return status;
    status = pst_programs_init(&a.programs, a.model.n_stages, diag);
    if (status == PST_OK)
        status = make_schedules(grid, most, least, &a, diag);
    pst_str_fini(&a.asked);
    pst_programs_fini(&a.programs);
    pst_costs_fini(&a.model);
    return status;
}

static enum pst_status plan_schedules(struct pst_grid *grid,
                                      struct pst_diag *diag)
{
    unsigned first, most = pst_grid_share(grid, 0, &first);
    unsigned least = pst_grid_share(grid, grid->options.replicas - 1, &first);
    const bool chooses =
        grid->options.train && strcasecmp(grid->options.schedule, "auto") == 0;
    enum pst_status status = find_shape(grid, diag);

    if (status == PST_OK)
        status = pst_recompute_check(grid->plan, grid->options.recompute, diag);
    if (status == PST_OK)
        status = chooses ? choose_schedules(grid, most, least, diag)
                         : make_schedules(grid, most, least, NULL, diag);
    if (status != PST_OK || most == least)
        return status;
    for (unsigned s = 0; s < grid->sched->n_stages && status == PST_OK; s++)
        if (grid->sched->rank_of[s] != grid->short_sched->rank_of[s])
            status = pst_diag_set(
                diag, PST_E_SCHEDULE_REPLICAS,
                "stage %u is not on the same rank in replicas with %u and with "
                "%u microbatches: give a number of microbatches that %u "
                "divides",
                s, most, least, grid->options.replicas);
    return status;
}

/* --- options -------------------------------------------------------------- */

#define DISK "disk:"

static enum pst_status check_stash(const char *words, struct pst_diag *diag)
{
    if (words == NULL || strcmp(words, "ram") == 0 ||
        (strncmp(words, DISK, strlen(DISK)) == 0 &&
         words[strlen(DISK)] != '\0'))
        return PST_OK;
    return pst_diag_set(diag, PST_E_STASH_WORDS,
                        "--stash is none, ram or disk:FOLDER, not \"%s\"",
                        words);
}

static enum pst_status check_options(const struct pst_plan *plan,
                                     const struct pst_exec_options *o,
                                     struct pst_diag *diag)
{
    if (o->replicas > 4096 || o->replicas > o->microbatches)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "%u replicas need at least as many microbatches, "
                            "there are %u",
                            o->replicas, o->microbatches);
    if (o->microbatches < 1 || o->microbatches > 100000 || o->ranks < 1 ||
        o->ranks > 100000)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "%u microbatches on %u ranks make no step",
                            o->microbatches, o->ranks);
    if (check_stash(o->stash, diag) != PST_OK)
        return PST_ERR_USAGE;
    if (o->train && plan->loss < 0)
        return pst_diag_set(diag, PST_E_LOSS_MISSING,
                            "the plan has no loss to train on: split the "
                            ".pt2 with --loss-fn (cross_entropy, mse ...), or "
                            "with --loss if an output is one");
    if (!o->train || o->optim.row == NULL)
        return PST_OK;
    return pst_optim_check(&o->optim, diag);
}

/* Checks that replicas have equal numbers of microbatches if they reduce
 * gradients in each one. */
static enum pst_status check_share(const struct pst_exec_options *o,
                                   struct pst_diag *diag)
{
    const unsigned r = o->replicas, less = o->microbatches / r * r;

    if (o->microbatches % r == 0)
        return PST_OK;
    return pst_diag_set(diag, PST_E_SHARD_UNEQUAL,
                        "--shard %s needs as many microbatches on each of %u "
                        "replicas: give %u or %u microbatches, not %u",
                        pst_sharing_word(o->shard), r, PST_MAX(less, r),
                        PST_MAX(less, r) + r, o->microbatches);
}

/* Sets the parameters' sharing modes, and options.shard to the highest one. */
static enum pst_status read_sharing(struct pst_grid *grid,
                                    struct pst_diag *diag)
{
    struct pst_exec_options *o = &grid->options;
    enum pst_status status = PST_OK;

    if (o->shard_by != NULL) {
        grid->sharing = pst_calloc(PST_TAG_EXEC, grid->plan->params.n + 1, 1);
        if (grid->sharing == NULL)
            return pst_diag_nomem(diag, grid->plan->params.n);
        status = pst_sharing_read(o->shard_by, &grid->uses, grid->sharing,
                                  &o->shard, diag);
    }
    if (o->replicas < 2 || (!o->train && o->shard < PST_SHARING_ZERO3)) {
        pst_free(grid->sharing);
        grid->sharing = NULL;
        o->shard = PST_SHARING_NONE;
    }
    if (status == PST_OK && o->shard >= PST_SHARING_ZERO2)
        status = check_share(o, diag);
    if (status == PST_OK && o->train && o->gather_bf16 &&
        o->shard < PST_SHARING_ZERO3)
        return pst_diag_set(diag, PST_E_SHARD_UNEQUAL,
                            "--gather-dtype bf16 is for values that are "
                            "gathered where they are used: it goes with "
                            "--shard zero3 and several replicas (-n RxP)");
    return status;
}

enum pst_status pst_grid_init(struct pst_grid *grid, struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_diag *diag)
{
    enum pst_status status = check_options(plan, options, diag);

    *grid = (struct pst_grid){
        .plan = plan, .options = *options, .uses = {plan, options->train}};
    pst_exec_fill(&grid->options);
    if (status == PST_OK)
        status = pst_grid_keep_texts(grid, diag);
    if (status == PST_OK)
        status = read_sharing(grid, diag);
    if (status == PST_OK && options->train && options->optim.row != NULL)
        status = pst_groups_make(&grid->groups, plan, options, diag);
    return status == PST_OK ? plan_schedules(grid, diag) : status;
}

void pst_grid_fini(struct pst_grid *grid)
{
    pst_schedule_free(grid->sched);
    pst_schedule_free(grid->short_sched);
    pst_vec_fini(&grid->links);
    pst_vec_fini(&grid->shared);
    pst_free(grid->sharing);
    pst_groups_fini(&grid->groups);
    pst_arena_fini(&grid->texts);
}

/* --- measuring ------------------------------------------------------------ */

/* Adds the copies of a rank's stash to the schedule, for its simulation. */
static enum pst_status record_copies(struct pst_grid *grid, unsigned k,
                                     const struct pst_rank_plan *rank,
                                     struct pst_diag *diag)
{
    const struct pst_spills *s = &rank->layout.spills;

    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct pst_stash_copy copy = {s->jobs.at[i].issue,
                                            s->jobs.at[i].need,
                                            (double)s->jobs.at[i].bytes};

        if (!pst_vec_push(PST_TAG_PLAN, &grid->sched->copies[k], copy))
            return pst_diag_nomem(diag, sizeof(copy));
    }
    return PST_OK;
}

enum pst_status pst_grid_measure(struct pst_grid *grid,
                                 struct pst_memory *memory,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (grid->options.stash != NULL) {
        grid->sched->copies = pst_calloc(PST_TAG_PLAN, grid->sched->n_ranks,
                                         sizeof(*grid->sched->copies));
        if (grid->sched->copies == NULL)
            return pst_diag_nomem(diag, grid->sched->n_ranks);
    }
    for (unsigned k = 0; k < grid->options.ranks && status == PST_OK; k++) {
        const struct pst_rank_role role = pst_grid_role(grid, k);
        struct pst_rank_plan rank;

        status = pst_rank_plan_init(&rank, &role, NULL, diag);
        if (status == PST_OK) {
            memory[k] = rank.layout.memory;
            status = record_copies(grid, k, &rank, diag);
        }
        pst_rank_plan_fini(&rank);
        if (status == PST_OK)
            status = pst_grid_check_memory(
                grid, k, pst_memory_of_host(&memory[k], &grid->options), diag);
    }
    return status;
}
