// SPDX-License-Identifier: Apache-2.0
/*
 * Casts parameters and buffers of a model: selects them and converts their
 * values. Trained tensors are kept in f32 and rounded where they are read.
 */
#include "stages/split/attr/cast.h"

#include "stages/ops/core/op.h"

#include <string.h>

#define TAG       PST_TAG_PLAN
#define MAX_SITES 12 /* maximum number of calls listed in a message */

static bool is_16bit(enum pst_dtype dtype)
{
    return dtype == PST_BF16 || dtype == PST_F16;
}

/* --- refusing ------------------------------------------------------------- */

void pst_cast_add_site(struct pst_caster *c, const struct pst_node *node)
{
    const struct pst_module_call *call = node->call;

    if (c->n_sites++ >= MAX_SITES)
        return;
    pst_str_addf(&c->sites, "%s%s", c->sites.len > 0 ? ", " : "",
                 pst_node_origin(node));
    if (call->path[0] != '\0')
        pst_str_addf(&c->sites, " in %s", call->path);
    if (call->index > 0)
        pst_str_addf(&c->sites, "@%u", call->index);
    if (node->source[0] != '\0')
        pst_str_addf(&c->sites, " (%s)", node->source);
}

static enum pst_status refuse_sites(struct pst_caster *c, const char *why,
                                    const char *name)
{
    return pst_diag_set(c->diag, PST_E_CAST_IMPOSSIBLE,
                        "\"%.200s\" cannot become %s: %s by %s%s", name,
                        pst_dtype_name(c->dtype), why, pst_str_text(&c->sites),
                        c->n_sites > MAX_SITES ? ", ..." : "");
}

/* Records the nodes that write into the tensor, since a written tensor keeps
 * its dtype. */
static void find_writes(struct pst_caster *c, const struct pst_value *v)
{
    const struct pst_graph *graph = c->graph;

    for (size_t i = 0; i < graph->nodes.n; i++)
        for (unsigned k = 0; k < graph->nodes.at[i]->n_outs; k++)
            if (graph->nodes.at[i]->outs[k]->version_of == v)
                pst_cast_add_site(c, graph->nodes.at[i]);
    for (size_t i = 0; i < graph->outputs.n && c->n_sites == 0; i++)
        if (graph->outputs.at[i].target == v &&
            graph->outputs.at[i].arg.value->def != NULL)
            pst_cast_add_site(c, graph->outputs.at[i].arg.value->def);
}

static enum pst_status check_param(struct pst_caster *c,
                                   const struct pst_plan_param *param)
{
    const char *why = NULL;

    if (param->n_windows > 0)
        why = "other names of the model are parts of it";
    else if (param->is_complex)
        why = "its numbers are complex";
    else if (param->requires_grad && c->dtype == PST_F64)
        why = "only f32 is trained";
    if (why == NULL)
        return PST_OK;
    return pst_diag_set(c->diag, PST_E_CAST_IMPOSSIBLE,
                        "\"%.200s\" cannot become %s: %s", param->fqn,
                        pst_dtype_name(c->dtype), why);
}

/* --- tensors to cast ------------------------------------------------------ */

static enum pst_status set_target(struct pst_caster *c, struct pst_value *v,
                                  const struct pst_plan_param *param)
{
    struct pst_cast_target *t = &c->targets[v->id];
    enum pst_status status = check_param(c, param);

    if (status != PST_OK)
        return status;
    c->counts.cast++;
    t->is_cast = true;
    t->was_rounded = param->rounded;
    t->old = param->rounded ? param->rounds : v->meta.dtype;
    t->new = c->dtype;
    t->rounds = v->requires_grad && is_16bit(c->dtype);
    v->meta.dtype = t->rounds ? PST_F32 : c->dtype;
    return PST_OK;
}

static struct pst_value *find_value(const struct pst_caster *c, const char *fqn)
{
    for (size_t i = 0; i < c->n_values; i++) {
        struct pst_value *v = c->graph->values.at[i];

        if (pst_value_is_state(v) && strcmp(v->fqn, fqn) == 0)
            return v;
    }
    return NULL;
}

/* Decides whether a tensor is cast. A tensor that cannot be cast, or must keep
 * its dtype because it is written, is skipped; if it was named alone (`one`),
 * it is an error. */
