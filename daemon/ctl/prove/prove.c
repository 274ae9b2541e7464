// SPDX-License-Identifier: Apache-2.0
/* `penstock prove`: runs the same steps in many ways, and compares the bits of
 * the results. */
#include "daemon/ctl/prove/prove.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/run/scratch.h"

static const struct pstctl_way ways[] = {
    {1, 1, "1f1b", false, false, NULL},
    {2, 2, "gpipe", false, false, NULL},
    {2, 2, "1f1b", true, false, NULL},
    {2, 2, "1f1b", true, true, NULL},
    {2, 2, "zb-h1", false, false, NULL},
    {3, 3, "1f1b", false, false, "recompute=full"},
    {4, 2, "interleaved-1f1b", true, false, NULL},
    {4, 2, "zb-v", false, false, NULL},
    {4, 4, "gpipe", false, false, "stash=ram"},
};

/* --- output --------------------------------------------------------------- */

static void add_digest(struct pst_str *out, bool known, uint64_t digest)
{
    if (known)
        pst_str_addf(out, "  %016" PRIx64, digest);
    else
        pst_str_addf(out, "  %-16s", "-");
}

static void print_row(const struct pstctl_way *way,
                      const struct pstctl_proof *proof)
{
    struct pst_str out = {0};
    char number[32] = "-";

    /* The dump of a resumed run begins with a later step, so its first loss is
     * not compared. */
    if (!way->resumed)
        (void)snprintf(number, sizeof(number), "%.9g", proof->loss);
    pst_str_addf(&out, "%6u  %5u  %-16s  %-9s  %-14s", way->stages, way->ranks,
                 way->schedule, way->mpi ? "mpi" : "self",
                 way->resumed         ? "resumed"
                 : way->extra != NULL ? way->extra
                                      : "");
    if (proof->ran) {
        pst_str_addf(&out, "  %-11s", number);
        add_digest(&out, !way->resumed, proof->grads);
        add_digest(&out, true, proof->params);
    } else {
        pst_str_addf(&out, "  not run: %s", proof->why);
    }
    pstctl_printf(stdout, "%s\n", pst_str_text(&out));
    pst_str_fini(&out);
    (void)fflush(stdout);
}

static json_t *row_json(const struct pstctl_way *way,
                        const struct pstctl_proof *proof)
{
    char grads[20], params[20];

    (void)snprintf(grads, sizeof(grads), "%016" PRIx64, proof->grads);
    (void)snprintf(params, sizeof(params), "%016" PRIx64, proof->params);
    if (!proof->ran)
        return json_pack("{s:i s:i s:s s:s s:b s:s s:o}", "stages",
                         (int)way->stages, "ranks", (int)way->ranks, "schedule",
                         way->schedule, "transport", way->mpi ? "mpi" : "self",
                         "resumed", (int)way->resumed, "option",
                         way->extra != NULL ? way->extra : "", "why",
                         pstctl_json_text(proof->why));
    return json_pack("{s:i s:i s:s s:s s:b s:s s:o s:s s:s}", "stages",
                     (int)way->stages, "ranks", (int)way->ranks, "schedule",
                     way->schedule, "transport", way->mpi ? "mpi" : "self",
                     "resumed", (int)way->resumed, "option",
                     way->extra != NULL ? way->extra : "", "loss",
                     pstctl_json_real(proof->loss), "gradients", grads,
                     "parameters", params);
}

static void print_torch(const struct pstctl_torch *t)
{
    if (!t->has_results) {
        pstctl_printf(stdout, "not compared with PyTorch: %s\n", t->why);
        return;
    }
    pstctl_printf(stdout,
                  "PyTorch %s: loss %.9g; the gradients differ by at most "
                  "%.1e of a tensor's largest (%s)",
                  t->version, t->loss, t->worst, t->name);
    if (t->zeros > 0)
        pstctl_printf(stdout, "; %u %s zero but for rounding", t->zeros,
                      t->zeros == 1 ? "is" : "are");
    pstctl_printf(stdout, "\n");
}

/* --- runs ----------------------------------------------------------------- */

struct proofs {
    struct pstctl_proof at[PST_COUNT(ways)];
    unsigned ran, differ;
};

static bool results_differ(const struct pstctl_way *way,
                           const struct pstctl_proof *a,
                           const struct pstctl_proof *b)
{
    return a->params != b->params ||
           (!way->resumed && (a->grads != b->grads || a->losses != b->losses));
}

/* Cuts the model, runs all ways, and compares each with the first one. */
static void run_all(const struct pstctl_prover *p, struct proofs *ret)
{
    bool cut = false;

    /* All other ways are compared with the first one. */
    for (unsigned i = 0; i < PST_COUNT(ways) && (i == 0 || ret->at[0].ran);
         i++) {
        struct pstctl_proof *proof = &ret->at[i];

        if (i == 0 || ways[i].stages != ways[i - 1].stages)
            cut = pstctl_prove_cut(p, ways[i].stages, proof->why);
        else if (!cut)
            (void)snprintf(proof->why, sizeof(proof->why), "%s",
                           ret->at[i - 1].why);
        if (cut)
            pstctl_prove_run(p, &ways[i], i, proof);
        ret->ran += proof->ran;
        ret->differ += proof->ran && ret->at[0].ran &&
                       results_differ(&ways[i], proof, &ret->at[0]);
        if (!p->config->json)
            print_row(&ways[i], proof);
    }
}

