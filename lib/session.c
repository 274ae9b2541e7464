// SPDX-License-Identifier: Apache-2.0
/* Makes sessions: their options, ranks and memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/model/doubts.h"
#include "daemon/common/plugins.h"
#include "daemon/common/setup.h"
#include "lib/collective.h"
#include "lib/guest.h"
#include "lib/saves/claim.h"
#include "stages/base/alloc.h"
#include "stages/base/checked.h"
#include "stages/ops/devices.h"
#include "stages/run/facts.h"
#include "stages/split/convert/again.h"

#define TAG PST_TAG_CLIENT

static void send_note(void *ctx, const char *text)
{
    pstl_send_note(ctx, text);
}

/* --- what a step takes and gives ------------------------------------------ */

/* Sets the size of an input along the divided dimension to that of all
 * microbatches of a step together. */
static enum pst_status join_rows(const struct penstock_session *s,
                                 struct pstl_tensor *t, struct pst_diag *diag)
{
    const struct pst_batch *b = &s->batch;
    const int64_t n_larger = (int64_t)b->microbatches - b->n_tail;
    int64_t *size = &t->meta.size[t->batch_dim];
    int64_t rest = 0;

    if (b->tail != NULL)
        rest = b->n_tail * b->tail->inputs.at[t->index].meta.size[t->batch_dim];
    if (PST_MUL(*size, n_larger, size) || PST_ADD(*size, rest, size))
        return pst_diag_nomem(diag, SIZE_MAX);
    pst_meta_set_contiguous(&t->meta);
    return PST_OK;
}

static enum pst_status describe_inputs(struct penstock_session *s,
                                       struct pst_diag *diag)
{
    /* Names are borrowed from the opened plan: descriptions must outlive the
     * plan, which penstock_swap replaces. */
    const struct pst_plan *opened = s->model->opened.plan;
    const struct pst_plan *plan = s->batch.plan;
    enum pst_status status = PST_OK;
    const size_t n = plan->inputs.n;

    if (opened->inputs.n != n || opened->outputs.n != plan->outputs.n)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "the model has %zu inputs and %zu outputs, and had "
                            "%zu and %zu",
                            n, plan->outputs.n, opened->inputs.n,
                            opened->outputs.n);

    s->n_inputs = n;
    s->inputs = pst_calloc(TAG, n + 1, sizeof(*s->inputs));
    s->views = pst_calloc(TAG, n + 1, sizeof(*s->views));
    s->hosts = pst_calloc(TAG, n + 1, sizeof(*s->hosts));
    s->copied = pst_calloc(TAG, n + 1, sizeof(*s->copied));
    s->reads = pst_calloc(TAG, n + 1, sizeof(*s->reads));
    if (s->inputs == NULL || s->views == NULL || s->reads == NULL ||
        s->hosts == NULL || s->copied == NULL)
        return pst_diag_nomem(diag, n * sizeof(*s->inputs));
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pst_plan_input *in = &plan->inputs.at[i];
        struct pstl_tensor *t = &s->inputs[i];

        *t = (struct pstl_tensor){.name = opened->inputs.at[i].name,
                                  .meta = in->meta,
                                  .batch_dim = in->chunk,
                                  .index = (unsigned)i};
        pst_meta_set_contiguous(&t->meta);
        if (t->batch_dim >= 0)
            status = join_rows(s, t, diag);
    }
    return status;
}

static enum pst_status describe_outputs(struct penstock_session *s,
                                        struct pst_diag *diag)
{
    const struct pst_plan *opened = s->model->opened.plan;
    const struct pst_plan *plan = s->batch.plan;
    enum pst_status status = PST_OK;

    s->outputs = pst_calloc(TAG, plan->outputs.n + 1, sizeof(*s->outputs));
    if (s->outputs == NULL)
        return pst_diag_nomem(diag, plan->outputs.n * sizeof(*s->outputs));
    for (size_t i = 0; i < plan->outputs.n && status == PST_OK; i++) {
        struct pstl_tensor *t = &s->outputs[s->n_outputs];
        unsigned dim;

        if (!plan->outputs.at[i].is_tensor)
            continue;
        *t = (struct pstl_tensor){.name = opened->outputs.at[i].path,
                                  .index = (unsigned)i};
        status = pst_engine_output_meta(s->engine, (unsigned)i, &t->meta, &dim,
                                        NULL, diag);
        t->batch_dim = (int)dim;
        s->n_outputs++;
    }
    return status;
}

