// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/report/story.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/ctl/report/line.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#define TAG        PST_TAG_CLIENT
#define MAX_EVENTS 400
#define MAX_POINTS 4000000

static const char *copy_text(struct pstctl_story *s, const char *text)
{
    const char *copy = pst_arena_strdup(&s->arena, text);

    return copy != NULL ? copy : "";
}

static struct pstctl_rank_story *get_rank(struct pstctl_story *s, double number)
{
    struct pstctl_rank_story *r;

    if (!(number >= 0 && number < PSTCTL_STORY_RANKS))
        return NULL;
    r = &s->rank[(unsigned)number];
    r->seen = true;
    s->ranks = PST_MAX(s->ranks, (unsigned)number + 1);
    return r;
}

/* Adds a point. Before that, removes points of the same and of later steps,
 * which a job repeats after a rollback. False: no memory. */
static bool put_point(struct pstctl_points *points, double x, double y)
{
    const struct pstctl_point p = {x, y};

    while (points->n > 0 && points->at[points->n - 1].x >= x)
        points->n--;
    return !isfinite(x) || !isfinite(y) || points->n >= MAX_POINTS ||
           pst_vec_push(TAG, points, p);
}

/* --- events --------------------------------------------------------------- */

static void add_times(struct pstctl_rank_story *r,
                      const struct pstctl_line *line)
{
    static const char *const keys[] = {
#define KEY(field, text) #field,
        PSTCTL_TIMES_LIST(KEY)};

    for (size_t i = 0; i < PSTCTL_N_TIMES; i++) {
        const double x = pstctl_line_number(line, keys[i]);

        if (isfinite(x) && x >= 0)
            r->times[i] += x;
    }
}

static void read_parts(const struct pstctl_line *line, const char *const *keys,
                       size_t n, double *ret)
{
    for (size_t i = 0; i < n; i++) {
        const double x = pstctl_line_number(line, keys[i]);

        ret[i] = isfinite(x) && x >= 0 ? x : 0;
    }
}

static bool add_step(struct pstctl_story *s, const struct pstctl_line *line)
{
    const double step = pstctl_line_number(line, "step");
    const double tokens = pstctl_line_number(line, "tok_s");
    struct pstctl_rank_story *r = get_rank(s, line->rank);

    if (r != NULL)
        add_times(r, line);
    if (line->rank != 0)
        return true;
    s->steps = pstctl_line_number(line, "steps");
    s->tokens = s->tokens || tokens > 0;
    return put_point(&s->loss, step, pstctl_line_number(line, "loss")) &&
           put_point(&s->lr, step, pstctl_line_number(line, "lr")) &&
           put_point(&s->step_s, step, pstctl_line_number(line, "step_s")) &&
           put_point(&s->rate, step,
                     tokens > 0 ? tokens
                                : pstctl_line_number(line, "samples_s"));
}

/* Takes an evaluation of a named set. Evaluations are dropped if they name more
 * sets than a run can have. */
static bool add_set_evaluation(struct pstctl_story *s,
                               const struct pstctl_line *line)
{
    const char *name = pstctl_line_text(line, "set");
    unsigned i = 0;

    while (i < s->n_sets && strcmp(s->sets[i].name, name) != 0)
        i++;
    if (i == PSTD_MAX_SETS)
        return true;
    if (i == s->n_sets)
        s->sets[s->n_sets++].name = copy_text(s, name);
    return put_point(&s->sets[i].eval, pstctl_line_number(line, "step"),
                     pstctl_line_number(line, "loss"));
}

/* Clears the outcome of the previous run when a new one begins. */
static void clear_end(struct pstctl_story *s)
{
    s->status = s->end_text = s->stop_by = "";
    s->stopped = false;
    s->patience = s->better = s->median = NAN;
}

static void set_end(struct pstctl_story *s, const struct pstctl_line *line)
{
    s->status = copy_text(s, pstctl_line_text(line, "status"));
    s->end_text = copy_text(s, pstctl_line_text(line, "text"));
    s->stopped = pstctl_line_number(line, "stopped") > 0;
    s->median = pstctl_line_number(line, "step_s");
}

static void set_begin(struct pstctl_story *s, const struct pstctl_line *line)
{
    clear_end(s);
    s->schedule = copy_text(s, pstctl_line_text(line, "schedule"));
    s->dtype = copy_text(s, pstctl_line_text(line, "dtype"));
    s->optimizer = copy_text(s, pstctl_line_text(line, "optimizer"));
    s->placement = copy_text(s, pstctl_line_text(line, "placement"));
    s->options = copy_text(s, pstctl_line_text(line, "options"));
    s->steps = pstctl_line_number(line, "steps");
}

