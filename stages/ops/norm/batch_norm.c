// SPDX-License-Identifier: Apache-2.0
/* Batch, instance and group norm, composed of the operators in channel_norm.c.
 * In training, new running statistics are written, even if the schema does not
 * declare these arguments as written. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

struct bn {
    struct pst_rewrite *w;
    struct pst_value *x, *weight, *bias;
    struct pst_value *running_mean, *running_var; /* NULL: none */
    double momentum, eps;
    /* Results. */
    struct pst_value *y, *mean, *rstd; /* mean, rstd: (blocks, G) */
    struct pst_value *new_mean, *new_var;
};

static struct bn read_arguments(struct pst_rewrite *w)
{
    return (struct bn){.w = w,
                       .x = pst_rewrite_in(w, 0),
                       .weight = pst_rewrite_in(w, 1),
                       .bias = pst_rewrite_in(w, 2),
                       .running_mean = pst_rewrite_in(w, 3),
                       .running_var = pst_rewrite_in(w, 4)};
}

static struct pst_extent channels(const struct bn *b)
{
    return b->x->meta.rank < 2 ? pst_extent(0) : pst_rw_size(b->w, b->x, 1);
}

static struct pst_value *emit_apply(struct bn *b, bool training)
{
    return pst_rw(b->w, &pst_op_norm_apply,
                  PST_ARGS(pst_v(b->x), pst_v(b->weight), pst_v(b->bias),
                           pst_v(b->mean), pst_v(b->rstd), pst_b(training)));
}

static struct pst_node *emit_stats(struct bn *b, struct pst_extent groups,
                                   bool batch, bool trains, bool together)
{
    struct pst_node *node = pst_rw_node(
        b->w, &pst_op_norm_stats,
        PST_ARGS(pst_v(b->x), pst_rw_int(b->w, groups), pst_b(batch),
                 pst_f(b->eps), pst_b(trains && b->running_mean != NULL),
                 pst_b(trains && b->running_mean == NULL), pst_b(together)));

    b->mean = pst_rw_nth(node, 0);
    b->rstd = pst_rw_nth(node, 1);
    return node;
}

/* Emits a switch that returns the statistic `now` of the batch or, after a
 * switch of the graph to evaluation, the running one. */
static struct pst_value *by_mode(struct bn *b, struct pst_value *now,
                                 struct pst_value *running, struct pst_arg eps)
{
    if (now == NULL || running == NULL)
        return now;
    return pst_rw(b->w, &pst_op_norm_mode,
                  PST_ARGS(pst_v(now), pst_v(running), eps, pst_b(true)));
}

/* Returns var count / (count - 1). The factor is an integer expression, because
 * count can depend on a dynamic number of rows. */
static struct pst_value *unbiased(struct bn *b, struct pst_value *var,
                                  struct pst_extent count)
{
    const struct pst_extent less =
        pst_extent_sub(b->w->build, count, pst_extent(1));

    var = pst_rw(b->w, &pst_op_div_Scalar,
                 PST_ARGS(pst_v(var), pst_rw_int(b->w, less)));
    return pst_rw(b->w, &pst_op_mul_Scalar,
                  PST_ARGS(pst_v(var), pst_rw_int(b->w, count)));
}

/* Returns (1 - momentum) running + momentum now, with `now` averaged over
 * blocks. */
static struct pst_value *mix_running(struct bn *b, struct pst_value *running,
                                     struct pst_value *now)
{
    const struct pst_extent n = channels(b), one = pst_extent(1);
    const int64_t first = 0;

    if (running == NULL || now == NULL)
        return NULL;
    if (now->meta.size[0] == 1 &&
        pst_extent_is(b->w->build, pst_rw_size(b->w, now, 0), one))
        now = pst_rw_reshape(b->w, now, 1, &n);
    else
        now = pst_rw(b->w, &pst_op_mean_dim,
                     PST_ARGS(pst_v(now), pst_ints(&first, 1)));
    now = pst_rw_scale(b->w, now, b->momentum);
    now = pst_rw_add(b->w, pst_rw_scale(b->w, running, 1.0 - b->momentum), now);
    return by_mode(b, pst_rw_cast(b->w, now, running->meta.dtype), running,
                   pst_none());
}

