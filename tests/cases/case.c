// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/case.h"

#include "stages/frontend/model.h"
#include "stages/passes/autodiff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OUT   256
#define MAX_GIVEN 64

/* Memory of one run, freed at its end. */
struct bench {
    struct trial trial;
    struct pst_model *model;
    struct pst_diag diag;
    void *copies[MAX_GIVEN + MAX_OUT]; /* aligned data of values */
    size_t n_copies;
    struct pst_value *wanted[MAX_GIVEN];
    struct pst_autodiff_result result;
    size_t n_wanted;
};

static bool set_input(struct bench *b, struct pst_value *value,
                      const char *prefix, const char *name)
{
    const struct pst_safetensors_entry *e;
    char key[300];
    void *copy;

    snprintf(key, sizeof(key), "%s%s", prefix, name);
    e = pst_safetensors_find(b->trial.given, key);
    if (e == NULL)
        return compare_fail(&b->trial, "the case has no %s", key);
    if (!pst_meta_same(&e->meta, &value->meta))
        return compare_fail(&b->trial, "%s is of another shape", key);
    copy = malloc(e->bytes + 1);
    if (copy == NULL || b->n_copies == PST_COUNT(b->copies)) {
        free(copy);
        return compare_fail(&b->trial, "too many tensors");
    }
    if (e->bytes > 0)
        memcpy(copy, e->data, e->bytes);
    b->copies[b->n_copies++] = copy;
    if (pst_eval_set(b->trial.eval, value, copy, &b->diag) != PST_OK)
        return compare_fail(&b->trial, "%s", b->diag.text);
    return true;
}

static bool set_state(struct bench *b, struct pst_value *const *values,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct pst_weight *w = pst_model_weight(b->model, values[i]->fqn);
        void *data = pst_arena_alloc(&b->model->arena,
                                     pst_meta_span(&values[i]->meta) + 1);

        if (w == NULL || data == NULL ||
            pst_model_read(b->model, w, &values[i]->meta, data, &b->diag) !=
                PST_OK ||
            pst_eval_set(b->trial.eval, values[i], data, &b->diag) != PST_OK)
            return compare_fail(&b->trial, "%s has no data", values[i]->fqn);
    }
    return true;
}

/* Runs the program with the inputs and state of the case; seeds[i] gets the
 * tensor that is named cots[i]. */
static bool run(struct bench *b, bool reference, size_t n_seeds,
                const struct pst_seed *seeds, const char (*cots)[32])
{
    const struct pst_rng_key key = {.seed = 7, .step = 3, .microbatch = 1};
    struct pst_graph *g = b->model->graph;

    pst_eval_free(b->trial.eval);
    b->trial.eval = NULL;
    if (pst_eval_new(g, &b->trial.eval, &b->diag) != PST_OK)
        return compare_fail(&b->trial, "%s", b->diag.text);
    for (size_t i = 0; i < g->inputs.n; i++)
        if (!set_input(b, g->inputs.at[i], "in.", g->inputs.at[i]->name))
            return false;
    for (size_t i = 0; i < n_seeds; i++)
        if (!set_input(b, seeds[i].seed, "", cots[i]))
            return false;
    if (!set_state(b, g->params.at, g->params.n) ||
        !set_state(b, g->buffers.at, g->buffers.n) ||
        !set_state(b, g->consts.at, g->consts.n))
        return false;
    if (pst_eval_run(b->trial.eval, reference, &key, &b->diag) != PST_OK)
        return compare_fail(&b->trial, "%s", b->diag.text);
    return true;
}

static struct got get_result(const struct bench *b,
                             const struct pst_value *value)
{
    struct got g = {0};

    if (value != NULL) {
        g.meta = value->meta;
        g.data = pst_eval_get(b->trial.eval, value);
    }
    return g;
}

/* Returns a number as a 0-dim tensor, as the file stores numbers. */
static struct got number_result(const struct pst_arg *arg)
{
    struct got g = {.data = NULL};

    if (arg->kind == PST_ARG_INT)
        g = (struct got){{.dtype = PST_I64}, &arg->i};
    else if (arg->kind == PST_ARG_FLOAT)
        g = (struct got){{.dtype = PST_F32}, &arg->f};
    else if (arg->kind == PST_ARG_BOOL)
        g = (struct got){{.dtype = PST_BOOL}, &arg->b};
    return g;
}

static bool check_forward(struct bench *b, struct got *outs, size_t *n_outs)
{
    const struct pst_graph *g = b->model->graph;
    char name[300];

    *n_outs = 0;
    for (size_t i = 0; i < g->outputs.n; i++) {
        const struct pst_output *o = &g->outputs.at[i];

        if (o->kind == PST_OUTPUT_USER && *n_outs < MAX_OUT) {
            snprintf(name, sizeof(name), "out.%zu", *n_outs);
            outs[*n_outs] = o->arg.kind == PST_ARG_VALUE
                                ? get_result(b, o->arg.value)
                                : number_result(&o->arg);
            if (!compare_tensor(&b->trial, name, &outs[(*n_outs)++], false))
                return false;
        } else if (o->kind == PST_OUTPUT_INPUT_UPDATE) {
            const struct got now = get_result(b, o->arg.value);

            snprintf(name, sizeof(name), "after.%s", o->target->name);
            if (!compare_tensor(&b->trial, name, &now, false))
                return false;
        }
    }
    snprintf(name, sizeof(name), "out.%zu", *n_outs);
    if (pst_safetensors_find(b->trial.given, name) != NULL)
        return compare_fail(&b->trial, "%s is missing", name);
    return true;
}

