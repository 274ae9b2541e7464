// SPDX-License-Identifier: Apache-2.0
/* Settings that a run's results depend on besides model, seed and optimizer
 * (which a resume refuses to change): options, data, program and machine.
 * Checkpoints store them, so that a resumed run reports what has changed. */
#include <stdio.h>
#include <string.h>

#include "daemon/common/inputs.h"
#include "daemon/common/options/sets.h"
#include "daemon/common/setting.h"
#include "daemon/exec/alike.h"
#include "daemon/exec/change/settings.h"
#include "daemon/exec/session.h"
#include "stages/base/host/cpu.h"
#include "stages/ops/rates/rates.h"

static void add_data(struct pst_str *course, const char *name, const char *path)
{
    struct pst_str text = {0};

    pstd_describe_data(path, &text);
    pstd_setting_add(course, name, pst_str_text(&text));
    pst_str_fini(&text);
}

/* Adds a line for each set of --eval-data: "--eval-data=...", or of a set with
 * a name "--eval-data.NAME=...". */
static void add_sets(struct pst_str *course, const char *text)
{
    struct pst_arena arena;
    struct pstd_sets sets;
    char name[16 + PSTD_SET_NAME];

    pst_arena_init(&arena, PST_TAG_DAEMON);
    if (pstd_sets_read("", text, &arena, &sets, NULL) != PST_OK) {
        course->failed = true; /* it was valid when set: memory is lacking */
        sets.n = 0;
    }
    for (unsigned i = 0; i < sets.n; i++) {
        (void)snprintf(name, sizeof(name), "--eval-data%s%s",
                       sets.at[i].name[0] != '\0' ? "." : "", sets.at[i].name);
        add_data(course, name, sets.at[i].files);
    }
    pst_arena_fini(&arena);
}

static void add_option(struct pst_str *course, const struct pstd_config *config,
                       const struct pstd_option *row)
{
    struct pst_str text = {0};
    char name[40];

    (void)snprintf(name, sizeof(name), "--%s", row->name);
    pstd_setting_add(course, name,
                     pstd_config_text(config, row, &text) ? pst_str_text(&text)
                                                          : "not given");
    pst_str_fini(&text);
}

/* Returns the mode of --shard for comparisons: modes with identical results
 * have one name (docs/guarantees.md). */
static const char *sharing_name(const struct pstd_session *s)
{
    const char *given = s->config.shard;
    const bool by_name = strchr(given, '=') != NULL;
    const enum pst_sharing mode = pst_engine_shard(s->w->engine);

    /* Modes that differ between modules are compared by the option's text. */
    if (by_name && (strstr(given, "=zero2") || strstr(given, "=zero3")))
        return given;
    return !by_name && mode >= PST_SHARING_ZERO2 ? "zero2 or zero3"
                                                 : "none or zero1";
}

/* Adds options as far as results depend on them: the number of replicas but not
 * of ranks; the threads of a rank even if --threads is not given. */
static void add_parallel(struct pstd_session *s)
{
    const unsigned replicas = pstd_replicas(&s->config);
    char text[32];

    (void)snprintf(text, sizeof(text), "%uxP", replicas);
    pstd_setting_add(&s->course, "--ranks", text);
    pstd_setting_add(&s->course, "--shard",
                     replicas > 1 ? sharing_name(s) : "none or zero1");
    (void)snprintf(text, sizeof(text), "%u", pst_exec_threads(&s->options));
    pstd_setting_add(&s->course, "--threads", text);
    pstd_setting_add(&s->course, "--device", s->options.device->name);
}

/* Adds program, libraries and instructions, which determine the last bits of
 * results. */
