// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/record/prom.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/base/str.h"

#define PREFIX "penstock_"

#define ROW(name, type, event, field, is, help)                                \
    {                                                                          \
        PREFIX name, type, help, PSTD_EVENT_##event, field, is, 0              \
    }
#define GAUGE(name, event, field, help)                                        \
    ROW(name, "gauge", event, field, NULL, help)
#define COUNT(name, event, field, help)                                        \
    ROW(name, "counter", event, field, NULL, help)
#define GAUGE_IS(name, event, field, is, help)                                 \
    ROW(name, "gauge", event, field, is, help)
#define COUNT_IS(name, event, field, is, help)                                 \
    ROW(name, "counter", event, field, is, help)

#define BETWEEN(name, event, until, help)                                      \
    {                                                                          \
        PREFIX name, "gauge", help, PSTD_EVENT_##event, NULL, NULL,            \
            PSTD_EVENT_##until                                                 \
    }

/* All metrics; contrib/penstock.mtail uses the same names. */
static const struct pstd_metric rows[] = {
    GAUGE_IS("training", STATE, "to", "training",
             "1 while a run is going on, else 0."),
    BETWEEN("paused", PAUSED, CONTINUED, "1 while a run is paused, else 0."),
    GAUGE_IS("serving", STATE, "to", "serving",
             "1 while requests are answered, else 0."),
    GAUGE("run", TRAIN_BEGIN, "run", "Number of the run."),
    GAUGE("planned_bytes", TRAIN_BEGIN, "planned_bytes",
          "Memory that was planned for this rank's arena."),
    GAUGE("step", STEP, "step", "Finished steps."),
    GAUGE("steps", STEP, "steps", "Steps that the run is to make."),
    GAUGE("step_timestamp_seconds", STEP, "ts",
          "When the newest step ended, since 1970."),
    GAUGE("loss", STEP, "loss", "Loss of the newest step."),
    GAUGE("lr", STEP, "lr", "Learning rate."),
    GAUGE("grad_norm", STEP, "grad_norm", "Norm of all gradients."),
    GAUGE("loss_scale", STEP, "loss_scale", "Loss scale of a step."),
    GAUGE("step_seconds", STEP, "step_s", "Duration of a step."),
    GAUGE("samples_per_second", STEP, "samples_s", "Samples trained on."),
    GAUGE("tokens_per_second", STEP, "tok_s", "Tokens trained on."),
    GAUGE("mfu_ratio", STEP, "mfu",
          "Share of the FLOP/s that matmuls reach on the job's cores."),
    GAUGE("bubble_ratio", STEP, "bubble",
          "Share of a step in which ranks computed nothing."),
    GAUGE("forward_seconds", STEP, "forward_s", "Of a step, forward passes."),
    GAUGE("backward_seconds", STEP, "backward_s",
          "Of a step, backward passes."),
    GAUGE("optimizer_seconds", STEP, "optim_s", "Of a step, the optimizer."),
    GAUGE("wait_recv_seconds", STEP, "wait_recv_s",
          "Of a step, waiting for messages of other ranks."),
    GAUGE("wait_other_seconds", STEP, "wait_other_s",
          "Of a step, waiting for anything else."),
    GAUGE("wait_data_seconds", STEP, "wait_data_s",
          "Of a step's forward passes, reading data."),
    GAUGE("eval_loss", EVALUATED, "loss", "Loss on the data of --eval-data."),
    GAUGE("eval_bits_per_byte", EVALUATED, "bits_per_byte",
          "That in bits per byte of the text."),
    GAUGE("eval_best_loss", EVALUATED, "best_loss", "The smallest of these."),
    GAUGE("eval_best_step", EVALUATED, "best_step", "The step that had it."),
    COUNT("eval_failures_total", EVAL_FAILED, NULL,
          "Evaluations that could not be made."),
    GAUGE("checkpoint_step", CHECKPOINT_SAVED, "step",
          "Step of the newest checkpoint."),
    GAUGE("checkpoint_timestamp_seconds", CHECKPOINT_SAVED, "ts",
          "When it was saved, since 1970."),
    GAUGE("checkpoint_seconds", CHECKPOINT_SAVED, "seconds",
          "How long it took to save it."),
    COUNT("checkpoints_total", CHECKPOINT_SAVED, NULL, "Checkpoints saved."),
    COUNT("checkpoint_failures_total", CHECKPOINT_FAILED, NULL,
          "Checkpoints that could not be saved."),
    COUNT("checkpoints_bad_total", CHECKPOINT_BAD, NULL,
          "Checkpoints saved that no run can continue from."),
    COUNT("faults_total", FAULT, NULL,
          "Runs that ended because a step could not be applied."),
    COUNT_IS("not_finite_total", FAULT, "id", "run.not-finite",
             "Runs that ended with a loss or gradient that is not finite."),
    COUNT("steps_skipped_total", STEP_SKIPPED, NULL,
          "Steps that were left out, once more after each rollback."),
    COUNT("overflows_total", STEP_OVERFLOW, NULL,
          "Steps that were left out and halved the loss scale."),
    COUNT("partial_updates_total", UPDATE_PARTIAL, NULL,
          "Updates that left elements as they were."),
    COUNT("rollbacks_total", ROLLED_BACK, NULL, "Returns to a checkpoint."),
    COUNT("loss_spikes_total", LOSS_SPIKE, NULL,
          "Losses far above those before."),
    GAUGE("stragglers", STRAGGLER, "stragglers",
          "Ranks that were reported for delaying the others."),
    COUNT("steps_total", TOTALS, "steps_total", "Steps since the start."),
    COUNT("samples_total", TOTALS, "samples_total", "Samples since the start."),
    COUNT("tokens_total", TOTALS, "tokens_total", "Tokens since the start."),
    GAUGE("uptime_seconds", TOTALS, "uptime_s", "Since the start."),
    GAUGE("rss_bytes", TOTALS, "rss_bytes", "Resident memory of this rank."),
    GAUGE("clients", TOTALS, "clients", "Clients of the control socket."),
    COUNT("clients_dropped_total", TOTALS, "clients_dropped",
          "Clients that were dropped."),
    COUNT("events_dropped_total", TOTALS, "events_dropped",
          "Events dropped because a queue was full."),
    COUNT("log_lost_total", TOTALS, "log_lost",
          "Lines of the log that could not be written."),
    GAUGE("requests_queue", SERVE_BEGIN, "queue",
          "Requests that may wait; more are refused."),
    COUNT("requests_answered_total", SERVING, "answered",
          "Requests that were answered."),
    COUNT("requests_failed_total", SERVING, "failed",
          "Requests that failed by their values, or by the end of the job."),
    COUNT("requests_refused_total", SERVING, "refused",
          "Requests that found the queue full."),
    COUNT("requests_gone_total", SERVING, "gone",
          "Requests whose client was gone."),
    GAUGE("requests_waiting", SERVING, "waiting", "Requests that wait."),
    COUNT("samples_answered_total", SERVING, "samples",
          "Samples of the requests that were answered."),
    GAUGE("answer_mean_seconds", SERVING, "mean_s",
          "From request to answer, mean since the start."),
    GAUGE("answer_longest_seconds", SERVING, "longest_s",
          "From request to answer, longest in 15 seconds."),
    COUNT("failures_total", FAILED, NULL, "Failures that end the job."),
};

