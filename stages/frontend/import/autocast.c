// SPDX-License-Identifier: Apache-2.0
/*
 * Regions under torch.autocast("cpu"). Operators of the first list get their
 * floating-point operands in the region's dtype, those of the second in f32;
 * operators that join tensors promote by themselves. Those of the third list
 * consist of operators of the first one in PyTorch, which casts inside them:
 * they get the dtype of their results. All others take operands as they are.
 * f64 is never cast.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>
#include <string.h>

static const char low[] =
    " conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "conv_tbc _convolution bmm mm mv baddbmm addmm addbmm linear matmul "
    "linalg_vecdot linalg_matmul prelu scaled_dot_product_attention ";

static const char wide[] =
    " avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits "
    "grid_sampler quantile nanquantile cdist trace cosine_embedding_loss "
    "cross_entropy_loss nll_loss nll_loss2d nll_loss_nd hinge_embedding_loss "
    "poisson_nll_loss smooth_l1_loss l1_loss mse_loss huber_loss kl_div "
    "margin_ranking_loss soft_margin_loss triplet_margin_loss "
    "multi_margin_loss multilabel_margin_loss prod ";

static const char composed[] =
    " einsum tensordot inner linalg_multi_dot chain_matmul bilinear gru lstm "
    "rnn_tanh rnn_relu gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell ";

/* True if the list has the operator of target "aten.NAME.OVERLOAD". */
static bool is_listed(const char *list, const char *target)
{
    const char *name = strchr(target, '.');
    char word[128];
    int n;

    if (name == NULL)
        return false;
    name++;
    n = snprintf(word, sizeof(word), " %.*s ", (int)strcspn(name, "."), name);
    return n > 0 && (size_t)n < sizeof(word) && strstr(list, word) != NULL;
}

static struct pst_value *cast_value(struct pst_import *import,
                                    struct pst_value *v, enum pst_dtype dtype)
{
    if (v == NULL || pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT ||
        v->meta.dtype == PST_F64 || v->meta.dtype == dtype)
        return v;
    return pst_emit(&import->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
}

enum pst_autocast pst_import_autocast_kind(const char *target)
{
    return is_listed(wide, target)       ? PST_AUTOCAST_F32
           : is_listed(low, target)      ? PST_AUTOCAST_LOW
           : is_listed(composed, target) ? PST_AUTOCAST_RESULT
                                         : PST_AUTOCAST_NONE;
}

enum pst_status pst_import_autocast(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    enum pst_autocast kind,
                                    enum pst_dtype result, struct pst_arg *args,
                                    unsigned n_args)
{
    const enum pst_dtype dtype = kind == PST_AUTOCAST_F32   ? PST_F32
                                 : kind == PST_AUTOCAST_LOW ? scope->low
                                                            : result;

    if (kind == PST_AUTOCAST_NONE || (dtype != PST_F32 && dtype != scope->low))
        return PST_OK;
    for (unsigned i = 0; i < n_args; i++) {
        if (args[i].kind == PST_ARG_VALUE)
            args[i] = pst_v(cast_value(import, args[i].value, dtype));
        for (unsigned k = 0; args[i].kind == PST_ARG_VALUES && k < args[i].n;
             k++)
            args[i].values[k] = cast_value(import, args[i].values[k], dtype);
    }
    return import->build.status;
}

/* Reads the node's arguments: device, dtype or None, enabled, cache. */
bool pst_import_autocast_mode(const struct pst_doc_node *node, bool *enabled,
                              enum pst_dtype *dtype)
{
    const struct pst_doc_arg *device = pst_doc_arg_at(node, 0, PST_DOC_STRING);
    const struct pst_doc_arg *low =
        pst_doc_arg_at(node, 1, PST_DOC_SCALAR_TYPE);
    const struct pst_doc_arg *flag = pst_doc_arg_at(node, 2, PST_DOC_BOOL);

    *enabled = flag != NULL && flag->number.b;
    if (flag != NULL && !flag->number.b)
        return true;
    if (!*enabled || device == NULL || strcmp(device->name, "cpu") != 0)
        return false;
    *dtype = PST_BF16;
    return low == NULL || (pst_dtype_from_pt2(low->code, dtype) &&
                           (*dtype == PST_BF16 || *dtype == PST_F16));
}
