// SPDX-License-Identifier: Apache-2.0
/* Chooses the output to train on. */
#include "stages/split/loss/loss.h"

#include <string.h>

static bool is_loss(const struct pst_output *output)
{
    return output->arg.kind == PST_ARG_VALUE &&
           output->arg.value->kind == PST_VALUE_NODE &&
           pst_plan_may_be_loss(output->arg.value);
}

enum pst_status pst_loss_leaves(struct pst_splitter *s,
                                struct pst_loss_outputs *ret)
{
    const struct pst_graph *graph = s->graph;
    struct pst_arena *arena = &s->plan->arena;
    const size_t n = graph->outputs.n;
    struct pst_loss_outputs leaves = {0};

    leaves.at = pst_arena_calloc(arena, n + 1, sizeof(struct pst_output *));
    leaves.paths = pst_arena_calloc(arena, n + 1, sizeof(char *));
    if (leaves.at == NULL || leaves.paths == NULL)
        return pst_diag_nomem(s->diag, n * sizeof(char *));
    for (size_t i = 0; i < n; i++) {
        const struct pst_output *output = &graph->outputs.at[i];

        if (output->kind != PST_OUTPUT_USER)
            continue;
        leaves.at[leaves.n] = output;
        leaves.paths[leaves.n++] = output->path;
    }
    *ret = leaves;
    return PST_OK;
}

static enum pst_status unknown_output(struct pst_splitter *s,
                                      const struct pst_loss_outputs *leaves,
                                      const char *spec)
{
    const int near = pst_nearest(spec, leaves->paths, leaves->n);
    struct pst_str names = {0};

    for (size_t i = 0; i < leaves->n; i++) {
        pst_str_add(&names, i ? ", " : "");
        pst_str_add(&names, leaves->paths[i]);
    }
    pst_diag_set(s->diag, PST_E_LOSS_OUTPUT,
                 "the model has no output \"%.200s\"; it has %.600s%s%.200s%s",
                 spec, names.len > 0 ? pst_str_text(&names) : "none",
                 near >= 0 ? "; did you mean \"" : "",
                 near >= 0 ? leaves->paths[near] : "", near >= 0 ? "\"?" : "");
    pst_str_fini(&names);
    return PST_ERR_INPUT;
}

enum pst_status pst_loss_find(struct pst_splitter *s,
                              const struct pst_loss_outputs *leaves,
                              const char *name, int *ret)
{
    const int64_t n = (int64_t)leaves->n;
    int64_t index;

    for (size_t i = 0; i < leaves->n; i++)
        if (strcmp(leaves->paths[i], name) == 0) {
            *ret = (int)i;
            return PST_OK;
        }
    if (!pst_parse_i64(name, &index) || index < -n || index >= n)
        return unknown_output(s, leaves, name);
    *ret = (int)(index < 0 ? index + n : index);
    return PST_OK;
}

/* Returns the length of a path without its last part (2, "0.", for "0.z"). */
static size_t folder_length(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL ? (size_t)(dot + 1 - path) : 0;
}

/* Returns the output named "loss" in the container whose path is the first
 * `prefix` bytes of `like`; -1 if there is none. */
static int named_loss(const struct pst_loss_outputs *leaves, const char *like,
                      size_t prefix)
{
    for (size_t i = 0; i < leaves->n; i++)
        if (strncmp(leaves->paths[i], like, prefix) == 0 &&
            strcmp(leaves->paths[i] + prefix, "loss") == 0 &&
            is_loss(leaves->at[i]))
            return (int)i;
    return -1;
}

static bool is_scalar_loss(const struct pst_output *output)
{
    return is_loss(output) && output->arg.value->meta.rank == 0;
}

/* Returns the output named "loss". If there is none and the first output is a
 * scalar, returns the output "loss" in the same container, else the first
 * output. An output with dimensions and one element is not a scalar: it may be
 * the result for a batch of one. A "loss" in another container may be a part of
 * the first output. -1: none. */
