// SPDX-License-Identifier: Apache-2.0
#include "stages/split/loss/function.h"

#include <string.h>

#include "stages/ops/core/rows.h"

static struct pst_value *reshape_value(struct pst_loss_adder *a,
                                       struct pst_value *x,
                                       const int64_t *sizes, unsigned rank)
{
    if (x->meta.rank == rank)
        return x;
    return pst_emit(&a->build, &pst_op_reshape,
                    PST_ARGS(pst_v(x), pst_ints(sizes, rank)));
}

void pst_loss_flatten(struct pst_loss_adder *a, unsigned dim)
{
    const struct pst_meta *x = &a->x->meta;
    const int64_t classes = x->size[dim];
    const int64_t positions[2] = {-1, classes};

    if (x->rank <= 2 || dim == 1)
        return;
    a->x = reshape_value(a, a->x, positions, 2);
    a->target = reshape_value(a, a->target, positions,
                              a->options.probabilities ? 2 : 1);
}

static int64_t reduction_code(const struct pst_loss_adder *a)
{
    return strcmp(a->options.reduction, "sum") == 0 ? 2 : 1;
}

static struct pst_value *emit_cross_entropy(struct pst_loss_adder *a)
{
    return pst_emit(&a->build, &pst_op_cross_entropy_loss,
                    PST_ARGS(pst_v(a->x), pst_v(a->target), pst_none(),
                             pst_i(reduction_code(a)),
                             pst_i(a->options.ignore_index),
                             pst_f(a->options.smoothing)));
}

static struct pst_value *emit_nll(struct pst_loss_adder *a)
{
    return pst_emit(&a->build, &pst_op_nll_loss_nd,
                    PST_ARGS(pst_v(a->x), pst_v(a->target), pst_none(),
                             pst_i(reduction_code(a)),
                             pst_i(a->options.ignore_index)));
}

/* Emits NAME(output, target, reduction[, number]). */
static struct pst_value *emit_pair(struct pst_loss_adder *a,
                                   const struct pst_op *op, bool number)
{
    const struct pst_arg args[] = {pst_v(a->x), pst_v(a->target),
                                   pst_i(reduction_code(a)),
                                   pst_f(a->options.number)};

    return pst_emit(&a->build, op, args, number ? 4 : 3);
}

static struct pst_value *emit_mse(struct pst_loss_adder *a)
{
    return emit_pair(a, &pst_op_mse_loss, false);
}

static struct pst_value *emit_l1(struct pst_loss_adder *a)
{
    return emit_pair(a, &pst_op_l1_loss, false);
}

static struct pst_value *emit_smooth_l1(struct pst_loss_adder *a)
{
    return emit_pair(a, &pst_op_smooth_l1_loss, true);
}

static struct pst_value *emit_huber(struct pst_loss_adder *a)
{
    return emit_pair(a, &pst_op_huber_loss, true);
}

/* Emits binary_cross_entropy_with_logits. pos_weight becomes a tensor of one
 * element, which broadcasts. */
static struct pst_value *emit_bce_with_logits(struct pst_loss_adder *a)
{
    struct pst_value *weight = NULL;
    const int64_t one = 1;

    if (a->options.number != 1.0)
        weight = pst_emit(&a->build, &pst_op_full,
                          PST_ARGS(pst_ints(&one, 1), pst_f(a->options.number),
                                   pst_dtype_arg(a->x->meta.dtype)));
    return pst_emit(&a->build, &pst_op_binary_cross_entropy_with_logits,
                    PST_ARGS(pst_v(a->x), pst_v(a->target), pst_none(),
                             pst_v(weight), pst_i(reduction_code(a))));
}

static const struct pst_loss_function functions[] = {
    {"cross_entropy",
     PST_LOSS_IGNORE | PST_LOSS_SMOOTHING | PST_LOSS_DIM | PST_LOSS_TARGETS,
     true, emit_cross_entropy},
    {"nll", PST_LOSS_IGNORE | PST_LOSS_DIM, true, emit_nll},
    {"mse", 0, false, emit_mse},
    {"l1", 0, false, emit_l1},
    {"smooth_l1", PST_LOSS_BETA, false, emit_smooth_l1},
    {"huber", PST_LOSS_DELTA, false, emit_huber},
    {"bce_with_logits", PST_LOSS_POS_WEIGHT, false, emit_bce_with_logits},
};

enum pst_status pst_loss_choose(struct pst_loss_adder *a, const char *name)
{
    const char *names[PST_COUNT(functions)];
    struct pst_str known = {0};
    int near;

    for (size_t i = 0; i < PST_COUNT(functions); i++) {
        a->function = &functions[i];
        if (strcmp(name, functions[i].name) == 0) {
            pst_str_fini(&known);
            return PST_OK;
        }
        names[i] = functions[i].name;
        pst_str_addf(&known, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    near = pst_nearest(name, names, PST_COUNT(functions));
    pst_diag_set(a->s->diag, PST_E_LOSS_UNKNOWN,
                 "unknown loss function \"%.100s\"; there are %s%s%s%s", name,
                 pst_str_text(&known), near >= 0 ? "; did you mean " : "",
                 near >= 0 ? names[near] : "", near >= 0 ? "?" : "");
    pst_str_fini(&known);
    return PST_ERR_USAGE;
}
