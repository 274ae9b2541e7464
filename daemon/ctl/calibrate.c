// SPDX-License-Identifier: Apache-2.0
/* What only a measurement tells of this machine, for all later runs. */
#include <stdio.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/rates.h"

static enum pst_status run_calibrate(const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    struct pst_str path = {0};
    struct pst_rates rates;
    enum pst_status status = pst_rates_measure(&rates, diag);

    if (status == PST_OK)
        status = pst_rates_keep(&rates, &path, diag);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(json_pack("{s:o s:o s:s}", "f32_gflops",
                                             pstctl_json_real(rates.f32),
                                             "bf16_gflops",
                                             pstctl_json_real(rates.bf16),
                                             "file", pst_str_text(&path)),
                                   diag);
    else if (status == PST_OK && rates.bf16 > 0)
        pstctl_printf(stdout,
                      "products on one core: f32 %.0f GFLOP/s, bf16 %.0f "
                      "GFLOP/s; kept in %s\n",
                      rates.f32, rates.bf16, pst_str_text(&path));
    else if (status == PST_OK)
        pstctl_printf(stdout,
                      "products on one core: f32 %.0f GFLOP/s, no bf16 "
                      "instructions; kept in %s\n",
                      rates.f32, pst_str_text(&path));
    pst_str_fini(&path);
    return status;
}

const struct pstctl_command pstctl_calibrate = {
    "calibrate",
    "",
    0,
    0,
    PSTD_OPT_JSON,
    "measure this machine once, for all later runs",
    "Whether --dtype bf16 multiplies by bf16 instructions or rounds and "
    "multiplies in\nf32. Run it on an idle machine, and on each host of a "
    "job.",
    run_calibrate};
