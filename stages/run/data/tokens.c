// SPDX-License-Identifier: Apache-2.0
#include "stages/run/data/tokens.h"

#include <string.h>

#include "stages/graph/schema.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/replay.h"
#include "stages/split/convert/join.h"

#define TAG PST_TAG_EXEC

/* Computes the loss's targets from the inputs, for microbatches of one size. */
struct counter {
    struct pst_plan *joined; /* owned; the uncut graph */
    struct pst_graph *graph; /* owned; the nodes that compute the targets */
    struct pst_eval *eval;
    /* memory of each of the plan's inputs; NULL: not needed */
    struct PST_VEC(void *) data;
    const struct pst_value *target; /* value of the graph with the targets */
    int64_t ignored;                /* ignore_index of the loss */
};

struct pst_tokens {
    /* for microbatches of the plan [0] and for tail microbatches [1] */
    struct counter sides[2];
    unsigned microbatches, n_tail;
    pst_fill_fn fill;
    void *fill_ctx;
    double *bytes;              /* by microbatch; NULL: bytes are not counted */
    const unsigned char *table; /* bytes of each target; NULL: 1 each */
    size_t n_table;
};

static enum pst_status refuse_loss(struct pst_diag *diag, const char *why)
{
    return pst_diag_set(diag, PST_E_LOSS_TOKENS,
                        "weights by tokens need a loss that is a mean over "
                        "targets and ignores some: %s",
                        why);
}

/* --- the loss ----------------------------------------------------------- */

/* True if the result is the first operand, perhaps scaled by a number. A sum of
 * two losses does not qualify: it has two kinds of targets. */
static bool is_scaled_operand(const struct pst_node *node)
{
    static const struct pst_op *const ops[] = {
        &pst_op_clone,      &pst_op__to_copy,   &pst_op_mul_Tensor,
        &pst_op_mul_Scalar, &pst_op_div_Tensor, &pst_op_div_Scalar,
        &pst_op_sum,        &pst_op_mean};
    bool known = (node->op->flags & (PST_OP_VIEW | PST_OP_MAYBE_VIEW)) != 0;

    for (size_t i = 0; i < PST_COUNT(ops) && !known; i++)
        known = node->op == ops[i];
    for (unsigned i = 1; i < node->schema->n_args; i++)
        known &= node->args[i].kind != PST_ARG_VALUE &&
                 node->args[i].kind != PST_ARG_VALUES;
    return known;
}

/* Skips casts, views, copies and scaling to find the loss node. */
static const struct pst_node *find_loss(const struct pst_plan *joined)
{
    const struct pst_plan_output *o = &joined->outputs.at[joined->loss];
    const struct pst_graph *graph = joined->stages.at[0].graph;
    const struct pst_value *v = graph->outputs.at[o->output].arg.value;

    while (v->def != NULL && pst_node_arg(v->def, "ignore_index") == NULL) {
        const struct pst_arg *arg = v->def->args;

        if (v->def->schema->n_args == 0 || arg->kind != PST_ARG_VALUE ||
            pst_meta_numel(&arg->value->meta) != 1 ||
            !is_scaled_operand(v->def))
            return NULL;
        v = arg->value;
    }
    return v->def;
}

static enum pst_status check_target(const struct pst_node *node,
                                    struct pst_diag *diag)
{
    const struct pst_arg *target;

    if (node == NULL)
        return refuse_loss(diag,
                           "this one is not one cross_entropy or nll_loss "
                           "alone");
    target = pst_node_arg(node, "target");
    if (target == NULL || target->kind != PST_ARG_VALUE ||
        pst_dtype_kind(target->value->meta.dtype) != PST_KIND_INT)
        return refuse_loss(diag, "its targets are no classes");
    return PST_OK;
}

static enum pst_status check_mean(const struct pst_node *node,
                                  struct pst_diag *diag)
{
    const struct pst_arg *weight = pst_node_arg(node, "weight");
    const struct pst_arg *reduction = pst_node_arg(node, "reduction");

    if (reduction == NULL || reduction->i != 1)
        return refuse_loss(diag, "its reduction is not \"mean\"");
    if (weight != NULL && weight->kind == PST_ARG_VALUE)
        return refuse_loss(diag, "its classes have weights");
    return PST_OK;
}

/* --- nodes that compute the target ---------------------------------------- */

