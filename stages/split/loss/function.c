// SPDX-License-Identifier: Apache-2.0
/*
 * --loss-fn: adds a loss to a model that was exported without one. The loss is
 * the last output; its nodes are the last nodes, and its target is an input.
 */
#include "stages/split/loss/function.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

/* --- the options ---------------------------------------------------------- */

static enum pst_status bad_value(struct pst_loss_adder *a, const char *key,
                                 const char *value, const char *want)
{
    return pst_diag_set(a->s->diag, PST_E_LOSS_UNKNOWN,
                        "--loss-fn %s: %s=%.100s: %s", a->function->name, key,
                        value, want);
}

static enum pst_status set_text(struct pst_loss_adder *a, const char *key,
                                const char *value)
{
    const char **to =
        strcmp(key, "output") == 0 ? &a->options.output : &a->options.target;

    if (*value == '\0')
        return bad_value(a, key, value, "a name is missing");
    *to = value;
    return PST_OK;
}

static enum pst_status set_reduction(struct pst_loss_adder *a, const char *key,
                                     const char *value)
{
    if (strcmp(value, "mean") != 0 && strcmp(value, "sum") != 0)
        return bad_value(a, key, value,
                         "a loss is one number, by mean or by sum");
    a->options.reduction = value;
    return PST_OK;
}

static enum pst_status set_integer(struct pst_loss_adder *a, const char *key,
                                   const char *value)
{
    int64_t *to =
        strcmp(key, "dim") == 0 ? &a->options.dim : &a->options.ignore_index;

    return pst_parse_i64(value, to) ? PST_OK
                                    : bad_value(a, key, value, "no integer");
}

static enum pst_status set_smoothing(struct pst_loss_adder *a, const char *key,
                                     const char *value)
{
    double *to = &a->options.smoothing;

    if (!pst_parse_f64(value, to) || !(*to >= 0.0 && *to <= 1.0))
        return bad_value(a, key, value, "a number between 0 and 1 is wanted");
    return PST_OK;
}

static enum pst_status set_positive(struct pst_loss_adder *a, const char *key,
                                    const char *value)
{
    double *to = &a->options.number;

    if (!pst_parse_f64(value, to) || !(*to > 0.0) || !isfinite(*to))
        return bad_value(a, key, value, "a positive number is wanted");
    return PST_OK;
}

static enum pst_status set_not_negative(struct pst_loss_adder *a,
                                        const char *key, const char *value)
{
    double *to = &a->options.number;

    if (!pst_parse_f64(value, to) || !(*to >= 0.0) || !isfinite(*to))
        return bad_value(a, key, value, "a number from 0 on is wanted");
    return PST_OK;
}

static enum pst_status set_targets(struct pst_loss_adder *a, const char *key,
                                   const char *value)
{
    a->options.probabilities = strcmp(value, "probabilities") == 0;
    if (!a->options.probabilities && strcmp(value, "classes") != 0)
        return bad_value(a, key, value, "there are classes and probabilities");
    return PST_OK;
}

static const struct option {
    const char *key;
    /* bit in `takes` of functions with this option; 0: all functions have it */
    unsigned bit;
    enum pst_status (*set)(struct pst_loss_adder *a, const char *key,
                           const char *value);
} option_rows[] = {
    {"output", 0, set_text},
    {"target", 0, set_text},
    {"reduction", 0, set_reduction},
    {"ignore_index", PST_LOSS_IGNORE, set_integer},
    {"label_smoothing", PST_LOSS_SMOOTHING, set_smoothing},
    {"dim", PST_LOSS_DIM, set_integer},
    {"targets", PST_LOSS_TARGETS, set_targets},
    {"pos_weight", PST_LOSS_POS_WEIGHT, set_positive},
    {"beta", PST_LOSS_BETA, set_not_negative},
    {"delta", PST_LOSS_DELTA, set_positive},
};

