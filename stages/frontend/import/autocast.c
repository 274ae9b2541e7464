// SPDX-License-Identifier: Apache-2.0
/*
 * Regions under torch.autocast("cpu"): operators of the first list get their
 * floating operands in the region's dtype, those of the second in f32, joining
 * ones in the wider dtype by themselves. All others take what comes. f64 stays.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/op.h"

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

/* Is the operator of target "aten.NAME.OVERLOAD" in the list? */
static bool is_in(const char *list, const char *target)
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

static struct pst_value *cast(struct pst_import *import, struct pst_value *v,
                              enum pst_dtype dtype)
{
    if (v == NULL || pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT ||
        v->meta.dtype == PST_F64 || v->meta.dtype == dtype)
        return v;
    return pst_emit(&import->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
}

enum pst_status pst_import_autocast(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const char *target, struct pst_arg *args,
                                    unsigned n_args)
{
    enum pst_dtype dtype = scope->low;

    if (is_in(wide, target))
        dtype = PST_F32;
    else if (!is_in(low, target))
        return PST_OK;
    for (unsigned i = 0; i < n_args; i++) {
        if (args[i].kind == PST_ARG_VALUE)
            args[i] = pst_v(cast(import, args[i].value, dtype));
        for (unsigned k = 0; args[i].kind == PST_ARG_VALUES && k < args[i].n;
             k++)
            args[i].values[k] = cast(import, args[i].values[k], dtype);
    }
    return import->build.status;
}

/* Arguments: device, dtype or None, enabled, cache. */
bool pst_import_autocast_mode(const json_t *node, bool *enabled,
                              enum pst_dtype *dtype)
{
    const json_t *inputs = json_object_get(node, "inputs");
    const json_t *arg[3];
    const char *device;

    for (size_t i = 0; i < 3; i++)
        arg[i] = json_object_get(json_array_get(inputs, i), "arg");
    *enabled = json_is_true(json_object_get(arg[2], "as_bool"));
    if (json_is_false(json_object_get(arg[2], "as_bool")))
        return true;
    device = json_string_value(json_object_get(arg[0], "as_string"));
    if (!*enabled || device == NULL || strcmp(device, "cpu") != 0)
        return false;
    arg[1] = json_object_get(arg[1], "as_scalar_type");
    *dtype = PST_BF16;
    return arg[1] == NULL ||
           (pst_dtype_from_pt2(json_integer_value(arg[1]), dtype) &&
            (*dtype == PST_BF16 || *dtype == PST_F16));
}
