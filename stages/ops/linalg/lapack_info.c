// SPDX-License-Identifier: Apache-2.0
/* Maps the info of a LAPACK routine to a fault. */
#include "stages/ops/linalg/linalg.h"

#include "stages/ops/core/infer.h"
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <string.h>

static const struct {
    const char *part; /* part of an operator's name; the first entry whose part
                       * occurs applies */
    enum pst_fault_code code;
} meanings[] = {
    {"inv", PST_FAULT_SINGULAR},     {"cholesky", PST_FAULT_NOT_POSITIVE},
    {"solve", PST_FAULT_SINGULAR},   {"lu", PST_FAULT_ZERO_DIAGONAL},
    {"svd", PST_FAULT_SVD_DIVERGED}, {"eig", PST_FAULT_EIG_DIVERGED},
    {"", PST_FAULT_LAPACK_ERROR},
};

void pst_linalg_fault(const struct pst_call *c, const char *api, int64_t matrix,
                      int info)
{
    size_t i = 0;

    while (strstr(api, meanings[i].part) == NULL)
        i++;
    pst_call_fault(c, meanings[i].code, {.i = matrix}, {.i = info});
}

bool pst_pivots_fit(const struct pst_call *c, const int32_t *pivots, int64_t n,
                    int64_t rows, int64_t matrix)
{
    for (int64_t i = 0; i < n; i++)
        if (pivots[i] < 1 || pivots[i] > rows) {
            pst_call_fault(c, PST_FAULT_PIVOT, {.i = matrix}, {.i = pivots[i]},
                           {.i = rows});
            return false;
        }
    return true;
}

static enum pst_status infer_check(struct pst_infer *c)
{
    const struct pst_meta *info;
    enum pst_status status = pst_infer_tensor(c, 0, &info);

    if (status != PST_OK)
        return status;
    if (info->dtype != PST_I32)
        return pst_infer_fail(c, "info is not i32");
    c->n_outs = 0;
    return PST_OK;
}

static void check_ref(const struct pst_call *c)
{
    const int32_t *info = c->in[0].data;

    for (int64_t i = 0; i < pst_meta_numel(c->in[0].meta); i++)
        if (info[i] != 0) {
            pst_linalg_fault(c, c->args[1].s, i, info[i]);
            return;
        }
}

static const struct pst_kernel check_kernels[] = {
    {"check_errors_ref", PST_ISA_ANY, PST_D(I32), 0, NULL, NULL, check_ref,
     0.0},
};

const struct pst_op pst_op_linalg_check_errors = {
    .schema = "penstock::linalg_check_errors(Tensor info, str api_name) -> ()",
    .flags = PST_OP_EFFECT,
    .infer = infer_check,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(linalg_check_errors, check_kernels);

static enum pst_status check_rewrite(struct pst_rewrite *w)
{
    return pst_rewrite_effect(w, &pst_op_linalg_check_errors,
                              PST_ARGS(w->args[0], w->args[1]));
}

PST_REWRITE(_linalg_check_errors,
            "aten::_linalg_check_errors(Tensor info, str api_name, *, "
            "bool is_matrix) -> ()",
            check_rewrite);
