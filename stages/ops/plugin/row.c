// SPDX-License-Identifier: Apache-2.0
/* Inference, size expressions and costs of a plugin's operators. */
#include "stages/ops/plugin/row.h"

#include <string.h>

#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/formula/formula.h"
#include "stages/ops/plugin/check_rows.h"
#include "stages/ops/plugin/dtype.h"

/* MAX_EXPRS: maximum number of sizes with an expression in a call; MAX_NUMBERS:
 * maximum number of integers in its lists. */
#define MAX_EXPRS   512
#define MAX_NUMBERS 512

/* --- arguments ------------------------------------------------------------ */

static void set_arg(const struct pst_arg *from, struct penstock_arg *to)
{
    to->n = from->n;
    switch (from->kind) {
    case PST_ARG_BOOL:
        to->kind = PENSTOCK_ARG_BOOL;
        to->i = from->b;
        break;
    case PST_ARG_INT:
        to->kind = PENSTOCK_ARG_INT;
        to->i = from->i;
        break;
    case PST_ARG_INTS:
        to->kind = PENSTOCK_ARG_INTS;
        to->ints = from->ints;
        break;
    case PST_ARG_FLOAT:
        to->kind = PENSTOCK_ARG_FLOAT;
        to->f = from->f;
        break;
    case PST_ARG_FLOATS:
        to->kind = PENSTOCK_ARG_FLOATS;
        to->floats = from->floats;
        break;
    case PST_ARG_BOOLS:
        to->kind = PENSTOCK_ARG_BOOLS;
        to->bools = (const uint8_t *)from->bools;
        break;
    case PST_ARG_STRING:
        to->kind = PENSTOCK_ARG_STRING;
        to->text = from->s;
        break;
    case PST_ARG_DTYPE:
        to->kind = PENSTOCK_ARG_DTYPE;
        to->dtype = pst_dtype_to_dl((enum pst_dtype)from->i);
        break;
    case PST_ARG_NONE:
    case PST_ARG_IGNORED:
    case PST_ARG_VALUE:
    case PST_ARG_VALUES:
        to->kind = PENSTOCK_ARG_NONE;
        break;
    }
}

bool pst_plugin_args_set(const struct pst_schema *schema,
                         const struct pst_arg *args,
                         struct pst_plugin_args *ret)
{
    ret->n = schema->n_args;
    ret->n_in = 0;
    for (unsigned i = 0; i < schema->n_args; i++) {
        const unsigned n = pst_call_count_arg(schema, i, &args[i]);
        struct penstock_arg *to = &ret->at[i];

        memset(to, 0, sizeof(*to));
        to->first = (int32_t)ret->n_in;
        set_arg(&args[i], to);
        if (args[i].kind == PST_ARG_VALUE || args[i].kind == PST_ARG_VALUES) {
            to->kind = args[i].kind == PST_ARG_VALUE ? PENSTOCK_ARG_TENSOR
                                                     : PENSTOCK_ARG_TENSORS;
            to->n = n;
        }
        if (n > PENSTOCK_MAX_TENSORS - ret->n_in)
            return false;
        ret->n_in += n;
    }
    return true;
}

/* --- inference ------------------------------------------------------------ */

/* State of a call of a plugin's function infer or flops. */
struct inference {
    struct penstock_shapes given; /* given.host points to this struct */
    struct pst_plugin_args args;
    struct penstock_meta in[PENSTOCK_MAX_TENSORS], out[PENSTOCK_MAX_TENSORS];
    struct penstock_size numbers[MAX_NUMBERS];
    unsigned n_numbers;
    struct pst_build *build; /* NULL: the sizes have no symbolic expressions */
    const char *exprs[MAX_EXPRS];
    unsigned n_exprs;
};

/* Returns the size with a symbol for its expression: 0 if the expression is
 * unknown, PENSTOCK_FIXED if there is none, else 2 plus its index in
 * `exprs`. */
