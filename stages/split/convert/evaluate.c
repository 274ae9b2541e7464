// SPDX-License-Identifier: Apache-2.0
#include "stages/split/convert/evaluate.h"

#include "stages/ops/core/mode.h"
#include "stages/ops/core/rows.h"
#include "stages/split/convert/join.h"
#include "stages/split/split.h"
#include "stages/split/store/values.h"

#include <fnmatch.h>
#include <string.h>

#define TAG PST_TAG_PLAN

enum {
    MAX_WRITTEN = 4, /* maximum number of buffers named in a note */
};

/* Nodes to name in a message: one per operator, module and source line. */
struct places {
    struct PST_VEC(const struct pst_node *) at;
    bool failed;
};

struct evaluator {
    const struct pst_eval_options *options;
    bool *used; /* by pattern: true if it matches a module */
    struct places functions;
};

/* --- places --------------------------------------------------------------- */

static void add_place(struct places *p, const struct pst_node *node)
{
    for (size_t i = 0; i < p->at.n; i++) {
        const struct pst_node *have = p->at.at[i];

        if (strcmp(have->call->path, node->call->path) == 0 &&
            strcmp(have->source, node->source) == 0 &&
            strcmp(pst_node_origin(have), pst_node_origin(node)) == 0)
            return;
    }
    p->failed = !pst_vec_push(TAG, &p->at, node) || p->failed;
}

/* Appends "aten.rand.default in noise at model.py:7, ... and 3 more". */
static void describe_places(const struct places *p, struct pst_str *out)
{
    const size_t limit = PST_DIAG_TEXT / 2;

    for (size_t i = 0; i < p->at.n; i++) {
        const struct pst_node *node = p->at.at[i];

        if (out->len > limit) {
            pst_str_addf(out, " and %zu more", p->at.n - i);
            return;
        }
        pst_str_addf(out, "%s%s in %s", i > 0 ? ", " : "",
                     pst_node_origin(node),
                     node->call->path[0] != '\0' ? node->call->path
                                                 : "the outermost module");
        if (node->source[0] != '\0')
            pst_str_addf(out, " at %s", node->source);
    }
}

static enum pst_status add_note(struct pst_plan *plan, const char *before,
                                const struct places *p, const char *behind,
                                struct pst_diag *diag)
{
    struct pst_str text = {0};
    char *note = NULL;

    if (p->at.n == 0)
        return PST_OK;
    describe_places(p, &text);
    if (!text.failed)
        note = pst_arena_printf(&plan->arena, "%s: %s%s", before,
                                pst_str_text(&text), behind);
    pst_str_fini(&text);
    if (note == NULL || !pst_vec_push(TAG, &plan->notes, note))
        return pst_diag_nomem(diag, 0);
    return PST_OK;
}

/* --- patterns ------------------------------------------------------------- */

/* True if the pattern matches the module or a module that contains it. */
static bool matches_module(const char *pattern, const char *module)
{
    char path[512];
    size_t n = strlen(module);

    if (n >= sizeof(path))
        return fnmatch(pattern, module, 0) == 0;
    memcpy(path, module, n + 1);
    for (;;) {
        char *dot;

        if (fnmatch(pattern, path, 0) == 0)
            return true;
        dot = strrchr(path, '.');
        if (dot == NULL)
            return false;
        *dot = '\0';
    }
}

static bool is_kept(struct evaluator *e, const struct pst_node *node)
{
    bool found = false;

    for (size_t i = 0; i < e->options->n_keep; i++)
        if (matches_module(e->options->keep[i], node->call->path))
            found = e->used[i] = true;
    return found;
}

static bool is_dropout(const struct pst_node *node)
{
    return (node->op->flags & PST_OP_DROPOUT) != 0 &&
           pst_mode_has_dropout(node->schema, node->args);
}

static bool eval_node(void *ctx, const struct pst_node *node)
{
    struct evaluator *e = ctx;

    if (!is_dropout(node))
        return true;
    if (is_kept(e, node))
        return false;
    if (node->is_function)
        add_place(&e->functions, node);
    return true;
}

/* --- remaining random operators ------------------------------------------- */

