// SPDX-License-Identifier: Apache-2.0
/* Computes the totals of a finished run: statistics of its steps and its ranks.
 */
#include "daemon/exec/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/exec/peak.h"
#include "stages/base/alloc.h"

#define MAX_WAITS 256 /* maximum number of ranks whose waits are reported */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts the step times, and computes their median and 99th percentile. Leaves
 * out the first two, which are warm-up steps, unless there are no others. */
static void fill_steps(struct pstd_result *r, double *times, size_t n)
{
    const size_t skip = n > 2 ? 2 : 0;

    if (n == 0)
        return;
    times += skip;
    n -= skip;
    qsort(times, n, sizeof(*times), compare_doubles);
    r->step_s = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
    r->step_p99_s =
        times[(n * 99 + 99) / 100 - 1]; /* nearest-rank percentile */
}

/* Rotates the ring buffer of n entries so that the oldest one, now at index
 * `first`, comes first. */
static enum pst_status rotate_ring(double *ring, size_t n, size_t first,
                                   struct pst_diag *diag)
{
    double *copy;

    if (first == 0 || n == 0)
        return PST_OK;
    copy = pst_alloc(PST_TAG_DAEMON, n * sizeof(*copy));
    if (copy == NULL)
        return pst_diag_nomem(diag, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        copy[i] = ring[(first + i) % n];
    memcpy(ring, copy, n * sizeof(*copy));
    pst_free(copy);
    return PST_OK;
}

static void fill_rank(struct pstd_session *s, unsigned local, unsigned rank,
                      struct pstd_rank_result *ret)
{
    struct pst_str placement = {0}, stages = {0};

    memset(ret, 0, sizeof(*ret));
    ret->peak_rss = pstd_peak_rss();
    ret->base_rss = s->w->base_rss;
    if (s->w->engine == NULL)
        return;
    pstd_print_placement(pst_engine_schedule(s->w->engine), &placement);
    pstd_print_stages(pst_str_text(&placement), rank, &stages);
    strncpy(ret->stages, pst_str_text(&stages), sizeof(ret->stages) - 1);
    pst_str_fini(&placement);
    pst_str_fini(&stages);
    ret->planned = pst_engine_memory(s->w->engine, local).arena;
    ret->high_water = pst_engine_high_water(s->w->engine, local);
    if (local == 0)
        ret->sums = s->sums.times;
}

/* Fills the result's entry of each rank, gathered from the processes; if this
 * process has all ranks, from their engine. */
static enum pst_status gather_ranks(struct pstd_session *s,
                                    struct pst_diag *diag)
{
    struct pstd_executor *w = s->w;
    struct pstd_rank_result mine, *all;

    all = pst_calloc(PST_TAG_DAEMON, w->ranks, sizeof(*all));
    if (all == NULL)
        return pst_diag_nomem(diag, w->ranks * sizeof(*all));
    s->result->ranks = all;
    s->result->n_ranks = w->ranks;
    if (w->size == w->ranks && w->size > 1) {
        fill_rank(s, 0, w->rank, &mine);
        return pstd_gather(w, &mine, sizeof(mine), all, diag);
    }
    for (unsigned r = 0; r < w->ranks; r++)
        fill_rank(s, r, r, &all[r]);
    return PST_OK;
}

/* Computes the share of each kind of work and wait of each rank in the measured
 * step. */
static enum pst_status measure_shares(struct pstd_session *s,
                                      struct pst_diag *diag)
{
    const struct pstd_trace *trace;
    enum pst_status status = pstd_session_measure(s, diag);

    trace = s->result->trace;
    for (unsigned r = 0; status == PST_OK && trace != NULL &&
                         r < s->result->n_ranks && r < trace->measured.n_ranks;
         r++) {
        s->result->ranks[r].step = trace->measured.step;
        s->result->ranks[r].shares = trace->shares[r];
    }
    return status;
}

/* Returns the seconds of a step with the newest number of microbatches: the
 * median if all steps had this number, else the mean time per microbatch times
 * this number. */
static double seconds_of_step(const struct pstd_session *s, double median)
{
    const double each = (double)s->w->batch.microbatches;

    return s->sums.microbatches == (double)s->done * each
               ? median
               : s->sums.seconds / s->sums.microbatches * each;
}

enum pst_status pstd_session_write_totals(struct pstd_session *s,
                                          struct pst_diag *diag)
{
    struct pstd_result *r = s->result;
    const size_t n = (size_t)PST_MIN(s->done, (uint64_t)PSTD_MAX_LOSSES);
    const size_t first =
        s->done > PSTD_MAX_LOSSES ? (size_t)(s->done % PSTD_MAX_LOSSES) : 0;
    enum pst_status status = rotate_ring(r->losses, n, first, diag);