static enum pst_status report_proofs(const struct pstctl_prover *p,
                                     const struct proofs *proofs,
                                     struct pst_diag *diag)
{
    struct pstctl_torch torch = {0};
    char dump[4200];

    if (!proofs->at[0].ran || proofs->ran < 2)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "there is nothing to compare: %s",
                            proofs->at[proofs->at[0].ran ? 1 : 0].why);
    (void)snprintf(dump, sizeof(dump), "%s/0.safetensors", p->folder);
    pstctl_prove_torch(p, dump, &torch);
    if (p->config->json) {
        json_t *rows = json_array();

        for (unsigned i = 0; i < PST_COUNT(ways) && rows != NULL; i++)
            (void)json_array_append_new(rows,
                                        row_json(&ways[i], &proofs->at[i]));
        return pstctl_json_print(
            json_pack(
                "{s:i s:i s:i s:o s:o s:o s:o s:o}", "steps",
                PSTCTL_PROVE_STEPS, "ran", (int)proofs->ran, "different",
                (int)proofs->differ, "rows", rows, "pytorch",
                torch.has_results ? pstctl_json_text(torch.version)
                                  : json_null(),
                "pytorch_loss",
                torch.has_results ? pstctl_json_real(torch.loss) : json_null(),
                "pytorch_difference",
                torch.has_results ? pstctl_json_real(torch.worst) : json_null(),
                "pytorch_zeros",
                torch.has_results ? json_integer(torch.zeros) : json_null()),
            diag);
    }
    print_torch(&torch);
    if (proofs->differ == 0)
        pstctl_printf(stdout,
                      "%u runs of %d steps: losses, gradients and parameters "
                      "have the same bits\n",
                      proofs->ran, PSTCTL_PROVE_STEPS);
    return PST_OK;
}

/* Refuses options that this command chooses itself. */
static enum pst_status check_options(const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    static const char *const chosen[] = {
        "stages",    "at",           "schedule",    "place",
        "recompute", "stash",        "stash-keep",  "shard",
        "costs",     "shard-layout", "gather-dtype"};
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < PST_COUNT(chosen) && config->given[i]; k++)
            if (strcmp(rows[i].name, chosen[k]) == 0)
                return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                    "--%s: prove chooses it for each run",
                                    chosen[k]);
    return pstd_refuse_ramp(config, "prove", diag);
}

static enum pst_status run_prove(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstctl_scratch scratch = PSTCTL_SCRATCH_NONE;
    struct pstctl_prover p = {config, NULL};
    struct proofs proofs = {0};
    struct pst_diag ignored;
    bool ignored_new;
    enum pst_status status = PST_OK;

    if (config->data == NULL)
        return pst_diag_set(diag, PST_E_DATA_MISSING, "--data FILE is missing");
    status = check_options(config, diag);
    if (status != PST_OK)
        return status;
    status = pstctl_scratch_ensure(pstctl_scratch_base(), &scratch,
                                   &ignored_new, diag);
    if (status != PST_OK)
        return status;
    p.folder = pst_str_text(&scratch.path);
    if (!config->json)
        pstctl_printf(stdout,
                      "%6s  %5s  %-16s  %-9s  %-14s  %-11s  %-16s  %s\n",
                      "stages", "ranks", "schedule", "transport", "option",
                      "loss", "gradients", "parameters");
    run_all(&p, &proofs);
    status = report_proofs(&p, &proofs, diag);
    pst_diag_init(&ignored);
    (void)(pstctl_scratch_remove(&scratch, &ignored) == PST_OK);
    if (status == PST_OK && proofs.differ > 0)
        status =
            pst_diag_set(diag, PST_E_RUN_BITS,
                         "%u of %u runs have other bits than the first one",
                         proofs.differ, proofs.ran);
    return status;
}

const struct pstctl_command pstctl_prove = {
    "prove",
    "MODEL.pt2 --data FILES",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_STEP | PSTD_OPT_DATA | PSTD_OPT_JSON,
    "compare the bits of runs with different cuts, schedules and transports",
    "Trains three steps in several ways, each as a job of its own: on one "
    "rank, "
    "in\n"
    "2, 3 and 4 stages, with several schedules, in one process and over MPI, "
    "with\n"
    "recomputation, and with a stop and a resume. Prints the loss of the first "
    "step\n"
    "and digests of all gradients and of the trained parameters, and compares "
    "the\n"
    "first step with PyTorch if there is a Python with it (PENSTOCK_PYTHON, "
    "else\n"
    "python3). Exit code 2 if any bits differ. Ranks have one thread unless "
    "--threads\n"
    "is given.",
    run_prove};
