// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/lora/adapting.h"

#include "stages/modules/alias.h"

#include <fnmatch.h>
#include <string.h>

#define TAG PST_TAG_PLAN

static enum pst_status no_memory(const struct pst_adapting *a)
{
    return pst_diag_nomem(a->diag, 0);
}

/* --- adapted modules ------------------------------------------------------ */

static bool is_name(const char *pattern)
{
    return strpbrk(pattern, "*?[\\") == NULL;
}

/* Returns the index of the last pattern that matches, or -1. */
static int find_lora(const struct pst_adapting *a, const char *path)
{
    for (size_t i = a->n_loras; i-- > 0;)
        if (fnmatch(a->loras[i].pattern, path, 0) == 0)
            return (int)i;
    return -1;
}

/* True if the module has parameters outside its submodules. */
static bool has_own_params(const struct pst_model *model, const char *path)
{
    const size_t n = strlen(path);

    for (size_t i = 0; i < model->weights.n; i++) {
        const struct pst_weight *w = &model->weights.at[i];

        if (w->is_param && strncmp(w->fqn, path, n) == 0 && w->fqn[n] == '.' &&
            strchr(w->fqn + n + 1, '.') == NULL)
            return true;
    }
    return false;
}

static enum pst_status refuse_module(const struct pst_adapting *a, int lora,
                                     const char *path, const char *type,
                                     const char *why)
{
    const char *dot = strrchr(type, '.');

    return pst_diag_set(a->diag, PST_E_LORA_NOT_LINEAR,
                        "--lora %.200s: module \"%.200s\"%s%.100s%s is not "
                        "a linear layer: %s",
                        a->loras[lora].pattern, path, *type != '\0' ? " (" : "",
                        dot != NULL ? dot + 1 : type, *type != '\0' ? ")" : "",
                        why);
}

/* Selects the calls that the module has under other names; false: none. */
static bool choose_other_name(struct pst_adapting *a, const char *path,
                              int lora)
{
    const struct pst_graph *old = a->old->graph;
    bool any = false;

    for (size_t i = 1; i < old->calls.n; i++) {
        if (!pst_have_same_state(a->old, path, old->calls.at[i]->path))
            continue;
        a->chosen[i] = PST_MAX(a->chosen[i], lora);
        any = true;
    }
    return any;
}

/* Selects matching modules that have no call under their own name. */
static enum pst_status choose_uncalled(struct pst_adapting *a,
                                       const struct pst_map *called)
{
    for (size_t i = 0; i < a->old->modules.n; i++) {
        const char *path = a->old->modules.at[i];
        const int lora = find_lora(a, path);

        if (lora < 0 || pst_map_has(called, path))
            continue;
        if ((is_name(a->loras[lora].pattern) || has_own_params(a->old, path)) &&
            !choose_other_name(a, path, lora))
            return refuse_module(a, lora, path, "", "it is in no call");
    }
    return PST_OK;
}

static enum pst_status check_patterns(const struct pst_adapting *a)
{
    const struct pst_model *old = a->old;

    for (size_t i = 0; i < a->n_loras; i++) {
        const char *pattern = a->loras[i].pattern;
        bool any = false;
        int near;

        for (size_t k = 0; k < old->modules.n && !any; k++)
            any = fnmatch(pattern, old->modules.at[k], 0) == 0;
        for (size_t k = 1; k < old->graph->calls.n && !any; k++)
            any = fnmatch(pattern, old->graph->calls.at[k]->path, 0) == 0;
        if (any)
            continue;
        near = pst_nearest(pattern, old->modules.at, old->modules.n);
        return pst_diag_set(
            a->diag, PST_E_LORA_PATTERN,
            "--lora %.200s: no module of the model matches%s%.200s%s", pattern,
            near < 0 ? "" : "; the nearest name is \"",
            near < 0 ? "" : old->modules.at[near], near < 0 ? "" : "\"");
    }
    return PST_OK;
}

static enum pst_status choose_calls(struct pst_adapting *a)
{
    const struct pst_graph *old = a->old->graph;
    struct pst_map called;
    enum pst_status status = PST_OK;

    pst_map_init(&called, TAG);
    a->chosen = pst_arena_calloc(a->arena, old->calls.n, sizeof(int));
    if (a->chosen == NULL)
        status = no_memory(a);
    for (size_t i = 0; i < old->calls.n && status == PST_OK; i++) {
        const struct pst_module_call *call = old->calls.at[i];
        const int lora = call->parent == NULL ? -1 : find_lora(a, call->path);
        const bool wanted = lora >= 0 && (is_name(a->loras[lora].pattern) ||
                                          has_own_params(a->old, call->path));

        a->chosen[i] = wanted ? lora : -1;
        if (!pst_map_put(&called, call->path, a))
            status = no_memory(a);
    }
    if (status == PST_OK)
        status = check_patterns(a);
    if (status == PST_OK)
        status = choose_uncalled(a, &called);
    pst_map_fini(&called);
    return status;
}

static bool is_wanted(void *ctx, const struct pst_module_call *call)
{
    const struct pst_adapting *a = ctx;

    return a->chosen[call->id] >= 0;
}

