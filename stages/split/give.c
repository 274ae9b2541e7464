// SPDX-License-Identifier: Apache-2.0
/* Matches weights that a user gives with the names of the model's state. */
#include "stages/files/lora/alphas.h"
#include "stages/split/split.h"
#include "stages/split/store/values.h"

#include <math.h>
#include <string.h>

#define TAG   PST_TAG_PLAN
#define NAMES 10
#define PIECE ((size_t)1 << 20)

void pst_name_list_add(struct pst_name_list *list, const char *name)
{
    if (list->n < NAMES)
        pst_str_addf(&list->text, "%s\"%.120s\"", list->n > 0 ? ", " : "",
                     name);
    else if (list->n == NAMES)
        pst_str_add(&list->text, ", ...");
    list->n++;
}

enum pst_status pst_plan_note(struct pst_plan *plan, struct pst_str *text,
                              struct pst_diag *diag)
{
    const char *copy = text->failed
                           ? NULL
                           : pst_arena_strdup(&plan->arena, pst_str_text(text));

    pst_str_fini(text);
    return copy != NULL && pst_vec_push(TAG, &plan->notes, copy)
               ? PST_OK
               : pst_diag_nomem(diag, 0);
}

struct giver {
    struct pst_plan *plan;
    struct pst_given *files;
    struct pst_given_param *params;
    const char *path;
    /* missing: names of the model without a value; unknown: names in the files
     * that the model does not have; other: names of tensors that are not in the
     * state; widened: names of tensors that are converted to a larger dtype. */
    struct pst_name_list missing, unknown, other, widened;
    /* names of tensors that have neither a given value nor a start value */
    struct pst_name_list lost;
    /* unadapted: adapters' parameters without a given value; n_adapted: number
     * of those with one */
    struct pst_name_list unadapted;
    size_t n_adapted;
    bool any_own; /* the files have tensors of the model itself */
    struct pst_diag *diag;
};

/* True if `to` is larger than `from` and can represent all of its values. */
static bool widens_to(enum pst_dtype from, enum pst_dtype to)
{
    return pst_dtype_kind(from) == PST_KIND_FLOAT &&
           pst_dtype_kind(to) == PST_KIND_FLOAT &&
           pst_dtype_size(from) < pst_dtype_size(to);
}

/* Finds the entry of a name and checks its shape and dtype; NULL if absent. */
static enum pst_status find_entry(struct giver *g,
                                  const struct pst_plan_param *param,
                                  const char *name, const struct pst_meta *want,
                                  const struct pst_safetensors_entry **ret)
{
    const struct pst_safetensors_entry *e = pst_given_find(g->files, name);
    const struct pst_weight *weight =
        pst_model_weight(g->plan->model, param->fqn);
    const enum pst_dtype own =
        weight != NULL ? weight->meta.dtype : want->dtype;
    char have[PST_META_TEXT], text[PST_META_TEXT];
    struct pst_meta plain = *want;

    *ret = e;
    if (e == NULL)
        return PST_OK;
    pst_meta_set_contiguous(&plain);
    if (!pst_meta_same_shape(&e->meta, &plain))
        return pst_diag_set(g->diag, PST_E_WEIGHTS_SHAPE,
                            "%s: \"%.200s\" is %s, the model has %s", g->path,
                            name, pst_meta_text(&e->meta, have),
                            pst_meta_text(&plain, text));
    if (e->is_complex != param->is_complex)
        return pst_diag_set(g->diag, PST_E_WEIGHTS_SHAPE,
                            "%s: \"%.200s\" is %s, the model has %s numbers",
                            g->path, name, e->is_complex ? "complex" : "real",
                            param->is_complex ? "complex" : "real");
    if (e->meta.dtype == plain.dtype)
        return PST_OK;
    /* --params bf16 rounds f32 values */
    if (e->meta.dtype == PST_F32 && plain.dtype == PST_BF16 &&
        param->requires_grad)
        return PST_OK;
    if (!widens_to(e->meta.dtype, plain.dtype))
        return pst_diag_set(
            g->diag, PST_E_WEIGHTS_SHAPE,
            "%s: \"%.200s\" is %s, the model has %s: its values "
            "would change, so convert the file first",
            g->path, name, pst_meta_text(&e->meta, have),
            pst_meta_text(&plain, text));
    /* no conversion if the model itself has the file's dtype */
    if (e->meta.dtype != own)
        pst_name_list_add(&g->widened, name);
    return PST_OK;
}

