// SPDX-License-Identifier: Apache-2.0
/* Formats events, results, and numbers for people. */
#include "daemon/ctl/print.h"

#include <math.h>
#include <time.h>

#include "stages/base/plural.h"

#define MIB (1024.0 * 1024.0)

void pstctl_time(uint64_t time_us, struct pst_str *out)
{
    const time_t seconds = (time_t)(time_us / 1000000);
    struct tm tm;
    char text[32];

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    pst_str_addf(out, "%s.%03uZ", text, (unsigned)(time_us / 1000 % 1000));
}

void pstctl_event_line(const pstctl_event *event, struct pst_str *out)
{
    pstctl_time(event->time_us, out);
    pst_str_add(out, " ");
    pst_str_add_logfmt(out, event->name);
    for (size_t i = 0; i < event->n_fields; i++) {
        const Pst__Control__Field *f = event->fields[i];
        char number[32];

        pst_str_add(out, " ");
        pst_str_add_logfmt(out, f->key);
        pst_str_add(out, "=");
        if (f->value_case == PST__CONTROL__FIELD__VALUE_TEXT) {
            pst_str_add_logfmt(out, f->text);
        } else if (f->value_case == PST__CONTROL__FIELD__VALUE_NUMBER) {
            (void)snprintf(number, sizeof(number), "%.6g", f->number);
            pst_str_add(out, number);
        } else {
            pst_str_addf(out, "%lld", (long long)f->integer);
        }
    }
    if (event->dropped > 0)
        pst_str_addf(out, " dropped=%llu", (unsigned long long)event->dropped);
}

json_t *pstctl_event_json(const pstctl_event *event)
{
    struct pst_str time = {0};
    json_t *o;

    pstctl_time(event->time_us, &time);
    o = json_pack("{s:I s:s s:s s:s}", "seq", (json_int_t)event->seq, "ts",
                  pst_str_text(&time), "level", event->level, "event",
                  event->name);
    pst_str_fini(&time);
    for (size_t i = 0; o != NULL && i < event->n_fields; i++) {
        const Pst__Control__Field *f = event->fields[i];
        json_t *value;

        if (f->value_case == PST__CONTROL__FIELD__VALUE_TEXT)
            value = pstctl_json_text(f->text);
        else if (f->value_case == PST__CONTROL__FIELD__VALUE_NUMBER)
            value = pstctl_json_real(f->number);
        else
            value = json_integer(f->integer);
        (void)json_object_set_new(o, f->key, value);
    }
    if (o != NULL && event->dropped > 0)
        (void)json_object_set_new(o, "dropped",
                                  json_integer((json_int_t)event->dropped));
    return o;
}

void pstctl_duration(double seconds, struct pst_str *out)
{
    const long long whole = isfinite(seconds) ? llround(seconds) : 0;

    if (!isfinite(seconds))
        pst_str_add(out, "?");
    /* limits are those of the rounded values: 999.5 us would print as 1000 us
     */
    else if (1e6 * seconds < 999.5)
        pst_str_addf(out, "%.0f us", 1e6 * seconds);
    else if (1e3 * seconds < 999.5)
        pst_str_addf(out, "%.3g ms", 1e3 * seconds);
    else if (seconds < 59.95)
        pst_str_addf(out, "%.3g s", seconds);
    else if (whole < 3600)
        pst_str_addf(out, "%lld:%02lld", whole / 60, whole % 60);
    else
        pst_str_addf(out, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                     whole % 60);
}

void pstctl_loss_digits(double x, int decimals, struct pst_str *out)
{
    const double size = fabs(x);

    if (isnan(x)) /* a NaN prints without its sign */
        pst_str_add(out, "nan");
    else if (size != 0 && (size < 1e-3 || size >= 1e5))
        pst_str_addf(out, "%.*g", decimals + 1, x);
    else
        pst_str_addf(out, "%.*f", decimals, x);
}

void pstctl_loss(double x, struct pst_str *out)
{
    pstctl_loss_digits(x, 4, out);
}

void pstctl_count(double x, struct pst_str *out)
{
    static const char units[] = {'k', 'M', 'G', 'T'};
    size_t unit = 0;

    if (!isfinite(x)) {
        pst_str_add(out, "?");
        return;
    }
    if (fabs(x) < 999.5) {
        pst_str_addf(out, "%.3g", x);
        return;
    }
    x /= 1000;
    while (fabs(x) >= 999.5 && unit + 1 < sizeof(units)) {
        x /= 1000;
        unit++;
    }
    pst_str_addf(out, "%.3g%c", x, units[unit]);
}

