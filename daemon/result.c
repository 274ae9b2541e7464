// SPDX-License-Identifier: Apache-2.0
#include "daemon/result.h"

#include "stages/base/alloc.h"

void pstd_result_free(struct pstd_result *result)
{
    if (result == NULL)
        return;
    pst_free(result->losses);
    pst_free(result->ranks);
    pstd_trace_free(result->trace);
    pst_free(result);
}
