// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/origin.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "stages/base/str.h"
#include "stages/graph/schema.h"
#include "stages/layout/layout.h"
#include "stages/ops/core/call.h"
#include "stages/ops/pointwise/chain.h"

/* Bits of pst_origin.order, from the lowest: number of the check, stage in the
 * direction of the pass; the microbatch has the rest. */
#define STAGE_BITS 16
#define LOOK_BITS  24

void pst_trace_begin(struct pst_trace *t, const struct pst_trace_order *order)
{
    t->on = order != NULL;
    t->preparing = false;
    t->n = 0;
    t->nan.order = t->inf.order = PST_ORIGIN_NONE;
    if (order != NULL)
        t->order = *order;
}

bool pst_trace_wants(const struct pst_trace *t,
                     const struct pst_rank_role *role,
                     const struct pst_action *a)
{
    if (!t->on || t->preparing)
        return t->on;
    if (t->order.backward)
        return a->kind != PST_ACT_F;
    return a->kind == PST_ACT_F &&
           (int)role->first_mb + a->microbatch == t->order.microbatch;
}

/* --- checks of values ----------------------------------------------------- */

/* Values of one tensor that are not finite. */
struct found {
    unsigned kinds;   /* bits PST_TRACE_* */
    int64_t n, count; /* n: elements that are not finite; count: all */
    int64_t first;    /* index of the first element that is not finite */
    double value;     /* value of that element */
};

static bool is_real(enum pst_dtype dtype)
{
    return pst_dtype_kind(dtype) == PST_KIND_FLOAT;
}

static void count_not_finite(const struct pst_meta *meta, const void *data,
                             struct found *ret)
{
    const int64_t n = pst_meta_numel(meta);

    ret->count = n;
    for (int64_t i = 0; i < n; i++) {
        const double x =
            pst_load_f64(meta->dtype, data, pst_meta_offset(meta, i));

        if (isfinite(x))
            continue;
        if (ret->n++ == 0) {
            ret->first = i;
            ret->value = x;
        }
        ret->kinds |= isnan(x) ? PST_TRACE_NAN : PST_TRACE_INF;
    }
}

/* Returns which values of a tensor are not finite. Its whole span is checked
 * first: most tensors are finite, including the gaps between their elements. d
 * NULL: the host has the tensor. */
static struct found find_origin(struct pst_rank_device *d,
                                const struct pst_meta *meta, const void *at)
{
    struct found ret = {0};
    const void *data;
    size_t n;

    if (at == NULL || !is_real(meta->dtype) || pst_meta_numel(meta) == 0)
        return ret;
    data = d != NULL ? pst_device_pull(&d->mem, at, pst_meta_span(meta)) : at;
    n = pst_meta_span(meta) / pst_dtype_size(meta->dtype);
    if (pst_has_nan(meta->dtype, data, n, true))
        count_not_finite(meta, data, &ret);
    return ret;
}

/* Appends "NaN in 3 of 32 numbers, the first at [1, 2]". */
static void describe_found(const struct pst_meta *meta, const struct found *f,
                           struct pst_str *out)
{
    int64_t at[PST_MAX_RANK], rest = f->first;

    pst_str_addf(out, "%s in %" PRId64 " of %" PRId64 " numbers",
                 isnan(f->value) ? "NaN"
                 : f->value > 0  ? "infinity"
                                 : "minus infinity",
                 f->n, f->count);
    if (meta->rank == 0)
        return;
    for (unsigned i = meta->rank; i-- > 0; rest /= meta->size[i])
        at[i] = rest % meta->size[i];
    for (unsigned i = 0; i < meta->rank; i++)
        pst_str_addf(out, "%s%" PRId64, i == 0 ? ", the first at [" : ", ",
                     at[i]);
    pst_str_add(out, "]");
}

/* --- recording ------------------------------------------------------------ */

static uint64_t order_of(struct pst_trace *t, const struct pst_rank_role *role,
                         const struct pst_action *a)
{
    const uint64_t most = ((uint64_t)1 << LOOK_BITS) - 1;
    uint64_t mb, stage, find_origin = t->n < most ? t->n++ : most;

    if (t->preparing)
        return find_origin;
    mb = role->first_mb + (unsigned)a->microbatch + 1;
    stage = a->kind == PST_ACT_F
                ? (unsigned)a->stage
                : role->sched->n_stages - 1 - (unsigned)a->stage;
    return (mb << STAGE_BITS | stage) << LOOK_BITS | find_origin;
}