static enum pst_status set_option(struct pst_loss_adder *a, const char *key,
                                  const char *value)
{
    struct pst_str known = {0};

    for (size_t i = 0; i < PST_COUNT(option_rows); i++) {
        const struct option *row = &option_rows[i];

        if (row->bit != 0 && (row->bit & a->function->takes) == 0)
            continue;
        if (strcmp(row->key, key) == 0) {
            pst_str_fini(&known);
            return row->set(a, key, value);
        }
        pst_str_addf(&known, "%s%s", known.len > 0 ? ", " : "", row->key);
    }
    pst_diag_set(a->s->diag, PST_E_LOSS_UNKNOWN,
                 "--loss-fn %s has no option \"%.100s\"; it has %s",
                 a->function->name, key, pst_str_text(&known));
    pst_str_fini(&known);
    return PST_ERR_USAGE;
}

/* Parses "key=value,key=value"; overwrites text. */
static enum pst_status read_options(struct pst_loss_adder *a, char *text)
{
    enum pst_status status = PST_OK;

    while (status == PST_OK && text != NULL && *text != '\0') {
        char *next = strchr(text, ',');
        char *value;

        if (next != NULL)
            *next++ = '\0';
        value = strchr(text, '=');
        if (value == NULL)
            return pst_diag_set(a->s->diag, PST_E_LOSS_UNKNOWN,
                                "--loss-fn %s: \"%.100s\" is not KEY=VALUE",
                                a->function->name, text);
        *value++ = '\0';
        status = set_option(a, text, value);
        text = next;
    }
    return status;
}

/* --- the output ----------------------------------------------------------- */

static enum pst_status choose_output(struct pst_loss_adder *a)
{
    struct pst_loss_outputs leaves = {0};
    enum pst_status status = pst_loss_leaves(a->s, &leaves);
    char text[PST_META_TEXT];
    const struct pst_output *output;
    int i = 0;

    if (status == PST_OK && a->options.output != NULL && leaves.paths != NULL)
        status = pst_loss_find(a->s, &leaves, a->options.output, &i);
    if (status != PST_OK)
        return status;
    output = leaves.n > 0 ? leaves.at[i] : NULL;
    if (output == NULL || leaves.paths == NULL)
        return pst_diag_set(a->s->diag, PST_E_LOSS_OUTPUT,
                            "the model returns nothing to compute a loss from");
    a->path = leaves.paths[i];
    if (output->arg.kind != PST_ARG_VALUE ||
        output->arg.value->kind != PST_VALUE_NODE)
        return pst_diag_set(a->s->diag, PST_E_LOSS_OUTPUT,
                            "--loss-fn %s: output \"%.200s\" is nothing that "
                            "the model computes; output=PATH names another",
                            a->function->name, a->path);
    a->x = output->arg.value;
    if (pst_dtype_kind(a->x->meta.dtype) != PST_KIND_FLOAT ||
        a->x->meta.rank == 0)
        return pst_diag_set(
            a->s->diag, PST_E_LOSS_OUTPUT,
            "--loss-fn %s: output \"%.200s\" is %s, not a "
            "floating tensor with dimensions; output=PATH "
            "names another%s",
            a->function->name, a->path, pst_meta_text(&a->x->meta, text),
            a->x->meta.rank == 0 ? ", --loss takes it as it is" : "");
    return PST_OK;
}

/* --- the target ----------------------------------------------------------- */

/* Chooses the dimension of the classes: the last one, as in language models, or
 * dimension 1 for images (4 dimensions and more). */
static enum pst_status class_dim(struct pst_loss_adder *a, unsigned *ret)
{
    const unsigned rank = a->x->meta.rank;
    int64_t dim = a->options.dim;
    char text[PST_META_TEXT];