struct copier {
    struct counter *c;
    struct pst_replay replay;
    /* by value id of the uncut graph: true if the targets need the value */
    bool *wanted;
    struct pst_diag *diag;
};

static void mark_wanted(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct copier *k = ctx;

    (void)arg;
    k->wanted[(*slot)->id] = true;
}

static bool is_wanted(const struct copier *k, const struct pst_node *node)
{
    for (unsigned i = 0; i < node->n_outs; i++)
        if (k->wanted[node->outs[i]->id])
            return true;
    return false;
}

static enum pst_status copy_given(struct copier *k,
                                  const struct pst_value *value)
{
    struct pst_value *copy;

    if (value->kind != PST_VALUE_INPUT)
        return refuse_loss(k->diag, "its targets depend on more than inputs");
    copy = pst_graph_add_value(k->c->graph, PST_VALUE_INPUT, value->name, NULL,
                               &value->meta);
    if (copy == NULL)
        return pst_diag_nomem(k->diag, sizeof(*copy));
    k->replay.map[value->id] = copy;
    return PST_OK;
}

static enum pst_status copy_nodes(struct copier *k,
                                  const struct pst_value *target)
{
    const struct pst_graph *from = k->c->joined->stages.at[0].graph;
    enum pst_status status = PST_OK;

    k->wanted[target->id] = true;
    for (size_t i = from->nodes.n; i-- > 0;)
        if (is_wanted(k, from->nodes.at[i]))
            pst_node_uses(from->nodes.at[i], mark_wanted, k);
    for (size_t i = 0; i < from->values.n && status == PST_OK; i++)
        if (k->wanted[i] && from->values.at[i]->kind != PST_VALUE_NODE)
            status = copy_given(k, from->values.at[i]);
    for (size_t i = 0; i < from->nodes.n && status == PST_OK; i++)
        if (is_wanted(k, from->nodes.at[i]))
            status = pst_replay_node(&k->replay, from->nodes.at[i]);
    if (status == PST_OK)
        k->c->target = k->replay.map[target->id];
    return status;
}

static enum pst_status copy_target(struct counter *c,
                                   const struct pst_value *target,
                                   struct pst_diag *diag)
{
    const size_t n = c->joined->stages.at[0].graph->values.n + 1;
    struct copier k = {.c = c, .diag = diag};
    enum pst_status status = pst_graph_new(&c->graph, diag);

    if (status != PST_OK)
        return status;
    pst_build_init(&k.replay.build, c->graph, diag);
    k.replay.map = pst_calloc(TAG, n, sizeof(*k.replay.map));
    k.wanted = pst_calloc(TAG, n, sizeof(*k.wanted));
    status = k.replay.map == NULL || k.wanted == NULL ? pst_diag_nomem(diag, n)
                                                      : copy_nodes(&k, target);
    pst_free(k.replay.map);
    pst_free(k.wanted);
    return status;
}

/* --- counting ----------------------------------------------------------- */

/* Allocates the inputs that are needed, at fixed addresses. */
static enum pst_status alloc_inputs(struct counter *c, struct pst_diag *diag)
{
    enum pst_status status = pst_eval_new(c->graph, &c->eval, diag);

    for (size_t i = 0; i < c->joined->inputs.n && status == PST_OK; i++) {
        const struct pst_plan_input *in = &c->joined->inputs.at[i];
        struct pst_value *copy = pst_graph_find(c->graph, in->name);
        void *data = NULL;

        if (copy != NULL && copy->kind == PST_VALUE_INPUT) {
            data = pst_alloc(TAG, pst_meta_bytes(&in->meta) + 1);
            if (data == NULL)
                return pst_diag_nomem(diag, pst_meta_bytes(&in->meta));
        }
        if (!pst_vec_push(TAG, &c->data, data)) {
            pst_free(data);
            return pst_diag_nomem(diag, sizeof(data));
        }
        if (data != NULL)
            status = pst_eval_set(c->eval, copy, data, diag);
    }
    return status;
}

/* Prepares the computation of a plan's targets. is_mean: refuses a loss that is
 * not the mean over the targets that it does not ignore. */
