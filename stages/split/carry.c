// SPDX-License-Identifier: Apache-2.0
#include "stages/split/carry.h"

#include <string.h>

/* --- options of owners --------------------------------------------------- */

static size_t name_length(const char *spec)
{
    const char *equal = strrchr(spec, '=');

    return equal != NULL ? (size_t)(equal - spec) : strlen(spec);
}

static bool is_name(const char *name, const char *spec)
{
    const size_t n = name_length(spec);

    return strncmp(name, spec, n) == 0 && name[n] == '\0';
}

/* True if the option "NAME=STAGE" names the buffer or a part of it. */
static bool names_buffer(const struct pst_splitter *s, const char *fqn,
                         const char *spec)
{
    bool found = is_name(fqn, spec);

    for (size_t i = 0; i < s->model->ties.n && !found; i++) {
        const struct pst_tie *tie = &s->model->ties.at[i];

        for (unsigned k = 0; k < tie->n_aliases && !found; k++)
            found =
                strcmp(tie->fqn, fqn) == 0 && is_name(tie->aliases[k], spec);
    }
    for (size_t i = 0; i < s->model->storages.n && !found; i++) {
        const struct pst_state_storage *st = &s->model->storages.at[i];

        for (unsigned k = 0; k < st->n_windows && !found; k++)
            found =
                strcmp(st->fqn, fqn) == 0 && is_name(st->windows[k].fqn, spec);
    }
    return found;
}

bool pst_split_is_owned(const struct pst_splitter *s,
                        const struct pst_value *buffer)
{
    bool owned = false;

    for (size_t i = 0; i < s->options->n_owner && !owned; i++)
        owned = names_buffer(s, buffer->fqn, s->options->owner[i]);
    return owned;
}

/* --- readers and writers -------------------------------------------------- */

/* For a buffer of the uncut graph: a node that reads it in the lowest stage and
 * one in the highest. */
struct span {
    const struct pst_node *first, *last;
};

struct reader {
    struct span *spans; /* by value id */
    const struct pst_node *node;
};

static void record_reader(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct reader *r = ctx;
    struct span *span = &r->spans[(*slot)->id];

    (void)arg;
    if ((*slot)->kind != PST_VALUE_BUFFER)
        return;
    if (span->first == NULL || r->node->stage < span->first->stage)
        span->first = r->node;
    if (span->last == NULL || r->node->stage > span->last->stage)
        span->last = r->node;
}

static enum pst_status refuse_shared_buffer(const struct pst_splitter *s,
                                            const struct pst_value *buffer,
                                            int stage,
                                            const struct pst_node *reader)
{
    return pst_diag_set(
        s->diag, PST_E_CUT_SHARED_BUFFER,
        "buffer \"%s\" is changed in stage %d and read in stage %d "
        "(in %s at %s): cut elsewhere, or let its value travel with "
        "--owner %s=%d (E_SHARED_MUT)",
        buffer->fqn, stage, reader->stage,
        reader->call->name[0] != '\0' ? reader->call->name
                                      : "the outermost module",
        reader->source, buffer->fqn, stage);
}

static enum pst_status add_if_carried(struct pst_splitter *s,
                                      const struct pst_output *update,
                                      const struct span *span,
                                      struct pst_carried_buffer *at, size_t *n)
{
    const struct pst_node *made = update->arg.value->def;
    int stage;

    if (update->kind != PST_OUTPUT_BUFFER_UPDATE || span->first == NULL)
        return PST_OK;
    stage = made != NULL ? made->stage : span->first->stage;
    if (span->first->stage == stage && span->last->stage == stage)
        return PST_OK;
    if (!pst_split_is_owned(s, update->target))
        return refuse_shared_buffer(s, update->target, stage,
                                    span->first->stage != stage ? span->first
                                                                : span->last);
    at[(*n)++] = (struct pst_carried_buffer){
        update, (unsigned)PST_MAX(stage, span->last->stage), 0};
    return PST_OK;
}

enum pst_status pst_split_find_carried(struct pst_splitter *s,
                                       struct pst_carried_buffer **ret,
                                       size_t *ret_n)
{
    const struct pst_graph *graph = s->graph;
    struct pst_carried_buffer *at =
        pst_arena_calloc(&s->plan->arena, graph->outputs.n + 1, sizeof(*at));
    struct reader r = {.spans = pst_calloc(PST_TAG_PLAN, graph->values.n + 1,
                                           sizeof(*r.spans))};
    enum pst_status status = PST_OK;

    *ret_n = 0;
    if (at == NULL || r.spans == NULL)
        status = pst_diag_nomem(s->diag, graph->values.n * sizeof(*r.spans));
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        r.node = graph->nodes.at[i];
        pst_node_uses(graph->nodes.at[i], record_reader, &r);
    }
    for (size_t i = 0; i < graph->outputs.n && status == PST_OK; i++) {
        const struct pst_output *output = &graph->outputs.at[i];

        if (output->kind == PST_OUTPUT_BUFFER_UPDATE)
            status = add_if_carried(s, output, &r.spans[output->target->id], at,
                                    ret_n);
    }
    pst_free(r.spans);
    if (status == PST_OK)
        *ret = at;
    return status;
}

/* --- owners --------------------------------------------------------------- */

static enum pst_status refuse_owner(const struct pst_splitter *s,
                                    const struct pst_plan_param *param,
                                    const char *spec)
{
    struct pst_str users = {0};

    for (unsigned k = 0; k < param->n_stages; k++)
        pst_str_addf(&users, "%s%u", k == 0 ? "" : ", ", param->stages[k]);
    (void)pst_diag_set(s->diag, PST_E_PARAMETER_UNKNOWN,
                       "--owner %.200s: the stages that use the buffer are %s",
                       spec, pst_str_text(&users));
    pst_str_fini(&users);
    return PST_ERR_INPUT;
}

static enum pst_status assign_owner(struct pst_splitter *s, const char *spec)
{
    const size_t n = name_length(spec);
    struct pst_plan_param *param;
    char name[512];
    int64_t stage;
    int index;

    if (n == 0 || n >= sizeof(name) || spec[n] != '=' ||
        !pst_parse_i64(spec + n + 1, &stage))
        return pst_diag_set(s->diag, PST_E_OWNER_FORM,
                            "--owner %.200s: expected FQN=STAGE", spec);
    memcpy(name, spec, n);
    name[n] = '\0';
    index = pst_plan_find_param(s->plan, name);
    if (index < 0 || s->plan->params.at[index].kind != PST_VALUE_BUFFER)
        return pst_diag_set(s->diag, PST_E_PARAMETER_UNKNOWN,
                            "--owner %.200s: %s", spec,
                            index < 0 ? "the model has no such buffer"
                                      : "that is not a buffer");
    param = &s->plan->params.at[index];
    if (!param->carried)
        return pst_split_note(s,
                              "\"%.200s\" is not written and read by several "
                              "stages, so there is nothing to own",
                              param->fqn);
    for (unsigned k = 0; k < param->n_stages; k++)
        if ((int64_t)param->stages[k] == stage) {
            param->owner_stage = (unsigned)stage;
            return pst_split_note(
                s,
                "\"%.200s\" goes from microbatch to microbatch: the "
                "forwards of stages %u to %u run one microbatch at a time",
                param->fqn, param->stages[0], param->writer);
        }
    return refuse_owner(s, param, spec);
}

enum pst_status pst_split_owners(struct pst_splitter *s)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->options->n_owner && status == PST_OK; i++)
        status = assign_owner(s, s->options->owner[i]);
    return status;
}