static enum pst_status refuse_random(const struct places *random,
                                     struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status;

    describe_places(random, &text);
    status = pst_diag_set(
        diag, PST_E_RANDOM_OPERATORS,
        "random operators: %s. A model exported in training mode does not tell "
        "whether model.eval() turns them off: export it in eval mode (for run, "
        "up and serve as --eval-model), or keep them with --keep-random MODULE",
        pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

static enum pst_status check_patterns(const struct evaluator *e,
                                      struct pst_diag *diag)
{
    for (size_t i = 0; i < e->options->n_keep; i++)
        if (!e->used[i])
            return pst_diag_set(diag, PST_E_RANDOM_KEEP,
                                "--keep-random \"%.200s\" names no module with "
                                "random operators",
                                e->options->keep[i]);
    return PST_OK;
}

static enum pst_status check_random(struct evaluator *e, struct pst_plan *plan,
                                    struct pst_diag *diag)
{
    const struct pst_graph *graph = plan->stages.at[0].graph;
    struct places random = {0};
    enum pst_status status;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];

        if (pst_mode_is_random(node) && !is_kept(e, node))
            add_place(&random, node);
    }
    status = random.failed ? pst_diag_nomem(diag, 0) : check_patterns(e, diag);
    if (status == PST_OK && random.at.n > 0 && !plan->evaluates)
        status = refuse_random(&random, diag);
    else if (status == PST_OK)
        status = add_note(plan,
                          "exported in eval mode, so random operators run as "
                          "they stand in it",
                          &random, "", diag);
    pst_vec_fini(&random.at);
    return status;
}

/* --- buffers that the model writes ---------------------------------------- */

static char read_mark;

static void mark_read(void *ctx, struct pst_value **slot, unsigned arg)
{
    (void)ctx;
    (void)arg;
    (*slot)->aux = &read_mark;
}

/* Marks the values that user outputs depend on. */
static void mark_outputs(struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->values.n; i++)
        graph->values.at[i]->aux = NULL;
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_USER)
            pst_arg_uses(&graph->outputs.at[i].arg, 0, mark_read, NULL);
    for (size_t i = graph->nodes.n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];
        bool read = false;

        for (unsigned k = 0; k < node->n_outs; k++)
            read = read || node->outs[k]->aux == &read_mark;
        if (read)
            pst_node_uses(node, mark_read, NULL);
    }
}

/* True if the update does not change the buffer, like that of a norm's
 * statistics in evaluation. */
static bool writes_itself(const struct pst_output *update)
{
    const struct pst_value *v = update->arg.value;

    while (v != update->target) {
        const struct pst_node *def = v->def;

        if (def == NULL)
            return false;
        if (def->op == &pst_op_clone)
            v = def->args[0].value;
        else if (def->op == &pst_op_norm_mode && !def->args[3].b)
            v = def->args[1].value;
        else
            return false;
    }
    return true;
}

/* Adds a note that names the buffers which the model writes and outputs depend
 * on: the file does not show whether the model writes them after eval(). */
static enum pst_status note_written(struct pst_plan *plan,
                                    struct pst_diag *diag)
{
    struct pst_graph *graph = plan->stages.at[0].graph;
    struct pst_str text = {0};
    char *note = NULL;
    size_t n = 0;
    bool failed;

    if (plan->evaluates)
        return PST_OK;
    mark_outputs(graph);
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *update = &graph->outputs.at[i];

        if (update->kind != PST_OUTPUT_BUFFER_UPDATE ||
            update->target->aux != &read_mark || writes_itself(update))
            continue;
        if (n++ < MAX_WRITTEN)
            pst_str_addf(&text, "%s\"%s\"", n > 1 ? ", " : "",
                         update->target->fqn);
    }
    for (size_t i = 0; i < graph->values.n; i++)
        graph->values.at[i]->aux = NULL;
    if (n > MAX_WRITTEN)
        pst_str_addf(&text, " and %zu more", n - MAX_WRITTEN);
    failed = text.failed;
    if (n > 0 && !failed)
        note = pst_arena_printf(
            &plan->arena,
            "the model writes buffers that its outputs depend on: %s. "
            "Evaluation writes them, too, for the next microbatch; if "
            "model.eval() does not, export the model again in eval mode",
            pst_str_text(&text));
    pst_str_fini(&text);
    if (failed ||
        (n > 0 && (note == NULL || !pst_vec_push(TAG, &plan->notes, note))))
        return pst_diag_nomem(diag, 0);
    return PST_OK;
}

