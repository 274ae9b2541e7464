// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/plugins.h"
#include "daemon/common/setup.h"
#include "daemon/exec/alike.h"
#include "daemon/exec/change/change.h"
#include "daemon/exec/crash.h"
#include "daemon/exec/run.h"
#include "daemon/exec/serve/serve.h"
#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/log.h"
#include "stages/base/str.h"
#include "stages/ops/devices.h"
#include "stages/run/watch/flight.h"

#define ABORT_US 300000 /* time for rank 0 to report the failure first */

/* Returns "mpi" for a process that mpirun has started: Open MPI and MPICH set
 * these variables; else "self". */
static const char *default_transport(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (getenv(names[i]) != NULL) // NOLINT(concurrency-mt-unsafe)
            return "mpi";
    return "self";
}

/* Returns the stop requests (PSTD_CTL_STOPS) of this process, which its
 * heartbeats carry to rank 0; 0 on rank 0. */
static unsigned stop_requests(void *ctx)
{
    const struct pstd_executor *w = ctx;

    return w->rank == 0 ? 0
                        : pstd_mailbox_peek_control(w->mailbox, PSTD_CTL_STOPS);
}

static enum pst_status open_transport(struct pstd_executor *w,
                                      struct pst_diag *diag)
{
    const struct pstd_config *config = pstd_mailbox_config(w->mailbox);
    const char *name =
        config->transport != NULL ? config->transport : default_transport();
    const struct pst_transport_ops *ops = pst_transport_find(name);
    const bool self = ops != NULL && ops->one_process;
    const unsigned asked = pstd_ranks(config, 1) * pstd_replicas(config);
    char spec[32] = "";
    enum pst_status status;

    if (ops == NULL)
        return pst_diag_set(diag, PST_E_NET_NOT_BUILT,
                            "transport %s is not part of this build", name);
    if (self)
        (void)snprintf(spec, sizeof(spec), "%u", asked);
    pst_alive_mark_collective(!self);
    status = ops->open(spec, &w->transport, diag);
    pst_alive_mark_collective(false);
    if (status == PST_OK)
        status = pst_pulse_new(w->transport, &w->pulse, diag);
    if (status != PST_OK)
        return status;
    pst_pulse_set_requests(w->pulse, stop_requests, w);
    w->ranks = ops->size(w->transport);
    w->rank = ops->rank(w->transport);
    w->size = self ? 1 : w->ranks;
    if (config->grid.ranks > 0 && asked != w->ranks)
        return pst_diag_set(diag, PST_E_RUN_RANKS,
                            "%u ranks are asked for, the launcher started %u",
                            asked, w->ranks);
    return PST_OK;
}

static enum pst_status find_device(struct pstd_executor *w,
                                   struct pst_diag *diag)
{
    const char *list = pstd_mailbox_config(w->mailbox)->device;
    enum pst_status status =
        pst_device_find(list, w->rank, pstd_local_rank(w->rank, w->size),
                        &w->device, &w->ordinal, diag);

    if (status != PST_OK)
        pst_diag_prefix(diag, "rank %u", w->rank);
    return status;
}

void pstd_set_device(const struct pstd_executor *w,
                     struct pst_exec_options *options)
{
    options->device = w->device;
    options->ordinal = w->ordinal;
    options->devices = pstd_mailbox_config(w->mailbox)->device;
    options->before_here = pstd_local_rank(w->rank, w->size);
    options->ranks_here = pstd_local_size(w->size);
}

/* Emits START, and waits until the loop has opened log and socket. */
static enum pst_status emit_start(struct pstd_executor *w,
                                  struct pst_diag *diag)
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
    pst_device_cpu.describe(&products);
    pstd_note_text(&note, "products", pst_str_text(&products));
    pst_str_fini(&products);
    return pstd_mailbox_ask(w->mailbox, &note, diag);
}

static void emit_plan(struct pstd_executor *w)
{
    struct pstd_note note;
    char device[32];

    (void)snprintf(device, sizeof(device), "%s:%u", w->device->name,
                   w->ordinal);
    pstd_note_init(&note, PSTD_EVENT_PLAN_LOADED);
    pstd_note_text(&note, "plan", pstd_mailbox_plan(w->mailbox));
    pstd_note_text(&note, "digest", w->plan->digest);
    pstd_note_int(&note, "stages", (int64_t)w->plan->stages.n);
    pstd_note_int(&note, "params", (int64_t)w->plan->params.n);
    pstd_note_text(&note, "device", device);
    if (w->device->products != NULL)
        pstd_note_text(&note, "products", w->device->products());
    pstd_mailbox_post(w->mailbox, &note, true);
}

static enum pst_status emit_ready(struct pstd_executor *w,
                                  struct pst_diag *diag)
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
    status = pstd_broadcast(w, &first, sizeof(first), diag);
    if (status != PST_OK)
        return status;
    pstd_note_init(&note, PSTD_EVENT_READY);
    pstd_note_int(&note, "rank0_pid",
                  strcmp(host, first.host) == 0 ? first.pid : 0);
    pstd_mailbox_post(w->mailbox, &note, true);
    return PST_OK;
}

