// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/steps/back.h"

#include <unistd.h>

#include "daemon/common/steps/evals.h"
#include "stages/base/str.h"
#include "stages/files/checkpoint/claim.h"

enum pst_status pstd_back_evals(const char *path, uint64_t step,
                                struct pst_diag *diag)
{
    struct pstd_evals past = {0};
    struct pst_str of = {0};
    enum pst_status status = pstd_evals_read(path, &past, &of, diag);
    const size_t before = past.n;

    pstd_evals_drop_after(&past, step);
    if (status == PST_OK && past.n < before)
        status = pstd_evals_write(path, &past, pst_str_text(&of), diag);
    pstd_evals_fini(&past);
    pst_str_fini(&of);
    return status;
}

enum pst_status pstd_back_best(const char *dir, uint64_t step,
                               struct pst_checkpoint_former *ret,
                               struct pst_diag *diag)
{
    *ret = (struct pst_checkpoint_former){0};
    return access(dir, F_OK) == 0 && !pst_checkpoint_is_owned(dir)
               ? pst_checkpoint_set_aside(dir, step, ret, diag)
               : PST_OK;
}
