// SPDX-License-Identifier: Apache-2.0
#include "daemon/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/base/cpu.h"
#include "stages/base/log.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/blas.h"

/* Our messages; the crew's own tags lie below. */
#define TAG_GATHER (PST_TAG_USER + (1 << 20))
#define NAP_US     500
#define WAIT_MS    50 /* between two looks of rank 0 at the others while idle */

struct verdict {
    int32_t status;
    char text[1020];
};

struct order_head {
    uint32_t kind, size;
};

static void nap(void *ctx)
{
    (void)ctx;
    (void)usleep(NAP_US);
}

static enum pst_status broadcast(struct pstd_work *w, void *data, size_t size,
                                 struct pst_diag *diag)
{
    if (w->size == 1)
        return PST_OK;
    return pst_crew_broadcast(w->transport, data, size, nap, w, diag);
}

static enum pst_status transfer(struct pstd_work *w, bool send, unsigned peer,
                                void *data, size_t size, struct pst_diag *diag)
{
    return pst_pulse_transfer(w->transport, send, w->rank, peer, TAG_GATHER,
                              data, size, NULL, NULL, diag);
}

enum pst_status pstd_gather(struct pstd_work *w, const void *mine, size_t size,
                            void *all, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (w->rank != 0)
        return transfer(w, true, 0, (void *)(uintptr_t)mine, size, diag);
    memcpy(all, mine, size);
    for (unsigned r = 1; r < w->size && status == PST_OK; r++)
        status = transfer(w, false, r, (char *)all + r * size, size, diag);
    return status;
}

/* Lowest rank that failed; a text that all ranks share needs no rank. */
static void judge(const struct verdict *all, unsigned n, struct verdict *ret)
{
    struct pst_diag diag;
    bool same = true;
    unsigned r = 0;

    while (r < n && all[r].status == PST_OK)
        r++;
    memset(ret, 0, sizeof(*ret));
    if (r == n)
        return;
    for (unsigned i = 0; i < n; i++)
        same &= strcmp(all[i].text, all[r].text) == 0;
    (void)pst_diag_set(&diag, (enum pst_status)all[r].status, "%s",
                       all[r].text);
    if (!same && !pst_has_prefix(all[r].text, "rank "))
        pst_diag_prefix(&diag, "rank %u", r);
    ret->status = all[r].status;
    (void)snprintf(ret->text, sizeof(ret->text), "%.1019s", diag.text);
}

static enum pst_status agree(struct pstd_work *w, enum pst_status status,
                             struct pst_diag *diag)
{
    struct verdict mine = {.status = status}, *all;
    enum pst_status sent;

    if (w->size == 1)
        return status;
    if (status != PST_OK)
        (void)snprintf(mine.text, sizeof(mine.text), "%.1019s", diag->text);
    all = pst_calloc(PST_TAG_DAEMON, w->rank == 0 ? w->size : 1, sizeof(*all));
    if (all == NULL)
        return pst_diag_set(diag, PST_ERR_PEER, "out of memory");
    sent = pstd_gather(w, &mine, sizeof(mine), all, diag);
    if (sent == PST_OK && w->rank == 0)
        judge(all, w->size, &mine);
    pst_free(all);
    if (sent == PST_OK)
        sent = broadcast(w, &mine, sizeof(mine), diag);
    if (sent != PST_OK)
        return PST_ERR_PEER;
    if (mine.status == PST_OK)
        return PST_OK;
    return pst_diag_set(diag, (enum pst_status)mine.status, "%s", mine.text);
}

enum pst_status pstd_agree(struct pstd_work *w, enum pst_status status,
                           struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_enter(PST_ALIVE_AGREE);

    status = agree(w, status, diag);
    pst_alive_leave(before);
    return status;
}

/* Rank 0: an order, or a stop that another rank was asked for. */
static enum pst_status wait_for_order(struct pstd_work *w,
                                      struct pstd_order *ret,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && !pstd_worker_wait(w->worker, WAIT_MS, ret)) {
        const unsigned wishes = pst_pulse_take_wishes(w->pulse);

        if (wishes != 0) {
            pstd_tell_stop(w);
            pstd_worker_control(w->worker, wishes);
        }
        status = pst_pulse_look(w->pulse, 0, diag);
    }
    return status;
}

static enum pst_status next_order(struct pstd_work *w, struct pstd_order *ret,
                                  struct pst_diag *diag)
{
    struct pstd_order order = {0};
    struct order_head head = {0};
    enum pst_status status = PST_OK;

