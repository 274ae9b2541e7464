// SPDX-License-Identifier: Apache-2.0
/* Checks that all ranks have the same program, options, plan and data. */
#include "daemon/exec/alike.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/inputs.h"
#include "daemon/common/setting.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/ops/plugin/plugin.h"
#include "stages/ops/rates/rates.h"
#include "stages/run/facts.h"

static enum pst_status compare_facts(struct pstd_executor *w,
                                     struct pst_facts *facts,
                                     struct pst_diag *diag)
{
    const enum pst_status status = pst_facts_compare(facts, w->transport, diag);

    pst_facts_fini(facts);
    return status;
}

/* Adds version and build of this program: other builds may differ in the last
 * bits of results, and in the protocol. */
static void add_program(struct pst_facts *facts)
{
    struct pst_file file = {0};
    char digest[33] = "not readable";

    if (pst_file_open("/proc/self/exe", &file, NULL) == PST_OK &&
        pst_file_digest(&file, digest, NULL) != PST_OK)
        (void)snprintf(digest, sizeof(digest), "not readable");
    pst_file_close(&file);
    pst_facts_add(facts, "the program", PST_VERSION ", build %.16s", digest);
}

/* Adds the plugins, whose files each rank reads on its own host. */
static void add_plugins(struct pst_facts *facts)
{
    struct pst_str text = {0};

    for (const struct pst_plugin *p = pst_plugins(); p != NULL; p = p->next)
        pst_str_addf(&text, "%s%s %s, digest %.16s", text.len > 0 ? "; " : "",
                     p->name, p->version, p->digest);
    pst_facts_add(facts, "the plugins", "%s",
                  text.len > 0 ? pst_str_text(&text) : "none");
    pst_str_fini(&text);
}

static void emit_rates(struct pstd_executor *w, const char *path,
                       double seconds, const struct pst_diag *why)
{
    const struct pst_rates *rates = pst_rates_here();
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_MEASURED);
    pstd_note_real(&note, "f32_gflops", rates->f32 * 1e-9);
    pstd_note_real(&note, "bf16_gflops", rates->bf16 * 1e-9);
    pstd_note_real(&note, "seconds", seconds);
    pstd_note_text(&note, "path", path);
    pstd_note_text(&note, "text", path[0] == '\0' ? why->text : "");
    pstd_mailbox_post(w->mailbox, &note, true);
}

/* Measures the rates of rank 0's machine if that was never done. */
static enum pst_status ensure_rates(struct pstd_executor *w,
                                    struct pst_diag *diag)
{
    const double since = pst_now();
    struct pst_str path = {0};
    bool is_new;
    enum pst_status status;

    pst_diag_init(diag);
    status = pst_rates_ensure(&is_new, &path, diag);
    if (status == PST_OK && is_new)
        emit_rates(w, pst_str_text(&path), pst_now() - since, diag);
    pst_str_fini(&path);
    return status;
}

/* Shares rank 0's rates with all ranks, so that all make the same choices. */
static enum pst_status share_rates(struct pstd_executor *w,
                                   struct pst_diag *diag)
{
    struct pst_rates rates = *pst_rates_here();
    const enum pst_status status = pst_engine_broadcast(
        w->transport, &rates, sizeof(rates), NULL, NULL, diag);

    if (status == PST_OK)
        pst_rates_adopt(&rates);
    return status;
}

enum pst_status pstd_share_rates(struct pstd_executor *w, const char *dtype,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (strcmp(dtype, "bf16") != 0 &&
        (w->plan == NULL || !pst_plan_casts_bf16(w->plan)))
        return PST_OK;
    if (w->rank == 0)
        status = ensure_rates(w, diag);
    status = pstd_agree_status(w, status, diag);
    return status == PST_OK ? share_rates(w, diag) : status;
}

enum pst_status pstd_compare_program(struct pstd_executor *w,
                                     struct pst_diag *diag)
{
    struct pst_facts facts = {0};
    enum pst_status status;

    /* The program is compared first: another build may describe the other facts
     * differently. */
    add_program(&facts);
    status = compare_facts(w, &facts, diag);
    if (status == PST_OK)
        status = share_rates(w, diag);
    if (status != PST_OK)
        return status;
    facts = (struct pst_facts){0};
    pstd_config_facts(pstd_mailbox_config(w->mailbox), PSTD_OPT_EQUAL, &facts);
    add_plugins(&facts);
    return compare_facts(w, &facts, diag);
}

enum pst_status pstd_compare_plan(struct pstd_executor *w,
                                  struct pst_diag *diag)
{
    struct pst_facts facts = {0};

    pst_facts_add(&facts, "the plan's digest", "%s", w->plan->digest);
    return compare_facts(w, &facts, diag);
}

enum pst_status pstd_compare_data(struct pstd_executor *w, const char *path,
                                  struct pst_diag *diag)
{
    struct pst_facts facts = {0};
    struct pst_str text = {0};

    pstd_describe_data(path, &text);
    pst_facts_add(&facts, "the --data file", "%s", pst_str_text(&text));
    pst_str_fini(&text);
    return compare_facts(w, &facts, diag);
}

void pstd_emit_setting(struct pstd_executor *w, uint64_t step,
                       const struct pstd_setting_change *change)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_RESUME_CHANGED);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "name", change->name);
    pstd_note_text(&note, "before", change->before);
    pstd_note_text(&note, "now", change->now);
    pstd_note_text(&note, "text", change->text);
    pstd_mailbox_post(w->mailbox, &note, true);
}
