// SPDX-License-Identifier: Apache-2.0
#include "daemon/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/base/log.h"
#include "stages/base/str.h"

/* Our messages; the crew's own tags lie below. */
#define TAG_GATHER (PST_TAG_USER + (1 << 20))
#define NAP_US     500
/* A rank that stands still makes others wait, and they their neighbours: so
 * long all may say whom they wait for before the first one ends the job. */
#define GRACE_US 300000

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

static enum pst_status finish(struct pstd_work *w, struct pst_request *req)
{
    enum pst_status status;

    while ((status = w->transport->ops->test(w->transport, req)) == PST_AGAIN)
        nap(w);
    return status;
}

static enum pst_status receive_all(struct pstd_work *w, size_t size, char *all,
                                   struct pst_diag *diag)
{
    for (unsigned r = 1; r < w->size; r++) {
        struct pst_request req = {0};
        enum pst_status status = w->transport->ops->irecv(
            w->transport, 0, r, TAG_GATHER, all + r * size, size, &req);

        if (status == PST_OK)
            status = finish(w, &req);
        if (status != PST_OK)
            return pst_diag_set(diag, PST_ERR_PEER, "lost contact with rank %u",
                                r);
    }
    return PST_OK;
}

enum pst_status pstd_gather(struct pstd_work *w, const void *mine, size_t size,
                            void *all, struct pst_diag *diag)
{
    struct pst_request req = {0};
    enum pst_status status;

    if (w->rank == 0) {
        memcpy(all, mine, size);
        return receive_all(w, size, all, diag);
    }
    status = w->transport->ops->isend(w->transport, w->rank, 0, TAG_GATHER,
                                      mine, size, &req);
    if (status == PST_OK)
        status = finish(w, &req);
    if (status != PST_OK)
        return pst_diag_set(diag, PST_ERR_PEER, "lost contact with rank 0");
    return PST_OK;
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

enum pst_status pstd_agree(struct pstd_work *w, enum pst_status status,
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

enum pst_status pstd_next_order(struct pstd_work *w, struct pstd_order *ret,
                                struct pst_diag *diag)
{
    struct pstd_order order = {0};
    struct order_head head = {0};
    enum pst_status status;

    if (w->rank == 0) {
        pstd_worker_wait(w->worker, &order);
        head.kind = order.kind;
        head.size = (uint32_t)order.size;
    }
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
    status = ops->open(spec, &w->transport, diag);
    if (status != PST_OK)
        return status;
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

/* A signal that reaches another rank alone is passed on to rank 0, if that
 * runs on the same machine. */
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
    if (status == PST_OK)
        status = pst_plan_load(pstd_worker_plan(w->worker), &w->plan, diag);
    status = pstd_agree(w, status, diag);
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
    status = open_transport(&w, &diag);
    if (status == PST_OK)
        status = start(&w, &diag);
    alone = status == PST_OK || status == PST_ERR_PEER;
    if (status == PST_OK)
        status = serve(&w, &diag);
    if (status != PST_OK) {
        fail(&w, &diag);
        if (w.size > 1 && pst_has_prefix(diag.text, PST_WATCHDOG_TEXT))
            (void)usleep(GRACE_US);
        if (w.size > 1 && alone)
            w.transport->ops->abort(w.transport, pst_status_exit_code(status));
    } else {
        pst_diag_init(&diag); /* faults of runs are told by their results */
    }
    pst_crew_free(w.crew);
    pst_free(w.crew_options);
    pst_batch_fini(&w.batch);
    pst_plan_free(w.plan);
    if (w.transport != NULL)
        w.transport->ops->close(w.transport);
    pst_log_set_sink(NULL, NULL);
    pstd_worker_set_result(worker, &diag);
}
