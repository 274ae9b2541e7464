// SPDX-License-Identifier: Apache-2.0
/* Prints the progress of a run. */
#include "daemon/ctl/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "stages/base/host/alive.h"
#include "stages/base/plural.h"

#define MIB          (1024.0 * 1024.0)
#define LIVE_GAP_S   0.25
#define PLAIN_GAP_S  0.5
#define DEFAULT_WIDE 80

static void set_copy(char **at, const char *text)
{
    pst_free(*at);
    *at =
        text != NULL && *text != '\0' ? pst_strdup(PST_TAG_CLIENT, text) : NULL;
}

/* Returns the mean seconds per step, for the ETA. After the second reported
 * step, leaves out the time up to the first one, which includes one-time work.
 * A client that connected after the run had begun uses step_s of its first
 * event. */
static double seconds_per_step(const struct pstctl_progress *p,
                               const pstctl_event *event)
{
    const bool later = p->n_step_events > 0 && p->step > p->first_event_step;
    const uint64_t from = later ? p->first_event_step : p->first_step;

    if (!later && p->came_later)
        return pstctl_number(event, "step_s");
    return (pst_now() - (later ? p->first_event_s : p->first_s)) /
           (double)PST_MAX(p->step - from, (uint64_t)1);
}

/* Optional fields of a step's line. */
enum part { TOK_S = 1, BUBBLE = 2, STEP_S = 4, LOSS = 8, ETA = 16, MFU = 32 };

static void make_line(const struct pstctl_progress *p,
                      const pstctl_event *event, unsigned parts,
                      struct pst_str *out)
{
    const double tok_s = pstctl_number(event, "tok_s");
    const double bubble = pstctl_number(event, "bubble");
    const double mfu = pstctl_number(event, "mfu");

    pst_str_addf(out, "step %llu/%llu", (unsigned long long)p->step,
                 (unsigned long long)p->steps);
    if (parts & LOSS) {
        pst_str_add(out, "  loss ");
        pstctl_loss(pstctl_number(event, "loss"), out);
    }
    if (tok_s > 0 && (parts & TOK_S)) {
        pst_str_add(out, "  ");
        pstctl_count(tok_s, out);
        pst_str_add(out, " tok/s");
    }
    if (parts & STEP_S) {
        pst_str_add(out, "  ");
        pstctl_duration(pstctl_number(event, "step_s"), out);
        pst_str_add(out, "/step");
    }
    if (isfinite(bubble) && (parts & BUBBLE))
        pst_str_addf(out, "  bubble %.0f%%", 100 * bubble);
    if (isfinite(mfu) && mfu > 0 && (parts & MFU))
        pst_str_addf(out, "  MFU %.0f%%", 100 * mfu);
    if (p->step < p->steps && (parts & ETA)) {
        pst_str_add(out, "  ETA ");
        pstctl_duration(
            seconds_per_step(p, event) * (double)(p->steps - p->step), out);
    }
}

static void fit_line(const struct pstctl_progress *p, const pstctl_event *event,
                     size_t columns, struct pst_str *out)
{
    static const unsigned parts[] = {MFU | TOK_S | BUBBLE | STEP_S | LOSS | ETA,
                                     TOK_S | BUBBLE | STEP_S | LOSS | ETA,
                                     TOK_S | STEP_S | LOSS | ETA,
                                     STEP_S | LOSS | ETA,
                                     LOSS | ETA,
                                     ETA,
                                     0};

    for (size_t i = 0; i < PST_COUNT(parts); i++) {
        pst_str_fini(out);
        make_line(p, event, parts[i], out);
        if (out->len <= columns)
            break;
    }
}

static size_t terminal_width(FILE *out)
{
    struct winsize size;

    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col < 10)
        return DEFAULT_WIDE;
    return size.ws_col;
}

/* Clears the live line before another line is printed in its place. */
static void clear_live(const struct pstctl_progress *p)
{
    if (p->live && p->shown.len > 0)
        pstctl_printf(p->out, "\r\033[K");
    pstctl_flush(p->out);
}