    if (dim == INT64_MIN)
        dim = rank >= 4 ? 1 : (int64_t)rank - 1;
    if (dim < 0 && dim >= -(int64_t)rank)
        dim += rank;
    if (dim < 0 || dim >= rank || (dim != 1 && dim != rank - 1))
        return pst_diag_set(a->s->diag, PST_E_LOSS_OUTPUT,
                            "--loss-fn %s: dim=%" PRId64 ": the classes of "
                            "output \"%.200s\", %s, are dimension 1 or the "
                            "last one",
                            a->function->name, a->options.dim, a->path,
                            pst_meta_text(&a->x->meta, text));
    *ret = (unsigned)dim;
    return PST_OK;
}

static struct pst_value *find_input(const struct pst_graph *graph,
                                    const char *name)
{
    for (size_t i = 0; i < graph->inputs.n; i++)
        if (strcmp(graph->inputs.at[i]->name, name) == 0)
            return graph->inputs.at[i];
    return NULL;
}

/* Finds the input with the target's name, or adds it. */
static enum pst_status make_target(struct pst_loss_adder *a,
                                   struct pst_meta *meta,
                                   const char *const *dims)
{
    const char *name = a->options.target != NULL ? a->options.target : "target";
    struct pst_value *old = find_input(a->s->graph, name);
    char have[PST_META_TEXT], want[PST_META_TEXT];

    pst_meta_set_contiguous(meta);
    if (old != NULL && old->meta.dtype == meta->dtype &&
        pst_meta_same_shape(&old->meta, meta)) {
        a->target = old;
        return PST_OK;
    }
    if (old != NULL || pst_graph_find(a->s->graph, name) != NULL)
        return pst_diag_set(a->s->diag, PST_E_LOSS_OUTPUT,
                            "--loss-fn %s: the model has \"%.100s\"%s%s "
                            "already, the target has to be %s; target=NAME "
                            "calls it otherwise",
                            a->function->name, name, old != NULL ? ", " : "",
                            old != NULL ? pst_meta_text(&old->meta, have) : "",
                            pst_meta_text(meta, want));
    a->target =
        pst_graph_add_value(a->s->graph, PST_VALUE_INPUT, name, NULL, meta);
    if (a->target == NULL)
        return pst_diag_nomem(a->s->diag, 0);
    return pst_exprs_copy(&a->s->graph->arena, dims, meta->rank,
                          &a->target->dims, a->s->diag);
}

/* True if autocast makes the output 16-bit: losses are computed in f32. */
static bool is_cast(const struct pst_loss_adder *a)
{
    return a->s->model->autocast != NULL &&
           (a->x->meta.dtype == PST_BF16 || a->x->meta.dtype == PST_F16);
}

/* Finds or adds the target, an input. Its meta is that of the output, in f32
 * under autocast; for class indices, i64 without the dimension of the classes.
 * Symbolic sizes stay symbolic. */
static enum pst_status add_target(struct pst_loss_adder *a, unsigned dim)
{
    struct pst_meta meta = a->x->meta;
    const char *dims[PST_MAX_RANK] = {0};

    for (unsigned d = 0; a->x->dims != NULL && d < meta.rank; d++)
        dims[d] = a->x->dims[d];
    if (is_cast(a))
        meta.dtype = PST_F32;
    if (!a->function->classes || a->options.probabilities)
        return make_target(a, &meta, dims);
    meta.dtype = PST_I64;
    meta.rank--;
    for (unsigned d = dim; d < meta.rank; d++) {
        meta.size[d] = meta.size[d + 1];
        dims[d] = dims[d + 1];
    }
    return make_target(a, &meta, dims);
}

/* --- adding the loss ------------------------------------------------------ */

static enum pst_status add_output(struct pst_loss_adder *a,
                                  struct pst_value *loss)
{
    struct pst_splitter *s = a->s;
    struct pst_output output = {
        .kind = PST_OUTPUT_USER, .arg = pst_v(loss), .path = "loss"};
    struct pst_loss_outputs leaves = {0};
    enum pst_status status = pst_loss_leaves(s, &leaves);

