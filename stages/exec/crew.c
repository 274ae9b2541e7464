// SPDX-License-Identifier: Apache-2.0
#include "stages/exec/crew.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stages/ops/matmul/gemm.h"

#define TAG_BROADCAST (PST_TAG_USER + 3)
#define TAG_FETCH     (PST_TAG_USER + 4)
#define TAG_GATHER    (PST_TAG_USER + 5)
/* Compute actions that a receive is posted ahead of its use. */
#define EARLY 1

/* --- blocking transfers, outside of steps ------------------------------- */

static enum pst_status wait_for(struct pst_transport *t,
                                struct pst_request *request, pst_idle_fn idle,
                                void *ctx, struct pst_diag *diag)
{
    for (unsigned looks = 0;; looks++) {
        enum pst_status status = t->ops->test(t, request);

        if (status == PST_OK)
            return PST_OK;
        if (status != PST_AGAIN)
            return pst_diag_set(diag, status, "a peer did not answer");
        if (idle != NULL)
            idle(ctx);
        if (looks < 1000)
            sched_yield();
        else
            usleep(looks < 20000 ? 50 : 1000);
    }
}

static enum pst_status transfer(struct pst_transport *t, bool send,
                                unsigned self, unsigned peer, int tag,
                                void *data, size_t bytes, pst_idle_fn idle,
                                void *ctx, struct pst_diag *diag)
{
    struct pst_request request = {0};
    enum pst_status status;

    if (send)
        status = t->ops->isend(t, self, peer, tag, data, bytes, &request);
    else
        status = t->ops->irecv(t, self, peer, tag, data, bytes, &request);
    if (status != PST_OK)
        return pst_diag_set(diag, status, "rank %u: no message %s rank %u",
                            self, send ? "to" : "from", peer);
    return wait_for(t, &request, idle, ctx, diag);
}

enum pst_status pst_crew_broadcast(struct pst_transport *transport, void *buf,
                                   size_t size, pst_idle_fn idle, void *ctx,
                                   struct pst_diag *diag)
{
    unsigned n = transport->ops->size(transport);
    unsigned me = transport->ops->rank(transport);
    enum pst_status status = PST_OK;

    if (transport->ops == &pst_transport_self)
        return PST_OK; /* all ranks read the same memory */
    if (me != 0)
        return transfer(transport, false, me, 0, TAG_BROADCAST, buf, size, idle,
                        ctx, diag);
    for (unsigned k = 1; k < n && status == PST_OK; k++)
        status = transfer(transport, true, 0, k, TAG_BROADCAST, buf, size, idle,
                          ctx, diag);
    return status;
}

bool pst_crew_is_zero(const struct pst_crew *crew)
{
    return crew->first == 0;
}

struct pst_rank *pst_crew_local(const struct pst_crew *crew, unsigned rank)
{
    if (rank < crew->first || rank - crew->first >= crew->n_local)
        return NULL;
    return crew->ranks[rank - crew->first];
}

unsigned pst_crew_home(const struct pst_crew *crew, unsigned param)
{
    const struct pst_plan_param *p = &crew->plan->params.at[param];

    return p->n_stages == 0 ? 0 : (unsigned)crew->sched->rank_of[p->stages[0]];
}

enum pst_status pst_crew_fetch(struct pst_crew *crew, unsigned from,
                               const void *src, void *dst, size_t bytes,
                               struct pst_diag *diag)
{
    if (pst_crew_is_zero(crew) && pst_crew_local(crew, from) != NULL) {
        memcpy(dst, src, bytes);
        return PST_OK;
    }
    if (pst_crew_is_zero(crew))
        return transfer(crew->transport, false, 0, from, TAG_FETCH, dst, bytes,
                        crew->idle, crew->idle_ctx, diag);
    if (crew->first == from)
        return transfer(crew->transport, true, from, 0, TAG_FETCH, (void *)src,
                        bytes, crew->idle, crew->idle_ctx, diag);
    return PST_OK;
}

struct settled {
    int32_t status;
    char text[1000];
};