static enum pst_status compare(const struct giver *g,
                               const struct pst_safetensors_entry *a,
                               const struct pst_safetensors_entry *b)
{
    char *x = pst_alloc(TAG, PIECE), *y = pst_alloc(TAG, PIECE);
    enum pst_status status =
        x == NULL || y == NULL ? pst_diag_nomem(g->diag, PIECE) : PST_OK;
    bool same = a->meta.dtype == b->meta.dtype;

    for (size_t at = 0; status == PST_OK && same && at < a->bytes;
         at += PIECE) {
        const size_t n = PST_MIN(a->bytes - at, PIECE);

        status = pst_safetensors_read(a, at, n, x, g->diag);
        if (status == PST_OK)
            status = pst_safetensors_read(b, at, n, y, g->diag);
        same = status != PST_OK || memcmp(x, y, n) == 0;
    }
    if (status == PST_OK && !same)
        status = pst_diag_set(g->diag, PST_E_WEIGHTS_CONTRADICT,
                              "%s: \"%.200s\" and \"%.200s\" are one tensor in "
                              "the model, but are given different values",
                              g->path, a->name, b->name);
    pst_free(x);
    pst_free(y);
    return status;
}

/* --- adapters ------------------------------------------------------------- */

/* If `fqn` is parameter A or B of the adapter, appends peft's name for it to
 * *ret and returns true. */
static bool peft_name(const struct pst_adapter *a, const char *fqn,
                      struct pst_str *ret)
{
    const bool down = strcmp(a->down, fqn) == 0;

    if (!down && strcmp(a->up, fqn) != 0)
        return false;
    pst_str_addf(ret, PST_PEFT_PREFIX "%s.lora_%c.weight", a->module,
                 down ? 'A' : 'B');
    return true;
}

/* Finds the parameter's entry under the name `name`; if another name had an
 * entry, both must be equal. */
static enum pst_status find_by_name(struct giver *g,
                                    const struct pst_plan_param *param,
                                    const char *name,
                                    struct pst_given_param *ret)
{
    const struct pst_safetensors_entry *e = NULL;
    enum pst_status status = find_entry(g, param, name, &param->meta, &e);

    if (status != PST_OK || e == NULL)
        return status;
    if (ret->whole != NULL && ret->whole != e)
        return compare(g, ret->whole, e);
    ret->whole = e;
    return PST_OK;
}

/* Finds the values of an adapter's parameter, under its name in the plan or
 * under peft's name in any layer that shares the adapter. *ret_is: true if the
 * parameter belongs to an adapter. */
static enum pst_status find_adapter_values(struct giver *g,
                                           const struct pst_plan_param *param,
                                           struct pst_given_param *ret,
                                           bool *ret_is)
{
    const struct pst_adapters *all = &g->plan->adapters;
    enum pst_status status = PST_OK;

    *ret_is = false;
    for (size_t i = 0; i < all->n && status == PST_OK; i++) {
        struct pst_str name = {0};

        if (!peft_name(&all->at[i], param->fqn, &name))
            continue;
        if (name.failed)
            status = pst_diag_nomem(g->diag, strlen(param->fqn));
        if (status == PST_OK && !*ret_is)
            status = find_by_name(g, param, param->fqn, ret);
        if (status == PST_OK)
            status = find_by_name(g, param, name.text, ret);
        *ret_is = true;
        pst_str_fini(&name);
    }
    if (*ret_is && ret->whole != NULL)
        g->n_adapted++;
    else if (*ret_is)
        pst_name_list_add(&g->unadapted, param->fqn);
    return status;
}

/* --- parameters ----------------------------------------------------------- */

/* Finds the entry of the whole tensor under any of its names, preceded by
 * `prefix`; entries under several names must be equal. */
static enum pst_status find_whole(struct giver *g,
                                  const struct pst_plan_param *param,
                                  const char *prefix,
                                  struct pst_given_param *ret)
{
    const unsigned first = param->nameless ? 1 : 0;
    enum pst_status status = PST_OK;

    for (unsigned k = first; k <= param->n_aliases && status == PST_OK; k++) {
        const struct pst_safetensors_entry *e = NULL;
        struct pst_str name = {0};

        pst_str_addf(&name, "%s%s", prefix,
                     k == 0 ? param->fqn : param->aliases[k - 1]);
        status = name.failed
                     ? pst_diag_nomem(g->diag, strlen(param->fqn))
                     : find_entry(g, param, name.text, &param->meta, &e);
        pst_str_fini(&name);
        if (status != PST_OK || e == NULL || e == ret->whole)
            continue;
        if (ret->whole != NULL)
            status = compare(g, ret->whole, e);
        ret->whole = e;
    }
    return status;
}

static enum pst_status find_windows(struct giver *g,
                                    const struct pst_plan_param *param,
                                    struct pst_given_param *ret)
{
    enum pst_status status = PST_OK;
    bool any = false;

