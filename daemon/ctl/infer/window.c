// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/infer/window.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/print.h"

/* --- inputs --------------------------------------------------------------- */

/* True if the content of the input follows from the text. */
static bool is_known(const struct pstctl_window *w,
                     const struct pst_role_input *in)
{
    const struct pst_meta *m = &in->meta;
    const bool fits = m->rank > 0 && m->size[m->rank - 1] == w->length;

    /* an 8-bit integer ends at 127 or 255, and a text may be longer */
    if (in->role == PST_ROLE_POSITIONS)
        return fits && pst_dtype_size(m->dtype) > 1;
    return in->role == PST_ROLE_TOKENS || in->role == PST_ROLE_DOCUMENTS ||
           in->role == PST_ROLE_ONES || (in->role == PST_ROLE_MASK && fits);
}

static enum pst_status find_tokens(const struct pstd_config *config,
                                   struct pstctl_window *w,
                                   struct pst_diag *diag)
{
    const struct pst_role_names given = {
        .tokens = config->tokens_input,
        .targets = config->targets_input,
        .positions = config->positions_input,
        .documents = config->documents_input,
        .mask = config->mask_input,
    };
    const size_t n = w->plan->inputs.n;
    enum pst_status status;
    int at;

    w->roles = pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*w->roles));
    if (w->roles == NULL)
        return pst_diag_nomem(diag, n * sizeof(*w->roles));
    for (size_t i = 0; i < n; i++)
        w->roles[i] =
            (struct pst_role_input){.name = w->plan->inputs.at[i].name,
                                    .meta = w->plan->inputs.at[i].meta};
    status = pst_roles_find(&given, w->roles, n, diag);
    if (status != PST_OK)
        return status;
    at = pst_roles_index(w->roles, n, PST_ROLE_TOKENS);
    if (at < 0 || w->roles[at].meta.rank != 2 || w->roles[at].meta.size[1] < 1)
        return pst_diag_set(diag, PST_E_INFER_MODEL,
                            "infer needs a model of tokens: no input is an "
                            "integer (batch, length), or another one was taken "
                            "for it (--tokens-input names it)");
    w->tokens = (unsigned)at;
    w->length = w->roles[at].meta.size[1];
    return PST_OK;
}

/* --- the logits ----------------------------------------------------------- */

/* True for a floating-point output (B, T, size); size 0: any size. */
static bool may_be_logits(const struct pstctl_window *w, unsigned i,
                          int64_t size)
{
    const struct pst_plan_output *o = &w->plan->outputs.at[i];
    const struct pst_meta *m = &o->meta;

    return o->is_tensor && o->stage >= 0 &&
           pst_dtype_kind(m->dtype) == PST_KIND_FLOAT && m->rank == 3 &&
           m->size[1] == w->length && m->size[2] > 0 &&
           (size == 0 || m->size[2] == size);
}

static bool is_named_logits(const struct pst_plan_output *o)
{
    const char *dot = strrchr(o->path, '.');

    return strcmp(dot != NULL ? dot + 1 : o->path, "logits") == 0;
}

/* Finds the output named logits, else the only output with a score for each
 * token of the vocabulary. Other outputs, such as hidden states, would give a
 * wrong text. */
static enum pst_status find_logits(struct pstctl_window *w,
                                   struct pst_diag *diag)
{
    const struct pst_plan_output *outputs = w->plan->outputs.at;
    struct pst_data_bound bound;
    enum pst_status status = pst_plan_bound(w->plan, w->tokens, &bound, diag);
    char size[32] = "vocabulary";
    int found = -1;