/* True if a stage is on a rank of this process. */
static bool is_here(const struct penstock_session *s, unsigned stage)
{
    const struct pst_schedule *sched = pst_engine_schedule(s->engine);
    const struct pst_transport *t = s->transport;

    return t->ops->one_process ||
           (unsigned)sched->rank_of[stage] == t->ops->rank(t) % sched->n_ranks;
}

/* Sets session->reads: true for inputs that this process reads in a step. */
static void find_inputs_read(struct penstock_session *s)
{
    const struct pst_plan *plan = s->batch.plan;
    const bool sends = s->options.scatter && !s->transport->ops->one_process;

    for (size_t k = 0; k < plan->stages.n && !sends; k++) {
        const struct pst_stage *stage = &plan->stages.at[k];

        for (size_t i = 0; i < stage->graph->inputs.n && is_here(s, k); i++)
            if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT)
                s->reads[stage->inputs[i].index] = true;
    }
    for (size_t i = 0; i < plan->outputs.n && !sends; i++)
        if (plan->outputs.at[i].is_tensor && plan->outputs.at[i].stage < 0 &&
            is_here(s, 0))
            s->reads[plan->outputs.at[i].output] = true;
    for (size_t i = 0; i < plan->inputs.n && sends; i++)
        s->reads[i] = s->transport->ops->rank(s->transport) == 0 &&
                      pst_plan_reads_input(plan, (unsigned)i);
}

enum pst_status pstl_session_describe_step(penstock_session *s,
                                           struct pst_diag *diag)
{
    enum pst_status status = describe_inputs(s, diag);

    if (status == PST_OK)
        status = describe_outputs(s, diag);
    if (status == PST_OK)
        find_inputs_read(s);
    return status;
}

void pstl_session_free_step(penstock_session *s)
{
    pstl_drop_copies(s);
    pst_free(s->copied);
    pst_free(s->hosts);
    pst_free(s->inputs);
    pst_free(s->outputs);
    pst_free(s->reads);
    pst_free(s->views);
}

/* --- ranks ---------------------------------------------------------------- */

/* COLLECTIVE. Compares the facts of all ranks, and frees them. */
static enum pst_status compare_facts(const penstock_session *s,
                                     struct pst_facts *facts,
                                     struct pst_diag *diag)
{
    enum pst_status status = pst_transport_agree(
        s->transport,
        facts->failed ? pst_diag_nomem(diag, sizeof(*facts)) : PST_OK, diag);

    if (status == PST_OK)
        status = pst_facts_compare(facts, s->transport, diag);
    pst_facts_fini(facts);
    return status;
}

enum pst_status pstl_check_same(const penstock_session *s, const char *what,
                                const void *data, size_t bytes,
                                struct pst_diag *diag)
{
    struct pst_facts facts = {0};

    if (s->transport->ops->one_process)
        return PST_OK;
    pst_facts_add(&facts, what, "of digest %016llx",
                  (unsigned long long)pst_hash(data, bytes, 0));
    return compare_facts(s, &facts, diag);
}

/* COLLECTIVE. Checks that all ranks have the same model and options, before a
 * single rank may refuse its own. Facts that distinguish models are compared
 * one by one, so that an error names the one that differs. */
static enum pst_status compare_options(const struct penstock_session *s,
                                       struct pst_diag *diag)
{
    struct pst_plan *plan = s->model->opened.plan;
    struct pst_facts facts = {0};
    enum pst_status status =
        plan->digest[0] == '\0' ? pst_plan_digest_made(plan, diag) : PST_OK;

    status = pst_transport_agree(s->transport, status, diag);
    if (status != PST_OK)
        return status;
    pst_facts_add(&facts, "the model",
                  "of digest %s (its file, freeze, lora, autocast, swap)",
                  plan->model_digest);
    pst_facts_add(&facts, "the values of parameters",
                  "%s%s (weights, init-seed)",
                  plan->values_digest[0] != '\0' ? "of digest " : "the model's",
                  plan->values_digest);
    pst_facts_add(&facts, "the plan", "of digest %s (at, stages, loss)",
                  plan->digest);
    pstd_config_facts(&s->config, PSTD_OPT_STEP | PSTD_OPT_LIBRARY, &facts);
    return compare_facts(s, &facts, diag);
}