/* Returns the largest memory of any process, in MiB. planned: counts the arenas
 * of the process's ranks; otherwise its peak resident memory. */
static double most_mib(const Pst__Control__Result *r, bool planned)
{
    double most = 0, sum = 0;

    for (size_t i = 0; i < r->n_ranks; i++) {
        const double bytes = (double)(planned ? r->ranks[i]->planned_bytes
                                              : r->ranks[i]->peak_rss_bytes);

        most = fmax(most, bytes);
        sum += bytes;
    }
    return (r->processes == 1 && planned ? sum : most) / MIB;
}

/* Returns the shares of the measured step that a rank spent on work, on moving
 * data, and on waiting, by cause; null: no step was measured. */
static json_t *causes_json(const Pst__Control__RankResult *r)
{
    if (!(r->measured_step_seconds > 0))
        return json_null();
    return json_pack("{s:f s:f s:f s:f s:f s:f s:f}", "work", r->work, "move",
                     r->move, "warm_up", r->warm_up, "drain", r->drain,
                     "imbalance", r->imbalance, "message", r->message, "other",
                     r->other);
}

static json_t *rank_json(const Pst__Control__RankResult *r)
{
    const double busy =
        r->forward_seconds + r->backward_seconds + r->optim_seconds;
    const double all = r->step_seconds;

    return json_pack(
        "{s:I s:s s:f s:f s:f s:o s:o s:o s:o}", "rank", (json_int_t)r->rank,
        "stages", r->stages, "peak_rss_mib", (double)r->peak_rss_bytes / MIB,
        "base_rss_mib", (double)r->base_rss_bytes / MIB, "planned_mib",
        (double)r->planned_bytes / MIB, "bubble",
        pstctl_json_real(1 - busy / all), "wait_recv",
        pstctl_json_real(r->wait_recv_seconds / all), "wait_other",
        pstctl_json_real(r->wait_other_seconds / all), "step", causes_json(r));
}

json_t *pstctl_evaluations_json(Pst__Control__Evaluation *const *at, size_t n)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(
            ret, json_pack("{s:o s:I s:o s:o s:o}", "set",
                           *at[i]->set != '\0' ? pstctl_json_text(at[i]->set)
                                               : json_null(),
                           "step", (json_int_t)at[i]->step, "loss",
                           pstctl_json_real(at[i]->loss), "metric",
                           pstctl_json_real(at[i]->metric), "bits_per_byte",
                           pstctl_json_real(at[i]->bits_per_byte)));
    return ret;
}

/* Returns the options of a run that this command was given, by name. */
static json_t *options_json(const struct pstd_config *config)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    json_t *ret = json_object();

    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};

        if ((rows[i].groups & (PSTD_OPT_TRAIN | PSTD_OPT_RANKS)) &&
            config->given[i] && pstd_config_text(config, &rows[i], &text))
            (void)json_object_set_new(ret, rows[i].name,
                                      pstctl_json_text(pst_str_text(&text)));
        pst_str_fini(&text);
    }
    return ret;
}