static enum pst_status counter_init(struct counter *c, struct pst_plan *plan,
                                    bool is_mean, struct pst_diag *diag)
{
    const struct pst_node *loss;
    enum pst_status status;

    if (plan->loss < 0)
        return refuse_loss(diag, "the plan has none");
    status = pst_plan_join(plan, &c->joined, diag);
    if (status != PST_OK)
        return status;
    loss = find_loss(c->joined);
    status = check_target(loss, diag);
    if (status == PST_OK && is_mean)
        status = check_mean(loss, diag);
    if (status != PST_OK)
        return status;
    c->ignored = pst_node_arg(loss, "ignore_index")->i;
    status = copy_target(c, pst_node_arg(loss, "target")->value, diag);
    return status == PST_OK ? alloc_inputs(c, diag) : status;
}

static void counter_fini(struct counter *c)
{
    pst_eval_free(c->eval);
    pst_graph_free(c->graph);
    pst_plan_free(c->joined);
    for (size_t i = 0; i < c->data.n; i++)
        pst_free(c->data.at[i]);
    pst_vec_fini(&c->data);
}

/* Sets *ret (owned) to the targets of the inputs in c->data, contiguous. */
static enum pst_status find_target(struct counter *c, void **ret,
                                   struct pst_diag *diag)
{
    const struct pst_rng_key key = {0};
    const struct pst_meta *meta = &c->target->meta;
    struct pst_meta plain = *meta;
    enum pst_status status = pst_eval_run(c->eval, true, &key, diag);

    if (status != PST_OK)
        return status;
    pst_meta_set_contiguous(&plain);
    *ret = pst_alloc(TAG, pst_meta_bytes(&plain) + 1);
    if (*ret == NULL)
        return pst_diag_nomem(diag, pst_meta_bytes(&plain));
    pst_copy_strided(meta, pst_eval_get(c->eval, c->target), &plain, *ret);
    return PST_OK;
}

/* Sums the bytes of n targets that count. */
static enum pst_status sum_bytes(const struct pst_tokens *t,
                                 const struct counter *c, const void *target,
                                 double *ret, struct pst_diag *diag)
{
    const struct pst_meta *meta = &c->target->meta;
    uint64_t sum = 0;

    for (int64_t i = 0; i < pst_meta_numel(meta); i++) {
        const int64_t x = pst_load_i64(meta->dtype, target, i);

        if (x == c->ignored)
            continue;
        if (t->table != NULL && (x < 0 || (uint64_t)x >= t->n_table))
            return pst_diag_set(diag, PST_E_DATA_TOKEN_BYTES,
                                "--token-bytes has %zu bytes, and the data "
                                "have the token %lld",
                                t->n_table, (long long)x);
        sum += t->table != NULL ? t->table[x] : 1;
    }
    *ret = (double)sum;
    return PST_OK;
}

static enum pst_status count_targets(struct pst_tokens *t, struct counter *c,
                                     uint64_t step, unsigned microbatch,
                                     double *ret, struct pst_diag *diag)
{
    const struct pst_meta *meta = &c->target->meta;
    enum pst_status status = PST_OK;
    uint64_t n = 0;
    void *target;

    for (size_t i = 0; i < c->data.n && status == PST_OK; i++)
        if (c->data.at[i] != NULL)
            status = t->fill(t->fill_ctx, step, microbatch, (unsigned)i,
                             c->data.at[i], diag);
    if (status == PST_OK)
        status = find_target(c, &target, diag);
    if (status != PST_OK)
        return status;
    for (int64_t i = 0; i < pst_meta_numel(meta); i++)
        n += pst_load_i64(meta->dtype, target, i) != c->ignored;
    if (t->bytes != NULL)
        status = sum_bytes(t, c, target, &t->bytes[microbatch], diag);
    pst_free(target);
    *ret = (double)n;
    return status;
}

/* --- labels that the model shifts ----------------------------------------- */

/* Sets the labels of each row to first, first + 1, ..., and the other inputs to
 * 1. */
static void fill_positions(struct counter *c, unsigned input, int64_t first)
{
    for (size_t k = 0; k < c->data.n; k++) {
        const struct pst_meta *meta = &c->joined->inputs.at[k].meta;
        const int64_t length = meta->rank > 0 ? meta->size[meta->rank - 1] : 1;

        if (c->data.at[k] == NULL)
            continue;
        for (int64_t i = 0; i < pst_meta_numel(meta); i++)
            if (k == input)
                pst_store_i64(meta->dtype, c->data.at[k], i,
                              first + i % length);
            else
                pst_store_f64(meta->dtype, c->data.at[k], i, 1);
    }
}