static void show_live(const struct pstctl_progress *p)
{
    if (p->live && p->shown.len > 0)
        pstctl_printf(p->out, "%.*s", (int)terminal_width(p->out) - 1,
                      p->shown.text);
    pstctl_flush(p->out);
}

/* Prints the pending line. */
static void print_step(struct pstctl_progress *p)
{
    if (p->live) {
        clear_live(p);
        pst_str_fini(&p->shown);
        p->shown = p->pending;
        p->pending = (struct pst_str){0};
        show_live(p);
    } else {
        pstctl_printf(p->out, "%s\n", pst_str_text(&p->pending));
        pstctl_flush(p->out);
        pst_str_fini(&p->pending);
    }
    p->printed_step = true;
}

static void show_step(struct pstctl_progress *p, const pstctl_event *event)
{
    const double now = pst_now();
    const double gap = p->live ? LIVE_GAP_S : PLAIN_GAP_S;

    if (p->n_step_events++ == 0) {
        p->first_event_s = now;
        p->first_event_step = p->step;
    }
    fit_line(p, event, p->live ? terminal_width(p->out) - 1 : SIZE_MAX,
             &p->pending);
    if (p->printed_step && p->step < p->steps && now - p->last_s < gap)
        return;
    print_step(p);
    p->last_s = now;
}

/* Prints a separate line above the live one. */
static void print_line(struct pstctl_progress *p, const char *text)
{
    if (p->quiet)
        return;
    clear_live(p);
    pstctl_printf(p->out, "%s\n", text);
    show_live(p);
}

bool pstctl_is_live(FILE *out)
{
    const char *term = getenv("TERM"); // NOLINT(concurrency-mt-unsafe)

    return isatty(fileno(out)) && term != NULL && *term != '\0' &&
           strcmp(term, "dumb") != 0;
}

/* Ends a pause: shifts start times by its length, so that times of steps
 * exclude it. */
static void end_pause(struct pstctl_progress *p)
{
    const double gone = pst_now() - p->paused_s;

    if (p->paused_s > 0) {
        p->first_s += gone;
        p->first_event_s += gone;
    }
    p->paused_s = 0;
}

static void begin_run(struct pstctl_progress *p, const pstctl_event *event)
{
    struct pst_str text = {0};

    p->begun = true;
    p->came_later = false;
    p->live = !p->quiet && pstctl_is_live(p->out);
    p->first_s = pst_now();
    p->n_step_events = 0;
    p->first_step = (uint64_t)pstctl_integer(event, "first_step");
    p->step = p->first_step;
    p->steps = (uint64_t)pstctl_integer(event, "steps");
    set_copy(&p->placement, pstctl_text(event, "placement"));
    set_copy(&p->checkpoint, pstctl_text(event, "checkpoint"));
    if (strcmp(pstctl_text(event, "dtype"), "bf16-in-f32") == 0)
        print_line(p,
                   "matmul operands are rounded to bf16 and multiplied in f32, "
                   "which is faster here");
    pst_str_addf(&text, "stages by rank: %s; arena of rank 0: %.1f MiB",
                 p->placement != NULL ? p->placement : "?",
                 (double)pstctl_integer(event, "planned_bytes") / MIB);
    print_line(p, pst_str_text(&text));
    pst_str_fini(&text);
    if (pstctl_integer(event, "epoch_rows") > 0) {
        pst_str_addf(&text, "%g epoch%s of %lld rows: %llu steps",
                     pstctl_number(event, "epochs"),
                     pstctl_number(event, "epochs") == 1 ? "" : "s",
                     (long long)pstctl_integer(event, "epoch_rows"),
                     (unsigned long long)p->steps);
        print_line(p, pst_str_text(&text));
        pst_str_fini(&text);
    }
}