_Static_assert(PST_COUNT(rows) <= PSTD_MAX_METRICS, "too many metrics");
/* The event `totals` has a field per metric, except those of `serving`. */
_Static_assert(PSTD_MAX_METRICS <= PSTD_NOTE_FIELDS, "totals would omit some");

/* Returns the value of a field that is an integer or a real number. *ret_known
 * is set if there is such a field. */
static double get_value(const struct pstd_note *note, const char *key,
                        bool *ret_known)
{
    for (unsigned i = 0; i < note->n; i++) {
        const struct pstd_note_field *f = &note->fields[i];

        if (f->type == PSTD_FIELD_TEXT || strcmp(f->key, key) != 0)
            continue;
        *ret_known = true;
        return f->type == PSTD_FIELD_INT ? (double)f->i : f->f;
    }
    return NAN;
}

static bool is_counter(size_t i)
{
    return strcmp(rows[i].type, "counter") == 0;
}

static void update_metric(struct pstd_prom *prom, size_t i,
                          const struct pstd_note *note, uint64_t time_us)
{
    const char *field = rows[i].field, *is = rows[i].is;
    const char *text = is != NULL ? pstd_note_get_text(note, field) : NULL;
    const bool alike = text != NULL && strcmp(text, is) == 0;
    bool known = false;
    double value;

    if (rows[i].until != 0) {
        prom->values[i] = note->event == rows[i].event;
        return;
    }
    if (field == NULL || (is != NULL && is_counter(i))) {
        prom->values[i] += field == NULL || alike;
        return;
    }
    if (is != NULL) {
        prom->values[i] = alike;
        return;
    }
    value = strcmp(field, "ts") == 0 ? 1e-6 * (double)time_us
                                     : get_value(note, field, &known);
    if (known || strcmp(field, "ts") == 0) {
        prom->known[i] = true;
        prom->values[i] = value;
    }
}

