// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/bytes.h"

#include "stages/base/host/fs.h"
#include "stages/files/data/list.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"

#define MAX_TOKENS ((size_t)16 << 20)
#define MAX_VISITS 1000 /* values between the targets and the inputs */

/* --- the loss ----------------------------------------------------------- */

/* Returns the node that computes the loss, in *ret_stage; NULL: there is none.
 */
static const struct pst_node *find_loss(const struct pst_plan *plan,
                                        unsigned *ret_stage)
{
    const struct pst_plan_output *loss =
        plan->loss >= 0 ? &plan->outputs.at[plan->loss] : NULL;
    const struct pst_value *value;

    if (loss == NULL || loss->stage < 0)
        return NULL;
    *ret_stage = (unsigned)loss->stage;
    value =
        plan->stages.at[*ret_stage].graph->outputs.at[loss->output].arg.value;
    return value->def != NULL && value->def->outs[0] == value ? value->def
                                                              : NULL;
}

/* True if the argument is a tensor. */
static bool is_tensor(const struct pst_arg *arg)
{
    return arg != NULL && arg->kind == PST_ARG_VALUE;
}

bool pstd_has_perplexity(const struct pst_plan *plan)
{
    static const struct pst_op *const ops[] = {
        &pst_op_cross_entropy_loss, &pst_op_nll_loss_nd,
        &pst_op_nll_loss,           &pst_op_nll_loss2d,
        &pst_op_nll_loss_forward,   &pst_op_nll_loss2d_forward};
    unsigned stage;
    const struct pst_node *node = find_loss(plan, &stage);
    const struct pst_arg *target, *smoothing;
    bool known = false;

    for (size_t i = 0; i < PST_COUNT(ops) && node != NULL; i++)
        known = known || node->op == ops[i];
    if (!known)
        return false;
    target = pst_node_arg(node, "target");
    smoothing = pst_node_arg(node, "label_smoothing");
    /* Reduction 1 is the mean. Floating-point targets are probabilities. */
    return pst_node_arg(node, "reduction")->i == 1 && is_tensor(target) &&
           pst_dtype_kind(target->value->meta.dtype) == PST_KIND_INT &&
           !is_tensor(pst_node_arg(node, "weight")) &&
           (smoothing == NULL || smoothing->kind == PST_ARG_NONE ||
            smoothing->f == 0);
}

/* --- its targets --------------------------------------------------------- */

/* Follows values from the targets back to the inputs of the model. */
struct walk {
    const struct pst_plan *plan;
    int64_t ignored; /* ignore_index of the loss */
    unsigned left;   /* number of values that may still be visited */
};

/* Operators whose results are elements of some of their arguments. */
static const struct carrier {
    const struct pst_op *op;
    unsigned args; /* bit i: the result has elements of argument i */
} carriers[] = {
    {&pst_op_clone, 1},
    {&pst_op__to_copy, 1},
    {&pst_op_lift_fresh_copy, 1},
    {&pst_op_copy, 2},
    {&pst_op_cat, 1},
    {&pst_op_stack, 1},
    {&pst_op_flip, 1},
    {&pst_op_roll, 1},
    {&pst_op_gather, 1},
    {&pst_op_index_select, 1},
    {&pst_op_constant_pad_nd, 1 | 4},
    {&pst_op_slice_scatter, 1 | 2},
    {&pst_op_select_scatter, 1 | 2},
    {&pst_op_masked_fill_Scalar, 1 | 4},
    {&pst_op_masked_fill_Tensor, 1 | 4},
    {&pst_op_where_self, 2 | 4},
    {&pst_op_where_ScalarOther, 2 | 4},
    {&pst_op_where_ScalarSelf, 2 | 4},
    {&pst_op_fill_Scalar, 2},
    {&pst_op_fill_Tensor, 2},
    {&pst_op_full, 2},
    {&pst_op_full_like, 2},
    {&pst_op_new_full, 4},
    {&pst_op_scalar_tensor, 1},
};

/* Returns the arguments whose elements the result consists of, as bits like
 * struct carrier; 0: the node computes new elements. */
static unsigned carried_args(const struct pst_node *node)
{
    const struct pst_arg *first = node->args;

    for (size_t i = 0; i < PST_COUNT(carriers); i++)
        if (node->op == carriers[i].op)
            return carriers[i].args;
    /* A view as another dtype reinterprets the bytes: other elements. */
    return (node->op->flags & (PST_OP_VIEW | PST_OP_MAYBE_VIEW)) != 0 &&
                   node->schema->n_args > 0 && is_tensor(first) &&
                   first->value->meta.dtype == node->outs[0]->meta.dtype
               ? 1
               : 0;
}

/* If the value is an input that comes from another stage, returns that stage's
 * output and sets *stage; otherwise returns the value itself. */