    for (size_t i = 0; i < leaves.n && status == PST_OK; i++)
        if (strcmp(leaves.paths[i], "loss") == 0)
            output.path = loss->name;
    if (status == PST_OK)
        status = pst_graph_add_output(s->graph, &output, s->diag);
    s->plan->loss = (int)leaves.n;
    return status;
}

/* Adds the nodes of the loss after the last operator but before markers at the
 * end of the graph: such markers have no effect then. */
static enum pst_status add_nodes(struct pst_loss_adder *a, unsigned dim)
{
    struct pst_graph *graph = a->s->graph;
    struct pst_node **end;
    struct pst_value *loss = NULL;
    size_t n = 0;
    enum pst_status status;

    while (n < graph->nodes.n &&
           (graph->nodes.at[graph->nodes.n - n - 1]->op->flags &
            PST_OP_MARKER) != 0)
        n++;
    graph->nodes.n -= n;
    end = pst_arena_alloc(&graph->arena, (n + 1) * sizeof(*end));
    if (end == NULL)
        return pst_diag_nomem(a->s->diag, 0);
    for (size_t i = 0; i < n; i++)
        end[i] = graph->nodes.at[graph->nodes.n + i];
    pst_build_init(&a->build, graph, a->s->diag);
    /* the loss belongs to no module: replacing a module keeps it */
    a->build.call = NULL;
    a->build.prefix = "loss";
    if (is_cast(a)) {
        const char *const *dims = a->x->dims;

        a->x = pst_emit(&a->build, &pst_op__to_copy,
                        PST_ARGS(pst_v(a->x), pst_dtype_arg(PST_F32)));
        if (a->x == NULL)
            return a->build.status;
        a->x->dims = dims;
    }
    a->build.prefix = NULL;
    if (a->function->classes)
        pst_loss_flatten(a, dim);
    a->build.prefix = "loss";
    if (a->build.status == PST_OK)
        loss = a->function->emit(a);
    status = loss != NULL ? add_output(a, loss) : a->build.status;
    for (size_t i = 0; i < n && status == PST_OK; i++)
        if (!pst_vec_push(PST_TAG_PLAN, &graph->nodes, end[i]))
            status = pst_diag_nomem(a->s->diag, 0);
    return status;
}

static enum pst_status record_loss(struct pst_loss_adder *a,
                                   const struct pst_meta *x,
                                   const struct pst_value *target)
{
    char have[PST_META_TEXT], want[PST_META_TEXT];

    return pst_split_note(
        a->s,
        "the loss is the %s of %s between output \"%.100s\", %s, and input "
        "\"%.100s\", %s",
        a->options.reduction, a->function->name, a->path,
        pst_meta_text(x, have), target->name,
        pst_meta_text(&target->meta, want));
}

enum pst_status pst_loss_add(struct pst_splitter *s, const char *spec)
{
    struct pst_loss_adder a = {.s = s,
                               .options = {.target = "target",
                                           .reduction = "mean",
                                           .ignore_index = -100,
                                           .dim = INT64_MIN,
                                           .number = 1.0}};
    char *text = pst_arena_strdup(&s->plan->arena, spec);
    char *colon = text != NULL ? strchr(text, ':') : NULL;
    const struct pst_value *target;
    enum pst_status status;
    struct pst_meta x;
    unsigned dim = 0;

    if (text == NULL)
        return pst_diag_nomem(s->diag, strlen(spec));
    if (colon != NULL)
        *colon++ = '\0';
    status = pst_loss_choose(&a, text);
    if (status == PST_OK)
        status = read_options(&a, colon);
    if (status == PST_OK)
        status = choose_output(&a);
    if (status != PST_OK || a.x == NULL)
        return status;
    if (a.function->classes)
        status = class_dim(&a, &dim);
    if (status == PST_OK)
        status = add_target(&a, dim);
    if (status != PST_OK || a.target == NULL)
        return status;
    x = a.x->meta;
    target = a.target;
    status = add_nodes(&a, dim);
    return status != PST_OK ? status : record_loss(&a, &x, target);
}