static void add_start(struct pstctl_story *s, const struct pstctl_line *line)
{
    struct pstctl_rank_story *r = get_rank(s, line->rank);

    if (r != NULL)
        r->host = copy_text(s, pstctl_line_text(line, "host"));
    if (line->rank != 0)
        return;
    clear_end(s);
    s->starts++;
    s->version = copy_text(s, pstctl_line_text(line, "version"));
    s->transport = copy_text(s, pstctl_line_text(line, "transport"));
    if (get_rank(s, pstctl_line_number(line, "ranks") - 1) != NULL)
        s->newest_ranks = (unsigned)pstctl_line_number(line, "ranks");
}

static void set_rank_parts(struct pstctl_story *s,
                           const struct pstctl_line *line)
{
    static const char *const memory[] = {PSTCTL_MEMORY_LIST(KEY)};
    static const char *const shares[] = {PSTCTL_SHARES_LIST(KEY)};
    struct pstctl_rank_story *r =
        get_rank(s, pstctl_line_number(line, "of_rank"));

    if (r == NULL)
        return;
    r->stages = copy_text(s, pstctl_line_text(line, "stages"));
    if (strcmp(line->event, "memory") == 0)
        read_parts(line, memory, PSTCTL_N_MEMORY, r->memory);
    else
        read_parts(line, shares, PSTCTL_N_SHARES, r->shares);
#undef KEY
}

static bool add_line(struct pstctl_story *s, const struct pstctl_line *line)
{
    const char *event = line->event;

    if (strcmp(event, "step") == 0)
        return add_step(s, line);
    if (strcmp(event, "start") == 0)
        add_start(s, line);
    else if (strcmp(event, "memory") == 0 || strcmp(event, "waits") == 0)
        set_rank_parts(s, line);
    else if (strcmp(event, "totals") == 0 && get_rank(s, line->rank) != NULL)
        s->rank[line->rank].rss = pstctl_line_number(line, "rss_bytes");
    else if (strcmp(event, "job_restart") == 0)
        s->restarts++;
    if (line->rank != 0)
        return true;
    if (strcmp(event, "train_begin") == 0)
        set_begin(s, line);
    else if (strcmp(event, "plan_loaded") == 0)
        s->plan = copy_text(s, pstctl_line_text(line, "plan"));
    else if (strcmp(event, "eval_set") == 0)
        return add_set_evaluation(s, line);
    else if (strcmp(event, "evaluated") == 0) {
        s->metric = *pstctl_line_text(line, "metric") != '\0';
        return put_point(&s->eval, pstctl_line_number(line, "step"),
                         pstctl_line_number(line, "loss"));
    } else if (strcmp(event, "train_end") == 0)
        set_end(s, line);
    else if (strcmp(event, "stop") == 0 && *s->status == '\0')
        s->stop_by = copy_text(s, pstctl_line_text(line, "by"));
    else if (strcmp(event, "early_stop") == 0) {
        s->patience = pstctl_line_number(line, "patience");
        s->better = pstctl_line_number(line, "best_step");
    }
    return true;
}

/* True if the page lists the event: a warning or an error of any rank, or one
 * of these events of rank 0. */
static bool is_listed(const struct pstctl_line *line)
{
    static const char *const names[] = {
        "start",      "train_begin",  "resume",           "evaluated",
        "early_stop", "best_saved",   "swapped",          "frozen",
        "unfrozen",   "attr_set",     "attr_cast",        "set",
        "paused",     "continued",    "checkpoint_saved", "train_end",
        "stop",       "set_restored", "microbatches"};

    if (strcmp(line->level, "warn") == 0 || strcmp(line->level, "error") == 0)
        return true;
    for (size_t i = 0; i < PST_COUNT(names) && line->rank == 0; i++)
        if (strcmp(names[i], line->event) == 0)
            return true;
    return false;
}

static bool add_event(struct pstctl_story *s, const struct pstctl_line *line)
{
    struct pst_str text = {0};
    struct pstctl_shown_event shown = {.time = line->time, .rank = line->rank};
    bool ok;

    for (size_t i = 0; i < line->n; i++)
        pst_str_addf(&text, "%s%s=%.300s", i > 0 ? " " : "", line->keys[i],
                     line->values[i]);
    shown.level = copy_text(s, line->level);
    shown.event = copy_text(s, line->event);
    shown.text = copy_text(s, pst_str_text(&text));
    ok = !text.failed && pst_vec_push(TAG, &s->events, shown);
    pst_str_fini(&text);
    if (s->events.n >= 2 * (size_t)MAX_EVENTS) {
        s->left_out += MAX_EVENTS;
        s->events.n -= MAX_EVENTS;
        memmove(s->events.at, s->events.at + MAX_EVENTS,
                s->events.n * sizeof(shown));
    }
    return ok;
}

/* --- files ---------------------------------------------------------------- */

/* A log file that is read byte by byte, up to the size that it had when it was
 * opened. */
struct log_reader {
    struct pst_file file;
    uint64_t at; /* offset of the next bytes */
    size_t n, next;
    unsigned char bytes[16384];
    enum pst_status status;
    struct pst_diag *diag;
};

