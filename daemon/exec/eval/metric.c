// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/eval/metric.h"

#include <string.h>

#include "stages/base/alloc.h"
#include "stages/run/data/metric.h"
#include "stages/split/plan.h"

#define LOSS "/loss" /* after the name of a set */

/* Returns the text without the name of a set before it. *ret: index of the set,
 * or -1. */
static const char *skip_set(const char *text, const struct pstd_sets *sets,
                            int *ret)
{
    const size_t n = strcspn(text, "/");

    *ret = -1;
    for (unsigned i = 0; i < sets->n && text[n] == '/'; i++)
        if (n > 0 && strlen(sets->at[i].name) == n &&
            strncmp(sets->at[i].name, text, n) == 0)
            *ret = (int)i;
    return *ret < 0 ? text : text + n + 1;
}

/* Returns the length of the output's name; 0: the text has another form. */
static size_t name_length(const char *text)
{
    const char *colon = strrchr(text, ':');

    return colon != NULL &&
                   (strcmp(colon, ":max") == 0 || strcmp(colon, ":min") == 0)
               ? (size_t)(colon - text)
               : 0;
}

static enum pst_status check_text(const char *text,
                                  const struct pstd_sets *sets,
                                  struct pst_diag *diag)
{
    int set;
    const char *output = skip_set(text, sets, &set);
    struct pst_str names = {0};
    enum pst_status status;

    if (name_length(output) > 0 || (set >= 0 && strcmp(output, "loss") == 0))
        return PST_OK;
    for (unsigned i = 0; i < sets->n; i++)
        pst_str_addf(&names, "%s%s", i > 0 ? ", " : "", sets->at[i].name);
    if (pst_has_suffix(text, LOSS))
        status = pst_diag_set(
            diag, PST_E_OPTION_VALUE,
            "--eval-metric %s: there is no such set of --eval-data%s%s", text,
            names.len > 0 ? "; there is " : "", pst_str_text(&names));
    else
        status = pst_diag_set(diag, PST_E_OPTION_VALUE,
                              "--eval-metric: \"%s\" is not OUTPUT:max or "
                              "OUTPUT:min, as accuracy:max, perhaps with the "
                              "set of --eval-data before it, as "
                              "web/accuracy:max or web/loss",
                              text);
    pst_str_fini(&names);
    return status;
}

enum pst_status pstd_metric_check(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_arena arena;
    struct pstd_sets sets;
    enum pst_status status;

    if (config->eval_metric == NULL)
        return PST_OK;
    pst_arena_init(&arena, PST_TAG_DAEMON);
    status =
        pstd_sets_read("--eval-data", config->eval_data, &arena, &sets, diag);
    if (status == PST_OK)
        status = check_text(config->eval_metric, &sets, diag);
    pst_arena_fini(&arena);
    return status;
}

unsigned pstd_metric_set(const struct pstd_config *config,
                         const struct pstd_sets *sets)
{
    int set = -1;

    if (config->eval_metric != NULL)
        (void)skip_set(config->eval_metric, sets, &set);
    return set < 0 ? 0 : (unsigned)set;
}

bool pstd_metric_is_output(const struct pstd_config *config)
{
    return config->eval_metric != NULL &&
           !pst_has_suffix(config->eval_metric, LOSS);
}

bool pstd_metric_largest(const struct pstd_config *config)
{
    return config->eval_metric != NULL &&
           pst_has_suffix(config->eval_metric, ":max");
}

/* True for an output that is one number per microbatch. */
static bool is_scalar(const struct pst_plan_output *o)
{
    return o->is_tensor && o->meta.rank == 0 &&
           (o->meta.dtype == PST_F32 || o->meta.dtype == PST_F64 ||
            o->meta.dtype == PST_I64);
}

static enum pst_status refuse_output(const struct pstd_config *config,
                                     const struct pst_plan *plan,
                                     struct pst_diag *diag)
{
    struct pst_str names = {0};
    enum pst_status status;

    for (size_t i = 0; i < plan->outputs.n; i++)
        if (is_scalar(&plan->outputs.at[i]))
            pst_str_addf(&names, "%s\"%s\"", names.len > 0 ? ", " : "",
                         plan->outputs.at[i].path);
    status = pst_diag_set(
        diag, PST_E_RUN_OPTIONS,
        "--eval-metric %s: the model has no output of that name with one "
        "number (f32, f64 or i64); it has %s",
        config->eval_metric, names.len > 0 ? pst_str_text(&names) : "none");
    pst_str_fini(&names);
    return status;
}

enum pst_status pstd_metric_open(struct pstd_eval_metric *metric,
                                 const struct pstd_config *config,
                                 const struct pstd_sets *sets,
                                 struct pst_plan *plan,
                                 const struct pst_engine *engine,
                                 unsigned microbatches, struct pst_diag *diag)
{
    int set;
    const char *text = config->eval_metric != NULL
                           ? skip_set(config->eval_metric, sets, &set)
                           : "";
    struct pstd_eval_metric m = {
        .on = true, .largest = pstd_metric_largest(config), .n = microbatches};
    const size_t n = name_length(text);
    struct pst_meta meta;
    unsigned dim;
    bool rows;
    enum pst_status status;

    if (n == 0)
        return PST_OK;
    while (m.output < plan->outputs.n &&
           !(is_scalar(&plan->outputs.at[m.output]) &&
             strlen(plan->outputs.at[m.output].path) == n &&
             strncmp(plan->outputs.at[m.output].path, text, n) == 0))
        m.output++;
    if (m.output == plan->outputs.n)
        return refuse_output(config, plan, diag);
    status = pst_engine_output_meta(engine, m.output, &meta, &dim, &rows, diag);
    if (status != PST_OK)
        return status;
    if (pst_meta_numel(&meta) != (int64_t)microbatches)
        return refuse_output(config, plan, diag);
    status = pst_metric_find_by(plan, m.output, &m.by, diag);
    if (status != PST_OK)
        return status;
    m.dtype = meta.dtype;
    m.raw = pst_calloc(PST_TAG_DAEMON, microbatches, 8);
    m.values = pst_calloc(PST_TAG_DAEMON, microbatches, sizeof(*m.values));
    *metric = m;
    return m.raw != NULL && m.values != NULL
               ? PST_OK
               : pst_diag_nomem(diag, microbatches * sizeof(*m.values));
}

enum pst_status pstd_metric_add(struct pstd_eval_metric *m,
                                struct pst_engine *engine, bool counts,
                                struct pst_mean *mean, struct pst_diag *diag)
{
    enum pst_status status;

    if (!m->on)
        return PST_OK;
    status = pst_engine_output(engine, m->output, counts ? m->raw : NULL, diag);
    if (status != PST_OK || !counts)
        return status;
    for (unsigned k = 0; k < m->n; k++)
        m->values[k] = m->dtype == PST_F32   ? (double)((float *)m->raw)[k]
                       : m->dtype == PST_F64 ? ((double *)m->raw)[k]
                                             : (double)((int64_t *)m->raw)[k];
    pst_mean_add_metric(mean, m->values, m->by);
    return PST_OK;
}

void pstd_metric_close(struct pstd_eval_metric *m)
{
    pst_free(m->raw);
    pst_free(m->values);
    *m = (struct pstd_eval_metric){0};
}