static void settled_set(struct settled *s, enum pst_status status,
                        const struct pst_diag *diag)
{
    *s = (struct settled){.status = (int32_t)status};
    if (status != PST_OK && diag != NULL)
        snprintf(s->text, sizeof(s->text), "%.990s", diag->text);
}

/* The first failure in the order of ranks is everybody's. */
enum pst_status pst_crew_settle(struct pst_crew *crew, enum pst_status status,
                                struct pst_diag *diag)
{
    struct pst_transport *t = crew->transport;
    struct settled all, one;
    enum pst_status net = PST_OK;

    if (t->ops == &pst_transport_self || t->ops->size(t) == 1)
        return status;
    settled_set(&all, status, diag);
    if (crew->first != 0)
        net = transfer(t, true, crew->first, 0, TAG_GATHER, &all, sizeof(all),
                       crew->idle, crew->idle_ctx, diag);
    for (unsigned k = 1;
         crew->first == 0 && k < t->ops->size(t) && net == PST_OK; k++) {
        net = transfer(t, false, 0, k, TAG_GATHER, &one, sizeof(one),
                       crew->idle, crew->idle_ctx, diag);
        if (net == PST_OK && all.status == PST_OK)
            all = one;
    }
    if (net == PST_OK)
        net = pst_crew_broadcast(t, &all, sizeof(all), crew->idle,
                                 crew->idle_ctx, diag);
    if (net != PST_OK)
        return net;
    if (all.status != PST_OK)
        return pst_diag_set(diag, (enum pst_status)all.status, "%s", all.text);
    return PST_OK;
}

/* --- making ------------------------------------------------------------- */

/* What lowering must know of the plan; arrays from the heap. */
struct shape {
    struct PST_VEC(struct pst_link) links;
    struct PST_VEC(struct pst_shared) shared;
};

static bool add_link(struct shape *shape, const struct pst_edge *e, bool train)
{
    struct pst_link link = {(int)e->from_stage, (int)e->to_stage,
                            train && e->grad_parts > 0};

    for (size_t i = 0; i < shape->links.n; i++) {
        if (shape->links.at[i].from == link.from &&
            shape->links.at[i].to == link.to) {
            shape->links.at[i].grad |= link.grad;
            return true;
        }
    }
    return pst_vec_push(PST_TAG_EXEC, &shape->links, link);
}

static enum pst_status shape_of(const struct pst_crew *crew, struct shape *ret,
                                struct pst_diag *diag)
{
    const struct pst_plan *plan = crew->plan;
    const bool train = crew->options.train;
    bool ok = true;

    for (size_t i = 0; i < plan->edges.n && ok; i++)
        ok = add_link(ret, &plan->edges.at[i], train);
    for (size_t i = 0; i < plan->params.n && ok && train; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        struct pst_shared shared = {(int)i, p->stages, p->n_stages};

        unsigned parts = pst_uses_total(&crew->uses, (unsigned)i);

        if (parts == 0 || (parts == 1 && p->n_stages == 1))
            continue;
        if (p->n_stages > PST_MAX_SHARED_STAGES)
            return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                                "parameter '%s' is used by %u stages, at most "
                                "%d may share one",
                                p->fqn, p->n_stages, PST_MAX_SHARED_STAGES);
        ok = pst_vec_push(PST_TAG_EXEC, &ret->shared, shared);
    }
    return ok ? PST_OK : pst_diag_nomem(diag, plan->edges.n);
}

static enum pst_status make_schedule(struct pst_crew *crew,
                                     struct pst_diag *diag)
{
    const struct pst_plan *plan = crew->plan;
    struct shape shape = {0};
    double *costs = pst_calloc(PST_TAG_EXEC, plan->stages.n, sizeof(*costs));
    struct pst_schedule_options options = {
        .name = crew->options.schedule,
        .ranks = crew->options.ranks,
        .stages = (unsigned)plan->stages.n,
        .microbatches = crew->options.microbatches,
        .train = crew->options.train,
        .costs = costs,
    };
    enum pst_status status;