static void print_best_gone(const pstctl_event *event)
{
    const long long left = pstctl_integer(event, "left");

    pstctl_printf(stderr,
                  "penstock: warning: the best checkpoint, of step %lld, is "
                  "not in %s: ",
                  (long long)pstctl_integer(event, "step"),
                  pstctl_text(event, "dir"));
    if (left > 0)
        pstctl_printf(stderr, "the best one there is of step %lld\n", left);
    else
        pstctl_printf(stderr, "the next evaluation counts as the first\n");
}

/* Prints warnings that a resumed run reports. */
static void print_warning(const pstctl_event *event)
{
    const long long step = pstctl_integer(event, "step");
    const char *text = pstctl_text(event, "text");

    if (strcmp(event->name, "checkpoint_found") == 0)
        pstctl_printf(stderr,
                      "penstock: warning: %s had checkpoints up to step %lld "
                      "of another course of training: they are in %s/%s now\n",
                      pstctl_text(event, "dir"), step,
                      pstctl_text(event, "dir"), pstctl_text(event, "to"));
    else if (strcmp(event->name, "checkpoint_skipped") == 0)
        pstctl_printf(stderr, "penstock: warning: checkpoint passed over: %s\n",
                      text);
    else if (strcmp(event->name, "checkpoint_kept") == 0)
        pstctl_printf(stderr,
                      "penstock: warning: an old checkpoint in %s is not "
                      "removed: %s\n",
                      pstctl_text(event, "dir"), text);
    else if (strcmp(event->name, "best_gone") == 0)
        print_best_gone(event);
    else if (strcmp(event->name, "step_skipped") == 0)
        pstctl_printf(stderr,
                      "penstock: warning: %s; it is left out (%lld so far)\n",
                      text, (long long)pstctl_integer(event, "skipped"));
    else if (strcmp(event->name, "rolled_back") == 0)
        pstctl_printf(stderr,
                      "penstock: warning: %s; back to the checkpoint of step "
                      "%lld\n",
                      text, (long long)pstctl_integer(event, "to"));
    else if (strcmp(event->name, "resume_changed") == 0 ||
             strcmp(event->name, "data_written") == 0 ||
             strcmp(event->name, "checkpoint_doubt") == 0 ||
             strcmp(event->name, "checkpoint_replaced") == 0 ||
             strcmp(event->name, "doubt") == 0 ||
             strcmp(event->name, "hosted") == 0 ||
             strcmp(event->name, "checkpoint_bad") == 0 ||
             strcmp(event->name, "update_partial") == 0)
        pstctl_printf(stderr, "penstock: warning: %s\n", text);
    else
        pstctl_printf(stderr,
                      "penstock: warning: the run that saved step %lld could "
                      "not go on: %s; with the same data and options it ends "
                      "there again\n",
                      step, text);
}

/* Adds the evaluation of a named set, or of all data. */
static void add_evaluated(const pstctl_event *event, struct pst_str *out)
{
    const char *of = pstctl_text(event, "set");

    of = of != NULL ? of : "";
    pst_str_addf(out, "step %lld: evaluated%s%s, loss ",
                 (long long)pstctl_integer(event, "step"),
                 *of != '\0' ? " on " : "", of);
    pstctl_loss(pstctl_number(event, "loss"), out);
    if (!isnan(pstctl_number(event, "bits_per_byte")))
        pst_str_addf(out, " (%.4f bits per byte)",
                     pstctl_number(event, "bits_per_byte"));
    if (!isnan(pstctl_number(event, "metric")))
        pst_str_addf(out, ", metric %.6g", pstctl_number(event, "metric"));
}

static void add_evaluation(const pstctl_event *event, struct pst_str *out)
{
    const char *set = pstctl_text(event, "set");
    const bool named = set != NULL && *set != '\0';

    /* Named sets have events of their own, which were printed before. */
    if (named)
        pst_str_addf(out, "step %lld: on %s",
                     (long long)pstctl_integer(event, "step"), set);
    else
        add_evaluated(event, out);
    if (pstctl_integer(event, "best") != 0) {
        pst_str_add(out, named ? " the best so far" : ", the best so far");
    } else if (pstctl_integer(event, "best_step") > 0) {
        pst_str_add(out, named ? " the best is " : "; best ");
        if (!isnan(pstctl_number(event, "best_metric")))
            pst_str_addf(out, "%.6g", pstctl_number(event, "best_metric"));
        else
            pstctl_loss(pstctl_number(event, "best_loss"), out);
        pst_str_addf(out, " at step %lld",
                     (long long)pstctl_integer(event, "best_step"));
    }
}