static struct penstock_size to_plugin_size(struct inference *s,
                                           struct pst_extent size)
{
    struct penstock_size ret = {size.value, PENSTOCK_FIXED};

    if (size.expr == NULL)
        return ret;
    ret.symbol = 0;
    if (pst_expr_is_unknown(size.expr) || s->n_exprs == MAX_EXPRS)
        return ret;
    s->exprs[s->n_exprs++] = size.expr;
    ret.symbol = 1 + s->n_exprs;
    return ret;
}

static struct pst_extent from_plugin_size(const struct inference *s,
                                          struct penstock_size size)
{
    struct pst_extent ret = pst_extent(size.value);

    if (size.symbol >= 2 && size.symbol - 2 < s->n_exprs)
        ret.expr = s->exprs[size.symbol - 2];
    else if (size.symbol != PENSTOCK_FIXED)
        ret.expr = pst_expr_unknown;
    return ret;
}

static struct pst_extent compute_extent(struct pst_build *build,
                                        enum penstock_compute op,
                                        struct pst_extent a,
                                        struct pst_extent b)
{
    switch (op) {
    case PENSTOCK_ADD:
        return pst_extent_add(build, a, b);
    case PENSTOCK_SUB:
        return pst_extent_sub(build, a, b);
    case PENSTOCK_MUL:
        return pst_extent_mul(build, a, b);
    case PENSTOCK_DIV:
        return pst_extent_floordiv(build, a, b);
    case PENSTOCK_MIN:
        return pst_extent_min(build, a, b);
    case PENSTOCK_MAX:
        return pst_extent_max(build, a, b);
    }
    return pst_extent(-1);
}

static struct penstock_size compute_size(const struct penstock_shapes *shapes,
                                         enum penstock_compute op,
                                         struct penstock_size a,
                                         struct penstock_size b)
{
    struct inference *s = (struct inference *)shapes->host;
    struct pst_build none = {0};
    struct pst_diag why;

    if (op == PENSTOCK_DIV && b.value <= 0)
        return (struct penstock_size){-1, 0};
    if (s->build != NULL)
        return to_plugin_size(s, compute_extent(s->build, op,
                                                from_plugin_size(s, a),
                                                from_plugin_size(s, b)));
    none.diag = &why; /* sums that overflow */
    a.value =
        compute_extent(&none, op, pst_extent(a.value), pst_extent(b.value))
            .value;
    a.symbol = a.symbol != 0 && b.symbol != 0 ? PENSTOCK_FIXED : 0;
    if (none.status != PST_OK)
        a = (struct penstock_size){-1, 0};
    return a;
}

static void to_plugin_meta(struct inference *s, const struct pst_value *value,
                           struct penstock_meta *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->ndim = -1;
    if (value == NULL)
        return;
    ret->dtype = pst_dtype_to_dl(value->meta.dtype);
    ret->ndim = (int32_t)value->meta.rank;
    for (unsigned d = 0; d < value->meta.rank; d++)
        ret->shape[d] =
            s->build != NULL
                ? to_plugin_size(s, pst_extent_of(s->build, value, d))
                : (struct penstock_size){value->meta.size[d], PENSTOCK_FIXED};
}

/* Adds the symbols of an integer argument or of a list of integers. */
static void add_symbols(struct inference *s, const struct pst_arg *arg,
                        struct penstock_arg *to)
{
    const unsigned n = arg->kind == PST_ARG_INTS ? arg->n : 1;

    if (n > MAX_NUMBERS - s->n_numbers)
        return;
    to->sizes = &s->numbers[s->n_numbers];
    for (unsigned k = 0; k < n; k++) {
        const int64_t i = arg->kind == PST_ARG_INTS ? arg->ints[k] : arg->i;

        s->numbers[s->n_numbers++] =
            s->build != NULL
                ? to_plugin_size(s, pst_extent_in(s->build, arg, k))
                : (struct penstock_size){i, PENSTOCK_FIXED};
    }
}