/* --- construction --------------------------------------------------------- */

static enum pst_status read_options(struct penstock_session *s,
                                    const struct penstock_session_config *c,
                                    struct pst_diag *diag)
{
    enum pst_status status = pstd_config_init(&s->config, diag);

    if (status == PST_OK)
        status = pstl_options_set(&s->config, PSTL_SESSION, c->options,
                                  c->n_options, diag);
    if (status == PST_OK)
        status = pstd_plugins_load(&s->config, diag);
    /* No watchdog by default: an application may take any time between two
     * steps. */
    if (status == PST_OK && isnan(s->config.watchdog))
        s->config.watchdog = 0;
    return status;
}

static enum pst_status open_self(struct penstock_session *s,
                                 struct pst_diag *diag)
{
    const unsigned ranks =
        pstd_ranks(&s->config, (unsigned)s->model->opened.plan->stages.n);
    char spec[32];

    (void)snprintf(spec, sizeof(spec), "%u", ranks * pstd_replicas(&s->config));
    return pst_transport_self.open(spec, &s->transport, diag);
}

static bool same_parts(const struct pst_plan *a, const struct pst_plan *b)
{
    return a->parts.n == b->parts.n &&
           (a->parts.n == 0 ||
            memcmp(a->parts.at, b->parts.at,
                   a->parts.n * sizeof(a->parts.at[0])) == 0);
}

enum pst_status pstl_session_keep_gradients(const penstock_session *s,
                                            const struct pst_batch *batch,
                                            struct pst_diag *diag)
{
    const struct pstd_list *names = &s->config.input_gradients;
    enum pst_status status;

    if (names->n > 0 && !s->trains)
        return pst_diag_set(diag, PST_E_LOSS_MISSING,
                            "\"input-gradients\" needs a loss: open the .pt2 "
                            "with {\"loss\", ...} or {\"loss-fn\", ...}");
    status = pst_plan_keep_gradients(batch->plan, names->at, names->n, diag);
    if (status == PST_OK && batch->tail != NULL)
        status =
            pst_plan_keep_gradients(batch->tail, names->at, names->n, diag);
    if (status == PST_OK && batch->tail != NULL &&
        !same_parts(batch->plan, batch->tail))
        status = pst_diag_set(diag, PST_E_BATCH_ROWS_DIFFER,
                              "gradients of inputs have other parts in a "
                              "microbatch with a row less: choose rows that "
                              "all microbatches can have");
    return status;
}

/* Sets the device of the ranks in this process. */
static enum pst_status find_device(struct penstock_session *s,
                                   struct pst_diag *diag)
{
    const struct pst_transport *t = s->transport;
    const unsigned rank = t->ops->rank(t);
    enum pst_status status;

    s->options.devices = s->config.device;
    status = pst_device_named(s->config.device, rank, &s->options.device, diag);
    if (status != PST_OK)
        return status;
    pstl_thread_keep(s);
    return pst_device_find(s->config.device, rank,
                           pstd_local_rank(rank, t->ops->size(t)),
                           &s->options.device, &s->options.ordinal, diag);
}

static enum pst_status make_options(struct penstock_session *s,
                                    struct pst_diag *diag)
{
    struct pst_plan *plan = s->model->opened.plan;
    const unsigned replicas = pstd_replicas(&s->config);
    const unsigned size = s->transport->ops->size(s->transport);
    enum pst_status status;