static void add_early_stop(const pstctl_event *event, struct pst_str *out)
{
    const long long n = (long long)pstctl_integer(event, "patience");
    const bool any = isfinite(pstctl_number(event, "best_loss")) ||
                     isfinite(pstctl_number(event, "best_metric"));

    if (any)
        pst_str_addf(out,
                     "%lld evaluations were not better than that of step "
                     "%lld: the run ends",
                     n, (long long)pstctl_integer(event, "best_step"));
    else
        pst_str_addf(out,
                     "%lld evaluations, none of which had a finite loss: the "
                     "run ends",
                     n);
}

static void begin_serving(struct pstctl_progress *p, const pstctl_event *event)
{
    const char *placement = pstctl_text(event, "placement");
    const long long step = pstctl_integer(event, "step");
    const long long microbatches = pstctl_integer(event, "microbatches");
    const long long rows = pstctl_integer(event, "rows");
    const long long most = pstctl_integer(event, "most");
    char from[64] = "the start values";

    pst_free(p->placement);
    p->placement = pst_strdup(PST_TAG_CLIENT, placement ? placement : "");
    if (step > 0)
        (void)snprintf(from, sizeof(from), "the checkpoint of step %lld", step);
    if (!p->quiet)
        pstctl_printf(p->out,
                      "serving with %s: %lld microbatch%s of %lld row%s a "
                      "step, at most %lld sample%s a request\n",
                      from, microbatches, pst_plural_es(microbatches), rows,
                      pst_plural((uint64_t)rows), most,
                      pst_plural((uint64_t)most));
    pstctl_flush(p->out);
}

static struct pst_str *measured_text(const pstctl_event *event,
                                     struct pst_str *out)
{
    const char *path = pstctl_text(event, "path");

    pst_str_addf(out,
                 "measured matmuls of this machine: f32 %.0f, bf16 %.0f "
                 "GFLOP/s a core; ",
                 pstctl_number(event, "f32_gflops"),
                 pstctl_number(event, "bf16_gflops"));
    if (path[0] != '\0')
        pst_str_addf(out, "kept in %s", path);
    else
        pst_str_addf(out, "the next job measures again: %s",
                     pstctl_text(event, "text"));
    return out;
}