    if (status != PST_OK)
        return status;
    if (bound.below > 0)
        (void)snprintf(size, sizeof(size), "%lld", (long long)bound.below);
    for (unsigned i = 0; i < w->plan->outputs.n && found < 0; i++)
        if (is_named_logits(&outputs[i]) && may_be_logits(w, i, 0))
            found = (int)i;
    for (unsigned i = 0; i < w->plan->outputs.n; i++) {
        if ((found >= 0 && (is_named_logits(&outputs[found]) ||
                            (outputs[i].stage == outputs[found].stage &&
                             outputs[i].output == outputs[found].output))) ||
            !may_be_logits(w, i, bound.below))
            continue;
        if (found >= 0)
            return pst_diag_set(
                diag, PST_E_INFER_MODEL,
                "the outputs %s and %s could both be the logits (batch, %lld, "
                "%s): export a model that returns one of them, or a dict with "
                "\"logits\"",
                outputs[found].path, outputs[i].path, (long long)w->length,
                size);
        found = (int)i;
    }
    if (found < 0)
        return pst_diag_set(diag, PST_E_INFER_MODEL,
                            "infer needs logits: no output is floating (batch, "
                            "%lld, %s)",
                            (long long)w->length, size);
    w->logits = (unsigned)found;
    w->vocab = outputs[found].meta.size[2];
    return PST_OK;
}

/* --- inputs that the logits depend on ------------------------------------- */

static void mark_value(void *ctx, struct pst_value **slot, unsigned arg)
{
    bool *wanted = ctx;

    (void)arg;
    wanted[(*slot)->id] = true;
}

static void mark_nodes(const struct pst_graph *graph, bool *wanted)
{
    for (size_t i = graph->nodes.n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];
        bool any = false;

        for (unsigned k = 0; k < node->n_outs; k++)
            any |= wanted[node->outs[k]->id];
        if (any)
            pst_node_uses(node, mark_value, wanted);
    }
}

/* Marks all values that the logits of this step or of later steps depend on:
 * later steps read the buffers that this step updates. wanted: indexed by value
 * id. */
static void mark_wanted(const struct pst_graph *graph, bool *wanted)
{
    bool changed = true;

    while (changed) {
        changed = false;
        mark_nodes(graph, wanted);
        for (size_t i = 0; i < graph->outputs.n; i++) {
            const struct pst_output *o = &graph->outputs.at[i];

            if (o->kind != PST_OUTPUT_BUFFER_UPDATE ||
                o->arg.kind != PST_ARG_VALUE || !wanted[o->target->id] ||
                wanted[o->arg.value->id])
                continue;
            wanted[o->arg.value->id] = changed = true;
        }
    }
}

static bool reads_input(const struct pst_stage *stage, const bool *wanted,
                        unsigned input)
{
    for (size_t i = 0; i < stage->graph->inputs.n; i++)
        if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT &&
            stage->inputs[i].index == input &&
            wanted[stage->graph->inputs.at[i]->id])
            return true;
    return false;
}

/* Refuses an input that the logits depend on but whose content does not follow
 * from the text. All other inputs may have any content. */
static enum pst_status refuse_unknown(const struct pstctl_window *w,
                                      const struct pst_stage *stage,
                                      const bool *wanted, struct pst_diag *diag)
{
    char text[PST_META_TEXT];

    if (!reads_input(stage, wanted, w->tokens))
        return pst_diag_set(diag, PST_E_INFER_MODEL,
                            "the logits do not depend on input '%s', which was "
                            "taken for the tokens: --tokens-input names the "
                            "right one",
                            w->roles[w->tokens].name);
    for (unsigned i = 0; i < w->plan->inputs.n; i++)
        if (!is_known(w, &w->roles[i]) && reads_input(stage, wanted, i))
            return pst_diag_set(
                diag, PST_E_INFER_MODEL,
                "the logits depend on input '%s' (%s), which does not follow "
                "from the text; if it gets tokens, positions, numbers of "
                "documents or a mask, name it by --tokens-input, "
                "--positions-input, --documents-input or --mask-input "
                "(docs/files.md)",
                w->roles[i].name, pst_meta_text(&w->roles[i].meta, text));
    return PST_OK;
}

static enum pst_status check_inputs(const struct pstctl_window *w,
                                    struct pst_diag *diag)
{
    const struct pst_plan_output *o = &w->plan->outputs.at[w->logits];
    const struct pst_stage *stage = &w->plan->stages.at[o->stage];
    const struct pst_graph *graph = stage->graph;
    enum pst_status status;
    bool *wanted =
        pst_calloc(PST_TAG_CLIENT, graph->values.n + 1, sizeof(*wanted));