    s->trains = plan->loss >= 0;
    status = s->trains ? pstd_check_backward(&s->config, plan, diag) : PST_OK;
    if (status == PST_OK && size % replicas != 0)
        status = pst_diag_set(diag, PST_E_RUN_RANKS,
                              "the communicator has %u ranks, which are not "
                              "divided by %u replicas",
                              size, replicas);
    if (status == PST_OK)
        status = pstd_refuse_ramp(&s->config, "a session", diag);
    if (status == PST_OK)
        status = pstd_exec_options(&s->config,
                                   pstd_ranks(&s->config, size / replicas),
                                   s->trains, &s->options, diag);
    if (status == PST_OK)
        status = pstd_open_batch(&s->config, plan, &s->batch, diag);
    if (status == PST_OK)
        status = pstl_session_keep_gradients(s, &s->batch, diag);
    if (status != PST_OK)
        return status;
    pstd_set_batch(&s->options, &s->batch);
    if (PSTD_GIVEN(&s->config, device))
        status = find_device(s, diag);
    else
        pstl_thread_keep(s);
    if (status != PST_OK)
        return status;
    s->options.keep_outputs = false;
    s->options.lends_inputs = true;
    return pstd_set_side_by_side(s->batch.plan, &s->options, diag);
}

/* Refuses bf16 parameters, since the gradients that a caller reads have the
 * dtype of their parameter. */
static enum pst_status refuse_bf16(const struct penstock_session *s,
                                   struct pst_diag *diag)
{
    const struct pst_plan_param *low =
        s->options.train ? pst_plan_find_bf16(s->batch.plan) : NULL;

    return low == NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_OPTIMIZER_DTYPE,
                              "parameter '%s' is bf16 (--params bf16): the "
                              "library trains f32 only",
                              low->fqn);
}

/* Makes the parts of a session. COLLECTIVE after the transport is open. */
static enum pst_status make_parts(struct penstock_session *s,
                                  const struct penstock_session_config *c,
                                  struct pst_diag *diag)
{
    enum pst_status status = read_options(s, c, diag);

    if (c->mpi_comm == NULL) {
        if (status == PST_OK)
            status = open_self(s, diag);
    } else {
        struct pst_diag of_net;
        const enum pst_status net = pst_transport_mpi_on(
            c->mpi_comm, status == PST_OK ? s->config.watchdog : 0,
            &s->transport, &of_net);

        if (net != PST_OK) {
            *diag = of_net;
            return net;
        }
        if (status == PST_OK)
            status = pstl_calls_new(s, diag);
        pstl_calls_enter(s, PST_ALIVE_START);
        status = pst_transport_agree(s->transport, status, diag);
        if (status == PST_OK)
            status = compare_options(s, diag);
        if (status == PST_OK)
            (void)pst_alive_begin_phase(PST_ALIVE_LOAD);
    }
    if (status != PST_OK)
        return status;
    status = make_options(s, diag);
    if (status == PST_OK)
        status = refuse_bf16(s, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK)
        status = pst_engine_new(s->batch.plan, s->transport, &s->options,
                                &s->engine, diag);
    if (status != PST_OK)
        return status;
    return pst_transport_agree(s->transport,
                               pstl_session_describe_step(s, diag), diag);
}

/* Frees the parts of a session that are only memory. */
static void free_memory(struct penstock_session *s)
{
    pstl_checkpoint_fini(s);
    if (s->changed == NULL)
        pst_batch_fini(&s->batch);
    pstl_changed_free(s->changed);
    pstl_carried_drop(s);
    pstl_session_free_step(s);
    pstd_config_fini(&s->config);
    atomic_store(&s->model->has_session, false);
    pst_free(s);
}

static void free_session(struct penstock_session *s)
{
    /* If a rank's thread has not returned from a failed step, nothing is freed,
     * since the thread may still read all of it. */
    if (pst_engine_is_stuck(s->engine))
        return;
    pstl_claim_release(s);
    pstl_forward_free(s->forward);
    pst_engine_free(s->engine);
    if (s->transport != NULL)
        s->transport->ops->close(s->transport);
    pstl_calls_free(s->calls);
    free_memory(s);
}

/* Frees a session in a process that was forked from the session's process.
 * Folder, GPU and communicator belong to the other process, and the threads
 * that engines would wait for exist only there: engines and the transport are
 * not freed. */
static void free_forked(struct penstock_session *s)
{
    pstl_claim_abandon(s);
    free_memory(s);
}

/* Marks the model as used by a session. Fails if another session uses it. */
static enum pst_status claim_model(penstock_model *model, struct pst_diag *diag)
{
    if (!atomic_exchange(&model->has_session, true))
        return PST_OK;
    return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                        "the model has a session: free it, or open the model "
                        "once more");
}

