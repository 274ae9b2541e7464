// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/replace.h"

#include <string.h>

#define SHOWN 10

/* Returns the part of fqn after the module's name, for names "n", "n@2", "n.x"
 * and "n@2.x" of module "n"; NULL: another module. */
static const char *name_in_module(const char *fqn, const char *module)
{
    const size_t n = strlen(module);
    size_t at = n;

    if (strncmp(fqn, module, n) != 0)
        return NULL;
    if (fqn[at] == '@')
        at += 1 + strspn(fqn + at + 1, "0123456789");
    return fqn[at] == '.' ? fqn + at + 1 : fqn[at] == '\0' ? fqn + at : NULL;
}

static enum pst_status check_adapters(const struct pst_plan *before,
                                      const char *module, struct pst_diag *diag)
{
    const struct pst_adapters *all = pst_plan_adapters(before);

    for (size_t i = 0; i < all->n; i++) {
        const struct pst_adapter *a = &all->at[i];

        if (name_in_module(a->module, module) == NULL)
            continue;
        return pst_diag_set(
            diag, PST_E_SWAP_ADAPTER,
            "\"%.200s\" has a low-rank adapter, which would be lost with the "
            "module: give its weight other values (attr set %.200s FILE), or "
            "split what `penstock weights --merge` writes",
            a->module, a->weight);
    }
    return PST_OK;
}

/* Counts the floating parameters of the module, and those that are trained. */
static void count_params(const struct pst_plan *plan, const char *module,
                         unsigned *ret_all, unsigned *ret_trained)
{
    *ret_all = *ret_trained = 0;
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        bool is = name_in_module(param->fqn, module) != NULL;

        for (unsigned k = 0; k < param->n_aliases; k++)
            is = is || name_in_module(param->aliases[k], module) != NULL;
        if (!is || param->kind != PST_VALUE_PARAM ||
            pst_dtype_kind(param->meta.dtype) != PST_KIND_FLOAT)
            continue;
        ++*ret_all;
        *ret_trained += param->requires_grad;
    }
}

static const struct pst_plan_param *find_param(const struct pst_plan *plan,
                                               const char *module, int call,
                                               const char *name)
{
    struct pst_str text = {0};
    int i = -1;

    if (call >= 0) {
        pst_str_addf(&text, "%s@%d.%s", module, call, name);
        i = text.failed ? -1 : pst_plan_find_param(plan, text.text);
        text.len = 0;
    }
    if (i < 0) {
        pst_str_addf(&text, "%s.%s", module, name);
        i = text.failed ? -1 : pst_plan_find_param(plan, text.text);
    }
    pst_str_fini(&text);
    return i < 0 ? NULL : &plan->params.at[i];
}

bool pstd_replaced_has_param(const struct pstd_replaced *replaced,
                             const char *fqn)
{
    const struct pst_weight *w = replaced->module == NULL
                                     ? NULL
                                     : pst_model_weight(replaced->model, fqn);

    return w != NULL && w->source == replaced->module;
}

static void keep_frozen(const struct pst_plan *before,
                        const struct pst_replacement *what,
                        struct pstd_replaced *r)
{
    const struct pst_graph *graph = r->model->graph;
    unsigned all, trained;

    count_params(before, what->path, &all, &trained);
    for (size_t i = 0; i < graph->params.n; i++) {
        struct pst_value *v = graph->params.at[i];
        const char *name = name_in_module(v->fqn, what->path);
        const struct pst_plan_param *was;

        if (name == NULL || !v->requires_grad ||
            !pstd_replaced_has_param(r, v->fqn))
            continue;
        was = find_param(before, what->path, what->call, name);
        if (was != NULL ? was->requires_grad : all == 0 || trained > 0)
            continue;
        v->requires_grad = false;
        r->frozen++;
    }
}

enum pst_status pstd_replace(const struct pst_plan *before,
                             const struct pst_model *old,
                             const struct pst_replacement *what,
                             const char *path, struct pstd_replaced *ret,
                             struct pst_diag *diag)
{
    struct pst_replacement whole = *what;
    enum pst_status status = check_adapters(before, what->path, diag);

    if (status == PST_OK)
        status =
            pst_model_open_cast(path, before->autocast, &ret->module, diag);
    whole.module = ret->module;
    if (status == PST_OK)
        status = pst_model_replace(old, &whole, &ret->model, &ret->calls, diag);
    if (status != PST_OK)
        return status;
    keep_frozen(before, what, ret);
    return PST_OK;
}

static unsigned count_uses(const struct pst_plan_param *param)
{
    unsigned n = 0;

    for (unsigned k = 0; k < param->n_stages; k++)
        n += param->uses[k];
    return n;
}

enum pst_status pstd_replaced_check(const struct pst_plan *before,
                                    const struct pst_plan *after,
                                    struct pst_diag *diag)
{
    struct pst_str names = {0};
    enum pst_status status = PST_OK;
    unsigned n = 0;

    for (size_t i = 0; i < after->params.n; i++) {
        const struct pst_plan_param *param = &after->params.at[i];
        const int was = pst_plan_find_param(before, param->fqn);

        if (was < 0 || !param->requires_grad || count_uses(param) > 0 ||
            !before->params.at[was].requires_grad ||
            count_uses(&before->params.at[was]) == 0)
            continue;
        if (n < SHOWN)
            pst_str_addf(&names, "%s\"%.120s\"", n > 0 ? ", " : "", param->fqn);
        n++;
    }
    if (n > 0)
        status = pst_diag_set(
            diag, PST_E_SWAP_GRADIENT,
            "the new module gives no gradient back, so that %u parameters in "
            "front of it would be trained no more (%s%s): freeze them first if "
            "that is meant",
            n, pst_str_text(&names), n > SHOWN ? ", ..." : "");
    pst_str_fini(&names);
    return status;
}