static void record_origin(struct pst_trace *t, bool nan,
                          const struct pst_rank_role *role,
                          const struct pst_action *a,
                          const struct pst_str *text)
{
    struct pst_origin *origin = nan ? &t->nan : &t->inf;
    const uint64_t order = order_of(t, role, a);
    char place[64] = "";

    if (order >= origin->order)
        return;
    origin->order = order;
    origin->microbatch =
        t->preparing ? -1 : (int)role->first_mb + a->microbatch;
    if (!t->preparing)
        (void)snprintf(place, sizeof(place), ", stage %d, microbatch %d",
                       a->stage, origin->microbatch);
    (void)snprintf(origin->text, sizeof(origin->text), "rank %u%s, %.500s",
                   pst_role_number(role), place, pst_str_text(text));
}

void pst_trace_params(struct pst_trace *t, const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d)
{
    t->preparing = true;
    for (size_t i = 0; t->on && i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        const struct pst_plan_param *param = &role->plan->params.at[p->index];
        const bool parts = pst_role_gathers(role, (unsigned)p->index);
        struct pst_meta meta = param->meta;
        struct pst_str text = {0};
        struct found f;

        if (parts)
            meta = pst_meta_make(PST_F32, 1, &p->n);
        pst_meta_set_contiguous(&meta);
        f = find_origin(d, &meta,
                        pst_rank_at(d, parts ? p->own_data : p->data));
        /* Buffers and constants may have infinities on purpose, such as bounds.
         */
        if (!(f.kinds & PST_TRACE_NAN) && param->kind != PST_VALUE_PARAM)
            f.kinds = 0;
        if (f.kinds == 0)
            continue;
        pst_str_addf(&text, "%s '%.300s' has ",
                     param->kind == PST_VALUE_PARAM ? "parameter" : "buffer",
                     param->fqn);
        describe_found(&meta, &f, &text);
        record_origin(t, f.kinds & PST_TRACE_NAN, role, NULL, &text);
        pst_str_fini(&text);
    }
    t->preparing = false;
}

void pst_trace_input(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     unsigned input, const void *data)
{
    const struct pst_plan_input *in =
        &pst_role_plan(role, a->microbatch)->inputs.at[input];
    struct pst_meta meta = in->meta;
    struct pst_str text = {0};
    struct found f;

    pst_meta_set_contiguous(&meta);
    f = find_origin(d, &meta, data);
    if (f.kinds == 0)
        return;
    pst_str_addf(&text, "the data of input '%.300s' has ", in->name);
    describe_found(&meta, &f, &text);
    record_origin(t, f.kinds & PST_TRACE_NAN, role, a, &text);
    pst_str_fini(&text);
}

unsigned pst_trace_before(struct pst_rank_device *d,
                          const struct pst_call *call)
{
    unsigned kinds = 0;

    for (unsigned i = 0; i < call->n_in; i++)
        kinds |= find_origin(d, call->in[i].meta, call->in[i].data).kinds;
    for (unsigned i = 0; call->accumulate && i < call->n_out; i++)
        kinds |= find_origin(d, call->out[i].meta, call->out[i].data).kinds;
    return kinds;
}

/* True for an infinity that is intended, as in a mask: from an operator without
 * floating-point inputs, or from an infinite argument. */
static bool is_wanted(const struct pst_node *node, const struct pst_call *call)
{
    bool reads = false;

    for (unsigned i = 0; i < call->n_in; i++)
        reads |= is_real(call->in[i].meta->dtype);
    for (unsigned i = 0; i < node->schema->n_args; i++)
        if (node->args[i].kind == PST_ARG_FLOAT && isinf(node->args[i].f))
            return true;
    return !reads;
}

/* Returns the forward node to whose gradient a backward node belongs: both have
 * the same id. In a forward action, returns the node itself. */
static const struct pst_node *forward_of(const struct pst_rank_role *role,
                                         const struct pst_action *a,
                                         const struct pst_node *node)
{
    const struct pst_plan *plan = pst_role_plan(role, a->microbatch);
    const struct pst_graph *graph = plan->stages.at[a->stage].graph;

    for (size_t i = 0; a->kind != PST_ACT_F && i < graph->nodes.n; i++)
        if (graph->nodes.at[i]->id == node->id)
            return graph->nodes.at[i];
    return node;
}