int penstock_session_new(penstock_model *model,
                         const struct penstock_session_config *config,
                         penstock_session **ret, struct penstock_error *error)
{
    struct penstock_session_config c;
    struct penstock_session *s = NULL;
    struct pstl_thread caller;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstl_read_struct("struct penstock_session_config", config, &c,
                              sizeof(c), &diag);
    if (status == PST_OK && (model == NULL || ret == NULL))
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "%s is NULL",
                              model == NULL ? "model" : "ret");
    if (status == PST_OK)
        status = claim_model(model, &diag);
    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    s = pst_calloc(TAG, 1, sizeof(*s));
    if (s == NULL) {
        atomic_store(&model->has_session, false);
        return pstl_return(pst_diag_nomem(&diag, sizeof(*s)), &diag, error);
    }
    atomic_flag_clear(&s->busy);
    s->process = getpid();
    s->model = model;
    s->messages = (struct pstl_messages){c.message, c.message_ctx};
    pstl_receive_log(&s->messages);
    status = make_parts(s, &c, &diag);
    pstl_calls_leave(s);
    pstl_receive_log(NULL);
    caller = s->caller;
    if (status != PST_OK)
        free_session(s);
    pstl_thread_restore(&caller);
    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (s->trains)
        pstd_doubts_check_plan(&s->config, s->batch.plan, send_note,
                               &s->messages);
    *ret = s;
    return 0;
}

int penstock_comm_from_fortran(int comm, void *ret, size_t size,
                               struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = ret == NULL
                 ? pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "ret is NULL")
                 : pst_transport_mpi_from_fortran(comm, ret, size, &diag);
    return pstl_return(status, &diag, error);
}

void penstock_session_free(penstock_session *session)
{
    struct pstl_thread caller;

    if (session == NULL)
        return;
    if (session->process != getpid()) {
        free_forked(session);
        return;
    }
    pstl_thread_keep(session);
    caller = session->caller;
    free_session(session);
    pstl_thread_restore(&caller);
}

int penstock_session_describe(penstock_session *session,
                              enum penstock_kind kind, size_t index,
                              struct penstock_info *ret,
                              struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    (void)pstl_session_release(session, PST_OK, &diag, NULL);
    if (kind == PENSTOCK_INPUT)
        return pstl_describe(session->inputs, session->n_inputs, index, ret,
                             error);
    if (kind == PENSTOCK_OUTPUT)
        return pstl_describe(session->outputs, session->n_outputs, index, ret,
                             error);
    if (kind == PENSTOCK_PARAMETER || kind == PENSTOCK_BUFFER)
        return pstl_describe(pstl_state_of(session, kind)->at,
                             pstl_state_of(session, kind)->n, index, ret,
                             error);
    return pstl_return(pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                                    "there is no such kind of tensor"),
                       &diag, error);
}

size_t penstock_session_count(const penstock_session *session,
                              enum penstock_kind kind)
{
    if (session == NULL)
        return 0;
    switch (kind) {
    case PENSTOCK_INPUT:
        return session->n_inputs;
    case PENSTOCK_OUTPUT:
        return session->n_outputs;
    case PENSTOCK_PARAMETER:
    case PENSTOCK_BUFFER:
        return pstl_state_of(session, kind)->n;
    default:
        return 0;
    }
}

int penstock_session_copies(penstock_session *session,
                            struct penstock_copies *ret,
                            struct penstock_error *error)
{
    struct penstock_copies copies = {.size = sizeof(copies)};
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstl_check_struct("ret", ret, &diag);
    if (status == PST_OK && session == NULL)
        status =
            pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "the session is NULL");
    if (status == PST_OK)
        status = pstl_session_check_process(session, &diag);
    if (status == PST_OK)
        status = pstl_acquire(&session->busy, "session", &diag);
    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    copies.in_place = atomic_load(&session->copies.in_place);
    copies.read = atomic_load(&session->copies.read);
    copies.written = atomic_load(&session->copies.written);
    pstl_release(&session->busy);
    pstl_write_struct(&copies, ret, sizeof(copies));
    return 0;
}

size_t penstock_session_bytes(const penstock_session *session)
{
    if (session == NULL)
        return 0;
    return pstd_planned_bytes(session->engine) +
           pstl_forward_bytes(session->forward);
}