    if (w->rank == 0) {
        status = wait_for_order(w, &order, diag);
        head.kind = order.kind;
        head.size = (uint32_t)order.size;
    }
    if (status == PST_OK)
        status = broadcast(w, &head, sizeof(head), diag);
    if (status == PST_OK && w->rank != 0) {
        order.kind = (enum pstd_order_kind)head.kind;
        order.size = head.size;
        order.data = pst_alloc(PST_TAG_DAEMON, head.size);
        if (order.data == NULL)
            status = pst_diag_nomem(diag, head.size);
    }
    if (status == PST_OK && head.size > 0)
        status = broadcast(w, order.data, order.size, diag);
    if (status != PST_OK) {
        pst_free(order.data);
        return status;
    }
    *ret = order;
    return PST_OK;
}

enum pst_status pstd_next_order(struct pstd_work *w, struct pstd_order *ret,
                                struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_enter(PST_ALIVE_IDLE);
    const enum pst_status status = next_order(w, ret, diag);

    pst_alive_leave(before);
    return status;
}

void pstd_tell_stop(struct pstd_work *w)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STOP);
    pstd_note_text(&note, "by", "rank");
    pstd_worker_post(w->worker, &note, true);
}

/* mpirun of Open MPI and of MPICH leave these to their children. */
static const char *default_transport(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (getenv(names[i]) != NULL) // NOLINT(concurrency-mt-unsafe)
            return "mpi";
    return "self";
}

/* What rank 0 must know of signals that came here. */
static unsigned wish(void *ctx)
{
    const struct pstd_work *w = ctx;

    return w->rank == 0 ? 0 : pstd_worker_peek(w->worker, PSTD_CTL_STOPS);
}

static enum pst_status open_transport(struct pstd_work *w,
                                      struct pst_diag *diag)
{
    const struct pstd_config *config = pstd_worker_config(w->worker);
    const char *name =
        config->transport != NULL ? config->transport : default_transport();
    const struct pst_transport_ops *ops = pst_transport_find(name);
    const bool self = strcmp(name, "self") == 0;
    const unsigned asked = pstd_ranks(config, 1) * pstd_replicas(config);
    char spec[32] = "";
    enum pst_status status;

    if (ops == NULL)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "transport %s is not part of this build", name);
    if (self)
        (void)snprintf(spec, sizeof(spec), "%u", asked);
    pst_alive_meet(!self);
    status = ops->open(spec, &w->transport, diag);
    pst_alive_meet(false);
    if (status == PST_OK)
        status = pst_pulse_new(w->transport, &w->pulse, diag);
    if (status != PST_OK)
        return status;
    pst_pulse_wish(w->pulse, wish, w);
    w->ranks = ops->size(w->transport);
    w->rank = ops->rank(w->transport);
    w->size = self ? 1 : w->ranks;
    if (config->grid.ranks > 0 && asked != w->ranks)
        return pst_diag_set(diag, PST_ERR_CONFIG,
                            "%u ranks are asked for, the launcher started %u",
                            asked, w->ranks);
    return PST_OK;
}

/* The loop opens log and socket before it answers. */
static enum pst_status announce(struct pstd_work *w, struct pst_diag *diag)
{
    struct pst_str products = {0};
    struct pstd_note note;
    char host[256] = "";

    (void)gethostname(host, sizeof(host) - 1);
    pstd_note_init(&note, PSTD_EVENT_START);
    pstd_note_text(&note, "version", PST_VERSION);
    pstd_note_int(&note, "pid", getpid());
    pstd_note_text(&note, "host", host);
    pstd_note_text(&note, "transport", w->transport->ops->name);
    pstd_note_int(&note, "this_rank", w->rank);
    pstd_note_int(&note, "ranks", w->ranks);
    pstd_note_int(&note, "processes", w->size);
    pstd_note_text(&note, "isa", pst_isa_name(pst_cpu_isa()));
    pst_products_describe(&products);
    pstd_note_text(&note, "products", pst_str_text(&products));
    pst_str_fini(&products);
    return pstd_worker_ask(w->worker, &note, diag);
}

static void tell_plan(struct pstd_work *w)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_PLAN_LOADED);
    pstd_note_text(&note, "plan", pstd_worker_plan(w->worker));
    pstd_note_text(&note, "digest", w->plan->digest);
    pstd_note_int(&note, "stages", (int64_t)w->plan->stages.n);
    pstd_note_int(&note, "params", (int64_t)w->plan->params.n);
    pstd_worker_post(w->worker, &note, true);
}