/* True if metric i has a value: an event has reported it, or it is a counter,
 * which begins at 0. Counters of requests have none before the first event
 * "serving". */
static bool is_known(const struct pstd_prom *prom, size_t i)
{
    return prom->known[i] || rows[i].is != NULL || rows[i].until != 0 ||
           (is_counter(i) && rows[i].event != PSTD_EVENT_SERVING);
}

/* True for the evaluation of one named set. No row names this event: add_sets
 * writes its numbers, which have the label `set`. */
static bool is_set_evaluation(const struct pstd_note *note)
{
    return note->event == PSTD_EVENT_EVAL_SET;
}

void pstd_prom_note(struct pstd_prom *prom, const struct pstd_note *note,
                    uint64_t time_us)
{
    prom->changed |= is_set_evaluation(note);
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        if (rows[i].event == note->event ||
            (rows[i].until != 0 && rows[i].until == note->event)) {
            update_metric(prom, i, note, time_us);
            prom->changed = true;
        }
    }
}

static void set_value(struct pstd_prom *prom, const char *name, double value)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        prom->changed |= !prom->known[i] || prom->values[i] != value;
        prom->known[i] = true;
        prom->values[i] = value;
    }
}

void pstd_prom_set_newest(struct pstd_prom *prom, uint64_t step, double loss,
                          uint64_t time_us)
{
    set_value(prom, PREFIX "step", (double)step);
    set_value(prom, PREFIX "loss", loss);
    set_value(prom, PREFIX "step_timestamp_seconds", 1e-6 * (double)time_us);
}

void pstd_prom_add_to_note(const struct pstd_prom *prom, struct pstd_note *note)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        const bool comes_anyway = rows[i].event == PSTD_EVENT_TOTALS ||
                                  rows[i].event == PSTD_EVENT_SERVING;

        if (!comes_anyway && is_known(prom, i))
            pstd_note_real(note, rows[i].name + strlen(PREFIX),
                           prom->values[i]);
    }
}

/* Appends the value of a label; escapes \ " and newline, as the format
 * requires. */
static void add_label(struct pst_str *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"')
            pst_str_addn(out, "\\", 1);
        if (*text == '\n')
            pst_str_add(out, "\\n");
        else
            pst_str_addn(out, text, 1);
    }
}

