// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/lora/linear.h"

#include "stages/graph/schema.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>

struct reader {
    const struct pst_frames *frames;
    const struct pst_frame *frame;
    struct pst_linear *l;
};

static bool is_product(const struct pst_node *node)
{
    return node->op == &pst_op_linear || node->op == &pst_op_addmm ||
           node->op == &pst_op_mm || node->op == &pst_op_matmul;
}

/* True for a dtype conversion, as around 16-bit matmuls and under autocast. */
static bool is_conversion(const struct pst_node *node)
{
    return node->op == &pst_op__to_copy &&
           pst_dtype_kind(node->outs[0]->meta.dtype) == PST_KIND_FLOAT;
}

/* True for a conversion, a reshape or a copy. find_source() checks that the
 * last dimension stays the same. */
static bool keeps_rows(const struct pst_node *node)
{
    return is_conversion(node) || node->op == &pst_op_view ||
           node->op == &pst_op__unsafe_view || node->op == &pst_op_reshape ||
           node->op == &pst_op_contiguous || node->op == &pst_op_clone ||
           node->op == &pst_op_alias || node->op == &pst_op_unsqueeze ||
           node->op == &pst_op_squeeze_dim;
}

static bool is_transpose(const struct pst_node *node)
{
    return node->op == &pst_op_t || node->op == &pst_op_transpose_int ||
           node->op == &pst_op_permute;
}

static void record_node(struct pst_linear *l, const struct pst_node *node)
{
    l->n_nodes++;
    if (is_product(node)) {
        if (l->product != NULL && l->why[0] == '\0')
            (void)snprintf(l->why, sizeof(l->why), "it has two products");
        l->product = node;
    } else if (!keeps_rows(node) && !is_transpose(node) &&
               node->op != &pst_op_add_Tensor && l->why[0] == '\0') {
        (void)snprintf(l->why, sizeof(l->why), "it has %.100s",
                       pst_node_origin(node));
    }
}

/* --- operands of the matmul ----------------------------------------------- */

static bool is_inside(const struct reader *r, const struct pst_value *v)
{
    const int at = v->def == NULL ? -1 : pst_frames_of(r->frames, v->def->call);

    return at >= 0 && &r->frames->at.at[at] == r->frame;
}

/* Follows conversions and reshapes back to the result of another operator, or
 * to a value that the call does not compute. */
static struct pst_value *find_source(const struct reader *r,
                                     struct pst_value *v)
{
    while (is_inside(r, v) && keeps_rows(v->def) &&
           v->def->args[0].kind == PST_ARG_VALUE &&
           v->def->args[0].value->meta.rank > 0 && v->meta.rank > 0 &&
           v->def->args[0]
                   .value->meta.size[v->def->args[0].value->meta.rank - 1] ==
               v->meta.size[v->meta.rank - 1])
        v = v->def->args[0].value;
    return v;
}

static bool is_one(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_INT     ? arg->i == 1
           : arg->kind == PST_ARG_FLOAT ? arg->f == 1.0
                                        : false;
}

/* Recognises operand w as a parameter or its transpose. */
static bool read_weight(struct pst_linear *l, struct pst_value *w,
                        bool rows_are_out)
{
    struct pst_value *weight = pst_value_storage(w);
    const struct pst_meta *m = &w->meta;
    bool turned;

    if (weight->def != NULL && is_conversion(weight->def))
        weight = pst_value_storage(weight->def->args[0].value);
    if (weight->kind != PST_VALUE_PARAM || weight->meta.rank != 2 ||
        m->rank != 2 || w->offset != 0 ||
        pst_meta_numel(m) != pst_meta_numel(&weight->meta))
        return false;
    turned = m->size[0] != m->size[1] ? m->size[0] != weight->meta.size[0]
                                      : m->stride[0] != weight->meta.stride[0];
    l->weight = weight;
    l->transposed = rows_are_out == turned;
    l->out = m->size[rows_are_out ? 0 : 1];
    l->in = m->size[rows_are_out ? 1 : 0];
    return true;
}