/* True for all parameters: a layer's weight belongs to it even if it is
 * shared. */
static bool is_param(void *ctx, const struct pst_value *state)
{
    (void)ctx;
    return state->kind == PST_VALUE_PARAM;
}

/* --- the adapters --------------------------------------------------------- */

static enum pst_status check_rank(const struct pst_adapting *a,
                                  const struct pst_lora_pair *pair)
{
    const struct pst_lora *lora = &a->loras[pair->lora];
    const struct pst_linear *l = pair->linear;
    const int64_t most = PST_MIN(l->in, l->out);

    if (lora->rank >= 1 && lora->rank <= most)
        return PST_OK;
    return pst_diag_set(a->diag, PST_E_LORA_RANK,
                        "--lora %.200s: \"%.200s\" takes %lld and returns %lld "
                        "features, so that the rank is 1 to %lld, not %lld",
                        lora->pattern, pair->module, (long long)l->in,
                        (long long)l->out, (long long)most,
                        (long long)lora->rank);
}

static enum pst_status add_module(struct pst_adapting *a, const char *path,
                                  size_t pair)
{
    const struct pst_lora_module module = {path, pair};

    for (size_t i = 0; i < a->modules.n; i++)
        if (strcmp(a->modules.at[i].path, path) == 0)
            return PST_OK;
    return pst_vec_push(TAG, &a->modules, module) ? PST_OK : no_memory(a);
}

/* Returns the prefix of the layer's parameters: its path "n", or "n@1" if the
 * module of that call alone was replaced (replace.h). */
static const char *layer_name(struct pst_adapting *a,
                              const struct pst_module_call *call,
                              const struct pst_value *weight)
{
    const size_t n = strlen(call->path);
    size_t end = n + 1;

    if (strncmp(weight->fqn, call->path, n) != 0 || weight->fqn[n] != '@')
        return call->path;
    end += strspn(weight->fqn + end, "0123456789");
    return weight->fqn[end] == '.'
               ? pst_arena_strndup(a->arena, weight->fqn, end)
               : call->path;
}

static enum pst_status add_pair(struct pst_adapting *a, size_t frame)
{
    const struct pst_linear *l = &a->linears[frame];
    const struct pst_module_call *call = a->frames.at.at[frame].call;
    const int lora = a->chosen[call->id];
    const char *name = layer_name(a, call, l->weight);
    struct pst_lora_pair pair = {.linear = l, .module = name, .lora = lora};
    int *at = &a->pair_of[l->weight->id];

    if (name == NULL)
        return no_memory(a);
    if (*at < 0) {
        *at = (int)a->pairs.n;
        return pst_vec_push(TAG, &a->pairs, pair)
                   ? add_module(a, name, a->pairs.n - 1)
                   : no_memory(a);
    }
    if (a->pairs.at[*at].linear->transposed != l->transposed)
        return pst_diag_set(a->diag, PST_E_LORA_TIED,
                            "\"%.200s\" and \"%.200s\" multiply with \"%.200s\""
                            ", one with its transpose: they cannot have one "
                            "adapter",
                            a->pairs.at[*at].module, call->path,
                            l->weight->fqn);
    a->pairs.at[*at].lora = PST_MAX(a->pairs.at[*at].lora, lora);
    return add_module(a, name, (size_t)*at);
}

static enum pst_status list_pairs(struct pst_adapting *a)
{
    const size_t n = a->old->graph->values.n;
    enum pst_status status = PST_OK;

    a->pair_of = pst_arena_calloc(a->arena, n + 1, sizeof(int));
    if (a->pair_of == NULL)
        return no_memory(a);
    for (size_t i = 0; i < n; i++)
        a->pair_of[i] = -1;
    for (size_t i = 0; i < a->frames.at.n && status == PST_OK; i++) {
        const struct pst_module_call *call = a->frames.at.at[i].call;
        const struct pst_linear *l = &a->linears[i];

        if (l->n_nodes == 0)
            status =
                refuse_module(a, a->chosen[call->id], call->path, call->type,
                              "it left no operator in the export");
        else if (l->why[0] != '\0')
            status = refuse_module(a, a->chosen[call->id], call->path,
                                   call->type, l->why);
        else
            status = add_pair(a, i);
    }
    for (size_t i = 0; i < a->pairs.n && status == PST_OK; i++)
        status = check_rank(a, &a->pairs.at[i]);
    if (status == PST_OK && a->pairs.n == 0)
        status = pst_diag_set(a->diag, PST_E_LORA_NOT_LINEAR,
                              "--lora %.200s: no module that matches has "
                              "parameters of its own",
                              a->loras[0].pattern);
    return status;
}

enum pst_status pst_adapting_choose(struct pst_adapting *a)
{
    enum pst_status status = choose_calls(a);

    if (status == PST_OK)
        status = pst_frames_init(&a->frames, a->old->graph, is_wanted, is_param,
                                 a, a->diag);
    if (status == PST_OK)
        status = pst_linears_read(&a->frames, a->old->graph, a->arena,
                                  &a->linears, a->diag);
    return status == PST_OK ? list_pairs(a) : status;
}