static void add_machine(struct pst_str *course)
{
    static const char *const more[] = {"avx512_bf16", "amx_bf16"};
    const char *features = pst_cpu_features();
    struct pst_str text = {0};

    pstd_setting_add(course, "penstock", PST_VERSION);
    pst_str_add(&text, pst_isa_name(pst_cpu_isa()));
    for (size_t i = 0; i < PST_COUNT(more); i++)
        if (strstr(features, more[i]) != NULL)
            pst_str_addf(&text, " %s", more[i]);
    pstd_setting_add(course, "instructions", pst_str_text(&text));
    pst_str_fini(&text);
    pst_device_cpu.describe(&text);
    /* Cuts off the remark in parentheses at the end of the description. */
    if (strstr(pst_str_text(&text), " (") != NULL)
        *strstr(text.text, " (") = '\0';
    pstd_setting_add(course, "libraries", pst_str_text(&text));
    pst_str_fini(&text);
}

/* True if kernels of the CPU may multiply bf16 operands: by --dtype or
 * --autocast, or because the model was exported in bf16. */
static bool multiplies_bf16(const struct pstd_session *s)
{
    const struct pst_plan *plan = s->w->plan;

    if (strcmp(s->options.device->name, "cuda") == 0)
        return false;
    for (size_t k = 0; k < plan->stages.n; k++) {
        const struct pst_graph *graph = plan->stages.at[k].graph;

        for (size_t i = 0; i < graph->values.n; i++)
            if (graph->values.at[i]->meta.dtype == PST_BF16 &&
                !pst_value_is_state(graph->values.at[i]))
                return true;
    }
    return s->options.bf16;
}

/* Adds the choice between bf16 instructions and f32 matmuls of the rounded
 * operands, which follows from measured rates, and changes the last bits. */
static void add_choice(struct pstd_session *s)
{
    if (multiplies_bf16(s))
        pstd_setting_add(&s->course, "instructions of bf16 matmuls",
                         pst_rates_use_bf16() ? "bf16" : "f32");
}

/* True if the option was changed during the run, so that pstd_settings_add
 * writes its line. name: "--lr", of n bytes. */
static bool is_changed(const struct pstd_session *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->set.n; i++) {
        const char *set = s->set.at[i].row->name;

        if (n == strlen(set) + 2 && strncmp(name, "--", 2) == 0 &&
            strncmp(name + 2, set, n - 2) == 0)
            return true;
    }
    return false;
}

void pstd_course_change(struct pstd_session *s)
{
    struct pst_str course = {0};
    const char *at = pst_str_text(&s->course);

    pstd_settings_add(s, &course);
    while (*at != '\0') {
        const size_t n = strcspn(at, "\n"), name = strcspn(at, "=");

        if (!is_changed(s, at, name) && !pst_has_prefix(at, "given "))
            pst_str_addn(&course, at, n + (at[n] != '\0'));
        at += n + (at[n] != '\0');
    }
    pst_str_fini(&s->course);
    s->course = course;
}

/* Makes the line that identifies what this run evaluates and how: only
 * evaluations with the same line can be compared. */
static void make_evals_of(struct pstd_session *s)
{
    static const char *const names[] = {
        "--eval-batches=", "--eval-metric=", "--eval-data=", "--eval-data.",
        "--eval-model="};
    struct pst_str *of = &s->evals_of;

    for (const char *at = pst_str_text(&s->course); *at != '\0';) {
        const size_t n = strcspn(at, "\n");

        for (size_t i = 0; i < PST_COUNT(names); i++) {
            if (!pst_has_prefix(at, names[i]))
                continue;
            pst_str_add(of, of->len > 0 ? " " : "");
            pst_str_addn(of, at, n);
        }
        at += n + (at[n] != '\0');
    }
}

void pstd_course_make(struct pstd_session *s)
{
    const struct pstd_config *config = &s->config;
    struct pst_str *ret = &s->course;
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++)
        if (rows[i].groups & PSTD_OPT_NUMBERS)
            add_option(ret, config, &rows[i]);
    add_parallel(s);
    /* Without --lr-steps the learning rate falls until the last step. */
    if (pst_lr_row(s->options.optim.lr_schedule)->to_end &&
        config->lr_steps == 0)
        pst_str_addf(ret, "--steps=%llu\n", (unsigned long long)config->steps);
    if (config->data != NULL)
        add_data(ret, "--data", config->data);
    if (config->eval_data != NULL)
        add_sets(ret, config->eval_data);
    if (config->eval_model != NULL)
        add_data(ret, "--eval-model", config->eval_model);
    pstd_setting_add_plugins(ret, s->w->plan);
    add_machine(ret);
    add_choice(s);
    if (config->eval_data != NULL)
        make_evals_of(s);
    if (s->set.n > 0)
        pstd_course_change(s);
}