static int default_loss(const struct pst_loss_outputs *leaves)
{
    int named;

    if (leaves->n == 0)
        return -1;
    named = named_loss(leaves, "", 0);
    if (named >= 0 || !is_scalar_loss(leaves->at[0]))
        return named;
    named =
        named_loss(leaves, leaves->paths[0], folder_length(leaves->paths[0]));
    return named >= 0 ? named : 0;
}

/* Adds a note on the output that was chosen as the loss if there are other
 * scalar outputs. If the chosen output is named "loss", only the first output
 * counts. */
static enum pst_status note_chosen(struct pst_splitter *s,
                                   const struct pst_loss_outputs *leaves,
                                   int chosen)
{
    struct pst_str others = {0};
    enum pst_status status = PST_OK;
    const char *path;
    bool named;

    if (chosen < 0)
        return PST_OK;
    path = leaves->paths[chosen];
    named = strcmp(path + folder_length(path), "loss") == 0;
    for (int i = 0; i < (named ? PST_MIN(chosen, 1) : (int)leaves->n); i++)
        if (i != chosen && is_scalar_loss(leaves->at[i]))
            pst_str_addf(&others, "%s\"%.60s\"", others.len > 0 ? ", " : "",
                         leaves->paths[i]);
    if (others.failed)
        status = pst_diag_nomem(s->diag, others.len);
    else if (others.len > 0)
        status = pst_split_note(
            s, "the loss is %s, \"%.100s\", not %.200s; --loss chooses another",
            named ? "the output of that name" : "the first output", path,
            pst_str_text(&others));
    pst_str_fini(&others);
    return status;
}

static enum pst_status refuse_outputs(struct pst_splitter *s, const char *path,
                                      const struct pst_output *output)
{
    const struct pst_meta *meta =
        output->arg.kind == PST_ARG_VALUE ? &output->arg.value->meta : NULL;
    char text[PST_META_TEXT];
    const char *way_out = "";

    if (meta != NULL && pst_dtype_kind(meta->dtype) == PST_KIND_FLOAT)
        way_out = output->arg.value->kind == PST_VALUE_NODE
                      ? "; --loss-fn computes one from it, or let forward "
                        "return its mean"
                      : ", but is given to it";
    return pst_diag_set(
        s->diag, PST_E_LOSS_OUTPUT,
        "output \"%.200s\" cannot be the loss: it is %s, not one floating "
        "number, at every size of the batch, that the model computes%s",
        path, meta != NULL ? pst_meta_text(meta, text) : "not a tensor",
        way_out);
}

enum pst_status pst_split_loss(struct pst_splitter *s)
{
    const char *spec = s->options->loss;
    struct pst_loss_outputs leaves = {0};
    enum pst_status status;
    int i = -1;

    if (s->options->loss_fn != NULL && spec != NULL)
        return pst_diag_set(s->diag, PST_E_LOSS_UNKNOWN,
                            "--loss names an output that is the loss, "
                            "--loss-fn computes one: give one of them");
    if (s->options->loss_fn != NULL) {
        s->plan->loss_fn =
            pst_arena_strdup(&s->plan->arena, s->options->loss_fn);
        return s->plan->loss_fn != NULL
                   ? pst_loss_add(s, s->options->loss_fn)
                   : pst_diag_nomem(s->diag, strlen(s->options->loss_fn));
    }
    status = pst_loss_leaves(s, &leaves);
    s->plan->loss = -1;
    if (status != PST_OK || leaves.paths == NULL)
        return status;
    if (spec == NULL) {
        s->plan->loss = default_loss(&leaves);
        return note_chosen(s, &leaves, s->plan->loss);
    }
    if (strcmp(spec, "none") == 0 || strcmp(spec, "None") == 0)
        return PST_OK;
    status = pst_loss_is_mirror(spec) ? pst_loss_mirror(s, &leaves, spec, &i)
                                      : pst_loss_find(s, &leaves, spec, &i);
    if (status != PST_OK || i < 0 || leaves.at == NULL)
        return status;
    if (!is_loss(leaves.at[i]))
        return refuse_outputs(s, leaves.paths[i], leaves.at[i]);
    s->plan->loss = i;
    return PST_OK;
}
