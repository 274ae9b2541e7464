// SPDX-License-Identifier: Apache-2.0
/* Rewrites all PyTorch names of recurrent layers and cells to
 * penstock.rnn_layer. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

struct rnn {
    struct pst_rewrite *w;
    const char *mode;
    struct pst_value *h, *c; /* (layers * directions, B, ...); c may be NULL */
    const struct pst_arg *params;
    bool biases, train, projects;
    unsigned layers, directions;
    double dropout;
    struct pst_value *h_n[PST_MAX_OUTS], *c_n[PST_MAX_OUTS];
};

static struct pst_value *nth(struct rnn *r, struct pst_value *x, unsigned i)
{
    if (x == NULL)
        return NULL;
    return pst_rw(r->w, &pst_op_select_int,
                  PST_ARGS(pst_v(x), pst_i(0), pst_i(i)));
}

/* Emits one direction of a layer, number i of all directions of all layers. Its
 * parameters are w_ih, w_hh, b_ih, b_hh and w_hr. */
static struct pst_value *emit_direction(struct rnn *r, struct pst_value *x,
                                        unsigned i, bool reverse)
{
    const unsigned per = 2 + (r->biases ? 2 : 0) + (r->projects ? 1 : 0);
    struct pst_value **p = r->params->values + i * per;
    struct pst_value *gates;
    struct pst_node *node;

    gates =
        pst_rw(r->w, &pst_op_linear,
               PST_ARGS(pst_v(x), pst_v(p[0]), pst_v(r->biases ? p[2] : NULL)));
    if (gates == NULL)
        return NULL;
    node = pst_rw_node(r->w, &pst_op_rnn_layer,
                       PST_ARGS(pst_v(gates), pst_v(nth(r, r->h, i)),
                                pst_v(nth(r, r->c, i)), pst_v(p[1]),
                                pst_v(r->biases ? p[3] : NULL),
                                pst_v(r->projects ? p[per - 1] : NULL),
                                pst_text(r->mode), pst_b(reverse)));
    r->h_n[i] = pst_rw_nth(node, 1);
    r->c_n[i] = pst_rw_nth(node, 2);
    return pst_rw_nth(node, 0);
}

static struct pst_value *emit_layer(struct rnn *r, struct pst_value *x,
                                    unsigned l)
{
    struct pst_value *both[2] = {
        emit_direction(r, x, l * r->directions, false)};

    if (r->directions == 1 || both[0] == NULL)
        return both[0];
    both[1] = emit_direction(r, x, l * 2 + 1, true);
    if (both[1] == NULL)
        return NULL;
    return pst_rw(r->w, &pst_op_cat, PST_ARGS(pst_values(both, 2), pst_i(2)));
}

static struct pst_value *stack_states(struct rnn *r, struct pst_value **of)
{
    if (r->w->build->status != PST_OK)
        return NULL;
    return pst_rw(
        r->w, &pst_op_stack,
        PST_ARGS(pst_values(of, r->layers * r->directions), pst_i(0)));
}

static struct pst_value *swap_first_dims(struct rnn *r, struct pst_value *x)
{
    return pst_rw(r->w, &pst_op_transpose_int,
                  PST_ARGS(pst_v(x), pst_i(0), pst_i(1)));
}

static bool has_layers(struct rnn *r, const struct pst_value *state, int64_t n)
{
    return state->meta.rank == 3 &&
           pst_extent_is(r->w->build, pst_rw_size(r->w, state, 0),
                         pst_extent(n));
}

static enum pst_status check_layers(struct rnn *r, const struct pst_value *x,
                                    int64_t layers)
{
    const unsigned per = 2 + (r->biases ? 2 : 0) + (r->projects ? 1 : 0);
    const int64_t n = layers * r->directions;

    if (x->meta.rank != 3 || layers < 1 || layers > PST_MAX_OUTS / 2 ||
        (int64_t)r->params->n != n * per || r->h == NULL ||
        !has_layers(r, r->h, n) || (r->c != NULL && !has_layers(r, r->c, n)))
        return pst_rewrite_fail(r->w,
                                "%u parameters and the state do not "
                                "make %lld layers",
                                r->params->n, (long long)layers);
    r->layers = (unsigned)layers;
    return PST_OK;
}

/* Emits all layers. The arguments from `params` on are the same in all four
 * operators. */
static enum pst_status emit_layers(struct pst_rewrite *w, const char *mode,
                                   struct pst_value *h, struct pst_value *c)
{
    const struct pst_arg *a = w->args + 2;
    struct pst_value *x = pst_rewrite_in(w, 0);
    struct rnn r = {.w = w,
                    .mode = mode,
                    .h = h,
                    .c = c,
                    .params = &a[0],
                    .biases = a[1].b,
                    .dropout = a[3].f,
                    .train = a[4].b,
                    .directions = a[5].b ? 2 : 1};