    if (costs == NULL)
        return pst_diag_nomem(diag, plan->stages.n * sizeof(*costs));
    for (size_t i = 0; i < plan->stages.n; i++)
        costs[i] = plan->stages.at[i].flops;
    status = shape_of(crew, &shape, diag);
    if (status == PST_OK)
        status = pst_schedule_make(&options, &crew->sched, diag);
    if (status == PST_OK)
        status = pst_schedule_order(crew->sched, diag);
    if (status == PST_OK)
        status =
            pst_schedule_lower(crew->sched, shape.links.at, shape.links.n,
                               shape.shared.at, shape.shared.n, EARLY, diag);
    if (status == PST_OK)
        status = pst_schedule_check(crew->sched, shape.links.at, shape.links.n,
                                    shape.shared.at, shape.shared.n, diag);
    pst_vec_fini(&shape.links);
    pst_vec_fini(&shape.shared);
    pst_free(costs);
    return status;
}

static enum pst_status check_options(const struct pst_plan *plan,
                                     const struct pst_exec_options *o,
                                     struct pst_diag *diag)
{
    if (o->microbatches < 1 || o->microbatches > 100000 || o->ranks < 1)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "%u microbatches on %u ranks make no step",
                            o->microbatches, o->ranks);
    if (o->train && plan->loss < 0)
        return pst_diag_set(diag, PST_ERR_CONFIG,
                            "the plan has no loss to train on: split with "
                            "--loss, or export a model that returns its loss");
    if (!o->train)
        return PST_OK;
    if (strcmp(o->optim.name, "none") == 0)
        return PST_OK;
    return pst_optim_check(&o->optim, diag);
}

static enum pst_status crew_alloc(struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_crew **ret, struct pst_diag *diag)
{
    struct pst_crew *crew = pst_calloc(PST_TAG_EXEC, 1, sizeof(*crew));
    enum pst_status status = check_options(plan, options, diag);

    if (crew == NULL)
        return pst_diag_nomem(diag, sizeof(*crew));
    crew->plan = plan;
    crew->options = *options;
    if (crew->options.threads == 0 && status == PST_OK)
        crew->options.threads = PST_MAX(1, pst_cpu_count() / options->ranks);
    if (!options->train)
        crew->options.schedule = "gpipe"; /* forward only: F in order */
    crew->ranks =
        pst_calloc(PST_TAG_EXEC, options->ranks, sizeof(struct pst_rank *));
    if (status == PST_OK && crew->ranks == NULL)
        status = pst_diag_nomem(diag, options->ranks);
    if (status == PST_OK)
        status = pst_uses_init(&crew->uses, plan, options->train, diag);
    if (status == PST_OK)
        status = make_schedule(crew, diag);
    if (status != PST_OK) {
        pst_crew_free(crew);
        return status;
    }
    *ret = crew;
    return PST_OK;
}

void pst_crew_free(struct pst_crew *crew)
{
    if (crew == NULL)
        return;
    for (unsigned i = 0; crew->ranks != NULL && i < crew->n_local; i++)
        pst_rank_free(crew->ranks[i]);
    pst_free(crew->ranks);
    pst_schedule_free(crew->sched);
    pst_uses_fini(&crew->uses);
    pst_pool_free(crew->pool);
    pst_free(crew);
}

enum pst_status pst_exec_plan(struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_memory *memory, struct pst_diag *diag)
{
    struct pst_crew *crew;
    enum pst_status status = crew_alloc(plan, options, &crew, diag);

    if (status != PST_OK)
        return status;
    for (unsigned k = 0; k < options->ranks && status == PST_OK; k++) {
        struct pst_rank *rank;

        status = pst_rank_new(plan, crew->sched, &crew->uses, &crew->options, k,
                              &rank, diag);
        if (status != PST_OK)
            break;
        memory[k] = rank->memory;
        pst_rank_free(rank);
    }
    pst_crew_free(crew);
    return status;
}

/* What all ranks must have alike, for people and for comparison; short enough
 * for two of them in a message. */
