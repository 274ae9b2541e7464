// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/report/find_runs.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/steps/evals.h"
#include "daemon/common/steps/steps.h"
#include "daemon/ctl/report/story.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/checkpoint.h"

#define TAG PST_TAG_CLIENT
/* the value that checkpoints record for an option that has none */
#define NOT_GIVEN "not given"
/* maximum number of damaged or missing records that are skipped */
#define BACK 65536

static bool has_file(const char *dir, const char *name)
{
    struct pst_str path = {0};
    bool ret;

    pst_str_addf(&path, "%s/%s", dir, name);
    ret = !path.failed && access(path.text, R_OK) == 0;
    pst_str_fini(&path);
    return ret;
}

/* Adds an option; `name` and `value` are copied. */
static bool add_option(struct pst_arena *arena, struct pstctl_run *r,
                       const char *name, const char *value)
{
    if (r->names == NULL) {
        r->names = pst_arena_calloc(arena, PSTD_MAX_OPTIONS, sizeof(char *));
        r->values = pst_arena_calloc(arena, PSTD_MAX_OPTIONS, sizeof(char *));
    }
    if (r->names == NULL || r->values == NULL)
        return false;
    if (r->n_options == PSTD_MAX_OPTIONS)
        return true;
    r->names[r->n_options] = pst_arena_strdup(arena, name);
    r->values[r->n_options] = pst_arena_strdup(arena, value);
    return r->names[r->n_options] != NULL && r->values[r->n_options++] != NULL;
}

/* Returns an error if a file could not be read because it is a pipe, a device
 * or a folder: the run is then left out with a message. Files that are damaged
 * or cannot be read are ignored. */
static enum pst_status refuse_wrong_kind(const struct pst_diag *why,
                                         struct pst_diag *diag)
{
    return why->error == PST_E_FILE_WRONG_KIND
               ? pst_diag_pass(diag, why, "%s", why->text)
               : PST_OK;
}

static enum pst_status read_history(const char *dir, struct pstctl_run *r,
                                    bool *ret, struct pst_diag *diag)
{
    struct pstd_steps h = {0};
    struct pst_diag ignored;
    enum pstd_steps_kind kind = PSTD_STEPS_MISSING;
    struct pstd_steps_record last;

    *ret = false;
    if (!has_file(dir, PSTD_STEPS_FILE))
        return PST_OK;
    if (pstd_steps_open(dir, &h, &ignored) != PST_OK)
        return refuse_wrong_kind(&ignored, diag);
    memcpy(r->id, h.head.run, sizeof(r->id));
    r->step = h.head.base;
    for (uint64_t i = h.slots;
         i-- > 0 && h.slots - i < BACK && kind != PSTD_STEPS_GOOD;)
        if (pstd_steps_find(&h, h.head.base + pstd_steps_after(i), &last, &kind,
                            &ignored) != PST_OK)
            break;
    if (kind == PSTD_STEPS_GOOD) {
        r->step = last.step;
        r->loss = last.loss;
    }
    pstd_steps_close(&h);
    *ret = true;
    return PST_OK;
}

/* Returns --eval-metric; "": evaluations are compared by their loss. */
static const char *get_metric(const struct pstctl_run *r)
{
    const struct pstd_option *row =
        pstd_option_find(PSTD_OPT_TRAIN, "eval-metric");

    return row != NULL ? pstctl_found_value(r, row) : "";
}

/* Fills *r from the logs: options, evaluations, and, if there is no history,
 * the newest step. */
static enum pst_status read_logs(struct pstctl_add_finding *f, const char *dir,
                                 struct pstctl_run *r, bool *ret,
                                 struct pst_diag *diag)
{
    struct pstctl_story *s = pst_calloc(TAG, 1, sizeof(*s));
    const char *name, *value;
    struct pst_diag ignored;
    enum pst_status status, refused = PST_OK;
    char *at;
    bool ok = true;

    if (s == NULL)
        return pst_diag_nomem(diag, sizeof(*s));
    status = pstctl_story_read(dir, s, &ignored);
    if (status != PST_OK)
        refused = refuse_wrong_kind(&ignored, diag);
    if (status == PST_OK && (s->loss.n > 0 || *s->options != '\0')) {
        *ret = true;
        if (s->loss.n > 0 && (double)r->step < s->loss.at[s->loss.n - 1].x) {
            r->step = (uint64_t)s->loss.at[s->loss.n - 1].x;
            r->loss = s->loss.at[s->loss.n - 1].y;
        }
        for (size_t i = 0; i < s->eval.n; i++)
            if (!(r->best <= s->eval.at[i].y))
                r->best = s->eval.at[i].y;
        at = (char *)pst_arena_strdup(&f->arena, s->options);
        while (ok && at != NULL && pstd_config_next_given(&at, &name, &value))
            ok = add_option(&f->arena, r, name, value);
    }
    r->logged = r->n_options > 0;
    /* A story has only the losses of evaluations, which do not show the best
     * one if evaluations are compared by a metric. s->metric is checked as
     * well, because the log may have cut off the option --eval-metric. */
    r->metric = s->metric;
    if (s->metric || *get_metric(r) != '\0')
        r->best = NAN;
    pstctl_story_fini(s);
    pst_free(s);
    return ok ? refused : pst_diag_nomem(diag, PSTD_MAX_OPTIONS);
}