static void emit_change(void *ctx, const struct pstd_setting_change *change)
{
    struct pstd_session *s = ctx;

    pstd_emit_setting(s->w, s->step, change);
    s->other_eval = s->other_eval || pst_has_prefix(change->name, "--eval-");
}

/* True if a step had another number of samples before the resume only because
 * this run's ramp had another number of microbatches then. is, was: position of
 * the next step in the data now, and before. */
static bool follows_from_ramp(const struct pstd_session *s,
                              const struct pst_data_place *is,
                              const struct pst_data_place *was)
{
    const uint64_t at = s->step - was->since, before = at > 0 ? at - 1 : 0;

    return s->config.microbatches.n > 1 &&
           is->step / s->w->batch.microbatches *
                   pstd_ramp_at(&s->config.microbatches, before, NULL) ==
               was->step;
}

/* Reports if a step reads another number of samples than before the resume, and
 * the row with which the data continues. */
static void compare_places(struct pstd_session *s,
                           const struct pst_data_place *was)
{
    const struct pst_data_place is = pstd_session_place(s);
    const char *name = is.tokens ? "tokens of a step" : "rows of a step";
    char before[40], now[40];
    const struct pstd_setting_change change = {
        .name = name, .before = before, .now = now};
    struct pst_str next = {0};

    if (!is.known || !was->known ||
        (was->tokens == is.tokens &&
         (was->step == is.step || follows_from_ramp(s, &is, was))))
        return;
    (void)snprintf(before, sizeof(before), "%llu%s",
                   (unsigned long long)was->step,
                   was->tokens == is.tokens ? ""
                   : was->tokens            ? " tokens"
                                            : " rows");
    (void)snprintf(now, sizeof(now), "%llu", (unsigned long long)is.step);
    pst_str_add(&next, was->tokens == is.tokens
                           ? ": the data continues after the last sample, with "
                           : ": the position in the data is lost, it continues "
                             "with ");
    pst_data_rows(s->data, s->step, 0, &next);
    pstd_setting_report(&change, pst_str_text(&next), emit_change, s);
    pst_str_fini(&next);
}

/* Reports that the next step's position in the data is not in the checkpoint,
 * because a program that uses the library made its last steps with rows of its
 * own. The data continue as if this run had made those steps. */
static void report_lost_place(struct pstd_session *s,
                              const struct pst_checkpoint_info *info)
{
    const char *line = strstr(info->options, PST_CHECKPOINT_DATA_UNTIL "=");
    char before[120];
    struct pstd_setting_change to = {.name = "position in the data",
                                     .before = before};
    struct pst_str next = {0};

    if (line == NULL || (info->place.known && info->place.since == 0) ||
        !pstd_session_place(s).known)
        return;
    line += sizeof(PST_CHECKPOINT_DATA_UNTIL);
    (void)snprintf(before, sizeof(before),
                   "unknown (a program made the steps after step %.*s, with "
                   "rows of its own)",
                   (int)PST_MIN(strspn(line, "0123456789"), (size_t)20), line);
    pst_data_rows(s->data, s->step, 0, &next);
    to.now = pst_str_text(&next);
    pstd_setting_report(&to, ", as if this run had made them", emit_change, s);
    pst_str_fini(&next);
}

void pstd_course_compare(struct pstd_session *s,
                         const struct pst_checkpoint_info *info)
{
    compare_places(s, &info->place);
    report_lost_place(s, info);
    pstd_setting_compare(pst_str_text(&s->course), info->options, emit_change,
                         s);
}