static const struct pst_value *cross_edge(const struct pst_plan *plan,
                                          const struct pst_value *value,
                                          unsigned *stage)
{
    const struct pst_stage *s = &plan->stages.at[*stage];

    for (size_t i = 0; i < s->graph->inputs.n; i++) {
        const struct pst_edge *edge;

        if (s->graph->inputs.at[i] != value ||
            s->inputs[i].kind != PST_SOURCE_EDGE)
            continue;
        edge = &plan->edges.at[s->inputs[i].index];
        *stage = edge->from_stage;
        return plan->stages.at[*stage]
            .graph->outputs.at[edge->from_output]
            .arg.value;
    }
    return value;
}

/* True if each element is an element of an integer input of the model, or the
 * target that the loss ignores. */
// NOLINTNEXTLINE(misc-no-recursion): MAX_VISITS deep at most
static bool has_tokens(struct walk *w, unsigned stage,
                       const struct pst_value *value)
{
    unsigned args;

    if (w->left == 0 || pst_dtype_kind(value->meta.dtype) != PST_KIND_INT)
        return false;
    w->left--;
    if (value->kind == PST_VALUE_INPUT) {
        const struct pst_value *before = cross_edge(w->plan, value, &stage);

        return before == value || has_tokens(w, stage, before);
    }
    if (value->def == NULL) /* a constant: assumed to be the ignored target */
        return value->kind != PST_VALUE_PARAM &&
               pst_meta_numel(&value->meta) == 1;
    args = carried_args(value->def);
    for (unsigned i = 0; i < value->def->schema->n_args; i++) {
        const struct pst_arg *arg = &value->def->args[i];
        bool known = (args >> i & 1) == 0;

        if (!known && arg->kind == PST_ARG_VALUES)
            for (unsigned k = 0; k < arg->n; k++)
                if (!has_tokens(w, stage, arg->values[k]))
                    return false;
        known =
            known || arg->kind == PST_ARG_VALUES ||
            (arg->kind == PST_ARG_VALUE && has_tokens(w, stage, arg->value)) ||
            (arg->kind == PST_ARG_INT && arg->i == w->ignored) ||
            (arg->kind == PST_ARG_FLOAT && arg->f == (double)w->ignored);
        if (!known)
            return false;
    }
    return args != 0;
}

/* True if each target of the loss, which has a perplexity, is a token of the
 * data or the ignored target: the model may move tokens, but not compute
 * others. */
static bool targets_are_tokens(const struct pst_plan *plan)
{
    unsigned stage;
    const struct pst_node *node = find_loss(plan, &stage);
    struct walk w = {plan, pst_node_arg(node, "ignore_index")->i, MAX_VISITS};

    return has_tokens(&w, stage, pst_node_arg(node, "target")->value);
}

enum pst_status pstd_token_bytes_read(const struct pstd_config *config,
                                      const struct pst_plan *plan,
                                      struct pstd_token_bytes *ret,
                                      struct pst_diag *diag)
{
    const char *path = config->token_bytes;
    enum pst_status status;

    if (path == NULL)
        return PST_OK;
    if (!pstd_has_perplexity(plan))
        return pst_diag_set(diag, PST_E_DATA_TOKEN_BYTES,
                            "--token-bytes %s: the loss of this model is not a "
                            "mean cross entropy, so there are no bits per byte",
                            path);
    if (!targets_are_tokens(plan))
        return pst_diag_set(diag, PST_E_DATA_TOKEN_BYTES,
                            "--token-bytes %s: the model computes the targets "
                            "of its loss from the tokens of the data, so there "
                            "are no bits per byte",
                            path);
    status = pst_file_read(path, MAX_TOKENS, &ret->at, &ret->n, diag);
    if (status == PST_OK && ret->n == 0)
        status = pst_diag_set(diag, PST_E_DATA_TOKEN_BYTES,
                              "--token-bytes %s: the file is empty", path);
    return status;
}

enum pst_status pstd_token_bytes_count(const struct pstd_token_bytes *bytes,
                                       const struct pst_plan *plan,
                                       const struct pst_data *data,
                                       struct pst_mean *mean,
                                       struct pst_diag *diag)
{
    const struct pst_data_list *list = pst_data_files(data);
    bool known = bytes->at != NULL, ignored;

    if (!known) {
        known = pstd_has_perplexity(plan) && targets_are_tokens(plan);
        for (size_t i = 0; i < list->files.n; i++)
            known = known && pst_data_width(data, i) == 1;
    }
    return known ? pst_mean_count_bytes(mean, (const void *)bytes->at, bytes->n,
                                        &ignored, diag)
                 : PST_OK;
}

void pstd_token_bytes_fini(struct pstd_token_bytes *bytes)
{
    pst_free(bytes->at);
    *bytes = (struct pstd_token_bytes){0};
}
