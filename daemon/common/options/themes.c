// SPDX-License-Identifier: Apache-2.0
/* The order of options in --help and in man pages. */
#include <string.h>

#include "daemon/common/config.h"
#include "stages/base/macros.h"

/* Commands with fewer options have no headings. */
#define MANY 40

/* Headings of --help. In the order of the table of options, the options from
 * `from` on stand under `title`, until the next row's `from`. */
static const struct {
    const char *from, *title;
} themes[] = {
    {"schedule", "Schedule and memory"},
    {"microbatches", "Size of a step"},
    {"threads", "Computation"},
    {"optimizer", "Optimizer"},
    {"lr-schedule", "Learning rate over time"},
    {"data", "Data"},
    {"eval-data", "Evaluation"},
    {"steps", "Length"},
    {"checkpoint", "Checkpoints"},
    {"accept-lost-backward", "Faults and checks"},
    {"ranks", "Ranks"},
    {"log-dir", "Logs"},
    {"one-run", "Jobs and hosts"},
    {"output", "Model and plan"},
    {"svg", "Other"},
};

/* Options that most runs have; --help lists them first. */
static const char *const common[] = {
    "ranks",     "microbatches", "data",       "steps",
    "optimizer", "lr",           "checkpoint", "checkpoint-every",
    "resume",    "eval-data",    "eval-every", "dtype",
    "log-dir",   "help"};

static const char *theme_from(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(themes); i++)
        if (strcmp(themes[i].from, name) == 0)
            return themes[i].title;
    return NULL;
}

static bool is_common(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(common); i++)
        if (strcmp(common[i], name) == 0)
            return true;
    return false;
}

static void visit_common(uint64_t groups, pstd_option_fn visit, void *ctx)
{
    const char *title = "Most used";
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t c = 0; c < PST_COUNT(common); c++)
        for (size_t i = 0; i < n; i++)
            if ((rows[i].groups & groups) &&
                strcmp(rows[i].name, common[c]) == 0) {
                visit(ctx, &rows[i], title);
                title = NULL;
            }
}

void pstd_options_visit(uint64_t groups, pstd_option_fn visit, void *ctx)
{
    const char *title = NULL;
    size_t n, n_shown = 0;
    const struct pstd_option *rows = pstd_options(&n);
    bool themed;

    groups |= PSTD_OPT_ALL;
    for (size_t i = 0; i < n; i++)
        n_shown += (rows[i].groups & groups) != 0;
    themed = n_shown >= MANY;
    if (themed)
        visit_common(groups, visit, ctx);
    for (size_t i = 0; i < n; i++) {
        const char *begun = theme_from(rows[i].name);

        title = begun != NULL && themed ? begun : title;
        if (!(rows[i].groups & groups) || (themed && is_common(rows[i].name)))
            continue;
        visit(ctx, &rows[i], title);
        title = NULL;
    }
}