/* Prepares a call; every result begins as a copy of the first tensor. n_out:
 * number of results; 0 for a list of unknown length. */
static bool shapes_begin(struct inference *s, const struct pst_schema *schema,
                         const struct pst_arg *args, unsigned n_out,
                         struct pst_build *build)
{
    const unsigned most = schema->list_return ? PENSTOCK_MAX_TENSORS : n_out;
    unsigned at = 0;

    s->build = build;
    s->n_exprs = s->n_numbers = 0;
    memset(&s->given, 0, sizeof(s->given));
    if (!pst_plugin_args_set(schema, args, &s->args))
        return false;
    for (unsigned i = 0; i < schema->n_args; i++) {
        const unsigned n = pst_call_count_arg(schema, i, &args[i]);

        for (unsigned k = 0; k < n; k++)
            to_plugin_meta(s,
                           args[i].kind == PST_ARG_VALUE    ? args[i].value
                           : args[i].kind == PST_ARG_VALUES ? args[i].values[k]
                                                            : NULL,
                           &s->in[at++]);
        if (args[i].kind == PST_ARG_INT || args[i].kind == PST_ARG_INTS)
            add_symbols(s, &args[i], &s->args.at[i]);
    }
    for (unsigned k = 0; k < most; k++)
        if (at > 0)
            s->out[k] = s->in[0];
        else
            memset(&s->out[k], 0, sizeof(s->out[k]));
    s->given.size = sizeof(s->given);
    s->given.args = s->args.at;
    s->given.n_args = s->args.n;
    s->given.in = s->in;
    s->given.n_in = at;
    s->given.out = s->out;
    s->given.n_out = n_out;
    s->given.compute = compute_size;
    s->given.host = s;
    return true;
}

/* Checks result k as the plugin has set it, and converts it. */
static enum pst_status read_result(struct pst_infer *c,
                                   const struct inference *s, unsigned k)
{
    const struct penstock_meta *from = &s->out[k];
    int64_t sizes[PST_MAX_RANK] = {0};
    enum pst_dtype dtype = PST_F32;

    if (from->ndim < 0 || from->ndim > PST_MAX_RANK)
        return pst_diag_set(c->diag, PST_E_PLUGIN_RESULT,
                            "%s: infer gives result %u %d dimensions, at most "
                            "%d are possible",
                            c->schema->name, k, from->ndim, PST_MAX_RANK);
    if (!pst_dtype_from_dl(from->dtype, &dtype))
        return pst_diag_set(c->diag, PST_E_PLUGIN_RESULT,
                            "%s: infer gives result %u a dtype that is not "
                            "supported (code %u, %u bits, %u lanes)",
                            c->schema->name, k, from->dtype.code,
                            from->dtype.bits, from->dtype.lanes);
    for (int32_t d = 0; d < from->ndim; d++) {
        sizes[d] = from->shape[d].value;
        if (sizes[d] < 0)
            return pst_diag_set(c->diag, PST_E_PLUGIN_RESULT,
                                "%s: infer gives result %u the size %lld in "
                                "dimension %d",
                                c->schema->name, k, (long long)sizes[d], d);
    }
    c->out[k] = pst_meta_make(dtype, (unsigned)from->ndim, sizes);
    return PST_OK;
}

static enum pst_status infer(struct pst_infer *c)
{
    const struct pst_plugin_row *row =
        pst_plugin_row_of(pst_op_find(c->schema->name));
    PST_UNINIT struct inference s;
    enum pst_status status = PST_OK;
    int code = 0;

    const unsigned n_out = c->schema->list_return ? 0 : c->schema->n_returns;