static enum pst_status tell_ready(struct pstd_work *w, struct pst_diag *diag)
{
    struct {
        char host[256];
        int64_t pid;
    } first = {.pid = getpid()};
    char host[256] = "";
    struct pstd_note note;
    enum pst_status status;

    (void)gethostname(host, sizeof(host) - 1);
    memcpy(first.host, host, sizeof(host));
    status = broadcast(w, &first, sizeof(first), diag);
    if (status != PST_OK)
        return status;
    pstd_note_init(&note, PSTD_EVENT_READY);
    pstd_note_int(&note, "rank0_pid",
                  strcmp(host, first.host) == 0 ? first.pid : 0);
    pstd_worker_post(w->worker, &note, true);
    return PST_OK;
}

static enum pst_status serve(struct pstd_work *w, struct pst_diag *diag)
{
    while (!w->stopping) {
        struct pstd_order order;
        enum pst_status status = pstd_next_order(w, &order, diag);

        if (status != PST_OK)
            return status;
        if (order.kind == PSTD_ORDER_TRAIN)
            status = pstd_train(w, &order, diag);
        else if (order.kind == PSTD_ORDER_STOP)
            w->stopping = true;
        pst_free(order.data);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status start(struct pstd_work *w, struct pst_diag *diag)
{
    enum pst_status status = announce(w, diag);

    if (status == PST_OK && pst_has_suffix(pstd_worker_plan(w->worker), ".pt2"))
        status = pst_diag_set(diag, PST_ERR_USAGE,
                              "%s is a model; penstockd wants a plan, which "
                              "`penstock split` makes of it",
                              pstd_worker_plan(w->worker));
    status = pstd_agree(w, status, diag);
    if (status == PST_OK)
        status = pstd_compare_start(w, diag);
    if (status != PST_OK)
        return status;
    (void)pst_alive_enter(PST_ALIVE_LOAD);
    status = pst_plan_load(pstd_worker_plan(w->worker), &w->plan, diag);
    status = pstd_agree(w, status, diag);
    if (status == PST_OK)
        status = pstd_compare_plan(w, diag);
    if (status != PST_OK)
        return status;
    tell_plan(w);
    return tell_ready(w, diag);
}

/* The loop prints and logs it before the transport takes the process down:
 * after a failure here other ranks may wait for ever. */
static void fail(struct pstd_work *w, const struct pst_diag *diag)
{
    struct pstd_note note;
    enum pst_status answered;

    pstd_note_init(&note, PSTD_EVENT_FAILED);
    pstd_note_text(&note, "status", pst_status_name(diag->status));
    pstd_note_text(&note, "text", diag->text);
    answered = pstd_worker_ask(w->worker, &note, NULL);
    (void)answered;
}

/* PST_LOG=debug: what the library says goes to the log, too. */
static void take_library_line(void *ctx, enum pst_log_level level,
                              const char *topic, const char *text)
{
    struct pstd_note note;

    (void)level; /* stages/ knows nothing louder than debug */
    pstd_note_init(&note, PSTD_EVENT_LIBRARY);
    pstd_note_text(&note, "topic", topic);
    pstd_note_text(&note, "text", text);
    pstd_worker_post(ctx, &note, false);
}

void pstd_work(struct pstd_worker *worker)
{
    struct pstd_work w = {.worker = worker};
    struct pst_diag diag;
    enum pst_status status;
    bool alone; /* others may not know of the failure */

    pst_diag_init(&diag);
    pst_log_set_sink(take_library_line, worker);
    pst_alive_watch();
    pst_alive_set_limit(pstd_worker_config(worker)->watchdog);
    (void)pst_alive_enter(PST_ALIVE_START);
    status = open_transport(&w, &diag);
    if (status == PST_OK)
        status = start(&w, &diag);
    alone = status == PST_OK || status == PST_ERR_PEER;
    if (status == PST_OK)
        status = serve(&w, &diag);
    if (status != PST_OK) {
        fail(&w, &diag);
        if (w.size > 1 && alone)
            w.transport->ops->abort(w.transport, pst_status_exit_code(status));
    } else {
        pst_diag_init(&diag); /* faults of runs are told by their results */
    }
    pst_crew_free(w.crew);
    pst_free(w.crew_options);
    pst_batch_fini(&w.batch);
    pst_plan_free(w.plan);
    (void)pst_alive_enter(PST_ALIVE_END);
    pst_alive_meet(w.size > 1);
    if (w.transport != NULL)
        w.transport->ops->close(w.transport);
    pst_pulse_free(w.pulse);
    pst_alive_meet(false);
    pst_log_set_sink(NULL, NULL);
    pstd_worker_set_result(worker, &diag);
}