/* Fills the labels of each row from `first` on. Sets *ret to true if label
 * first + 1 is among the targets of the loss, but label `first` is not. */
static enum pst_status sees_shift(struct counter *c, unsigned input,
                                  int64_t first, bool *ret,
                                  struct pst_diag *diag)
{
    const struct pst_meta *meta = &c->target->meta;
    bool sees_first = false, sees_next = false;
    enum pst_status status;
    void *target;

    fill_positions(c, input, first);
    status = find_target(c, &target, diag);
    if (status != PST_OK)
        return status;
    for (int64_t i = 0; i < pst_meta_numel(meta); i++) {
        const int64_t label = pst_load_i64(meta->dtype, target, i);

        sees_first |= label == first;
        sees_next |= label == first + 1;
    }
    pst_free(target);
    *ret = sees_next && !sees_first;
    return PST_OK;
}

/* Tries labels from two first values on: a label that is ignored because of its
 * value, such as padding, must not be taken for one that is dropped because of
 * its position. */
enum pst_status pst_tokens_shift(struct pst_plan *plan, unsigned input,
                                 bool *ret, struct pst_diag *diag)
{
    static const int64_t firsts[] = {3, 40};
    struct counter c = {0};
    struct pst_diag why;
    enum pst_status status;
    bool shifts = true;

    pst_diag_init(&why);
    *ret = false;
    status = counter_init(&c, plan, false, &why);
    if (status == PST_OK && c.data.at[input] != NULL) {
        for (size_t i = 0; i < PST_COUNT(firsts) && shifts; i++) {
            status = sees_shift(&c, input, firsts[i], &shifts, &why);
            shifts = shifts && status == PST_OK;
        }
        *ret = shifts;
    }
    counter_fini(&c);
    return status == PST_ERR_NOMEM ? pst_diag_pass(diag, &why, "%s", why.text)
                                   : PST_OK;
}

enum pst_status pst_tokens_weigh(void *ctx, uint64_t step, double *ret,
                                 struct pst_diag *diag)
{
    struct pst_tokens *t = ctx;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < t->microbatches && status == PST_OK; k++)
        status = count_targets(t, &t->sides[k >= t->microbatches - t->n_tail],
                               step, k, &ret[k], diag);
    return status;
}

enum pst_status pst_tokens_count_bytes(struct pst_tokens *tokens,
                                       const unsigned char *bytes, size_t n,
                                       struct pst_diag *diag)
{
    tokens->table = bytes;
    tokens->n_table = n;
    if (tokens->bytes == NULL)
        tokens->bytes =
            pst_calloc(TAG, tokens->microbatches, sizeof(*tokens->bytes));
    return tokens->bytes != NULL ? PST_OK
                                 : pst_diag_nomem(diag, tokens->microbatches);
}

const double *pst_tokens_bytes(const struct pst_tokens *tokens)
{
    return tokens->bytes;
}

/* --- life --------------------------------------------------------------- */

enum pst_status pst_tokens_new(struct pst_plan *plan, struct pst_plan *tail,
                               unsigned microbatches, unsigned n_tail,
                               pst_fill_fn fill, void *fill_ctx,
                               struct pst_tokens **ret, struct pst_diag *diag)
{
    struct pst_tokens *t = pst_calloc(TAG, 1, sizeof(*t));
    enum pst_status status;

    if (t == NULL)
        return pst_diag_nomem(diag, sizeof(*t));
    t->microbatches = microbatches;
    t->n_tail = tail != NULL ? n_tail : 0;
    t->fill = fill;
    t->fill_ctx = fill_ctx;
    status = counter_init(&t->sides[0], plan, true, diag);
    if (status == PST_OK && tail != NULL)
        status = counter_init(&t->sides[1], tail, true, diag);
    if (status != PST_OK) {
        pst_tokens_free(t);
        return status;
    }
    *ret = t;
    return PST_OK;
}

void pst_tokens_set_microbatches(struct pst_tokens *tokens,
                                 unsigned microbatches)
{
    tokens->microbatches = microbatches;
    tokens->n_tail = 0;
}

void pst_tokens_free(struct pst_tokens *tokens)
{
    if (tokens == NULL)
        return;
    counter_fini(&tokens->sides[0]);
    counter_fini(&tokens->sides[1]);
    pst_free(tokens->bytes);
    pst_free(tokens);
}