    if (param->n_windows == 0)
        return PST_OK;
    ret->windows = pst_arena_calloc(&g->plan->arena, param->n_windows,
                                    sizeof(*ret->windows));
    if (ret->windows == NULL)
        return pst_diag_nomem(g->diag, param->n_windows);
    for (unsigned k = 0; k < param->n_windows && status == PST_OK; k++) {
        status = find_entry(g, param, param->windows[k].fqn,
                            &param->windows[k].meta, &ret->windows[k]);
        any = any || ret->windows[k] != NULL;
        if (ret->windows[k] == NULL && ret->whole == NULL)
            pst_name_list_add(&g->missing, param->windows[k].fqn);
    }
    if (!any)
        ret->windows = NULL;
    return status;
}

static enum pst_status find_param_values(struct giver *g, unsigned i)
{
    const struct pst_plan_param *param = &g->plan->params.at[i];
    const bool has_values = pst_plan_has_values(g->plan, i);
    enum pst_status status;
    bool is_adapter;

    if (!pst_plan_is_state(param) && has_values)
        return PST_OK;
    status = find_adapter_values(g, param, &g->params[i], &is_adapter);
    if (status != PST_OK || is_adapter)
        return status;
    /* Beside adapters, peft renames a module that was trained as a whole. */
    if (g->plan->adapters.n > 0)
        status = find_whole(g, param, PST_PEFT_PREFIX, &g->params[i]);
    if (status != PST_OK || g->params[i].whole != NULL)
        return status;
    status = find_whole(g, param, "", &g->params[i]);
    if (status == PST_OK)
        status = find_windows(g, param, &g->params[i]);
    g->any_own = g->any_own || g->params[i].whole != NULL ||
                 g->params[i].windows != NULL;
    if (status != PST_OK || g->params[i].whole != NULL || param->n_windows > 0)
        return status;
    if (pst_plan_is_state(param))
        pst_name_list_add(&g->missing, param->fqn);
    if (!has_values)
        pst_name_list_add(&g->lost, param->fqn);
    return PST_OK;
}

/* True if this is peft's name for a parameter of an adapter, or of a module
 * that was trained as a whole. */
static bool is_peft_name(const struct giver *g, const char *name)
{
    bool found = false;
    int param;

    if (!pst_has_prefix(name, PST_PEFT_PREFIX))
        return false;
    param = pst_plan_find_param(g->plan, name + strlen(PST_PEFT_PREFIX));
    if (g->plan->adapters.n > 0 && param >= 0)
        return g->params[param].whole != NULL;
    for (size_t i = 0; i < g->plan->adapters.n && !found; i++) {
        const struct pst_adapter *a = &g->plan->adapters.at[i];

        for (unsigned k = 0; k < 2 && !found; k++) {
            struct pst_str other = {0};

            found = peft_name(a, k == 0 ? a->down : a->up, &other) &&
                    strcmp(pst_str_text(&other), name) == 0;
            pst_str_fini(&other);
        }
    }
    return found;
}

/* Lists the names in the files that no tensor of the model took. */
static void list_unused(struct giver *g)
{
    for (size_t i = 0; i < pst_given_count(g->files); i++) {
        const char *name = pst_given_name(g->files, i);
        const int index = pst_plan_find_param(g->plan, name);
        const struct pst_plan_param *param =
            index < 0 ? NULL : &g->plan->params.at[index];

        if (is_peft_name(g, name))
            continue;
        if (param == NULL || (param->nameless && strcmp(name, param->fqn) == 0))
            pst_name_list_add(&g->unknown, name);
        else if (!pst_plan_is_state(param) && g->params[index].whole == NULL)
            pst_name_list_add(&g->other, name);
    }
}

/* --- result ------------------------------------------------------------- */

static enum pst_status report_missing(const struct giver *g, bool partial)
{
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    /* The files may have the model without adapters, or adapters without the
     * model; the tensors that are missing then keep their start values. */
    if (g->missing.n > 0 && (g->any_own || g->n_adapted == 0))
        pst_str_addf(&text, "it lacks %zu tensors of the model (%s)",
                     g->missing.n, pst_str_text(&g->missing.text));
    if (g->unadapted.n > 0 && g->n_adapted > 0)
        pst_str_addf(&text, "%sit lacks %zu tensors of adapters (%s)",
                     text.len > 0 ? "; " : "", g->unadapted.n,
                     pst_str_text(&g->unadapted.text));
    if (g->unknown.n > 0)
        pst_str_addf(&text, "%s%zu of its tensors are none of the model (%s)",
                     text.len > 0 ? "; " : "", g->unknown.n,
                     pst_str_text(&g->unknown.text));
    if (text.failed)
        status = pst_diag_nomem(g->diag, text.cap);
    else if (text.len > 0 && !partial)
        status = pst_diag_set(g->diag, PST_E_WEIGHTS_MISSING,
                              "%s: %s; --partial takes what fits", g->path,
                              text.text);
    else if (g->lost.n > 0)
        status = pst_diag_set(g->diag, PST_E_WEIGHTS_MISSING,
                              "%s: it lacks %zu tensors of which the model was "
                              "exported without values (%s)",
                              g->path, g->lost.n, pst_str_text(&g->lost.text));
    pst_str_fini(&text);
    return status;
}