static void add_head(const char *name, const char *type, const char *help,
                     struct pst_str *out)
{
    pst_str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Adds a sample of a metric. set: value of the label `set`, or NULL: no such
 * label. */
static void add_sample(const struct pstd_prom *prom, const char *name,
                       const char *set, double value, struct pst_str *out)
{
    char number[32];

    if (isnan(value))
        (void)snprintf(number, sizeof(number), "NaN");
    else if (isinf(value))
        (void)snprintf(number, sizeof(number), value > 0 ? "+Inf" : "-Inf");
    else
        (void)snprintf(number, sizeof(number), "%.17g", value);
    pst_str_addf(out, "%s{job=\"", name);
    add_label(out, prom->job);
    if (set != NULL)
        pst_str_addf(out, "\",set=\"%s", set);
    pst_str_addf(out, "\"} %s\n", number);
}

/* Adds a metric with a sample for each named set that has a value. number: 0
 * for the loss, 1 for bits per byte. */
static void add_sets(const struct pstd_prom *prom, const char *name,
                     const char *help, size_t number, struct pst_str *out)
{
    bool any = false;

    for (unsigned i = 0; prom->evals != NULL && i < prom->evals->n; i++) {
        const struct pstd_eval_newest *e = &prom->evals->at[i];
        const double values[] = {e->loss, e->bits_per_byte};

        if (e->set[0] == '\0' || (number > 0 && isnan(values[number])))
            continue;
        if (!any)
            add_head(name, "gauge", help, out);
        any = true;
        add_sample(prom, name, e->set, values[number], out);
    }
}

void pstd_prom_format(const struct pstd_prom *prom, struct pst_str *out)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        if (!is_known(prom, i))
            continue;
        add_head(rows[i].name, rows[i].type, rows[i].help, out);
        add_sample(prom, rows[i].name, NULL, prom->values[i], out);
    }
    add_sets(prom, PREFIX "eval_set_loss",
             "Loss on a named set of --eval-data.", 0, out);
    add_sets(prom, PREFIX "eval_set_bits_per_byte",
             "That in bits per byte of the text.", 1, out);
}

/* Creates the temporary file; removes an existing one first, since another user
 * who may write to the folder could have put a pipe there. */
static int create_temp(const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    const int fd = open(path, flags, 0644);

    if (fd >= 0 || errno != EEXIST || unlink(path) != 0)
        return fd;
    return open(path, flags, 0644);
}

/* True for a pipe, a device or a folder, also through a link: root would
 * replace /dev/null itself. */
static bool is_special(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Replaces the file atomically; returns an errno, or 0. Does not fsync: after a
 * crash of the host the numbers are useless. */
static int replace_file(const char *path, const struct pst_str *text)
{
    struct pst_str temp = {0};
    size_t done = 0;
    int fd, err = 0;

    pst_str_addf(&temp, "%s.%d.tmp", path, (int)getpid());
    if (temp.failed || text->failed) {
        pst_str_fini(&temp);
        return ENOMEM;
    }
    fd = create_temp(temp.text);
    /* The collector, which runs as another user, must be able to read the file.
     */
    if (fd < 0 || fchmod(fd, 0644) != 0)
        err = errno;
    while (err == 0 && done < text->len) {
        const ssize_t n = write(fd, text->text + done, text->len - done);

        if (n <= 0 && errno != EINTR)
            err = n < 0 ? errno : ENOSPC;
        done += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0 && close(fd) != 0 && err == 0)
        err = errno;
    if (err == 0 && rename(temp.text, path) != 0)
        err = errno;
    if (err != 0 && fd >= 0)
        (void)unlink(temp.text);
    pst_str_fini(&temp);
    return err;
}

enum pst_status pstd_prom_write(struct pstd_prom *prom, struct pst_diag *diag)
{
    struct pst_str text = {0};
    bool reported = prom->failing;
    bool special;
    int err = 0;

    if (prom->path == NULL || !prom->changed)
        return PST_OK;
    prom->changed = false;
    special = is_special(prom->path);
    if (!special) {
        pstd_prom_format(prom, &text);
        err = replace_file(prom->path, &text);
        pst_str_fini(&text);
    }
    prom->failing = special || err != 0;
    if (!prom->failing || reported)
        return PST_OK;
    if (special)
        return pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                            "--prom %s is not a regular file, and would be "
                            "replaced by one",
                            prom->path);
    return pst_diag_errno(diag, err, "cannot write --prom %s", prom->path);
}
