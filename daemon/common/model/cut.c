// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/cut.h"

#include <jansson.h>
#include <string.h>

#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/base/untrusted/json_file.h"
#include "stages/ops/rates/rates.h"
#include "stages/sched/costs.h"

#define MAX_FILE ((size_t)16 << 20)

/* --- --policy file:CUTS.json --------------------------------------------- */

static enum pst_status set_names(struct pstd_cut *cut, const char *path,
                                 const json_t *list, struct pst_diag *diag)
{
    const size_t n = json_array_size(list);
    const char **at = pst_arena_calloc(&cut->arena, n + 1, sizeof(*at));

    if (at == NULL)
        return pst_diag_nomem(diag, n * sizeof(*at));
    if (!json_is_array(list) || n == 0)
        return pst_diag_set(diag, PST_E_CUT_FILE,
                            "%s: expected a list of names to cut at, like "
                            "[\"layers.4\", \"add_2:end\"]",
                            path);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));

        if (name == NULL)
            return pst_diag_set(diag, PST_E_CUT_FILE,
                                "%s: entry %zu of the list is not a name", path,
                                i);
        at[i] = pst_arena_strdup(&cut->arena, name);
        if (at[i] == NULL)
            return pst_diag_nomem(diag, strlen(name));
    }
    cut->options.at = at;
    cut->options.n_at = n;
    return PST_OK;
}

static enum pst_status read_cuts(struct pstd_cut *cut, const char *path,
                                 struct pst_diag *diag)
{
    enum pst_status status;
    json_error_t error;
    char *text = NULL;
    size_t size = 0;
    json_t *list;

    status = pst_json_file_read(path, MAX_FILE, &text, &size, diag);
    if (status != PST_OK)
        return status;
    list = json_loadb(text, size, 0, &error);
    status = list == NULL ? pst_diag_set(diag, PST_E_CUT_FILE, "%s:%d: %s",
                                         path, error.line, error.text)
                          : set_names(cut, path, list, diag);
    json_decref(list);
    pst_free(text);
    return status;
}

static enum pst_status set_policy(struct pstd_cut *cut,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    const char *path = config->policy + strlen("file:");

    if (!pst_has_prefix(config->policy, "file:")) {
        cut->options.policy = config->policy;
        return PST_OK;
    }
    if (config->at.n > 0)
        return pst_diag_set(diag, PST_E_CUT_OPTIONS,
                            "--at and --policy file:%s both name cuts: use one "
                            "of them",
                            path);
    return read_cuts(cut, path, diag);
}

/* --- --costs FILE -------------------------------------------------------- */

static enum pst_status set_costs(struct pstd_cut *cut, const char *path,
                                 const struct pst_costs *costs,
                                 struct pst_diag *diag)
{
    struct pst_split_cost *list =
        pst_arena_calloc(&cut->arena, costs->n_modules + 1, sizeof(*list));

    if (list == NULL)
        return pst_diag_nomem(diag, costs->n_modules * sizeof(*list));
    if (costs->n_modules == 0)
        return pst_diag_set(diag, PST_E_CUT_COST,
                            "%s has times of stages only: to choose cuts, "
                            "times of modules are needed",
                            path);
    for (size_t i = 0; i < costs->n_modules; i++) {
        const struct pst_module_cost *module = &costs->modules[i];

        list[i].name = pst_arena_strdup(&cut->arena, module->module);
        list[i].seconds = module->seconds.forward + module->seconds.input +
                          module->seconds.weight;
        if (list[i].name == NULL)
            return pst_diag_nomem(diag, strlen(module->module));
    }
    cut->options.costs = list;
    cut->options.n_costs = costs->n_modules;
    if (cut->options.bandwidth == 0.0)
        cut->options.bandwidth = costs->wire.bandwidth;
    return PST_OK;
}

static enum pst_status read_costs(struct pstd_cut *cut, const char *path,
                                  struct pst_diag *diag)
{
    struct pst_costs costs;
    enum pst_status status = pst_costs_read(path, &costs, diag);

    if (status != PST_OK)
        return status;
    status = set_costs(cut, path, &costs, diag);
    pst_costs_fini(&costs);
    return status;
}

bool pstd_cut_uses_costs(const struct pstd_config *config)
{
    if (config->policy == NULL)
        return config->at.n == 0;
    return strcmp(config->policy, "flops") == 0 ||
           strcmp(config->policy, "layers") == 0;
}

enum pst_status pstd_cut_init(struct pstd_cut *cut,
                              const struct pstd_config *config,
                              struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    pst_arena_init(&cut->arena, PST_TAG_CLIENT);
    cut->options = (struct pst_split_options){
        .stages = (unsigned)config->stages,
        .at = config->at.at,
        .n_at = config->at.n,
        .replicate = config->replicate.at,
        .n_replicate = config->replicate.n,
        .transmit = config->transmit.at,
        .n_transmit = config->transmit.n,
        .owner = config->owner.at,
        .n_owner = config->owner.n,
        .loss = config->loss,
        .loss_fn = config->loss_fn,
        .rates = pst_rates_here(),
    };
    if (PSTD_GIVEN(config, bandwidth))
        cut->options.bandwidth = config->bandwidth;
    if (config->policy != NULL)
        status = set_policy(cut, config, diag);
    if (status == PST_OK && config->costs != NULL &&
        pstd_cut_uses_costs(config))
        status = read_costs(cut, config->costs, diag);
    if (status != PST_OK)
        pst_arena_fini(&cut->arena);
    return status;
}

void pstd_cut_fini(struct pstd_cut *cut)
{
    pst_arena_fini(&cut->arena);
}
