// SPDX-License-Identifier: Apache-2.0
/* `penstock history`: prints the numbers of each step of a run. */
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "daemon/common/steps/evals.h"
#include "daemon/common/steps/steps.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "stages/base/plural.h"

#define PIECE 65536 /* bytes of text that are printed at once */

struct printed {
    struct pst_str text;
    /* last: newest record; least: record with the smallest loss */
    struct pstd_steps_record last, least;
    uint64_t n;
    struct pstd_evals evals;
    size_t eval; /* number of the next evaluation */
};

static void add_float(struct pst_str *out, float x)
{
    if (isfinite(x))
        pst_str_addf(out, ",%.9g", (double)x);
    else
        pst_str_add(out, ",");
}

static bool count_record(void *ctx, const struct pstd_steps_record *r)
{
    struct printed *p = ctx;

    if (p->n++ == 0 || (isfinite(r->loss) && !(p->least.loss <= r->loss)))
        p->least = *r;
    p->last = *r;
    return true;
}

/* Adds the columns of the evaluation at this step to a row of the table; the
 * fields are empty if the step was not evaluated. Adds nothing if the run has
 * no evaluations. */
static void add_evaluation(struct printed *p, uint64_t step)
{
    const struct pstd_evals *e = &p->evals;
    const struct pstd_eval *at = NULL;
    char text[32];

    while (p->eval < e->n && e->at[p->eval].step < step)
        p->eval++;
    if (p->eval < e->n && e->at[p->eval].step == step)
        at = &e->at[p->eval];
    for (unsigned i = 0; i < (e->n > 0 ? 1 + e->n_sets : 0); i++) {
        pst_str_add(&p->text, ",");
        if (at == NULL)
            continue;
        pst_format_f64(i == 0 ? at->loss : at->sets[i - 1], text);
        pst_str_add(&p->text, text);
    }
}

static void add_names(struct printed *p)
{
    if (p->evals.n > 0)
        pst_str_add(&p->text, ",eval");
    for (unsigned i = 0; p->evals.n > 0 && i < p->evals.n_sets; i++)
        pst_str_addf(&p->text, ",eval.%s", p->evals.names[i]);
    pst_str_add(&p->text, "\n");
}

/* Reads the evaluations beside the history, if the path is a folder that has
 * them. */
static enum pst_status read_evaluations(const char *path, struct printed *p,
                                        struct pst_diag *diag)
{
    struct pst_str file = {0};
    enum pst_status status = PST_OK;
    struct stat info;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return PST_OK;
    pst_str_addf(&file, "%s/" PSTD_EVALS_FILE, path);
    status = file.failed ? pst_diag_nomem(diag, file.len)
                         : pstd_evals_read(file.text, &p->evals, NULL, diag);
    pst_str_fini(&file);
    return status;
}

static bool print_record(void *ctx, const struct pstd_steps_record *r)
{
    struct printed *p = ctx;
    char loss[32], lr[32];

    (void)count_record(ctx, r);
    pst_format_f64(r->loss, loss);
    pst_format_f64(r->lr, lr);
    pst_str_addf(&p->text, "%" PRIu64 ",%s", r->step, loss);
    add_float(&p->text, r->grad_norm);
    pst_str_addf(&p->text, ",%s,%" PRIu32, lr, r->count);
    add_float(&p->text, r->seconds);
    add_evaluation(p, r->step);
    pst_str_add(&p->text, "\n");
    if (p->text.len < PIECE)
        return !p->text.failed;
    pstctl_print(stdout, &p->text);
    p->text.len = 0;
    return !p->text.failed && !ferror(stdout);
}

static enum pst_status print_summary(const char *path,
                                     const struct pstd_steps *h,
                                     const struct printed *p,
                                     const struct pstd_steps_counts *counts,
                                     struct pst_diag *diag)
{
    json_t *object = json_pack(
        "{s:o s:s s:s s:I s:I s:I s:I}", "history", pstctl_json_text(path),
        "run", h->head.run, "counts", h->head.tokens ? "tokens" : "rows",
        "first_step", (json_int_t)h->head.base + 1, "recorded",
        (json_int_t)counts->good, "missing", (json_int_t)counts->missing,
        "damaged", (json_int_t)counts->damaged);

    if (p->n > 0 && object != NULL)
        (void)json_object_update_new(
            object,
            json_pack("{s:I s:o s:o s:I}", "step", (json_int_t)p->last.step,
                      "loss", pstctl_json_real(p->last.loss), "least_loss",
                      pstctl_json_real(p->least.loss), "least_step",
                      (json_int_t)p->least.step));
    return pstctl_json_print(object, diag);
}

static enum pst_status run_history(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    const char *path = config->args[0];
    struct pstd_steps history = {0};
    struct pstd_steps_counts counts = {0};
    struct printed p = {.text = {.visible = 1}};
    enum pst_status status = pstd_steps_open(path, &history, diag);

    if (status != PST_OK)
        return status;
    if (!config->json)
        status = read_evaluations(path, &p, diag);
    if (!config->json) {
        pst_str_addf(&p.text, "step,loss,grad_norm,lr,%s,seconds",
                     history.head.tokens ? "tokens" : "rows");
        add_names(&p);
    }
    if (status == PST_OK)
        status = pstd_steps_each(&history,
                                 config->json ? count_record : print_record, &p,
                                 &counts, diag);
    if (status == PST_OK && p.text.failed)
        status = pst_diag_nomem(diag, PIECE);
    if (status == PST_OK && config->json) {
        status = print_summary(path, &history, &p, &counts, diag);
    } else if (status == PST_OK) {
        pstctl_print(stdout, &p.text);
        if (counts.damaged > 0)
            pstctl_printf(stderr,
                          "penstock: note: %" PRIu64 " damaged record%s of %s "
                          "left out\n",
                          counts.damaged, pst_plural(counts.damaged), path);
    }
    pst_str_fini(&p.text);
    pstd_evals_fini(&p.evals);
    pstd_steps_close(&history);
    return status;
}

const struct pstctl_command pstctl_history = {
    "history",
    "PATH",
    1,
    1,
    PSTD_OPT_JSON,
    "print the numbers of each step of a run as CSV",
    "PATH is the folder of --checkpoint or --log-dir, or the file "
    "steps.history in\n"
    "one of them, also while the job runs. Columns: step, loss, norm of all\n"
    "gradients (empty if no option needs it), learning rate, tokens (rows if "
    "the\n"
    "model has no tokens) and seconds of the step; then, in a folder of "
    "--checkpoint\n"
    "and if the run was evaluated, the number that decides which evaluation is "
    "best\n"
    "(eval) and the losses of named sets (eval.NAME). --json prints a summary.",
    run_history,
    true,
    NULL};