static bool read_product(const struct reader *r)
{
    const struct pst_node *node = r->l->product;
    const unsigned x = node->op == &pst_op_addmm ? 1 : 0;

    if (x == 1)
        for (unsigned i = 3; i < node->schema->n_args; i++)
            if (!is_one(&node->args[i]))
                return false;
    if (!read_weight(r->l, node->args[x + 1].value, node->op == &pst_op_linear))
        return false;
    r->l->x = find_source(r, node->args[x].value);
    return !is_inside(r, r->l->x) && r->l->x->meta.rank > 0 &&
           r->l->x->meta.size[r->l->x->meta.rank - 1] == r->l->in;
}

/* --- result of the call --------------------------------------------------- */

static bool is_bias(const struct pst_value *v)
{
    if (v->def != NULL && is_conversion(v->def))
        v = v->def->args[0].value;
    return v->kind == PST_VALUE_PARAM && v->meta.rank == 1;
}

static bool is_result(const struct reader *r, struct pst_value *y)
{
    struct pst_value *v = find_source(r, y);

    if (is_inside(r, v) && v->def->op == &pst_op_add_Tensor) {
        const struct pst_arg *args = v->def->args;

        if (args[0].kind != PST_ARG_VALUE || args[1].kind != PST_ARG_VALUE ||
            !is_one(&args[2]) ||
            is_bias(args[0].value) == is_bias(args[1].value))
            return false;
        v = find_source(r, args[is_bias(args[0].value) ? 1 : 0].value);
    }
    return v->def == r->l->product && y->meta.rank == r->l->x->meta.rank &&
           y->meta.size[y->meta.rank - 1] == r->l->out;
}

static unsigned count_tensors(const struct pst_frame_leaves *leaves,
                              struct pst_value **ret_last)
{
    unsigned n = 0;

    for (size_t i = 0; i < leaves->at.n; i++) {
        if (leaves->at.at[i].arg.kind != PST_ARG_VALUE)
            continue;
        *ret_last = leaves->at.at[i].arg.value;
        n++;
    }
    return n;
}

static void refuse_layer(struct pst_linear *l, const char *why)
{
    if (l->why[0] == '\0')
        (void)snprintf(l->why, sizeof(l->why), "%s", why);
}

static void read_frame(struct reader *r)
{
    struct pst_value *x = NULL;

    if (r->l->product == NULL)
        refuse_layer(r->l, "it has no product with a weight");
    else if (r->l->why[0] == '\0' && !read_product(r))
        refuse_layer(r->l, "its product is none of its input and its weight");
    else if (count_tensors(&r->frame->ins, &x) != 1 ||
             count_tensors(&r->frame->outs, &r->l->y) != 1 ||
             (r->l->why[0] == '\0' && x != r->l->x))
        refuse_layer(r->l, "it takes or returns several tensors");
    else if (r->l->why[0] == '\0' && !is_result(r, r->l->y))
        refuse_layer(r->l, "it returns something else than its product");
}

enum pst_status pst_linears_read(const struct pst_frames *frames,
                                 const struct pst_graph *graph,
                                 struct pst_arena *arena,
                                 struct pst_linear **ret, struct pst_diag *diag)
{
    struct pst_linear *all =
        pst_arena_calloc(arena, frames->at.n + 1, sizeof(*all));

    if (all == NULL)
        return pst_diag_nomem(diag, frames->at.n * sizeof(*all));
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const int at = pst_frames_of(frames, graph->nodes.at[i]->call);

        if (at >= 0)
            record_node(&all[at], graph->nodes.at[i]);
    }
    for (size_t i = 0; i < frames->at.n; i++) {
        struct reader r = {frames, &frames->at.at[i], &all[i]};

        if (all[i].n_nodes > 0)
            read_frame(&r);
    }
    *ret = all;
    return PST_OK;
}