/* Normalises with the statistics of the batch, or of each image if not `batch`,
 * and computes new running statistics. */
static enum pst_status normalise_by_batch(struct bn *b, bool batch)
{
    struct pst_node *node = emit_stats(b, channels(b), batch, true, false);
    const bool no_grad = b->w->build->no_grad;
    struct pst_extent count = pst_extent(1); /* elements per statistic */

    if (node == NULL)
        return b->w->build->status;
    for (unsigned d = batch ? 0 : 2; d < b->x->meta.rank; d++)
        if (d != 1)
            count =
                pst_extent_mul(b->w->build, count, pst_rw_size(b->w, b->x, d));
    b->mean = by_mode(b, b->mean, b->running_mean, pst_none());
    b->rstd = by_mode(b, b->rstd, b->running_var, pst_f(b->eps));
    b->y = emit_apply(b, true);
    b->w->build->no_grad = true;
    b->new_mean = mix_running(b, b->running_mean, node->outs[0]);
    if (b->running_var != NULL)
        b->new_var =
            mix_running(b, b->running_var, unbiased(b, node->outs[2], count));
    b->w->build->no_grad = no_grad;
    return b->w->build->status;
}

static struct pst_value *as_row(struct bn *b, struct pst_value *v)
{
    const struct pst_extent size[2] = {pst_extent(1), channels(b)};
    const enum pst_dtype dtype =
        b->x->meta.dtype == PST_F64 ? PST_F64 : PST_F32;

    return pst_rw_reshape(b->w, pst_rw_cast(b->w, v, dtype), 2, size);
}

/* Normalises with the running statistics. */
static enum pst_status normalise_by_running(struct bn *b)
{
    struct pst_value *var;
    const int64_t n = channels(b).value;

    if (b->running_mean == NULL || b->running_var == NULL)
        return pst_rewrite_fail(b->w, "there are no running statistics");
    if (n == 0 || pst_meta_numel(&b->running_mean->meta) != n ||
        pst_meta_numel(&b->running_var->meta) != n)
        return pst_rewrite_fail(b->w, "the running statistics do not fit");
    b->mean = as_row(b, b->running_mean);
    var = as_row(b, b->running_var);
    b->rstd = pst_rw(b->w, &pst_op_rsqrt,
                     PST_ARGS(pst_v(pst_rw_shift(b->w, var, b->eps))));
    b->y = emit_apply(b, false);
    return b->w->build->status;
}

static struct pst_value *empty_tensor(struct pst_rewrite *w,
                                      enum pst_dtype dtype)
{
    const int64_t zero = 0;

    return pst_rw(w, &pst_op_full,
                  PST_ARGS(pst_ints(&zero, 1), pst_i(0), pst_dtype_arg(dtype)));
}

/* Sets results 1 and 2 to mean and rstd (C) or, in evaluation, to empty
 * tensors. */
static void save_stats(struct bn *b, bool training)
{
    const enum pst_dtype dtype =
        b->mean == NULL ? PST_F32 : b->mean->meta.dtype;
    const struct pst_extent n = channels(b);

    b->w->outs[0] = b->y;
    b->w->outs[1] = training ? pst_rw_reshape(b->w, b->mean, 1, &n)
                             : empty_tensor(b->w, dtype);
    b->w->outs[2] = training ? pst_rw_reshape(b->w, b->rstd, 1, &n)
                             : empty_tensor(b->w, dtype);
}

/* --- batch norm --------------------------------------------------------- */

/* Emits batch norm. Training, momentum and eps are arguments 5 to 7; the
 * running statistics, which are written, are arguments 3 and 4. */
static enum pst_status emit_batch_norm(struct bn *b, struct pst_rewrite *w)
{
    enum pst_status status;

    *b = read_arguments(w);
    b->momentum = w->args[6].f;
    b->eps = w->args[7].f;
    status =
        w->args[5].b ? normalise_by_batch(b, true) : normalise_by_running(b);
    w->writes[3] = b->new_mean;
    w->writes[4] = b->new_var;
    return status;
}

