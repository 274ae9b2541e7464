// SPDX-License-Identifier: Apache-2.0
#include "stages/split/init.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "stages/base/map.h"
#include "stages/base/rng.h"
#include "stages/split/split.h"
#include "stages/split/store/values.h"

#define TAG PST_TAG_PLAN

struct maker {
    struct pst_plan *plan;
    struct pst_map types; /* path of a module -> its class */
    double std;
    struct pst_diag *diag;
};

static enum pst_status record_types(struct maker *m)
{
    for (size_t s = 0; s < m->plan->stages.n; s++) {
        const struct pst_graph *graph = m->plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->calls.n; i++) {
            const char *type = graph->calls.at[i]->type;
            const char *dot = strrchr(type, '.');

            if (type[0] != '\0' &&
                !pst_map_put(&m->types, graph->calls.at[i]->path,
                             (void *)(dot != NULL ? dot + 1 : type)))
                return pst_diag_nomem(m->diag, strlen(type));
        }
    }
    return PST_OK;
}

/* Sets ret to the class of the module that contains the tensor, "" if unknown.
 * Returns the tensor's name within the module. */
static const char *split_name(const struct maker *m, const char *fqn,
                              const char **ret)
{
    const char *dot = strrchr(fqn, '.');
    struct pst_str module = {0};
    const char *type = NULL;

    if (dot != NULL) {
        pst_str_addf(&module, "%.*s", (int)(dot - fqn), fqn);
        if (!module.failed)
            type = pst_map_get(&m->types, pst_str_text(&module));
        pst_str_fini(&module);
    }
    *ret = type != NULL ? type : "";
    return dot != NULL ? dot + 1 : fqn;
}

/* Returns fan_in of the weight in the tensor's module: its elements / its first
 * size. 0: there is no weight. */
static int64_t fan_in_of(const struct maker *m, const char *fqn)
{
    const char *dot = strrchr(fqn, '.');
    const struct pst_meta *meta;
    struct pst_str name = {0};
    int i;

    pst_str_addf(&name, "%.*sweight", (int)(dot != NULL ? dot + 1 - fqn : 0),
                 fqn);
    i = name.failed ? -1 : pst_plan_find_param(m->plan, name.text);
    pst_str_fini(&name);
    if (i < 0)
        return 0;
    meta = &m->plan->params.at[i].meta;
    return meta->rank >= 2 && meta->size[0] > 0
               ? pst_meta_numel(meta) / meta->size[0]
               : 0;
}

static bool is_any(const char *type, const char *const *globs)
{
    for (; *globs != NULL; globs++)
        if (fnmatch(*globs, type, 0) == 0)
            return true;
    return false;
}

/* Finds the rule for the tensor by its name `fqn`; false if there is none. */
static bool find_rule(const struct maker *m, const struct pst_plan_param *param,
                      const char *fqn, struct pst_init *ret)
{
    static const char *const products[] = {"*Linear", "*Conv[123]d",
                                           "*ConvTranspose[123]d", NULL};
    const char *type, *name = split_name(m, fqn, &type);
    const bool is_bias = strcmp(name, "bias") == 0;

    *ret = (struct pst_init){.kind = PST_INIT_CONSTANT};
    if (fnmatch("*Norm*", type, 0) == 0) {
        ret->scale =
            strcmp(name, "weight") == 0 || strcmp(name, "running_var") == 0;
        return ret->scale > 0 || is_bias || strcmp(name, "running_mean") == 0 ||
               strcmp(name, "num_batches_tracked") == 0;
    }
    if (param->kind != PST_VALUE_PARAM || param->is_complex)
        return false;
    if (m->std > 0) {
        ret->kind = param->meta.rank >= 2 ? PST_INIT_NORMAL : PST_INIT_CONSTANT;
        ret->scale = param->meta.rank >= 2 ? m->std : 0;
        return param->meta.rank >= 2 || is_bias;
    }
    if (fnmatch("Embedding*", type, 0) == 0 && strcmp(name, "weight") == 0) {
        *ret = (struct pst_init){PST_INIT_NORMAL, 1};
        return true;
    }
    if (is_any(type, products) && (is_bias || strcmp(name, "weight") == 0)) {
        const int64_t fan_in = fan_in_of(m, fqn);

        *ret = (struct pst_init){PST_INIT_UNIFORM,
                                 1 / sqrt((double)PST_MAX(fan_in, 1))};
        return fan_in > 0;
    }
    return false;
}