static void describe(const struct pst_crew *crew, char *out, size_t size)
{
    const struct pst_exec_options *o = &crew->options;
    const struct pst_optim_options *p = &o->optim;
    int n = snprintf(out, size,
                     "plan %s, schedule %s, %u ranks, %u microbatches, seed "
                     "%llu, threads %u, instructions %s, train %d, outputs %d",
                     crew->plan->digest, o->schedule, o->ranks, o->microbatches,
                     (unsigned long long)o->seed, o->threads,
                     pst_isa_name(pst_cpu_isa()), o->train, o->keep_outputs);

    if (!o->train || strcmp(p->name, "none") == 0 || n < 0 || (size_t)n >= size)
        return;
    snprintf(out + n, size - (size_t)n,
             ", %s, lr %.17g, decay %g, momentum %g/%g/%d, betas %g %g, eps "
             "%g, clip %g, rate %d/%llu/%llu/%g",
             p->name, p->lr, p->weight_decay, p->momentum, p->dampening,
             p->nesterov, p->beta1, p->beta2, p->eps, p->clip_norm,
             (int)p->lr_schedule, (unsigned long long)p->warmup_steps,
             (unsigned long long)p->total_steps, p->min_lr_ratio);
}

/* All ranks must have the same plan and the same options. */
static enum pst_status handshake(struct pst_crew *crew, struct pst_diag *diag)
{
    char mine[460] = {0}, first[460];
    enum pst_status status;

    describe(crew, mine, sizeof(mine));
    memcpy(first, mine, sizeof(mine));
    status = pst_crew_broadcast(crew->transport, first, sizeof(first),
                                crew->idle, crew->idle_ctx, diag);
    if (status == PST_OK && strcmp(first, mine) != 0)
        status = pst_diag_set(diag, PST_ERR_MISMATCH,
                              "rank %u and rank 0 were not started alike: "
                              "{%s} and {%s}",
                              crew->first, mine, first);
    return pst_crew_settle(crew, status, diag);
}

/* Does this rank run a product of the library that compiles its code? */
static bool compiles_code(const struct pst_rank *r)
{
    for (unsigned s = 0; s < r->sched->n_stages; s++) {
        const struct pst_program *p = r->stages[s].program;

        for (int l = 0; p != NULL && l < PST_N_LISTS; l++)
            for (unsigned i = 0; i < p->lists[l].n; i++)
                if (strstr(p->lists[l].at[i].kernel->name, "_dnnl") != NULL)
                    return true;
    }
    return false;
}

static enum pst_status start_ranks(struct pst_crew *crew, struct pst_diag *diag)
{
    bool self = crew->transport->ops == &pst_transport_self;
    unsigned n = self ? crew->options.ranks : 1;
    enum pst_status status =
        pst_pool_new(crew->options.threads, &crew->pool, diag);

    crew->first = self ? 0 : crew->transport->ops->rank(crew->transport);
    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        status =
            pst_rank_new(crew->plan, crew->sched, &crew->uses, &crew->options,
                         crew->first + k, &crew->ranks[k], diag);
        if (status != PST_OK)
            break;
        crew->n_local++;
        if (k == 0 && compiles_code(crew->ranks[k]))
            pst_gemm_warm_up();
        status =
            pst_rank_start(crew->ranks[k], crew->transport, crew->pool, diag);
    }
    return status;
}

enum pst_status pst_crew_new(struct pst_plan *plan,
                             struct pst_transport *transport,
                             const struct pst_exec_options *options,
                             struct pst_crew **ret, struct pst_diag *diag)
{
    unsigned size = transport->ops->size(transport);
    struct pst_crew *crew;
    enum pst_status status;

    if (size != options->ranks)
        return pst_diag_set(diag, PST_ERR_CONFIG,
                            "%u ranks are needed, %u were started",
                            options->ranks, size);
    status = crew_alloc(plan, options, &crew, diag);
    if (status != PST_OK)
        return status;
    crew->transport = transport;
    if (transport->ops != &pst_transport_self)
        crew->first = transport->ops->rank(transport);
    status = handshake(crew, diag);
    if (status == PST_OK)
        status = pst_crew_settle(crew, start_ranks(crew, diag), diag);
    if (status != PST_OK) {
        pst_crew_free(crew);
        return status;
    }
    *ret = crew;
    return PST_OK;
}

/* --- steps -------------------------------------------------------------- */

static enum pst_status drive(struct pst_crew *crew)
{
    unsigned idle_rounds = 0;