static enum pst_status batch_norm(struct pst_rewrite *w)
{
    struct bn b;
    const enum pst_status status = emit_batch_norm(&b, w);

    w->outs[0] = b.y;
    return status;
}

static enum pst_status native_batch_norm(struct pst_rewrite *w)
{
    struct bn b;

    if (emit_batch_norm(&b, w) == PST_OK)
        save_stats(&b, w->args[5].b);
    return w->build->status;
}

static enum pst_status legit_functional(struct pst_rewrite *w)
{
    const bool training = w->args[5].b;
    enum pst_status status = native_batch_norm(w);

    w->outs[3] = training ? w->writes[3] : pst_rewrite_in(w, 3);
    w->outs[4] = training ? w->writes[4] : pst_rewrite_in(w, 4);
    w->writes[3] = w->writes[4] = NULL;
    return status;
}

static enum pst_status no_stats(struct pst_rewrite *w)
{
    struct bn b = {.w = w,
                   .x = pst_rewrite_in(w, 0),
                   .weight = pst_rewrite_in(w, 1),
                   .bias = pst_rewrite_in(w, 2),
                   .momentum = w->args[4].f,
                   .eps = w->args[5].f};
    enum pst_status status = normalise_by_batch(&b, true);

    if (status == PST_OK)
        save_stats(&b, true);
    return w->build->status;
}

/* Rewrites a batch norm whose schema has no training flag; its fourth result is
 * empty. */
static enum pst_status with_reserve(struct pst_rewrite *w, bool training)
{
    struct bn b = read_arguments(w);
    enum pst_status status;

    b.momentum = w->args[5].f;
    b.eps = w->args[6].f;
    status = training ? normalise_by_batch(&b, true) : normalise_by_running(&b);
    w->writes[3] = b.new_mean;
    w->writes[4] = b.new_var;
    if (status != PST_OK)
        return status;
    save_stats(&b, training);
    if (w->n_outs > 3)
        w->outs[3] = empty_tensor(w, PST_U8);
    return w->build->status;
}

static enum pst_status with_update(struct pst_rewrite *w)
{
    return with_reserve(w, true);
}

static enum pst_status no_update(struct pst_rewrite *w)
{
    return with_reserve(w, false);
}

static enum pst_status update_functional(struct pst_rewrite *w)
{
    enum pst_status status = with_reserve(w, true);

    w->outs[4] = w->writes[3];
    w->outs[5] = w->writes[4];
    w->writes[3] = w->writes[4] = NULL;
    return status;
}

#define AFFINE  "(Tensor input, Tensor? weight, Tensor? bias, "
#define RUNNING "Tensor running_mean, Tensor running_var, "
#define WRITTEN "Tensor(a!) running_mean, Tensor(b!) running_var, "
#define MAYBE   "Tensor? running_mean, Tensor? running_var, "

PST_REWRITE(batch_norm,
            "aten::batch_norm" AFFINE MAYBE
            "bool training, float momentum, float eps, bool cudnn_enabled) -> "
            "Tensor",
            batch_norm);
PST_REWRITE(native_batch_norm,
            "aten::native_batch_norm" AFFINE MAYBE
            "bool training, float momentum, float eps) -> (Tensor, Tensor, "
            "Tensor)",
            native_batch_norm);
PST_REWRITE(_native_batch_norm_legit,
            "aten::_native_batch_norm_legit" AFFINE WRITTEN
            "bool training, float momentum, float eps) -> (Tensor, Tensor, "
            "Tensor)",
            native_batch_norm);
PST_REWRITE(_native_batch_norm_legit_functional,
            "aten::_native_batch_norm_legit_functional" AFFINE RUNNING
            "bool training, float momentum, float eps) -> (Tensor, Tensor, "
            "Tensor, Tensor running_mean_out, Tensor running_var_out)",
            legit_functional);