void pst_trace_after(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     const struct pst_node *node, const struct pst_call *call,
                     unsigned before)
{
    for (unsigned i = 0; i < call->n_out; i++) {
        const struct found f =
            find_origin(d, call->out[i].meta, call->out[i].data);
        const bool nan = f.kinds & ~before & PST_TRACE_NAN;
        const char *module = node->call->name;
        struct pst_str text = {0};

        if (!nan && (!(f.kinds & PST_TRACE_INF) || before != 0 ||
                     is_wanted(node, call)))
            continue;
        pst_str_addf(&text, "%s%.120s%s%.200s%s%.120s gives ",
                     a->kind == PST_ACT_F ? "" : "the backward of ",
                     pst_node_origin(forward_of(role, a, node)),
                     module[0] != '\0' ? " of " : "", module,
                     node->source[0] != '\0' ? " at " : "", node->source);
        describe_found(call->out[i].meta, &f, &text);
        record_origin(t, nan, role, a, &text);
        pst_str_fini(&text);
    }
}

/* --- chains --------------------------------------------------------------- */

/* A chain whose parts run one by one, on the host's copies of its operands. */
struct parts {
    const struct pst_node *node; /* the chain's */
    const struct pst_chain *chain;
    const void **in; /* operands of the chain */
    void **out;      /* results of the parts */
    struct pst_operand operands[PST_CHAIN_OPERANDS];
    unsigned n;
};

static void find_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct parts *p = ctx;
    const struct pst_arg *in = &p->node->args[0];
    struct pst_operand *to = &p->operands[p->n++];

    (void)arg;
    to->meta = &(*slot)->meta;
    for (unsigned i = 0; i < in->n; i++)
        if (in->values[i] == *slot)
            to->data = (void *)p->in[i];
    for (unsigned i = 0; i < p->chain->n_parts; i++)
        if (p->chain->parts[i].node->outs[0] == *slot)
            to->data = p->out[i];
}

/* Runs part i and checks it. */
static void trace_part(struct pst_trace *t, const struct pst_rank_role *role,
                       const struct pst_action *a, struct parts *p, unsigned i)
{
    const struct pst_chain_part *part = &p->chain->parts[i];
    struct pst_operand out = {p->out[i], &part->node->outs[0]->meta};
    struct pst_call call = {.in = p->operands,
                            .out = &out,
                            .n_in = part->n_in,
                            .n_out = 1,
                            .args = part->node->args,
                            .owner = part->owner};
    unsigned before;

    p->n = 0;
    pst_node_uses((struct pst_node *)part->node, find_operand, p);
    before = pst_trace_before(NULL, &call);
    part->kernel->run(&call);
    pst_trace_after(t, role, NULL, a, part->node, &call, before);
}

static bool alloc_results(struct parts *p)
{
    bool all = true;

    for (unsigned i = 0; i < p->chain->n_parts; i++) {
        const struct pst_value *out = p->chain->parts[i].node->outs[0];

        p->out[i] = pst_alloc(PST_TAG_EXEC, pst_meta_bytes(&out->meta));
        all = all && p->out[i] != NULL;
    }
    return all;
}

bool pst_trace_chain(struct pst_trace *t, const struct pst_rank_role *role,
                     struct pst_rank_device *d, const struct pst_action *a,
                     const struct pst_node *node, const struct pst_call *call)
{
    const struct pst_chain *chain = call->chain;
    struct parts p = {
        .node = node,
        .chain = chain,
        .in = pst_calloc(PST_TAG_EXEC, call->n_in + 1, sizeof(*p.in)),
        .out = pst_calloc(PST_TAG_EXEC, chain->n_parts + 1, sizeof(*p.out))};
    const bool all = p.in != NULL && p.out != NULL && alloc_results(&p);

    for (unsigned i = 0; all && i < call->n_in; i++)
        p.in[i] = pst_device_pull(&d->mem, call->in[i].data,
                                  pst_meta_span(call->in[i].meta));
    for (unsigned i = 0; all && i < chain->n_parts; i++)
        trace_part(t, role, a, &p, i);
    for (unsigned i = 0; p.out != NULL && i < chain->n_parts; i++)
        pst_free(p.out[i]);
    pst_free(p.in);
    pst_free(p.out);
    return all;
}