/* Checks that the program writes exactly the tensors that the case names. */
static bool check_written(const struct bench *b)
{
    const json_t *written = json_object_get(b->trial.spec, "written");
    const struct pst_graph *g = b->model->graph;

    for (size_t k = 0; k < json_array_size(written); k++) {
        const char *name = json_string_value(json_array_get(written, k));
        bool found = false;

        for (size_t i = 0; i < g->outputs.n; i++)
            found =
                found || (g->outputs.at[i].kind == PST_OUTPUT_INPUT_UPDATE &&
                          strcmp(g->outputs.at[i].target->name, name) == 0);
        if (!found)
            return compare_fail(&b->trial, "%s is not written", name);
    }
    return true;
}

static size_t add_seeds(struct bench *b, struct pst_seed *seeds,
                        char (*cots)[32])
{
    struct pst_graph *g = b->model->graph;
    size_t n = 0, k = 0;

    for (size_t i = 0; i < g->outputs.n; i++) {
        const struct pst_output *o = &g->outputs.at[i];
        struct pst_meta meta;

        if (o->kind != PST_OUTPUT_USER)
            continue;
        snprintf(cots[n], sizeof(cots[n]), "cot.%zu", k++);
        if (o->arg.kind != PST_ARG_VALUE || n == MAX_OUT - 1 ||
            pst_safetensors_find(b->trial.given, cots[n]) == NULL)
            continue;
        meta = o->arg.value->meta;
        pst_meta_set_contiguous(&meta);
        seeds[n].value = o->arg.value;
        seeds[n].seed =
            pst_graph_add_value(g, PST_VALUE_SEED, "cot", NULL, &meta);
        if (seeds[n].seed != NULL)
            n++;
    }
    return n;
}

static bool check_backward(struct bench *b, bool reference, struct got *grad_x)
{
    static struct pst_seed seeds[MAX_OUT];
    static char cots[MAX_OUT][32];
    struct pst_graph *g = b->model->graph;
    const size_t n_seeds = add_seeds(b, seeds, cots);

    for (size_t i = 0; i < g->inputs.n && b->n_wanted < MAX_GIVEN; i++)
        if (pst_dtype_kind(g->inputs.at[i]->meta.dtype) == PST_KIND_FLOAT)
            b->wanted[b->n_wanted++] = g->inputs.at[i];
    if (n_seeds == 0)
        return true;
    if (pst_autodiff(g, seeds, n_seeds, b->wanted, b->n_wanted, &b->result,
                     &b->diag) != PST_OK)
        return compare_fail(&b->trial, "gradient: %s", b->diag.text);
    if (!run(b, reference, n_seeds, seeds, (const char(*)[32])cots))
        return false;
    for (size_t i = 0; i < b->n_wanted; i++) {
        const struct got grad = get_result(b, b->result.wanted[i]);
        char name[300];

        if (strcmp(b->wanted[i]->name, "x") == 0)
            *grad_x = grad;
        snprintf(name, sizeof(name), "grad.%s", b->wanted[i]->name);
        if (json_object_get(b->trial.spec, "checks") == NULL &&
            !compare_tensor(&b->trial, name, &grad, true))
            return false;
    }
    return true;
}

static bool check_case(struct bench *b, bool reference)
{
    static struct got outs[MAX_OUT];
    struct got grad_x = {0};
    size_t n_outs = 0;

    if (!run(b, reference, 0, NULL, NULL) || !check_written(b) ||
        !check_forward(b, outs, &n_outs) ||
        !check_backward(b, reference, &grad_x))
        return false;
    /* The backward run may have placed the outputs elsewhere: gets them again.
     */
    return check_forward(b, outs, &n_outs) &&
           apply_checks(&b->trial, outs, n_outs, &grad_x);
}

enum verdict case_run(const json_t *spec, const char *dir, bool reference,
                      struct excuses *excuses, char *text, size_t size)
{
    const char *name = json_string_value(json_object_get(spec, "case"));
    struct bench b = {
        .trial = {
            .spec = spec, .excuses = excuses, .text = text, .size = size}};
    enum verdict verdict = VERDICT_FAIL;
    char path[2][4096];

    pst_diag_init(&b.diag);
    for (int k = 0; k < 2; k++)
        snprintf(path[k], sizeof(path[k]), "%s/%s", dir,
                 json_string_value(
                     json_object_get(spec, k == 0 ? "pt2" : "safetensors")));
    if (pst_safetensors_open(path[1], &b.trial.given, &b.diag) != PST_OK ||
        pst_safetensors_load(b.trial.given, &b.diag) != PST_OK)
        snprintf(text, size, "%s", b.diag.text);
    else if (pst_model_open(path[0], &b.model, &b.diag) != PST_OK) {
        snprintf(text, size, "%s", b.diag.text);
        if (excuses_use(excuses, name, "refused"))
            verdict = VERDICT_REFUSED;
    } else if (check_case(&b, reference))
        verdict = VERDICT_PASS;
    pst_eval_free(b.trial.eval);
    for (size_t i = 0; i < b.n_copies; i++)
        free(b.copies[i]);
    pst_model_close(b.model);
    pst_safetensors_close(b.trial.given);
    return verdict;
}