    r.projects =
        c != NULL && h->meta.rank == 3 && c->meta.rank == 3 &&
        !pst_extent_is(w->build, pst_rw_size(w, h, 2), pst_rw_size(w, c, 2));
    if (check_layers(&r, x, a[2].i) != PST_OK)
        return w->build->status;
    if (a[6].b)
        x = swap_first_dims(&r, x);
    for (unsigned l = 0; l < r.layers && x != NULL; l++) {
        x = emit_layer(&r, x, l);
        if (x != NULL && r.train && r.dropout > 0.0 && l + 1 < r.layers)
            x = pst_rw(w, &pst_op_dropout,
                       PST_ARGS(pst_v(x), pst_f(r.dropout), pst_b(true)));
    }
    w->outs[0] = a[6].b && x != NULL ? swap_first_dims(&r, x) : x;
    w->outs[1] = stack_states(&r, r.h_n);
    if (c != NULL)
        w->outs[2] = stack_states(&r, r.c_n);
    return w->build->status;
}

/* Returns entry i of the list hx. */
static struct pst_value *state_at(const struct pst_rewrite *w, unsigned i)
{
    return w->args[1].kind == PST_ARG_VALUES && w->args[1].n == 2
               ? w->args[1].values[i]
               : NULL;
}

static enum pst_status lstm(struct pst_rewrite *w)
{
    if (state_at(w, 0) == NULL || state_at(w, 1) == NULL)
        return pst_rewrite_fail(w, "needs two states");
    return emit_layers(w, "lstm", state_at(w, 0), state_at(w, 1));
}

#define LAYERS(id, mode)                                                       \
    static enum pst_status id##_layers(struct pst_rewrite *w)                  \
    {                                                                          \
        return emit_layers(w, mode, pst_rewrite_in(w, 1), NULL);               \
    }                                                                          \
    PST_REWRITE(id##_input,                                                    \
                "aten::" #id ".input(Tensor input, Tensor hx, Tensor[] "       \
                "params, bool has_biases, int num_layers, float dropout, "     \
                "bool train, bool bidirectional, bool batch_first) -> "        \
                "(Tensor, Tensor)",                                            \
                id##_layers)
LAYERS(gru, "gru");
LAYERS(rnn_tanh, "tanh");
LAYERS(rnn_relu, "relu");

PST_REWRITE(lstm_input,
            "aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, "
            "bool has_biases, int num_layers, float dropout, bool train, bool "
            "bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
            lstm);

/* --- cells: one step ---------------------------------------------------- */

static struct pst_node *emit_cell(struct pst_rewrite *w, const char *mode,
                                  struct pst_value *h, struct pst_value *c)
{
    struct pst_value *x;

    if (pst_rewrite_in(w, 0)->meta.rank != 2) {
        pst_rewrite_fail(w, "the input is not a matrix");
        return NULL;
    }
    x = pst_rw(w, &pst_op_linear, PST_ARGS(w->args[0], w->args[2], w->args[4]));
    x = pst_rw(w, &pst_op_unsqueeze, PST_ARGS(pst_v(x), pst_i(0)));
    return pst_rw_node(w, &pst_op_rnn_layer,
                       PST_ARGS(pst_v(x), pst_v(h), pst_v(c), w->args[3],
                                w->args[5], pst_none(), pst_text(mode),
                                pst_b(false)));
}

static enum pst_status lstm_cell_form(struct pst_rewrite *w)
{
    struct pst_node *node;

    if (state_at(w, 0) == NULL || state_at(w, 1) == NULL)
        return pst_rewrite_fail(w, "needs two states");
    node = emit_cell(w, "lstm", state_at(w, 0), state_at(w, 1));
    w->outs[0] = pst_rw_nth(node, 1);
    w->outs[1] = pst_rw_nth(node, 2);
    return w->build->status;
}

PST_REWRITE(lstm_cell,
            "aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor "
            "w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)",
            lstm_cell_form);

#define CELL(id, mode)                                                         \
    static enum pst_status id##_form(struct pst_rewrite *w)                    \
    {                                                                          \
        return pst_rewrite_out(                                                \
            w, 0,                                                              \
            pst_rw_nth(emit_cell(w, mode, pst_rewrite_in(w, 1), NULL), 1));    \
    }                                                                          \
    PST_REWRITE(id,                                                            \
                "aten::" #id "(Tensor input, Tensor hx, Tensor w_ih, Tensor "  \
                "w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",       \
                id##_form)
CELL(gru_cell, "gru");
CELL(rnn_tanh_cell, "tanh");
CELL(rnn_relu_cell, "relu");