static enum pst_status check_writes(struct pst_caster *c, struct pst_value *v,
                                    const struct pst_plan_param *param,
                                    const char *name, bool one, bool *ret_skip)
{
    const bool floats = pst_dtype_kind(param->meta.dtype) == PST_KIND_FLOAT &&
                        !param->is_complex;
    enum pst_status status = PST_OK;

    if (floats)
        find_writes(c, v);
    *ret_skip = !floats || c->n_sites > 0;
    if (one && !floats && !param->is_complex)
        status =
            pst_diag_set(c->diag, PST_E_CAST_IMPOSSIBLE,
                         "\"%.200s\" is %s: only floating tensors are cast",
                         name, pst_dtype_name(param->meta.dtype));
    else if (one && c->n_sites > 0)
        status = refuse_sites(c, "it is written in place", v->fqn);
    else if (one && param->is_complex)
        *ret_skip = false; /* not skipped: check_param reports the error */
    c->n_sites = 0;
    c->sites.len = 0;
    return status;
}

static enum pst_status set_targets(struct pst_caster *c,
                                   const struct pst_attrs *attrs)
{
    const bool one = attrs->tensors == 1;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < attrs->at.n && status == PST_OK; i++) {
        const struct pst_plan_param *param =
            &c->plan->params.at[attrs->at.at[i].param];
        struct pst_value *v;
        bool skip = false;

        if (i > 0 && attrs->at.at[i].param == attrs->at.at[i - 1].param)
            continue;
        v = find_value(c, param->fqn);
        if (v == NULL)
            return pst_diag_set(c->diag, PST_E_INTERNAL_BUG,
                                "no value is \"%s\"", param->fqn);
        status = check_writes(c, v, param, attrs->at.at[i].name, one, &skip);
        c->counts.skipped += skip;
        if (status == PST_OK && !skip)
            status = set_target(c, v, param);
    }
    if (status == PST_OK && c->counts.cast == 0)
        return pst_diag_set(c->diag, PST_E_CAST_NONE,
                            "none of these tensors is floating");
    return status;
}

/* --- values --------------------------------------------------------------- */

struct pst_casting {
    const struct pst_plan *plan;
    struct pst_cast_target *of; /* by index of the parameter: how it is cast */
    pst_param_fn old;
    void *old_ctx;
};

/* Rounds values to the old dtype, then to the new one, and stores them in dtype
 * `kept`. */
static void round_values(const struct pst_cast_target *t, enum pst_dtype kept,
                         void *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = pst_load_f64(kept, data, i);

        pst_store_f64(t->old, &x, 0, x);
        x = pst_load_f64(t->old, &x, 0);
        pst_store_f64(t->new, &x, 0, x);
        x = pst_load_f64(t->new, &x, 0);
        pst_store_f64(kept, data, i, x);
    }
}

void pst_casting_convert(const struct pst_casting *casting, unsigned param,
                         float *data, int64_t n)
{
    if (casting->of[param].is_cast)
        round_values(&casting->of[param], PST_F32, data, n);
}

static enum pst_status read_cast(void *ctx, unsigned param, void *dst,
                                 struct pst_diag *diag)
{
    const struct pst_casting *casting = ctx;
    const struct pst_meta *meta = &casting->plan->params.at[param].meta;
    const struct pst_cast_target *t = &casting->of[param];
    enum pst_status status = casting->old(casting->old_ctx, param, dst, diag);

    if (status == PST_OK)
        round_values(t, meta->dtype, dst, pst_meta_numel(meta));
    return status;
}

/* Makes the model read cast tensors through read_cast. Numbers its weights as
 * the plan's parameters. */
static void redirect_reads(const struct pst_caster *c,
                           struct pst_casting *casting)
{
    for (size_t i = 0; i < c->n_values; i++) {
        const struct pst_value *v = c->graph->values.at[i];

        if (c->targets[i].is_cast)
            casting->of[pst_plan_find_param(c->plan, v->fqn)] = c->targets[i];
    }
    for (size_t i = 0; i < c->model->weights.n; i++) {
        struct pst_weight *w = &c->model->weights.at[i];
        const struct pst_cast_target *t = &casting->of[w->number];

        if (!t->is_cast)
            continue;
        w->rounded = t->rounds;
        w->rounds = t->new;
        casting->old = w->read;
        casting->old_ctx = w->ctx;
        w->read = read_cast;
        w->ctx = casting;
    }
}

