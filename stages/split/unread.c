// SPDX-License-Identifier: Apache-2.0
/*
 * Adds notes on parameters and inputs that no operator reads, and on parameters
 * that the export turned into constants: training does not use them, which is
 * probably a mistake.
 */
#include "stages/files/zip.h"
#include "stages/graph/schema.h"
#include "stages/split/split.h"

#include <string.h>

#define TAG    PST_TAG_PLAN
#define LISTED 8 /* maximum number of names in a note */
#define PIECE  (64u << 10)

/* Names for a note: "a", "b" and 3 more. */
struct names {
    struct pst_str text;
    size_t n;
};

static void add_name(struct names *names, const char *name)
{
    if (names->n++ < LISTED)
        pst_str_addf(&names->text, "%s\"%.80s\"", names->n > 1 ? ", " : "",
                     name);
}

/* Adds the note "WHAT "a", "b" and 3 more: WHY" unless there are no names.
 * Frees the list. */
static enum pst_status note_names(struct pst_splitter *s, struct names *names,
                                  const char *what, const char *why)
{
    enum pst_status status = PST_OK;

    if (names->text.failed)
        status = pst_diag_nomem(s->diag, names->text.len);
    else if (names->n > LISTED)
        status =
            pst_split_note(s, "%s %s and %zu more: %s", what,
                           pst_str_text(&names->text), names->n - LISTED, why);
    else if (names->n > 0)
        status = pst_split_note(s, "%s %s: %s", what,
                                pst_str_text(&names->text), why);
    pst_str_fini(&names->text);
    return status;
}

/* --- parameters ---------------------------------------------------------- */

static bool has_gradient(const struct pst_plan_param *param)
{
    for (unsigned i = 0; i < param->n_stages; i++)
        if (param->uses[i] > 0)
            return true;
    return false;
}

static enum pst_status note_params(struct pst_splitter *s)
{
    const struct pst_plan *plan = s->plan;
    struct names unread = {0}, unreached = {0};
    /* some parameter is reached; otherwise loss.c has reported it */
    bool reached = false;
    enum pst_status status;

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];

        if (param->kind != PST_VALUE_PARAM || !param->requires_grad)
            continue;
        if (param->n_stages == 0)
            add_name(&unread, param->fqn);
        else if (plan->loss >= 0 && !has_gradient(param))
            add_name(&unreached, param->fqn);
        else
            reached = true;
    }
    status =
        note_names(s, &unread, "no operator reads the trainable parameters",
                   "training leaves them as they are");
    if (status != PST_OK || !reached) {
        pst_str_fini(&unreached.text);
        return status;
    }
    return note_names(s, &unreached,
                      "the loss does not depend on the trainable parameters",
                      "their gradients are 0");
}

/* --- inputs -------------------------------------------------------------- */

/* Returns the name of another input that is read and has the meta of input i;
 * NULL if there is none. */
static const char *find_like_input(const struct pst_plan *plan, size_t i)
{
    for (size_t k = 0; k < plan->inputs.n; k++)
        if (k != i &&
            pst_meta_same(&plan->inputs.at[k].meta, &plan->inputs.at[i].meta) &&
            pst_plan_reads_input(plan, (unsigned)k))
            return plan->inputs.at[k].name;
    return NULL;
}

static enum pst_status note_inputs(struct pst_splitter *s)
{
    const struct pst_plan *plan = s->plan;
    struct names unread = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < plan->inputs.n && status == PST_OK; i++) {
        const char *name = plan->inputs.at[i].name, *like;

        if (pst_plan_reads_input(plan, (unsigned)i))
            continue;
        like = find_like_input(plan, i);
        if (like == NULL)
            add_name(&unread, name);
        else
            status = pst_split_note(
                s,
                "no operator reads the input \"%.80s\": its data are ignored. "
                "If torch.export was given the tensor of \"%.80s\" for it, "
                "too, the program reads that one in both places: export it "
                "with a tensor for each",
                name, like);
    }
    if (status != PST_OK) {
        pst_str_fini(&unread.text);
        return status;
    }
    return note_names(s, &unread, "no operator reads the inputs",
                      "their data are ignored");
}

/* --- constants ----------------------------------------------------------- */

static const char list_advice[] =
    "torch.export makes constants of what a plain Python list or dict holds; "
    "use nn.ParameterList, nn.ModuleList or their dicts";

struct bytes {
    struct pst_zip *zip;
    struct pst_zip_entry *entry;
};

static struct bytes bytes_of(const struct pst_model *model,
                             const struct pst_weight *w)
{
    return (struct bytes){w->source != NULL ? w->source->file : model->file,
                          w->entry};
}

static void add_key(const struct pst_weight *w, struct pst_str *ret)
{
    ret->len = 0;
    pst_str_addf(ret, "%llu %08x", (unsigned long long)w->entry->size,
                 (unsigned)w->entry->crc);
}

/* Sets *ret to true if a and b have equal bytes that are not one element
 * repeated: many tensors start as all zeros or all ones. */