json_t *pstctl_result_json(const Pst__Control__Result *r, uint64_t start_us,
                           const struct pstd_config *config)
{
    json_t *losses = json_array(), *ranks = json_array();

    for (size_t i = 0; i < r->n_losses; i++)
        (void)json_array_append_new(losses, pstctl_json_real(r->losses[i]));
    for (size_t i = 0; i < r->n_ranks; i++)
        (void)json_array_append_new(ranks, rank_json(r->ranks[i]));
    return json_pack(
        "{s:o s:o s:o s:I s:I s:b s:o s:f s:f s:o s:o s:o s:s s:o s:I s:o s:b "
        "s:o s:o s:o s:o s:o s:I s:o s:o}",
        "loss", pstctl_json_real(r->loss), "step_s",
        pstctl_json_real(r->step_seconds), "step_p99_s",
        r->step_p99_seconds > 0 ? pstctl_json_real(r->step_p99_seconds)
                                : json_null(),
        "steps", (json_int_t)r->steps, "first_step", (json_int_t)r->first_step,
        "stopped", r->stopped, "first_step_at_s",
        r->first_step_us > 0
            ? json_real(1e-6 * (double)(r->first_step_us - start_us))
            : json_null(),
        "peak_rss_mib", most_mib(r, false), "planned_mib", most_mib(r, true),
        "bubble", pstctl_json_real(r->bubble), "gflops",
        pstctl_json_real(r->gflops), "tok_s", pstctl_json_real(r->tok_s),
        "status", pst_status_name(r->status), "error_id",
        pstctl_json_text(r->error_id), "best_step", (json_int_t)r->best_step,
        "best_loss",
        r->best_step > 0 ? pstctl_json_real(r->best_loss) : json_null(),
        "ended_early", r->enough, "mfu",
        r->mfu > 0 ? pstctl_json_real(r->mfu) : json_null(), "ranks", ranks,
        "losses", losses, "evaluations",
        pstctl_evaluations_json(r->evaluations, r->n_evaluations), "options",
        options_json(config), "best_lost_step", (json_int_t)r->best_lost_step,
        "history_lost", pstctl_json_text(r->history_lost), "log_lost",
        pstctl_json_text(r->log_lost));
}

/* Adds what the folders of the run lack, since they could not be written. */
static void add_lost(const Pst__Control__Result *r, struct pst_str *out)
{
    if (r->history_lost[0] != '\0')
        pst_str_addf(out, "; the history lacks steps: %s", r->history_lost);
    if (r->log_lost[0] != '\0')
        pst_str_addf(out, "; the log lacks lines: %s", r->log_lost);
}

void pstctl_result_line(const Pst__Control__Result *r, struct pst_str *out)
{
    if (r->n_losses == 0) {
        if (r->steps == r->first_step)
            pst_str_addf(out, "no step was run%s: %llu are finished already",
                         r->stopped ? " (stopped on request)" : "",
                         (unsigned long long)r->steps);
        else
            pst_str_addf(out, "no step was applied: %llu were left out",
                         (unsigned long long)(r->steps - r->first_step));
        return;
    }
    pst_str_addf(out, "%llu step%s%s, loss ", (unsigned long long)r->steps,
                 pst_plural(r->steps),
                 r->stopped  ? " (stopped on request)"
                 : r->enough ? " (ended early)"
                             : "");
    pstctl_loss(r->loss, out);
    pst_str_add(out, ", ");
    if (r->best_step > 0) {
        pst_str_add(out, "best evaluation");
        /* the loss is NaN if evaluations are compared by --eval-metric */
        if (!isnan(r->best_loss)) {
            pst_str_add(out, " ");
            pstctl_loss(r->best_loss, out);
        }
        pst_str_addf(out, " at step %llu", (unsigned long long)r->best_step);
    }
    if (r->best_lost_step > 0)
        pst_str_addf(out,
                     r->best_step > 0
                         ? " (that at step %llu is better, but has no "
                           "checkpoint)"
                         : "no best evaluation: that at step %llu has no "
                           "checkpoint",
                     (unsigned long long)r->best_lost_step);
    if (r->best_step > 0 || r->best_lost_step > 0)
        pst_str_add(out, ", ");
    pstctl_duration(r->step_seconds, out);
    pst_str_add(out, " a step, ");
    if (r->tok_s > 0) {
        pstctl_count(r->tok_s, out);
        pst_str_add(out, " tok/s, ");
    }
    if (!isnan(r->gflops))
        pst_str_addf(out, "%.3g GFLOP/s, ", r->gflops);
    if (r->mfu > 0)
        pst_str_addf(out, "MFU %.0f%%, ", 100 * r->mfu);
    pst_str_addf(out, "bubble %.0f%%", 100 * r->bubble);
    if (r->n_ranks > 0) /* a result from an event has no ranks */
        pst_str_addf(out, ", peak memory %.1f MiB (arena %.1f MiB)",
                     most_mib(r, false), most_mib(r, true));
    add_lost(r, out);
}

enum pst_status pstctl_result_status(const Pst__Control__Result *r,
                                     struct pst_diag *diag)
{
    if (r->status == PST_OK)
        return PST_OK;
    return pst_diag_carry(diag, pst_error_find(r->error_id),
                          (enum pst_status)r->status, "%s", r->text);
}