/* Returns the next byte; EOF: end of the file, or r->status is an error. */
static int next_byte(struct log_reader *r)
{
    if (r->next == r->n) {
        r->n = (size_t)PST_MIN(r->file.size - r->at, sizeof(r->bytes));
        r->next = 0;
        if (r->n > 0)
            r->status =
                pst_file_read_at(&r->file, r->at, r->bytes, r->n, r->diag);
        if (r->status != PST_OK)
            r->n = 0;
        r->at += r->n;
    }
    return r->n > 0 ? r->bytes[r->next++] : EOF;
}

/* Reads the next line, without its newline. NUL bytes, which a power failure
 * may leave in a file, end a line too. *ret_whole: the line is complete and
 * fits into text. False: end of the file. */
static bool next_line(struct log_reader *r, char *text, size_t size,
                      bool *ret_whole)
{
    bool fits = true;
    size_t n = 0;
    int c;

    do
        c = next_byte(r);
    while (c == '\0');
    if (c == EOF)
        return false;
    for (; c != '\n' && c != '\0' && c != EOF; c = next_byte(r)) {
        fits = n + 1 < size;
        if (fits)
            text[n++] = (char)c;
    }
    text[n] = '\0';
    *ret_whole = fits && c == '\n';
    return true;
}

static enum pst_status read_log(struct pstctl_story *s, const char *path,
                                struct pst_diag *diag)
{
    struct log_reader r = {.diag = diag};
    char text[8192];
    bool ok = true, whole;

    /* Refuses pipes and devices, which may block or never end. */
    if (pst_file_open(path, &r.file, diag) != PST_OK)
        return PST_ERR_IO;
    while (ok && next_line(&r, text, sizeof(text), &whole)) {
        struct pstctl_line line;

        s->lines++;
        if (!whole || !pstctl_line_parse(text, &line)) {
            s->bad++;
            continue;
        }
        if (line.time >= s->end && strcmp(s->job, line.job) != 0)
            s->job = copy_text(s, line.job);
        s->begin = s->begin > 0 ? PST_MIN(s->begin, line.time) : line.time;
        s->end = PST_MAX(s->end, line.time);
        ok = add_line(s, &line) && (!is_listed(&line) || add_event(s, &line));
    }
    pst_file_close(&r.file);
    return ok ? r.status : pst_diag_nomem(diag, s->loss.n);
}

/* True for the name of a log; a folder whose name ends like one is none. */
static bool is_log(DIR *dir, const char *name)
{
    struct stat st;

    return pst_has_suffix(name, ".log") &&
           (fstatat(dirfd(dir), name, &st, 0) != 0 || !S_ISDIR(st.st_mode));
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_events(const void *a, const void *b)
{
    const struct pstctl_shown_event *x = a, *y = b;

    return (x->time > y->time) - (x->time < y->time);
}

enum pst_status pstctl_story_read(const char *dir, struct pstctl_story *s,
                                  struct pst_diag *diag)
{
    struct PST_VEC(char *) names = {0};
    DIR *d = opendir(dir);
    const struct dirent *e;
    enum pst_status status = PST_OK;

    pst_arena_init(&s->arena, TAG);
    s->job = s->plan = s->version = s->schedule = s->dtype = s->optimizer = "";
    s->transport = s->placement = s->options = "";
    clear_end(s);
    s->steps = NAN;
    if (d == NULL)
        return pst_diag_errno(diag, errno, "cannot read %s", dir);
    while (status == PST_OK && (e = readdir(d)) != NULL) {
        char *name;

        if (!is_log(d, e->d_name))
            continue;
        name = pst_arena_printf(&s->arena, "%s/%s", dir, e->d_name);
        if (name == NULL || !pst_vec_push(TAG, &names, name))
            status = pst_diag_nomem(diag, 0);
    }
    (void)closedir(d);
    if (names.n > 1)
        qsort(names.at, names.n, sizeof(char *), compare_names);
    for (size_t i = 0; i < names.n && status == PST_OK; i++)
        status = read_log(s, names.at[i], diag);
    if (status == PST_OK && s->lines == s->bad)
        status = pst_diag_set(
            diag, PST_E_RECORD_NONE,
            "no log of a job in %s: give the folder of --log-dir", dir);
    pst_vec_fini(&names);
    if (s->newest_ranks > 0)
        s->ranks = s->newest_ranks;
    if (s->events.n > 1)
        qsort(s->events.at, s->events.n, sizeof(s->events.at[0]),
              compare_events);
    return status;
}

void pstctl_story_fini(struct pstctl_story *s)
{
    pst_vec_fini(&s->loss);
    pst_vec_fini(&s->lr);
    pst_vec_fini(&s->rate);
    pst_vec_fini(&s->step_s);
    pst_vec_fini(&s->eval);
    for (unsigned i = 0; i < s->n_sets; i++)
        pst_vec_fini(&s->sets[i].eval);
    pst_vec_fini(&s->events);
    pst_timeline_fini(&s->timeline);
    pst_arena_fini(&s->arena);
}
