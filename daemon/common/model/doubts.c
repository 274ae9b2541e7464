// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/doubts.h"

#include <inttypes.h>
#include <string.h>

#include "stages/base/str.h"
#include "stages/files/data/list.h"
#include "stages/run/data/tokens.h"
#include "stages/run/data/width.h"

static void report_text(struct pst_str *text, pstd_doubt_fn report, void *ctx)
{
    if (!text->failed)
        report(ctx, pst_str_text(text));
    pst_str_fini(text);
}

static void check_size(const char *path, const struct pst_data *data,
                       uint64_t rows, pstd_doubt_fn report, void *ctx)
{
    const uint64_t there = pst_data_samples(data, rows);
    struct pst_str text = {0};

    if (there >= rows)
        return;
    pst_str_addf(&text,
                 "%s has %" PRIu64 " row%s, and a step takes %" PRIu64
                 ": each step has some of them more than once; give fewer -m "
                 "or rows",
                 path, there, there == 1 ? "" : "s", rows);
    report_text(&text, report, ctx);
}

/* Reports a token file that is read as uint8 but looks like uint16, unless
 * --token-dtype was given. width: bytes of a token. */
static void check_width(const struct pstd_config *config, const char *path,
                        unsigned width, pstd_doubt_fn report, void *ctx)
{
    struct pst_str text = {0};
    struct pst_diag ignored;
    bool halves = false;

    if (PSTD_GIVEN(config, token_dtype) || width > 1 ||
        pst_file_has_halves(path, &halves, &ignored) != PST_OK || !halves)
        return;
    pst_str_addf(&text,
                 "%s is read as tokens of one byte each, but looks like "
                 "integers of two: give --token-dtype uint16 (or uint8, if it "
                 "is right)",
                 path);
    report_text(&text, report, ctx);
}

static void check_targets(const char *path, struct pst_plan *plan, int input,
                          pstd_doubt_fn report, void *ctx)
{
    struct pst_str text = {0};
    struct pst_diag ignored;
    bool shifts = false;

    if (input < 0 ||
        pst_tokens_shift(plan, (unsigned)input, &shifts, &ignored) != PST_OK ||
        !shifts)
        return;
    pst_str_addf(&text,
                 "the targets are shifted twice: from %s '%s' gets the token "
                 "after each place, and the model shifts it once more, so it "
                 "learns the token after the next; let the model return its "
                 "logits and split it with --loss-fn cross_entropy",
                 path, plan->inputs.at[input].name);
    report_text(&text, report, ctx);
}

/* Reports the effects of packing that are lost because the model has no input
 * for them (mask, documents, positions), or its loss ignores no target. */
static void check_packing(const char *path, const struct pst_data *data,
                          pstd_doubt_fn report, void *ctx)
{
    const struct pst_data_packing p = pst_data_packing(data);
    struct pst_str text = {0};

    if (!p.packed || (p.positions && (p.mask || p.documents) && p.ignores))
        return;
    pst_str_addf(&text, "%s is packed, but ", path);
    if (!p.mask && !p.documents && p.ones)
        pst_str_add(&text, "the model's mask has one number for each token, "
                           "not for each pair of tokens (attention_mask of "
                           "shape (..., T, T)): tokens attend to the documents "
                           "before theirs");
    else if (!p.mask && !p.documents)
        pst_str_add(&text, "the model has no input for a mask "
                           "(attention_mask) or for documents (document_ids): "
                           "tokens attend to the documents before theirs");
    if (!p.positions)
        pst_str_addf(&text,
                     "%sthe model has no input for positions (position_ids): "
                     "they count from the beginning of the window",
                     !p.mask && !p.documents ? "; " : "");
    if (!p.ignores)
        pst_str_addf(&text,
                     "%sthe loss ignores no target: the first token of a "
                     "document is predicted from the one before it",
                     !p.positions || (!p.mask && !p.documents) ? "; " : "");
    report_text(&text, report, ctx);
}

void pstd_doubts_check_data(const struct pstd_config *config, const char *path,
                            const struct pst_batch *batch,
                            const struct pst_data *data, uint64_t rows,
                            pstd_doubt_fn report, void *ctx)
{
    const struct pst_data_list *files = pst_data_files(data);

    if (rows > 0)
        check_size(path, data, rows, report, ctx);
    if (pst_data_has_tensors(files->files.at[0]))
        return;
    for (size_t i = 0; i < files->files.n; i++)
        check_width(config, files->files.at[i], pst_data_width(data, i), report,
                    ctx);
    check_targets(path, batch->plan, pst_data_targets(data), report, ctx);
    check_packing(path, data, report, ctx);
}

static bool is_trained(const struct pst_plan_param *param)
{
    unsigned uses = 0;

    for (unsigned k = 0; k < param->n_stages; k++)
        uses += param->uses[k];
    return param->kind == PST_VALUE_PARAM && param->requires_grad && uses > 0;
}

void pstd_doubts_check_plan(const struct pstd_config *config,
                            const struct pst_plan *plan, pstd_doubt_fn report,
                            void *ctx)
{
    if (strcmp(config->optimizer, "none") == 0)
        return;
    for (size_t i = 0; i < plan->params.n; i++)
        if (is_trained(&plan->params.at[i]))
            return;
    report(ctx,
           "no parameter has a gradient: the steps change nothing; all are "
           "frozen, or the loss depends on none (`penstock modules` lists "
           "them; --unfreeze)");
}
