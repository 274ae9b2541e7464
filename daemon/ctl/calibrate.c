// SPDX-License-Identifier: Apache-2.0
/* `penstock calibrate`: measures the rates of this machine, which later
 * commands use. */
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "stages/base/str.h"
#include "stages/ops/rates/rates.h"

enum pst_status pstctl_ensure_rates(const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    struct pst_str path = {0}, text = {0};
    enum pst_status status;
    bool is_new;

    if (strcmp(config->dtype, "bf16") != 0 &&
        (config->autocast == NULL || strcmp(config->autocast, "bf16") != 0))
        return PST_OK;
    status = pst_rates_ensure(&is_new, &path, diag);
    if (status == PST_OK && is_new) {
        pst_rates_describe(pst_rates_here(), &text);
        pstctl_printf(stderr, "note: measured this machine: %s; %s%s\n",
                      pst_str_text(&text),
                      path.len > 0 ? "kept in "
                                   : "the next command measures "
                                     "again: ",
                      path.len > 0 ? pst_str_text(&path) : diag->text);
    }
    pst_str_fini(&text);
    pst_str_fini(&path);
    return status;
}

static enum pst_status run_calibrate(const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    struct pst_str path = {0}, text = {0};
    struct pst_rates rates = {0};
    enum pst_status status = pst_rates_measure(&rates, diag);

    if (status == PST_OK)
        status = pst_rates_save(&rates, &path, diag);
    pst_rates_describe(&rates, &text);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(
            json_pack("{s:o s:o s:o s:o s:o s:s}", "f32_gflops",
                      pstctl_json_real(rates.f32 * 1e-9), "f64_gflops",
                      pstctl_json_real(rates.f64 * 1e-9), "bf16_gflops",
                      pstctl_json_real(rates.bf16 * 1e-9), "memory_gb_s",
                      pstctl_json_real(rates.bytes * 1e-9), "launch_s",
                      pstctl_json_real(rates.launch), "file",
                      pst_str_text(&path)),
            diag);
    else if (status == PST_OK)
        pstctl_printf(stdout, "%s; kept in %s\n", pst_str_text(&text),
                      pst_str_text(&path));
    pst_str_fini(&text);
    pst_str_fini(&path);
    return status;
}

const struct pstctl_command pstctl_calibrate = {
    "calibrate",
    "",
    0,
    0,
    PSTD_OPT_JSON,
    "measure this machine once, for all later commands",
    "Measures the speed of memory and of matmuls in f32, f64 and bf16. split, "
    "plan\n"
    "and --schedule auto estimate times from it; it also decides whether "
    "--dtype\n"
    "bf16 uses bf16 instructions, or rounds and multiplies in f32. Run it on "
    "an idle\n"
    "machine. The first use of --dtype or --autocast bf16 measures by "
    "itself. In a\n"
    "job, all ranks use what rank 0's machine measured.",
    run_calibrate};