    if (status == PST_OK)
        status = rotate_ring(s->times, n, first, diag);
    if (status != PST_OK)
        return status;
    r->n_losses = n;
    r->steps = s->step;
    fill_steps(r, s->times, n);
    r->checkpoint_step = s->good == UINT64_MAX ? 0 : s->good;
    if (s->done > 0) {
        r->bubble = s->sums.idle / s->sums.times.step;
        const double seconds = seconds_of_step(s, r->step_s);

        r->gflops = pstd_count_flops(&s->w->batch) / seconds * 1e-9;
        r->mfu = pstd_mfu(s, seconds);
        r->tok_s = (double)s->step_tokens / seconds;
    }
    status = gather_ranks(s, diag);
    return status == PST_OK ? measure_shares(s, diag) : status;
}

/* Emits, for each rank, which shares of the measured step each kind of span
 * took. */
static void emit_waits(struct pstd_session *s)
{
    const struct pstd_result *r = s->result;

    for (size_t i = 0; i < r->n_ranks && i < MAX_WAITS; i++) {
        const struct pstd_rank_result *from = &r->ranks[i];
        double classes[3] = {0};
        struct pstd_note note;

        if (!(from->step > 0))
            continue;
        for (int k = 0; k < PST_N_SPANS; k++)
            classes[pst_span_class((enum pst_span_kind)k)] +=
                from->shares.seconds[k] / from->step;
        pstd_note_init(&note, PSTD_EVENT_WAITS);
        pstd_note_int(&note, "of_rank", (int64_t)i);
        pstd_note_text(&note, "stages", from->stages);
        pstd_note_real(&note, "step_s", from->step);
        pstd_note_real(&note, "work", classes[PST_CLASS_WORK]);
        pstd_note_real(&note, "move", classes[PST_CLASS_MOVE]);
        pstd_note_real(&note, "warm_up",
                       from->shares.seconds[PST_SPAN_WARM_UP] / from->step);
        pstd_note_real(&note, "drain",
                       from->shares.seconds[PST_SPAN_DRAIN] / from->step);
        pstd_note_real(&note, "imbalance",
                       from->shares.seconds[PST_SPAN_IMBALANCE] / from->step);
        pstd_note_real(&note, "message",
                       from->shares.seconds[PST_SPAN_MESSAGE] / from->step);
        pstd_note_real(&note, "other",
                       from->shares.seconds[PST_SPAN_OTHER] / from->step);
        pstd_mailbox_post(s->w->mailbox, &note, true);
    }
}

/* Emits stash statistics of each local rank. */
static void emit_stash(struct pstd_session *s)
{
    const struct pstd_executor *w = s->w;

    for (unsigned i = 0; i < pst_engine_n_local(w->engine); i++) {
        const struct pst_memory m = pst_engine_memory(w->engine, i);
        const struct pst_stash_totals t = pst_engine_stash(w->engine, i);
        struct pstd_note note;

        if (m.outside == 0)
            continue;
        pstd_note_init(&note, PSTD_EVENT_STASH);
        pstd_note_int(&note, "run", (int64_t)s->result->run);
        pstd_note_int(&note, "of_rank", w->size == 1 ? i : w->rank);
        pstd_note_int(&note, "outside", (int64_t)m.outside);
        pstd_note_int(&note, "bytes_out", (int64_t)t.bytes_out);
        pstd_note_int(&note, "bytes_in", (int64_t)t.bytes_in);
        pstd_note_real(&note, "waited_s", t.waited);
        pstd_mailbox_post(w->mailbox, &note, true);
    }
}

/* Emits, for each local rank, how many actions replay recorded kernels, if its
 * device can record them (CUDA graphs). */
static void emit_graphs(struct pstd_session *s)
{
    const struct pstd_executor *w = s->w;

    for (unsigned i = 0; i < pst_engine_n_local(w->engine); i++) {
        const struct pst_recorded r = pst_engine_recorded(w->engine, i);
        struct pstd_note note;

        if (w->device->recorder == NULL)
            continue;
        pstd_note_init(&note, PSTD_EVENT_GRAPHS);
        pstd_note_int(&note, "of_rank", w->size == 1 ? i : w->rank);
        pstd_note_int(&note, "actions", r.actions);
        pstd_note_int(&note, "replayed", r.replayed);
        pstd_note_int(&note, "partly", r.partly);
        pstd_note_int(&note, "kernels", (int64_t)r.nodes);
        pstd_note_real(&note, "record_s", r.seconds);
        if (r.why[0] != '\0')
            pstd_note_text(&note, "why", r.why);
        pstd_mailbox_post(w->mailbox, &note, true);
    }
}

/* Passes the result to the loop, which owns it from here on. */
void pstd_session_emit_end(struct pstd_session *s)
{
    struct pstd_result *r = s->result;
    struct pstd_note note;

    if (s->w->rank == 0)
        emit_waits(s);
    if (s->w->engine != NULL) {
        emit_stash(s);
        emit_graphs(s);
    }
    pstd_note_init(&note, PSTD_EVENT_TRAIN_END);
    pstd_note_int(&note, "run", (int64_t)r->run);
    pstd_note_text(&note, "status", pst_status_name(r->diag.status));
    pstd_note_int(&note, "stopped", r->stopped);
    pstd_note_int(&note, "step", (int64_t)r->steps);
    pstd_note_real(&note, "loss", r->loss);
    pstd_note_real(&note, "step_s", r->step_s);
    pstd_note_real(&note, "step_p99_s", r->step_p99_s);
    pstd_note_real(&note, "tok_s", r->tok_s);
    pstd_note_real(&note, "bubble", r->bubble);
    pstd_note_error(&note, &r->diag);
    note.payload = r;
    pstd_mailbox_post(s->w->mailbox, &note, true);
    s->result = NULL;
}