/* Sets *ret_largest if the best evaluation is the one with the largest number.
 * False: it is not known which one is the best. */
static bool find_order(const struct pstctl_run *r, const struct pst_str *of,
                       bool *ret_largest)
{
    const enum pstd_evals_order order = pstd_evals_order(pst_str_text(of));
    const char *metric = get_metric(r);

    *ret_largest = order == PSTD_EVALS_UNKNOWN ? pst_has_suffix(metric, ":max")
                                               : order == PSTD_EVALS_LARGEST;
    return order != PSTD_EVALS_UNKNOWN || *metric != '\0' || !r->metric;
}

static enum pst_status read_evaluations(const char *dir, struct pstctl_run *r,
                                        struct pst_diag *diag)
{
    struct pstd_evals evals = {0};
    const struct pstd_eval *best = NULL;
    struct pst_str path = {0}, of = {0};
    struct pst_diag ignored;
    enum pst_status status = PST_OK;
    bool largest;

    pst_str_addf(&path, "%s/evaluations", dir);
    if (path.failed)
        status = pst_diag_nomem(diag, path.len);
    else if (pstd_evals_read(path.text, &evals, &of, &ignored) != PST_OK)
        status = refuse_wrong_kind(&ignored, diag);
    else if (find_order(r, &of, &largest))
        best = pstd_evals_best(&evals, largest);
    if (best != NULL)
        r->best = best->loss;
    pstd_evals_fini(&evals);
    pst_str_fini(&path);
    pst_str_fini(&of);
    return status;
}

/* Sets the options of *r to those that the newest checkpoint records. */
static enum pst_status read_checkpoint(struct pstctl_add_finding *f,
                                       const char *dir, struct pstctl_run *r,
                                       struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir,
                                               .step = PST_CHECKPOINT_LATEST};
    struct pst_checkpoint *ckpt = NULL;
    struct pst_diag ignored;
    char *line, *rest;
    bool ok;

    if (pst_checkpoint_open(&query, &ckpt, &ignored) != PST_OK)
        return PST_OK;
    r->step = PST_MAX(r->step, ckpt->info.step);
    ok = add_option(&f->arena, r, "optimizer", ckpt->info.optimizer);
    rest = ckpt->info.options;
    while (ok && (line = strsep(&rest, "\n")) != NULL) {
        char *value = strchr(line, '=');

        if (!pst_has_prefix(line, "--") || value == NULL)
            continue;
        *value++ = '\0';
        if (strcmp(value, NOT_GIVEN) != 0)
            ok = add_option(&f->arena, r, line + 2, value);
    }
    pst_checkpoint_close(ckpt);
    return ok ? PST_OK : pst_diag_nomem(diag, PSTD_MAX_OPTIONS);
}

/* Adds a run. If the run was found before, only fills in its unknown members.
 */
static bool add_run(struct pstctl_add_finding *f, const struct pstctl_run *r)
{
    for (size_t i = 0; i < f->runs.n; i++) {
        struct pstctl_run *had = &f->runs.at[i];

        if (*r->id == '\0' || strcmp(had->id, r->id) != 0)
            continue;
        if (r->step > had->step) {
            had->step = r->step;
            had->loss = r->loss;
        }
        if (isnan(had->best))
            had->best = r->best;
        if (had->n_options == 0 || (r->logged && !had->logged)) {
            had->names = r->names;
            had->values = r->values;
            had->n_options = r->n_options;
            had->logged = r->logged;
        }
        return true;
    }
    return pst_vec_push(TAG, &f->runs, *r);
}

enum pst_status pstctl_found_search(struct pstctl_add_finding *f,
                                    const char *dir, bool *ret,
                                    struct pst_diag *diag)
{
    struct pstctl_run r = {.loss = NAN, .best = NAN};
    bool found;
    const bool saved = has_file(dir, "owner.json");
    enum pst_status status = read_history(dir, &r, &found, diag);

    if (status == PST_OK && has_file(dir, "rank-0.log"))
        status = read_logs(f, dir, &r, &found, diag);
    if (status == PST_OK && saved) {
        if (r.n_options == 0)
            status = read_checkpoint(f, dir, &r, diag);
        if (status == PST_OK)
            status = read_evaluations(dir, &r, diag);
        found = found || r.n_options > 0;
    }
    *ret = found;
    if (status != PST_OK || !found)
        return status;
    r.path = pst_arena_strdup(&f->arena, dir);
    return r.path != NULL && add_run(f, &r) ? PST_OK
                                            : pst_diag_nomem(diag, sizeof(r));
}

const char *pstctl_found_value(const struct pstctl_run *run,
                               const struct pstd_option *row)
{
    for (size_t i = run->n_options; i-- > 0;)
        if (strcmp(run->names[i], row->name) == 0)
            return run->values[i];
    return row->start != NULL ? row->start : "";
}

void pstctl_found_fini(struct pstctl_add_finding *f)
{
    pst_vec_fini(&f->runs);
    pst_arena_fini(&f->arena);
}