void pstctl_progress_event(struct pstctl_progress *p, const pstctl_event *event)
{
    struct pst_str text = {0};

    if (event->dropped > 0) {
        pst_str_addf(&text,
                     "%llu events were missed: this client did not read for "
                     "too long, or they cannot be read back",
                     (unsigned long long)event->dropped);
    } else if (strcmp(event->name, "train_begin") == 0) {
        begin_run(p, event);
    } else if (strcmp(event->name, "measured") == 0) {
        print_line(p, pst_str_text(measured_text(event, &text)));
        pst_str_fini(&text);
    } else if (strcmp(event->name, "serve_begin") == 0) {
        begin_serving(p, event);
    } else if (strcmp(event->name, "step") == 0) {
        p->step = (uint64_t)pstctl_integer(event, "step");
        if (!p->begun) {
            p->begun = p->came_later = true;
            p->live = !p->quiet && pstctl_is_live(p->out);
        }
        p->steps = (uint64_t)pstctl_integer(event, "steps");
        if (!p->quiet)
            show_step(p, event);
    } else if (strcmp(event->name, "checkpoint_saved") == 0) {
        p->saved = true;
        p->saved_step = (uint64_t)pstctl_integer(event, "step");
        pst_str_addf(&text, "checkpoint of step %llu saved",
                     (unsigned long long)p->saved_step);
        if (p->checkpoint != NULL &&
            strcmp(p->checkpoint, pstctl_text(event, "dir")) != 0)
            pst_str_addf(&text, " in %s", pstctl_text(event, "dir"));
    } else if (strcmp(event->name, "evaluated") == 0) {
        add_evaluation(event, &text);
    } else if (strcmp(event->name, "eval_set") == 0) {
        add_evaluated(event, &text);
    } else if (strcmp(event->name, "eval_failed") == 0) {
        pst_str_addf(&text, "evaluation failed: %s",
                     pstctl_text(event, "text"));
    } else if (strcmp(event->name, "early_stop") == 0) {
        add_early_stop(event, &text);
    } else if (strcmp(event->name, "checkpoint_failed") == 0) {
        pst_str_addf(&text, "checkpoint failed: %s",
                     pstctl_text(event, "text"));
    } else if (strcmp(event->name, "checkpoint_found") == 0 ||
               strcmp(event->name, "checkpoint_skipped") == 0 ||
               strcmp(event->name, "checkpoint_kept") == 0 ||
               strcmp(event->name, "checkpoint_doubt") == 0 ||
               strcmp(event->name, "checkpoint_replaced") == 0 ||
               strcmp(event->name, "resume_doubt") == 0 ||
               strcmp(event->name, "resume_changed") == 0 ||
               strcmp(event->name, "data_written") == 0 ||
               strcmp(event->name, "doubt") == 0 ||
               strcmp(event->name, "run_delayed") == 0 ||
               strcmp(event->name, "hosted") == 0 ||
               strcmp(event->name, "checkpoint_bad") == 0 ||
               strcmp(event->name, "best_gone") == 0 ||
               strcmp(event->name, "update_partial") == 0 ||
               strcmp(event->name, "step_skipped") == 0 ||
               strcmp(event->name, "rolled_back") == 0) {
        clear_live(p);
        print_warning(event);
        show_live(p);
    } else if (strcmp(event->name, "step_overflow") == 0) {
        pst_str_addf(&text,
                     "step %lld is left out: %s; the loss scale is halved to "
                     "%.10g (%lld so far)",
                     (long long)pstctl_integer(event, "step"),
                     pstctl_text(event, "text"),
                     pstctl_number(event, "loss_scale"),
                     (long long)pstctl_integer(event, "overflows"));
    } else if (strcmp(event->name, "resume") == 0) {
        pst_str_addf(&text, "going on after step %lld",
                     (long long)pstctl_integer(event, "step"));
    } else if (strcmp(event->name, "microbatches") == 0) {
        const long long n = pstctl_integer(event, "microbatches");

        pst_str_addf(
            &text, "after step %lld: %lld microbatch%s a step, %lld rows",
            (long long)pstctl_integer(event, "step"), n, pst_plural_es(n),
            (long long)pstctl_integer(event, "rows"));
    } else if (strcmp(event->name, "set_restored") == 0) {
        pst_str_addf(&text,
                     "set while the run of the checkpoint went on, and in "
                     "force: %s",
                     pstctl_text(event, "options"));
    } else if (strcmp(event->name, "paused") == 0) {
        pst_str_add(&text, "paused");
        p->paused_s = pst_now();
    } else if (strcmp(event->name, "continued") == 0) {
        end_pause(p);
    }
    if (text.len > 0)
        print_line(p, text.text);
    pst_str_fini(&text);
}

void pstctl_progress_end(struct pstctl_progress *p)
{
    if (p->pending.len > 0 && !p->quiet)
        print_step(p);
    if (p->live && p->shown.len > 0)
        pstctl_printf(p->out, "\n");
    pstctl_flush(p->out);
    pst_str_fini(&p->pending);
    pst_str_fini(&p->shown);
    p->live = false;
}

void pstctl_progress_fini(struct pstctl_progress *p)
{
    set_copy(&p->placement, NULL);
    set_copy(&p->checkpoint, NULL);
    pst_str_fini(&p->pending);
    pst_str_fini(&p->shown);
}