void pst_casting_free(struct pst_casting *casting)
{
    if (casting == NULL)
        return;
    pst_free(casting->of);
    pst_free(casting);
}

static enum pst_status new_casting(const struct pst_caster *c,
                                   struct pst_casting **ret)
{
    struct pst_casting *casting = pst_calloc(TAG, 1, sizeof(*casting));

    if (casting != NULL)
        casting->of =
            pst_calloc(TAG, c->plan->params.n + 1, sizeof(*casting->of));
    if (casting == NULL || casting->of == NULL) {
        pst_casting_free(casting);
        return pst_diag_nomem(c->diag, c->plan->params.n);
    }
    casting->plan = c->plan;
    *ret = casting;
    return PST_OK;
}

/* --- the model ------------------------------------------------------------ */

static enum pst_status alloc_tables(struct pst_caster *c)
{
    struct pst_arena *arena = &c->graph->arena;
    const size_t n = c->graph->values.n;

    c->n_values = n;
    c->old_dtype = pst_arena_calloc(arena, n + 1, sizeof(*c->old_dtype));
    c->now = pst_arena_calloc(arena, n + 1, sizeof(*c->now));
    c->targets = pst_arena_calloc(arena, n + 1, sizeof(*c->targets));
    if (c->old_dtype == NULL || c->now == NULL || c->targets == NULL)
        return pst_diag_nomem(c->diag, n);
    for (size_t i = 0; i < n; i++)
        c->old_dtype[i] = c->graph->values.at[i]->meta.dtype;
    pst_build_init(&c->build, c->graph, c->diag);
    return PST_OK;
}

static enum pst_status cast_model(struct pst_caster *c,
                                  const struct pst_attrs *attrs)
{
    enum pst_status status = alloc_tables(c);

    if (status == PST_OK)
        status = set_targets(c, attrs);
    if (status == PST_OK)
        status = pst_cast_nodes(c);
    if (status == PST_OK && c->n_sites > 0)
        status = refuse_sites(
            c,
            "the model writes values in place, and others would change dtype",
            attrs->at.at[0].name);
    if (status == PST_OK)
        status = pst_cast_outputs(c);
    return status == PST_OK ? pst_graph_verify(c->graph, c->diag) : status;
}

static enum pst_status change_digest(struct pst_caster *c,
                                     const struct pst_attrs *attrs)
{
    struct pst_model *model = c->model;
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    pst_str_addf(&text, "%s cast %s", model->digest, pst_dtype_name(c->dtype));
    for (size_t i = 0; i < attrs->at.n; i++)
        pst_str_addf(&text, " %s", attrs->at.at[i].name);
    if (text.failed)
        status = pst_diag_nomem(c->diag, text.len);
    else
        pst_digest(text.text, text.len, model->digest);
    model->identity[0] = '\0';
    pst_str_fini(&text);
    return status;
}

enum pst_status pst_model_cast(struct pst_model *model,
                               const struct pst_plan *plan,
                               const struct pst_attrs *attrs,
                               enum pst_dtype dtype,
                               struct pst_cast_counts *ret_counts,
                               struct pst_casting **ret, struct pst_diag *diag)
{
    struct pst_caster c = {.model = model,
                           .graph = model->graph,
                           .plan = plan,
                           .dtype = dtype,
                           .diag = diag};
    struct pst_casting *casting = NULL;
    enum pst_status status = new_casting(&c, &casting);

    if (status == PST_OK && pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        status = pst_diag_set(diag, PST_E_CAST_IMPOSSIBLE,
                              "nothing is cast to %s, which is not floating",
                              pst_dtype_name(dtype));
    if (status == PST_OK)
        status = cast_model(&c, attrs);
    if (status == PST_OK)
        status = change_digest(&c, attrs);
    pst_str_fini(&c.sites);
    if (status != PST_OK) {
        pst_casting_free(casting);
        return status;
    }
    redirect_reads(&c, casting);
    *ret_counts = c.counts;
    *ret = casting;
    return PST_OK;
}