    for (;;) {
        unsigned done = 0, moved = 0;

        for (unsigned i = 0; i < crew->n_local; i++) {
            struct pst_rank *r = crew->ranks[i];
            unsigned pc = r->pc, active = r->n_active;
            enum pst_status status;

            if (r->phase == PST_RANK_DONE) {
                done++;
                continue;
            }
            status = pst_rank_advance(r);
            if (status != PST_OK && status != PST_AGAIN)
                return status;
            moved += r->pc != pc || r->n_active != active ||
                     r->phase == PST_RANK_DONE;
        }
        if (done == crew->n_local)
            return PST_OK;
        if (moved > 0) {
            idle_rounds = 0;
            continue;
        }
        if (crew->idle != NULL)
            crew->idle(crew->idle_ctx);
        if (++idle_rounds > 100)
            sched_yield();
    }
}

static void fill_result(const struct pst_crew *crew,
                        struct pst_step_result *ret)
{
    const struct pst_rank *r = crew->ranks[0];
    const struct pst_verdict *v = r->verdict;

    *ret = (struct pst_step_result){
        .loss = v->loss,
        .losses = v->losses,
        .grad_norm = v->norm,
        .lr =
            crew->options.train ? pst_lr_at(&crew->options.optim, r->step) : 0,
        .applied = !v->fault,
        .control = v->control,
        .times = r->times,
        .bubble = PST_MAX(0, 1 - v->busy),
    };
    ret->times.step = pst_now() - r->started;
}

enum pst_status pst_crew_step(struct pst_crew *crew, uint64_t step,
                              pst_fill_fn fill, void *fill_ctx,
                              unsigned control, struct pst_step_result *ret,
                              struct pst_diag *diag)
{
    enum pst_status status;

    for (unsigned i = 0; i < crew->n_local; i++) {
        crew->ranks[i]->diag = diag;
        pst_rank_begin(crew->ranks[i], step, fill, fill_ctx, control);
    }
    status = drive(crew);
    for (unsigned i = 0; i < crew->n_local && status == PST_OK; i++) {
        struct pst_rank *r = crew->ranks[i];

        if (r->verdict->fault)
            pst_rank_restore(r);
        else
            status = pst_rank_apply(r, r->verdict->norm, diag);
        if (status == PST_OK)
            pst_ring_end(&r->ring, pst_now());
    }
    if (status != PST_OK)
        return status;
    fill_result(crew, ret);
    if (!ret->applied)
        return pst_diag_set(
            diag, PST_ERR_RANGE, "step %llu was not applied: %s",
            (unsigned long long)step + 1, crew->ranks[0]->verdict->text);
    return PST_OK;
}

/* --- queries ------------------------------------------------------------ */

const struct pst_schedule *pst_crew_schedule(const struct pst_crew *crew)
{
    return crew->sched;
}

unsigned pst_crew_n_local(const struct pst_crew *crew)
{
    return crew->n_local;
}

struct pst_memory pst_crew_memory(const struct pst_crew *crew, unsigned local)
{
    return crew->ranks[local]->memory;
}

size_t pst_crew_high_water(const struct pst_crew *crew, unsigned local)
{
    return crew->ranks[local]->high_water;
}

void pst_crew_set_idle(struct pst_crew *crew, pst_idle_fn idle, void *ctx)
{
    crew->idle = idle;
    crew->idle_ctx = ctx;
}

void pst_crew_print_kernels(const struct pst_crew *crew, struct pst_str *out)
{
    static const char *const lists[] = {"F", "B", "W"};

    for (unsigned k = 0; k < crew->n_local; k++) {
        const struct pst_rank *r = crew->ranks[k];

        for (unsigned s = 0; s < crew->sched->n_stages; s++) {
            const struct pst_program *p = r->stages[s].program;

            for (int l = 0; p != NULL && l < PST_N_LISTS; l++)
                for (unsigned i = 0; i < p->lists[l].n; i++)
                    pst_str_addf(out, "stage %u %s %-40s %s\n", s, lists[l],
                                 p->lists[l].at[i].node->schema->name,
                                 p->lists[l].at[i].kernel->name);
        }
    }
}