static bool find_any_rule(const struct maker *m,
                          const struct pst_plan_param *param,
                          struct pst_init *ret)
{
    bool found = find_rule(m, param, param->fqn, ret);

    for (unsigned k = 0; k < param->n_aliases && !found; k++)
        found = find_rule(m, param, param->aliases[k], ret);
    return found;
}

static enum pst_status make_inits(struct maker *m, struct pst_init *inits)
{
    struct pst_name_list lost = {0};
    enum pst_status status = PST_OK;
    size_t n = 0;

    for (unsigned i = 0; i < m->plan->params.n; i++) {
        const struct pst_plan_param *param = &m->plan->params.at[i];

        if (pst_plan_has_values(m->plan, i))
            continue;
        n++;
        if (!find_any_rule(m, param, &inits[i])) {
            inits[i].kind = PST_INIT_NONE;
            pst_name_list_add(&lost, param->fqn);
        }
    }
    if (n == 0)
        status = pst_diag_set(m->diag, PST_E_COMMAND_ARGUMENTS,
                              "--init-seed has no effect: the model has all of "
                              "its values");
    else if (lost.n > 0)
        status = pst_diag_set(m->diag, PST_E_WEIGHTS_NO_VALUES,
                              "--init-seed has no rule for %zu tensors (%s): "
                              "give all values with --weights FILE|FOLDER%s",
                              lost.n, pst_str_text(&lost.text),
                              m->std > 0 ? "" : ", or try --init-std");
    pst_str_fini(&lost.text);
    return status;
}

enum pst_status pst_plan_set_init(struct pst_plan *plan, uint64_t seed,
                                  double std, struct pst_diag *diag)
{
    struct maker m = {.plan = plan, .std = std, .diag = diag};
    struct pst_init *inits =
        pst_arena_calloc(&plan->arena, plan->params.n + 1, sizeof(*inits));
    struct pst_plan_given *given =
        pst_arena_calloc(&plan->arena, 1, sizeof(*given));
    enum pst_status status;

    if (inits == NULL || given == NULL)
        return pst_diag_nomem(diag, plan->params.n * sizeof(*inits));
    pst_map_init(&m.types, TAG);
    status = record_types(&m);
    if (status == PST_OK)
        status = make_inits(&m, inits);
    pst_map_fini(&m.types);
    if (status != PST_OK)
        return status;
    given->params = pst_arena_calloc(&plan->arena, plan->params.n + 1,
                                     sizeof(*given->params));
    if (given->params == NULL)
        return pst_diag_nomem(diag, plan->params.n * sizeof(*given->params));
    given->inits = inits;
    given->seed = seed;
    plan->given = given;
    return PST_OK;
}

void pst_init_fill(const struct pst_init *init, uint64_t seed,
                   const struct pst_plan_param *param, void *dst)
{
    const struct pst_rng_key key = {
        .seed = seed,
        .microbatch = UINT32_MAX, /* differs from the key of any step */
        .node = (uint32_t)pst_hash(param->fqn, strlen(param->fqn), 0)};
    const int64_t n = pst_meta_numel(&param->meta);
    uint32_t stream[4];

    pst_rng_stream(&key, stream);
    for (int64_t i = 0; i < n; i++) {
        double x = init->scale;

        if (init->kind == PST_INIT_NORMAL)
            x *= pst_rng_normal_of(stream, (uint64_t)i);
        if (init->kind == PST_INIT_UNIFORM)
            x *= 2 * pst_rng_f64_of(stream, (uint64_t)i) - 1;
        pst_store_f64(param->meta.dtype, dst, i, x);
    }
}