/* Checks that A and B were trained with the adapter's alpha, which scales their
 * product. */
static enum pst_status check_alpha(const struct giver *g,
                                   const struct pst_alphas *alphas,
                                   const struct pst_adapter *adapter)
{
    const int down = pst_plan_find_param(g->plan, adapter->down);
    const struct pst_safetensors_entry *e =
        down < 0 ? NULL : g->params[down].whole;
    enum pst_status status;
    double alpha = 0;
    bool known;

    if (e == NULL)
        return PST_OK;
    status = pst_alphas_find(alphas, adapter->module, e->meta.size[0],
                             pst_has_prefix(e->name, PST_PEFT_PREFIX), &alpha,
                             &known, g->diag);
    /* alpha computed with a square root has limited precision */
    if (status != PST_OK || !known ||
        fabs(alpha - adapter->alpha) <= 1e-9 * adapter->alpha)
        return status;
    return pst_diag_set(g->diag, PST_E_WEIGHTS_ALPHA,
                        "%s: the adapter of \"%.200s\" is one of alpha %g, the "
                        "model has alpha %g: give --lora %.200s:rank=%lld,"
                        "alpha=%g",
                        g->path, adapter->module, alpha, adapter->alpha,
                        adapter->module, (long long)e->meta.size[0], alpha);
}

static enum pst_status check_alphas(const struct giver *g)
{
    struct pst_alphas *alphas;
    enum pst_status status;

    if (g->n_adapted == 0)
        return PST_OK;
    status = pst_alphas_open(g->files, &alphas, g->diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < g->plan->adapters.n && status == PST_OK; i++)
        status = check_alpha(g, alphas, &g->plan->adapters.at[i]);
    pst_alphas_close(alphas);
    return status;
}

/* Adds the note "PATH: N WHAT: NAMES" unless the list is empty. */
static enum pst_status note_list(const struct giver *g,
                                 const struct pst_name_list *list,
                                 const char *what)
{
    struct pst_str text = {0};

    if (list->n == 0)
        return PST_OK;
    pst_str_addf(&text, "%s: %zu %s: %s", g->path, list->n, what,
                 pst_str_text(&list->text));
    return pst_plan_note(g->plan, &text, g->diag);
}

static enum pst_status note_all(const struct giver *g)
{
    enum pst_status status =
        note_list(g, &g->missing,
                  "tensors of the model are not in it and stay as the model "
                  "has them");

    if (status == PST_OK)
        status = note_list(g, &g->unknown, "tensors are none of the model");
    if (status == PST_OK)
        status = note_list(g, &g->other,
                           "tensors are no part of the model's state_dict, "
                           "which keeps its own");
    if (status == PST_OK)
        status = note_list(g, &g->widened,
                           "tensors have a narrower dtype than the model, "
                           "which holds every value of it");
    return status;
}

enum pst_status pst_plan_set_weights(struct pst_plan *plan, const char *path,
                                     bool partial, struct pst_diag *diag)
{
    struct giver g = {.plan = plan, .diag = diag};
    struct pst_plan_given *given;
    enum pst_status status = pst_given_open(path, &g.files, diag);

    if (status != PST_OK)
        return status;
    g.path = pst_given_path(g.files);
    g.params =
        pst_arena_calloc(&plan->arena, plan->params.n + 1, sizeof(*g.params));
    given = pst_arena_alloc(&plan->arena, sizeof(*given));
    if (g.params == NULL || given == NULL)
        status = pst_diag_nomem(diag, plan->params.n * sizeof(*g.params));
    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++)
        status = find_param_values(&g, i);
    if (status == PST_OK) {
        list_unused(&g);
        status = report_missing(&g, partial);
    }
    if (status == PST_OK)
        status = check_alphas(&g);
    if (status == PST_OK)
        status = note_all(&g);
    if (status == PST_OK && given != NULL) {
        *given = (struct pst_plan_given){.files = g.files, .params = g.params};
        if (plan->given != NULL) {
            given->inits = plan->given->inits;
            given->seed = plan->given->seed;
        }
        plan->given = given;
        g.files = NULL;
    }
    pst_given_close(g.files);
    pst_str_fini(&g.missing.text);
    pst_str_fini(&g.unadapted.text);
    pst_str_fini(&g.unknown.text);
    pst_str_fini(&g.other.text);
    pst_str_fini(&g.widened.text);
    pst_str_fini(&g.lost.text);
    return status;
}