PST_REWRITE(_native_batch_norm_legit_no_stats,
            "aten::_native_batch_norm_legit.no_stats" AFFINE
            "bool training, float momentum, float eps) -> (Tensor, Tensor, "
            "Tensor)",
            no_stats);
PST_REWRITE(_native_batch_norm_legit_no_training,
            "aten::_native_batch_norm_legit_no_training" AFFINE RUNNING
            "float momentum, float eps) -> (Tensor, Tensor, Tensor)",
            no_update);
PST_REWRITE(_batch_norm_with_update,
            "aten::_batch_norm_with_update" AFFINE WRITTEN
            "float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
            with_update);
PST_REWRITE(_batch_norm_no_update,
            "aten::_batch_norm_no_update" AFFINE MAYBE
            "float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
            no_update);
PST_REWRITE(_batch_norm_with_update_functional,
            "aten::_batch_norm_with_update_functional" AFFINE RUNNING
            "float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, "
            "Tensor running_mean_out, Tensor running_var_out)",
            update_functional);

/* --- instance and group norm -------------------------------------------- */

static enum pst_status instance_norm(struct pst_rewrite *w)
{
    struct bn b = read_arguments(w);
    enum pst_status status;

    b.momentum = w->args[6].f;
    b.eps = w->args[7].f;
    status =
        w->args[5].b ? normalise_by_batch(&b, false) : normalise_by_running(&b);
    w->writes[3] = b.new_mean;
    w->writes[4] = b.new_var;
    w->outs[0] = b.y;
    return status;
}

PST_REWRITE(instance_norm,
            "aten::instance_norm" AFFINE MAYBE
            "bool use_input_stats, float momentum, float eps, bool "
            "cudnn_enabled) -> Tensor",
            instance_norm);

/* F.group_norm rejects one value per group, torch.group_norm does not. A model
 * that was exported with one value per group can only come from
 * torch.group_norm, so its node gets no check. Any other model may come from
 * F.group_norm, so its node gets the check. */
static struct pst_node *group_stats(struct bn *b, int64_t groups)
{
    const bool one = pst_meta_numel(&b->x->meta) == groups;

    return emit_stats(b, pst_extent(groups), false, false, !one);
}

static enum pst_status group_norm(struct pst_rewrite *w)
{
    struct bn b = {.w = w,
                   .x = pst_rewrite_in(w, 0),
                   .weight = pst_rewrite_in(w, 2),
                   .bias = pst_rewrite_in(w, 3),
                   .eps = w->args[4].f};

    if (group_stats(&b, w->args[1].i) == NULL)
        return w->build->status;
    return pst_rewrite_out(w, 0, emit_apply(&b, true));
}

PST_REWRITE(group_norm,
            "aten::group_norm(Tensor input, int num_groups, Tensor? "
            "weight=None, Tensor? bias=None, float eps=1e-05, bool "
            "cudnn_enabled=True) -> Tensor",
            group_norm);

/* Checks that the arguments N, C and HxW match the sizes of the input. */
static enum pst_status native_group_norm(struct pst_rewrite *w)
{
    struct bn b = read_arguments(w);
    const enum pst_dtype dtype = b.x->meta.dtype;

    b.running_mean = b.running_var = NULL;
    b.eps = w->args[7].f;
    if (b.x->meta.rank < 2 ||
        !pst_extent_is(w->build, pst_rw_size(w, b.x, 0),
                       pst_extent_in(w->build, &w->args[3], 0)) ||
        !pst_extent_is(w->build, pst_rw_size(w, b.x, 1),
                       pst_extent_in(w->build, &w->args[4], 0)))
        return pst_rewrite_fail(w, "N and C are not the input's");
    if (group_stats(&b, w->args[6].i) == NULL)
        return w->build->status;
    w->outs[0] = emit_apply(&b, true);
    w->outs[1] = pst_rw_cast(w, b.mean, dtype);
    w->outs[2] = pst_rw_cast(w, b.rstd, dtype);
    return w->build->status;
}

PST_REWRITE(native_group_norm,
            "aten::native_group_norm" AFFINE
            "SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, "
            "Tensor, Tensor)",
            native_group_norm);