static enum pst_status compare(struct bytes a, struct bytes b, size_t item,
                               bool *ret, struct pst_diag *diag)
{
    unsigned char *buffer = pst_alloc(TAG, 2 * PIECE);
    unsigned char first[16];
    enum pst_status status = PST_OK;
    bool equal = true, varied = false;

    if (buffer == NULL)
        return pst_diag_nomem(diag, 2 * PIECE);
    for (uint64_t at = 0; at < a.entry->size && equal && status == PST_OK;
         at += PIECE) {
        const size_t n = (size_t)PST_MIN(a.entry->size - at, PIECE);

        status = pst_zip_read_part(a.zip, a.entry, at, n, buffer, diag);
        if (status == PST_OK)
            status =
                pst_zip_read_part(b.zip, b.entry, at, n, buffer + PIECE, diag);
        if (status != PST_OK)
            break;
        if (at == 0)
            memcpy(first, buffer, item);
        equal = memcmp(buffer, buffer + PIECE, n) == 0;
        for (size_t i = 0; i < n && !varied; i += item)
            varied = memcmp(buffer + i, first, item) != 0;
    }
    pst_free(buffer);
    *ret = equal && varied;
    return status;
}

/* Indexes the trainable parameters that have stored bytes, by size and
 * checksum. */
static enum pst_status index_params(const struct pst_model *model,
                                    struct pst_map *ret, struct pst_diag *diag)
{
    struct pst_str key = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < model->weights.n && status == PST_OK; i++) {
        const struct pst_weight *w = &model->weights.at[i];

        if (!w->is_param || !w->requires_grad || w->entry == NULL)
            continue;
        add_key(w, &key);
        if (key.failed || (!pst_map_has(ret, pst_str_text(&key)) &&
                           !pst_map_put(ret, pst_str_text(&key), (void *)w)))
            status = pst_diag_nomem(diag, key.len);
    }
    pst_str_fini(&key);
    return status;
}

/* Finds a trainable parameter with the same bytes as the constant w; NULL if
 * there is none. */
static enum pst_status find_same_param(const struct pst_splitter *s,
                                       const struct pst_map *params,
                                       const struct pst_weight *w,
                                       const struct pst_weight **ret)
{
    const struct pst_weight *same;
    struct pst_str key = {0};
    enum pst_status status;
    bool equal = false;

    *ret = NULL;
    if (w->entry == NULL)
        return PST_OK;
    add_key(w, &key);
    if (key.failed)
        return pst_diag_nomem(s->diag, key.len);
    same = pst_map_get(params, pst_str_text(&key));
    pst_str_fini(&key);
    if (same == NULL || same->meta.dtype != w->meta.dtype)
        return PST_OK;
    status = compare(bytes_of(s->model, w), bytes_of(s->model, same),
                     pst_dtype_size(w->meta.dtype), &equal, s->diag);
    if (status == PST_OK && equal)
        *ret = same;
    return status;
}

/* True if an operator reads the constant as its weight; class weights of a loss
 * do not count. */
static bool is_weight(const struct pst_plan *plan, const char *fqn)
{
    for (size_t k = 0; k < plan->stages.n; k++) {
        const struct pst_graph *graph = plan->stages.at[k].graph;

        for (size_t i = 0; i < graph->nodes.n; i++) {
            const struct pst_node *node = graph->nodes.at[i];
            const int at = pst_schema_arg(node->schema, "weight");
            const struct pst_value *v;

            if (at < 0 || node->args[at].kind != PST_ARG_VALUE ||
                pst_schema_arg(node->schema, "target") >= 0)
                continue;
            v = node->args[at].value;
            v = v->base != NULL ? v->base : v;
            if (v->fqn != NULL && strcmp(v->fqn, fqn) == 0)
                return true;
        }
    }
    return false;
}

static enum pst_status note_constant(struct pst_splitter *s,
                                     const struct pst_map *params,
                                     const struct pst_weight *w,
                                     struct names *wanting,
                                     struct names *weights)
{
    const struct pst_weight *same;
    enum pst_status status = find_same_param(s, params, w, &same);

    if (status != PST_OK)
        return status;
    if (same != NULL)
        return pst_split_note(s,
                              "constant \"%.80s\" has the bytes of parameter "
                              "\"%.80s\" and is not trained: %s",
                              w->fqn, same->fqn, list_advice);
    if (w->requires_grad)
        add_name(wanting, w->fqn);
    else if (w->meta.rank > 1 &&
             pst_dtype_kind(w->meta.dtype) == PST_KIND_FLOAT &&
             is_weight(s->plan, w->fqn))
        add_name(weights, w->fqn);
    return PST_OK;
}

static enum pst_status note_constants(struct pst_splitter *s)
{
    const struct pst_plan *plan = s->plan;
    struct names wanting = {0}, weights = {0};
    enum pst_status status;
    struct pst_map params;

    pst_map_init(&params, TAG);
    status = index_params(s->model, &params, s->diag);
    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        const struct pst_weight *w = pst_model_weight(s->model, param->fqn);

        if (param->kind == PST_VALUE_CONST && param->n_stages > 0 && w != NULL)
            status = note_constant(s, &params, w, &wanting, &weights);
    }
    pst_map_fini(&params);
    if (status == PST_OK)
        status = note_names(s, &wanting,
                            "these constants of the file want a gradient and "
                            "are not trained:",
                            "make them an nn.Parameter of a module");
    else
        pst_str_fini(&wanting.text);
    if (status == PST_OK)
        return note_names(s, &weights,
                          "operators have constants for their weights, which "
                          "are not trained:",
                          list_advice);
    pst_str_fini(&weights.text);
    return status;
}

/* -------------------------------------------------------------------------- */

enum pst_status pst_split_unread(struct pst_splitter *s)
{
    enum pst_status status = note_constants(s);

    if (status == PST_OK)
        status = note_params(s);
    if (status == PST_OK)
        status = note_inputs(s);
    return status;
}