static enum pst_status obey_orders(struct pstd_executor *w,
                                   struct pst_diag *diag)
{
    while (!w->stopping) {
        struct pstd_order order;
        /* Other control words are meant for a run, and stay set until it
         * begins. */
        enum pst_status status =
            pstd_next_order(w, PSTD_CTL_STOPS, &order, diag);

        if (status != PST_OK)
            return status;
        if (order.kind == PSTD_ORDER_TRAIN ||
            order.kind == PSTD_ORDER_TRAIN_AGAIN)
            status = pstd_run(w, &order, diag);
        else if (order.kind == PSTD_ORDER_SERVE)
            status = pstd_serve(w, diag);
        else if (order.kind == PSTD_ORDER_STOP ||
                 order.kind == PSTD_ORDER_STOP_NOW)
            w->stopping = true;
        pst_free(order.data);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status start_job(struct pstd_executor *w, struct pst_diag *diag)
{
    enum pst_status status = emit_start(w, diag);

    if (status == PST_OK)
        status = find_device(w, diag);
    if (status == PST_OK &&
        pst_has_suffix(pstd_mailbox_plan(w->mailbox), ".pt2"))
        status = pst_diag_set(diag, PST_E_RUN_PLAN,
                              "%s is a model; penstockd wants a plan, which "
                              "`penstock split` makes of it",
                              pstd_mailbox_plan(w->mailbox));
    if (status == PST_OK)
        status = pstd_plugins_load(pstd_mailbox_config(w->mailbox), diag);
    status = pstd_agree_status(w, status, diag);
    if (status == PST_OK)
        status = pstd_compare_program(w, diag);
    if (status != PST_OK)
        return status;
    w->transport->checks = pstd_mailbox_config(w->mailbox)->verify_messages;
    (void)pst_alive_begin_phase(PST_ALIVE_LOAD);
    status = pst_plan_load(pstd_mailbox_plan(w->mailbox), &w->plan, diag);
    status = pstd_agree_status(w, status, diag);
    if (status == PST_OK)
        status = pstd_compare_plan(w, diag);
    if (status != PST_OK)
        return status;
    emit_plan(w);
    return emit_ready(w, diag);
}

/* Reports the failure that ends the job, and waits until the loop has printed
 * and logged it: the transport may end the process next. */
static void report_failure(struct pstd_executor *w, const struct pst_diag *diag)
{
    struct pstd_note note;
    enum pst_status answered;

    pstd_note_init(&note, PSTD_EVENT_FAILED);
    pstd_note_text(&note, "status", pst_status_name(diag->status));
    pstd_note_error(&note, diag);
    answered = pstd_mailbox_ask(w->mailbox, &note, NULL);
    (void)answered;
}

/* Ends this process and all other ranks by an abort of the transport. Rank 0
 * prints failures that all ranks have (pstd_daemon_report_failure), so the
 * other ranks wait a little before. */
static void abort_job(struct pstd_executor *w, enum pst_status status)
{
    if (w->rank != 0 && status != PST_ERR_PEER)
        (void)usleep(ABORT_US);
    w->transport->ops->abort(w->transport, pst_status_exit_code(status));
}

/* PST_LOG=debug: copies log lines of the library to the log. */
static void emit_library_line(void *ctx, enum pst_log_level level,
                              const char *topic, const char *text)
{
    struct pstd_note note;

    (void)level; /* stages/ only logs at debug or below */
    pstd_note_init(&note, PSTD_EVENT_LIBRARY);
    pstd_note_text(&note, "topic", topic);
    pstd_note_text(&note, "text", text);
    pstd_mailbox_post(ctx, &note, false);
}

void pstd_execute(struct pstd_mailbox *mailbox)
{
    struct pstd_executor w = {.mailbox = mailbox};
    struct pst_diag diag;
    enum pst_status status;
    /* True if perhaps only this rank has failed: then the other ranks would
     * wait for it forever. */
    bool alone;

    pst_diag_init(&diag);
    pst_log_set_sink(emit_library_line, mailbox);
    pst_alive_watch();
    pst_alive_set_limit(pstd_watchdog(pstd_mailbox_config(mailbox)));
    (void)pst_alive_begin_phase(PST_ALIVE_START);
    status = open_transport(&w, &diag);
    pstd_crash_watch(w.rank);
    w.base_rss = pstd_rss();
    if (status == PST_OK)
        status = start_job(&w, &diag);
    alone = status == PST_OK || status == PST_ERR_PEER;
    if (status == PST_OK)
        status = obey_orders(&w, &diag);
    if (status != PST_OK) {
        report_failure(&w, &diag);
        if (w.size > 1 && alone && !w.agreed)
            abort_job(&w, status);
    } else {
        pst_diag_init(&diag); /* errors of runs are in their results */
    }
    if (pst_engine_is_stuck(w.engine)) { /* a thread still uses its memory */
        pst_log_set_sink(NULL, NULL);
        pstd_mailbox_set_result(mailbox, &diag);
        return;
    }
    pst_engine_free(w.engine);
    pstd_changed_free(w.changed);
    for (unsigned i = 0; w.flights != NULL && i < w.ranks; i++)
        pst_flight_close(w.flights[i]);
    pst_free(w.flights);
    pst_free(w.engine_options);
    pst_batch_fini(&w.batch);
    pst_plan_free(w.plan);
    (void)pst_alive_begin_phase(PST_ALIVE_END);
    pst_alive_mark_collective(w.size > 1);
    if (w.transport != NULL)
        w.transport->ops->close(w.transport);
    pst_pulse_free(w.pulse);
    pst_alive_mark_collective(false);
    pst_log_set_sink(NULL, NULL);
    pstd_mailbox_set_result(mailbox, &diag);
}