enum pst_status pst_plan_eval(struct pst_plan *plan,
                              const struct pst_eval_options *options,
                              struct pst_plan **ret, struct pst_diag *diag)
{
    static const struct pst_eval_options none;
    struct evaluator e = {.options = options != NULL ? options : &none};
    struct pst_plan *made = NULL;
    enum pst_status status;

    e.used = pst_calloc(TAG, e.options->n_keep + 1, sizeof(*e.used));
    if (e.used == NULL)
        return pst_diag_nomem(diag, e.options->n_keep);
    status =
        pst_plan_join_as(plan, eval_node, &e, e.options->averages, &made, diag);
    if (status == PST_OK && e.functions.failed)
        status = pst_diag_nomem(diag, 0);
    if (status == PST_OK) {
        pst_graph_dce(made->stages.at[0].graph, false);
        pst_plan_measure(made);
        status = check_random(&e, made, diag);
    }
    if (status == PST_OK)
        status =
            add_note(made,
                     "dropout that was called as a function is off, as if "
                     "it had asked self.training",
                     &e.functions, "; --keep-random MODULE keeps it", diag);
    if (status == PST_OK)
        status = e.options->has_cache ? PST_OK : note_written(made, diag);
    pst_vec_fini(&e.functions.at);
    pst_free(e.used);
    if (status == PST_OK)
        *ret = made;
    else
        pst_plan_free(made);
    return status;
}

/* --- cut into the old stages ---------------------------------------------- */

/* Restores the stages of nodes: joining a plan again keeps the nodes and their
 * order, but assigns all of them to stage 0. */
static enum pst_status restore_stages(const struct pst_graph *from,
                                      struct pst_graph *to,
                                      struct pst_diag *diag)
{
    if (from->nodes.n != to->nodes.n)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%zu nodes became %zu on the way to evaluation",
                            from->nodes.n, to->nodes.n);
    for (size_t i = 0; i < to->nodes.n; i++)
        to->nodes.at[i]->stage = from->nodes.at[i]->stage;
    return PST_OK;
}

/* Reads the value of a parameter of the plan that is evaluated. */
static enum pst_status read_start(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    const struct pst_eval_cut *cut = ctx;
    const enum pst_dtype dtype = cut->joined->params.at[i].meta.dtype;

    return cut->like->params.at[i].meta.dtype == dtype
               ? cut->read(cut->read_ctx, i, dst, diag)
               : pst_param_read_as(cut->like, i, cut->read, cut->read_ctx,
                                   dtype, dst, diag);
}

enum pst_status pst_eval_cut_init(struct pst_eval_cut *ret,
                                  struct pst_plan *plan, bool averages,
                                  pst_param_fn fn, void *ctx,
                                  struct pst_diag *diag)
{
    const struct pst_eval_options options = {.averages = averages};
    enum pst_status status = pst_plan_eval(plan, &options, &ret->joined, diag);

    ret->like = plan;
    ret->read = fn;
    ret->read_ctx = ctx;
    if (status == PST_OK)
        status =
            pst_plan_model(ret->joined, read_start, ret, &ret->model, diag);
    if (status == PST_OK)
        status = restore_stages(ret->joined->stages.at[0].graph,
                                ret->model->graph, diag);
    if (status == PST_OK)
        status =
            pst_split_again(ret->model, plan, plan->loss, &ret->plan, diag);
    if (status == PST_OK)
        pst_plan_chunk_as(plan, ret->plan);
    return status;
}

void pst_eval_cut_fini(struct pst_eval_cut *cut)
{
    pst_plan_free(cut->plan);
    pst_model_close(cut->model);
    for (size_t i = 0; i < PST_COUNT(cut->casts); i++)
        pst_casting_free(cut->casts[i]);
    pst_plan_free(cut->joined);
    pst_plan_free(cut->whole);
    *cut = (struct pst_eval_cut){0};
}
