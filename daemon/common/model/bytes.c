// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/bytes.h"

#include "stages/base/host/fs.h"
#include "stages/files/data/list.h"
#include "stages/ops/core/rows.h"

#define MAX_TOKENS ((size_t)16 << 20)

bool pstd_has_perplexity(const struct pst_plan *plan)
{
    static const struct pst_op *const ops[] = {
        &pst_op_cross_entropy_loss, &pst_op_nll_loss_nd,
        &pst_op_nll_loss,           &pst_op_nll_loss2d,
        &pst_op_nll_loss_forward,   &pst_op_nll_loss2d_forward};
    const struct pst_plan_output *loss = &plan->outputs.at[plan->loss];
    const struct pst_value *value = loss->stage < 0
                                        ? NULL
                                        : plan->stages.at[loss->stage]
                                              .graph->outputs.at[loss->output]
                                              .arg.value;

    /* Arguments: self, target, weight, reduction; reduction 1 is the mean. */
    for (size_t i = 0; i < PST_COUNT(ops) && value != NULL; i++)
        if (value->def != NULL && value->def->op == ops[i])
            return value->def->outs[0] == value && value->def->args[3].i == 1;
    return false;
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
    if (plan->loss < 0 || !pstd_has_perplexity(plan))
        return pst_diag_set(diag, PST_E_DATA_TOKEN_BYTES,
                            "--token-bytes %s: the loss of this model is not a "
                            "mean cross entropy, so there are no bits per byte",
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
        known = plan->loss >= 0 && pstd_has_perplexity(plan);
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