    if (!shapes_begin(&s, c->schema, c->args, n_out, NULL))
        return pst_diag_set(c->diag, PST_E_OP_TOO_MANY,
                            "%s has more than %d tensors", c->schema->name,
                            PENSTOCK_MAX_TENSORS);
    if (row->given->infer != NULL)
        code = row->given->infer(&s.given);
    s.given.reason[PENSTOCK_MAX_REASON - 1] = '\0';
    if (code != 0)
        return pst_diag_set(
            c->diag, PST_E_OP_SHAPE, "%s: its plugin refuses the arguments: %s",
            c->schema->name,
            s.given.reason[0] != '\0' ? s.given.reason
                                      : "infer failed without a reason");
    if (c->schema->list_return &&
        (s.given.n_out == 0 || s.given.n_out > PENSTOCK_MAX_TENSORS))
        return pst_diag_set(c->diag, PST_E_PLUGIN_RESULT,
                            "%s: infer gives %zu results, 1 to %d are possible",
                            c->schema->name, s.given.n_out,
                            PENSTOCK_MAX_TENSORS);
    if (c->schema->list_return)
        c->n_outs = (unsigned)s.given.n_out;
    for (unsigned k = 0; k < c->n_outs && status == PST_OK; k++)
        status = read_result(c, &s, k);
    return status;
}

/* Sets the expressions of the results' sizes, which the plugin has copied from
 * operands or made by compute(). */
static void set_sizes(struct pst_build *build, struct pst_node *node)
{
    const struct pst_plugin_row *row = pst_plugin_row_of(node->op);
    PST_UNINIT struct inference s;

    if (!shapes_begin(&s, node->schema, node->args, node->n_outs, build))
        return;
    if (row->given->infer != NULL && row->given->infer(&s.given) != 0)
        return;
    for (unsigned k = 0; k < node->n_outs; k++)
        for (unsigned d = 0; d < node->outs[k]->meta.rank; d++) {
            struct pst_extent size = from_plugin_size(&s, s.out[k].shape[d]);

            if (size.value != node->outs[k]->meta.size[d])
                size.expr = pst_expr_unknown;
            size.value = node->outs[k]->meta.size[d];
            pst_extent_set(build, node->outs[k], d, size);
        }
}

static double flops(const struct pst_node *node)
{
    const struct pst_plugin_row *row = pst_plugin_row_of(node->op);
    PST_UNINIT struct inference s;
    double n;

    if (!shapes_begin(&s, node->schema, node->args, node->n_outs, NULL))
        return 0.0;
    for (unsigned k = 0; k < node->n_outs; k++)
        to_plugin_meta(&s, node->outs[k], &s.out[k]);
    n = row->given->flops(&s.given);
    return n > 0.0 ? n : 0.0;
}

/* --- rows ----------------------------------------------------------------- */

static enum pst_status no_gradient(struct pst_vjp *v)
{
    v->build.status = pst_diag_set(v->build.diag, PST_E_PLUGIN_GRADIENT,
                                   "%s has no gradient, which the loss needs",
                                   v->node->schema->name);
    return v->build.status;
}

const struct pst_plugin_row *pst_plugin_row_of(const struct pst_op *op)
{
    return op != NULL && op->infer == infer
               ? (const struct pst_plugin_row *)(const void *)op
               : NULL;
}

bool pst_plugin_row_init(struct pst_plugin_row *row, struct pst_arena *arena)
{
    const struct penstock_op *given = row->given;
    const bool draws = (pst_plugin_op_flags(given) & PENSTOCK_RANDOM) != 0;

    row->op = (struct pst_op){
        .schema = given->schema,
        /* Nodes of a random operator's gradient get its id, so that they draw
         * the same numbers. */
        .flags = draws ? PST_OP_RANDOM | PST_OP_ORIGIN : 0,
        .infer = infer,
        .sizes = set_sizes,
        .flops = given->flops != NULL ? flops : NULL,
        .vjp = given->gradient == NULL      ? no_gradient
               : given->gradient[0] == '\0' ? pst_vjp_none
                                            : pst_vjp_formula,
        .formula = given->gradient,
    };
    return pst_plugin_kernels_init(row, arena);
}