    if (wanted == NULL)
        return pst_diag_nomem(diag, graph->values.n);
    wanted[graph->outputs.at[o->output].arg.value->id] = true;
    mark_wanted(graph, wanted);
    status = refuse_unknown(w, stage, wanted, diag);
    pst_free(wanted);
    return status;
}

/* --- interface ------------------------------------------------------------ */

static bool changes_buffers(const struct pst_plan *plan)
{
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->outputs.n; i++)
            if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
                return true;
    }
    return false;
}

enum pst_status pstctl_window_find(const struct pst_plan *plan,
                                   const struct pstd_config *config,
                                   struct pstctl_window *ret,
                                   struct pst_diag *diag)
{
    const bool changes = changes_buffers(plan);
    enum pst_status status;

    ret->plan = plan;
    status = find_tokens(config, ret, diag);
    if (status == PST_OK)
        status = find_logits(ret, diag);
    if (status == PST_OK)
        status = check_inputs(ret, diag);
    if (status != PST_OK)
        return status;
    ret->cached = changes && ret->length == 1;
    ret->at = pst_calloc(PST_TAG_CLIENT, (size_t)ret->length, sizeof(*ret->at));
    if (ret->at == NULL)
        return pst_diag_nomem(diag, (size_t)ret->length * sizeof(*ret->at));
    if (changes && !ret->cached)
        pstctl_printf(stderr,
                      "note: the model keeps state in buffers but reads "
                      "%lld tokens at once, so it reads all of them again "
                      "for each new token; export it for one token\n",
                      (long long)ret->length);
    return PST_OK;
}

void pstctl_window_fini(struct pstctl_window *w)
{
    pst_free(w->roles);
    pst_free(w->at);
}

void pstctl_window_append(struct pstctl_window *w, int64_t token)
{
    if (w->n == w->length) {
        for (int64_t i = 1; i < w->n; i++)
            w->at[i - 1] = w->at[i];
        w->n--;
        w->first += w->cached; /* without a cache, positions count from the
                                  window's start */
    }
    w->at[w->n++] = token;
}

/* Writes a causal mask, in which token i attends to tokens 0 to i: a bool mask
 * has true there, a floating-point mask has 0 there and -inf elsewhere. */
static void store_causal(const struct pst_meta *meta, int64_t length, void *dst)
{
    const int64_t all = pst_meta_numel(meta);

    for (int64_t i = 0; i < all; i++) {
        const bool seen = i % length <= i / length % length;

        if (meta->dtype == PST_BOOL)
            pst_store_i64(meta->dtype, dst, i, seen);
        else
            pst_store_f64(meta->dtype, dst, i, seen ? 0 : -INFINITY);
    }
}

/* Fills positions and masks with the same content in all rows. Documents are
 * numbered from 0, and there is only one. Other inputs are zero: they do not
 * affect the logits. */
enum pst_status pstctl_window_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst, struct pst_diag *diag)
{
    const struct pstctl_window *w = ctx;
    const struct pst_role_input *in = &w->roles[input];
    const struct pst_meta *meta = &in->meta;
    const int64_t all = pst_meta_numel(meta);

    (void)step;
    (void)microbatch;
    (void)diag;
    memset(dst, 0, pst_meta_bytes(meta));
    if (input == w->tokens)
        for (int64_t i = 0; i < w->n; i++)
            pst_store_i64(meta->dtype, dst, i, w->at[i]);
    if (in->role == PST_ROLE_POSITIONS)
        for (int64_t i = 0; i < all; i++)
            pst_store_i64(meta->dtype, dst, i, w->first + i % w->length);
    if (in->role == PST_ROLE_ONES)
        for (int64_t i = 0; i < all; i++)
            pst_store_i64(meta->dtype, dst, i, i % w->length < w->n);
    if (in->role == PST_ROLE_MASK && is_known(w, in))
        store_causal(meta, w->length, dst);
    return PST_OK;
}
