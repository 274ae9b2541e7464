// SPDX-License-Identifier: Apache-2.0
/* `penstock plan`: predicts memory, time and waits of a step without running
 * it. */
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/plan/evaluation.h"
#include "daemon/ctl/plan/groups.h"
#include "daemon/ctl/plan/hosted.h"
#include "daemon/ctl/plan/ramp.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/timeline.h"
#include "stages/base/host/topology.h"
#include "stages/ops/devices.h"
#include "stages/ops/rates/rates.h"
#include "stages/sched/simulate.h"
#include "stages/tune/choose.h"
#include "stages/tune/estimate.h"

#define MIB (1024.0 * 1024.0)

/* Results of `plan`; arrays have one entry per rank. */
struct forecast {
    struct pst_schedule *sched;
    struct pst_memory *memory;
    struct pst_memory *eval;      /* additional memory for --eval-data */
    struct pstctl_hosted *hosted; /* calls that run on the host */
    struct pst_groups groups;
    const struct pst_plan *plan;
    struct pst_costs costs;
    struct pst_sim sim;
    struct pst_str note;       /* text about the cost of tail microbatches */
    struct pst_str products;   /* GEMM libraries in use */
    struct pst_str processors; /* of this machine */
    struct pst_str times;      /* text that names the source of the times */
    const char *recompute;     /* value of --recompute, never "auto" */
    const char *shard;         /* value of --shard, never "auto" */
    const char *stash;         /* value of --stash, never "auto" */
    unsigned replicas;
    struct pst_choices choices; /* choices of --what-if */
    struct pstctl_ramp ramp;
    unsigned ranks;
};

static json_t *rank_json(const struct forecast *f, unsigned r)
{
    const struct pst_memory *m = &f->memory[r];
    json_t *rank = json_pack(
        "{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:o}",
        "rank", (json_int_t)r, "arena_bytes", (json_int_t)m->arena,
        "params_bytes", (json_int_t)m->params, "grads_bytes",
        (json_int_t)m->grads, "optim_bytes", (json_int_t)m->optim,
        "buffers_bytes", (json_int_t)m->buffers, "gathered_bytes",
        (json_int_t)m->gathered, "prepared_bytes", (json_int_t)m->prepared,
        "stash_bytes", (json_int_t)m->stash, "messages_bytes",
        (json_int_t)m->messages, "for_w_bytes", (json_int_t)m->for_w,
        "workspace_bytes", (json_int_t)m->workspace, "outputs_bytes",
        (json_int_t)m->outputs, "in_flight", (json_int_t)m->in_flight,
        "copied_bytes", (json_int_t)m->copied, "bubble",
        pstctl_json_real(f->sim.shares[r].bubble));

    (void)json_object_set_new(rank, "outside_bytes",
                              json_integer((json_int_t)m->outside));
    (void)json_object_set_new(rank, "moved_bytes",
                              json_integer((json_int_t)m->moved));
    (void)json_object_set_new(rank, "stash_wait_s",
                              pstctl_json_real(f->sim.ranks[r].stash_wait));

    if (f->eval != NULL)
        (void)json_object_set_new(rank, "eval_bytes",
                                  json_integer((json_int_t)f->eval[r].arena));
    pstctl_hosted_json(&f->hosted[r], rank);
    pstctl_shares_json(&f->sim.shares[r], f->sim.step, rank);
    return rank;
}

/* Returns the schedules tried by auto; null if another schedule was requested.
 */
static json_t *candidates_json(const struct pst_schedule *sched)
{
    json_t *list;

    if (sched->candidates.n == 0)
        return json_null();
    list = json_array();
    for (size_t i = 0; i < sched->candidates.n; i++) {
        const struct pst_candidate *c = &sched->candidates.at[i];
        json_t *row = json_pack("{s:s s:b s:s}", "schedule", c->name, "fits",
                                c->possible && c->fits, "note",
                                c->note != NULL ? c->note : "");

        if (c->possible) {
            (void)json_object_set_new(row, "step_s", pstctl_json_real(c->step));
            (void)json_object_set_new(row, "bubble",
                                      pstctl_json_real(c->bubble));
            (void)json_object_set_new(row, "peak_bytes",
                                      pstctl_json_real(c->peak));
        }
        (void)json_array_append_new(list, row);
    }
    return list;
}

/* Returns the choices of --what-if; null without that option. */
static json_t *choices_json(const struct forecast *f)
{
    json_t *list;

    if (f->choices.all.n == 0)
        return json_null();
    list = json_array();
    for (size_t i = 0; i < f->choices.all.n; i++) {
        const struct pst_choice *c = &f->choices.all.at[i];

        if (c->possible)
            (void)json_array_append_new(
                list,
                json_pack("{s:s s:s s:s s:b s:o s:I s:I}", "recompute",
                          c->recompute, "shard", c->shard, "stash", c->stash,
                          "fits", c->fits, "step_s", pstctl_json_real(c->step),
                          "peak_bytes", (json_int_t)c->peak, "rank",
                          (json_int_t)c->rank));
    }
    return list;
}

static void describe_processors(struct pst_str *out)
{
    struct pst_topology topology = {0};
    struct pst_diag ignored;

    if (pst_topology_read("", NULL, &topology, &ignored) == PST_OK)
        pst_topology_print(&topology, out);
    pst_topology_fini(&topology);
}

static enum pst_status print_json(const struct forecast *f,
                                  struct pst_diag *diag)
{
    json_t *ranks = json_array();
    struct pst_str placement = {0};
    enum pst_status status;

    pstd_print_placement(f->sched, &placement);
    for (unsigned r = 0; r < f->ranks; r++)
        (void)json_array_append_new(ranks, rank_json(f, r));
    status = pstctl_json_print(
        json_pack(
            "{s:s s:s s:s s:s s:o s:s? s:s s:s s:s s:s s:I s:s s:o s:o s:o s:o "
            "s:o s:o}",
            "schedule", f->sched->name, "recompute", f->recompute, "shard",
            f->shard, "stash", f->stash, "choices", choices_json(f), "note",
            f->note.text, "isa", pst_isa_name(pst_cpu_isa()), "products",
            pst_str_text(&f->products), "processors",
            pst_str_text(&f->processors), "times", pst_str_text(&f->times),
            "deferred", (json_int_t)f->sched->n_deferred, "placement",
            pst_str_text(&placement), "step_s", pstctl_json_real(f->sim.step),
            "bubble", pstctl_json_real(f->sim.bubble), "ranks", ranks, "groups",
            f->groups.group_of != NULL ? pstctl_groups_json(&f->groups, f->plan)
                                       : json_null(),
            "candidates", candidates_json(f->sched), "ramp",
            pstctl_ramp_json(&f->ramp)),
        diag);
    pst_str_fini(&placement);
    return status;
}

static void print_memory(const struct forecast *f)
{
    struct pst_str placement = {0};
    size_t for_w = 0, gathered = 0;

    pstd_print_placement(f->sched, &placement);
    pstctl_printf(stdout, "schedule %s, %u microbatch%s%s\n", f->sched->name,
                  f->sched->n_microbatches,
                  f->sched->n_microbatches == 1 ? "" : "es",
                  f->ramp.n > 1 ? " (the largest number of the ramp)" : "");
    if (strcmp(f->recompute, "none") != 0)
        pstctl_printf(stdout, "recompute %s\n", f->recompute);
    if (strcmp(f->shard, "none") != 0)
        pstctl_printf(stdout, "shard %s over %u replicas\n", f->shard,
                      f->replicas);
    if (f->note.len > 0)
        pstctl_printf(stdout, "%s\n", f->note.text);
    pstctl_printf(stdout, "kernels for %s; products by %s\n",
                  pst_isa_name(pst_cpu_isa()), pst_str_text(&f->products));
    if (f->processors.len > 0)
        pstctl_printf(stdout, "this machine: %s\n", f->processors.text);
    pstctl_printf(stdout,
                  "rank  stages      MiB  params  prepared   grads   optim   "
                  "stash  messages  work  outputs  in flight\n");
    for (unsigned r = 0; r < f->ranks; r++) {
        const struct pst_memory *m = &f->memory[r];
        struct pst_str stages = {0};

        for_w = PST_MAX(for_w, m->for_w);
        gathered = PST_MAX(gathered, m->gathered);
        pstd_print_stages(pst_str_text(&placement), r, &stages);
        pstctl_printf(stdout,
                      "%4u  %-6s %8.2f %7.2f %9.2f %7.2f %7.2f %7.2f %9.2f "
                      "%5.2f %8.2f %10u\n",
                      r, pst_str_text(&stages), (double)m->arena / MIB,
                      (double)(m->params + m->buffers) / MIB,
                      (double)m->prepared / MIB, (double)m->grads / MIB,
                      (double)m->optim / MIB, (double)m->stash / MIB,
                      (double)m->messages / MIB, (double)m->workspace / MIB,
                      (double)m->outputs / MIB, m->in_flight);
        pst_str_fini(&stages);
    }
    pst_str_fini(&placement);
    if (gathered > 0)
        pstctl_printf(stdout,
                      "up to %.2f MiB of these are for shares while they are "
                      "whole\n",
                      (double)gathered / MIB);
    if (f->sched->n_deferred > 0)
        pstctl_printf(stdout,
                      "%zu gradients of parameters wait until those of earlier "
                      "microbatches are added:\nup to %.2f MiB of stash and "
                      "messages stay for them\n",
                      f->sched->n_deferred, (double)for_w / MIB);
}

/* Prints how much of the stash --stash keeps outside of the arena, and the cost
 * of that. */
static void print_stash(const struct forecast *f)
{
    if (strcmp(f->stash, "none") == 0)
        return;
    pstctl_printf(stdout,
                  "stash %s, copied at %.1f GB/s:\n"
                  "rank   in MiB  outside  out+in of a step  work waits\n",
                  f->stash, f->costs.stash_bandwidth * 1e-9);
    for (unsigned r = 0; r < f->ranks; r++) {
        const struct pst_memory *m = &f->memory[r];
        struct pst_str wait = {0};

        pstctl_duration(f->sim.ranks[r].stash_wait, &wait);
        pstctl_printf(stdout, "%4u %8.2f %8.2f %17.2f %11s\n", r,
                      (double)m->stash / MIB, (double)m->outside / MIB,
                      (double)m->moved / MIB, pst_str_text(&wait));
        pst_str_fini(&wait);
    }
}

static void print_evaluation(const struct forecast *f)
{
    if (f->eval == NULL)
        return;
    pstctl_printf(stdout, "for --eval-data besides, MiB by rank:");
    for (unsigned r = 0; r < f->ranks; r++)
        pstctl_printf(stdout, " %.2f", (double)f->eval[r].arena / MIB);
    pstctl_printf(stdout, "\n");
}

static void print_times(const struct forecast *f)
{
    struct pst_str text = {.visible = 1};

    pst_str_addf(&text, "times: %s\n", pst_str_text(&f->times));
    pstctl_shares_print("predicted", &f->sim.timeline, f->sim.shares, NULL,
                        NULL, &text);
    pstctl_print(stdout, &text);
    pst_str_fini(&text);
}

/* Maximum number of "greedy" candidates that are printed: auto makes many. */
#define OWN_LISTS 4

static void print_candidate(const struct pst_candidate *c)
{
    const char *note = c->note != NULL ? c->note : "";
    struct pst_str step = {0};

    pstctl_duration(c->step, &step);
    if (c->possible)
        pstctl_printf(stdout, "%-16s %9s %6.1f%% %9.2f%s%s%s\n", c->name,
                      pst_str_text(&step), 100 * c->bubble, c->peak / MIB,
                      c->fits ? "" : "  too large", *note ? "  " : "", note);
    else
        pstctl_printf(stdout, "%-16s %9s %7s %9s  %s\n", c->name, "-", "-", "-",
                      note);
    pst_str_fini(&step);
}

static void print_candidates(const struct pst_schedule *sched)
{
    unsigned own = 0;

    if (sched->candidates.n == 0)
        return;
    pstctl_printf(stdout,
                  "auto took the first of these: the fastest that fits, or one "
                  "as fast with less memory\n"
                  "schedule              step  bubble       MiB\n");
    for (size_t i = 0; i < sched->candidates.n; i++) {
        const struct pst_candidate *c = &sched->candidates.at[i];

        if (strcmp(c->name, "greedy") != 0 || ++own <= OWN_LISTS)
            print_candidate(c);
    }
    if (own > OWN_LISTS)
        pstctl_printf(stdout, "and %u more lists of its own (--json has all)\n",
                      own - OWN_LISTS);
}

static void print_choice(const struct pst_choice *c,
                         const struct pst_choice *none)
{
    struct pst_str name = {0}, step = {0};

    pst_choice_print(c, &name);
    pstctl_duration(c->step, &step);
    if (!c->possible)
        pstctl_printf(stdout, "%-32s %9s\n", pst_str_text(&name), "-");
    else
        pstctl_printf(stdout, "%-32s %9s %7.2f %5u %9.2f %9.2f%s\n",
                      pst_str_text(&name), pst_str_text(&step),
                      c->step / none->step, c->rank, (double)c->peak / MIB,
                      ((double)none->peak - (double)c->peak) / MIB,
                      c->fits ? "" : "  too large");
    pst_str_fini(&step);
    pst_str_fini(&name);
}

/* Prints what each choice saves and costs, compared with the first possible
 * one. */
static void print_choices(const struct forecast *f)
{
    const struct pst_choice *none = NULL;

    for (size_t i = f->choices.all.n; i-- > 0;)
        if (f->choices.all.at[i].possible)
            none = &f->choices.all.at[i];
    if (none == NULL)
        return;
    pstctl_printf(stdout, "what is given up                      step   times  "
                          "rank       MiB     saves\n");
    for (size_t i = 0; i < f->choices.all.n; i++)
        print_choice(&f->choices.all.at[i], none);
}

/* Writes only actions that compute: PyTorch's format has no local copies, and
 * its reader adds messages itself. */
static enum pst_status write_csv(const char *path,
                                 const struct pst_schedule *sched,
                                 struct pst_diag *diag)
{
    struct PST_VEC(struct pst_action) list = {0};
    struct pst_str text = {0};
    bool ok = true;

    for (unsigned r = 0; r < sched->n_ranks && ok; r++) {
        list.n = 0;
        for (size_t i = 0; i < sched->ranks[r].n && ok; i++) {
            const struct pst_action *a = &sched->ranks[r].at[i];

            if (a->kind <= PST_ACT_W)
                ok = pst_vec_push(PST_TAG_CLIENT, &list, *a);
        }
        pst_actions_print(list.at, list.n, ",", &text);
        pst_str_add(&text, "\n");
    }
    pst_vec_fini(&list);
    text.failed |= !ok;
    return pstctl_write_text(path, &text, diag);
}

static enum pst_status write_files(const struct pstd_config *config,
                                   const struct pst_plan *plan,
                                   const struct forecast *f,
                                   struct pst_diag *diag)
{
    const struct pst_timeline *const timelines[] = {&f->sim.timeline};
    struct pst_str title = {0};
    enum pst_status status;

    pst_str_addf(&title, "%s: %s, %u microbatch%s", plan->name, f->sched->name,
                 f->sched->n_microbatches,
                 f->sched->n_microbatches == 1 ? "" : "es");
    status = pstctl_timelines_write(config, timelines, 1, pst_str_text(&title),
                                    diag);
    pst_str_fini(&title);
    if (status == PST_OK && config->csv != NULL)
        status = write_csv(config->csv, f->sched, diag);
    return status;
}

static enum pst_status predict_step(struct pst_plan *plan,
                                    const struct pst_exec_options *options,
                                    struct forecast *f, struct pst_diag *diag)
{
    /* Costs come first, since they determine the programs whose memory is
     * counted. */
    enum pst_status status = pst_plan_costs(plan, options, &f->costs, diag);

    if (status == PST_OK && f->ramp.n > 1)
        status = pstctl_ramp_predict(&f->ramp, plan, options, &f->costs,
                                     f->memory, &f->sched, diag);
    else if (status == PST_OK)
        status = pst_exec_schedule(plan, options, f->memory, &f->sched, diag);
    if (status == PST_OK) {
        const struct pst_schedule_options of = {
            .name = options->schedule,
            .ranks = f->sched->n_ranks,
            .stages = f->sched->n_stages,
            .microbatches = f->sched->n_microbatches,
            .train = f->sched->train,
            .place = options->place,
        };

        status = pst_schedule_explain(f->sched, &of, &f->note, diag);
    }
    if (status == PST_OK)
        status = pst_schedule_simulate(f->sched, &f->costs, &f->sim, diag);
    if (status == PST_OK && options->train && options->optim.row != NULL)
        status = pst_groups_make(&f->groups, plan, options, diag);
    f->plan = plan;
    return status;
}

/* Resolves automatic choices of the options; with --what-if, also evaluates all
 * alternatives. */
static enum pst_status resolve_choices(const struct pstd_config *config,
                                       struct pst_plan *plan,
                                       struct pst_exec_options *options,
                                       struct forecast *f,
                                       struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (config->what_if)
        status = pst_exec_choices(plan, options, true, &f->choices, diag);
    if (status == PST_OK)
        status = pst_exec_choose(plan, options, diag);
    f->recompute = options->recompute != NULL ? options->recompute : "none";
    f->stash = options->stash != NULL ? options->stash : "none";
    f->shard = options->replicas > 1 && options->shard_by != NULL
                   ? options->shard_by
                   : "none";
    f->replicas = options->replicas;
    if (status == PST_OK)
        pstctl_note_unused(config);
    return status;
}

static enum pst_status predict_evaluation(
    const struct pstd_config *config, const struct pst_batch *batch,
    const struct pst_exec_options *options, struct forecast *f,
    struct pst_diag *diag)
{
    if (config->eval_data == NULL)
        return PST_OK;
    f->eval = pst_calloc(PST_TAG_CLIENT, f->ranks, sizeof(*f->eval));
    if (f->eval == NULL)
        return pst_diag_nomem(diag, f->ranks * sizeof(*f->eval));
    return pstctl_evaluation_memory(config, batch, f->sched, options, f->eval,
                                    diag);
}

static void describe_times(const struct pstd_config *config,
                           struct pst_str *out)
{
    if (config->costs != NULL)
        pst_str_addf(out, "measured, %s", config->costs);
    else
        pst_rates_describe(pst_rates_here(), out);
}

static enum pst_status run_plan(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct pst_exec_options options;
    struct forecast f = {0};
    struct pst_batch batch = {0};
    struct pstd_plan p = {0};
    enum pst_status status = pstctl_plan_open(config, &p, diag);

    if (status != PST_OK)
        return status;
    describe_times(config, &f.times);
    describe_processors(&f.processors);
    pst_device_cpu.describe(&f.products);
    if (strcmp(config->dtype, "bf16") == 0 || pst_plan_casts_bf16(p.plan)) {
        pst_str_add(&f.products, "; ");
        pst_rates_describe_bf16(&f.products);
    }
    f.ranks = pstd_ranks(config, (unsigned)p.plan->stages.n);
    f.memory = pst_calloc(PST_TAG_CLIENT, f.ranks, sizeof(*f.memory));
    f.hosted = pst_calloc(PST_TAG_CLIENT, f.ranks, sizeof(*f.hosted));
    if (f.memory == NULL || f.hosted == NULL)
        status = pst_diag_nomem(diag, f.ranks * sizeof(*f.hosted));
    if (status == PST_OK)
        status = pstd_exec_options(config, f.ranks, p.plan->loss >= 0, &options,
                                   diag);
    /* If --device lists several kinds of devices, memory is predicted for the
     * kind of rank 0. */
    if (status == PST_OK)
        status = pst_device_named(config->device, 0, &options.device, diag);
    if (status == PST_OK)
        options.no_fallback = false; /* pstctl_hosted_find checks each rank */
    if (status == PST_OK)
        status = pstd_open_batch(config, p.plan, &batch, diag);
    if (status == PST_OK) {
        pstctl_ramp_init(config, &f.ramp, &options);
        pstd_set_batch(&options, &batch);
        status = resolve_choices(config, batch.plan, &options, &f, diag);
    }
    if (status == PST_OK)
        status = predict_step(batch.plan, &options, &f, diag);
    if (status == PST_OK)
        status = predict_evaluation(config, &batch, &options, &f, diag);
    if (status == PST_OK)
        status = pstctl_hosted_find(config, batch.plan, f.sched, &options,
                                    f.hosted, diag);
    if (status == PST_OK)
        status = write_files(config, batch.plan, &f, diag);
    if (status == PST_OK && config->json) {
        status = print_json(&f, diag);
    } else if (status == PST_OK) {
        print_memory(&f);
        pstctl_ramp_show(&f.ramp);
        print_stash(&f);
        print_evaluation(&f);
        pstctl_hosted_print(f.hosted, f.ranks);
        if (f.groups.all.n > 1)
            pstctl_groups_print(&f.groups, f.plan);
        print_times(&f);
        print_candidates(f.sched);
        print_choices(&f);
    }
    pst_groups_fini(&f.groups);
    pst_sim_fini(&f.sim);
    pst_costs_fini(&f.costs);
    pst_schedule_free(f.sched);
    pst_str_fini(&f.note);
    pst_str_fini(&f.products);
    pst_str_fini(&f.processors);
    pst_str_fini(&f.times);
    pst_free(f.memory);
    pst_free(f.eval);
    pstctl_hosted_free(f.hosted, f.ranks);
    pst_choices_fini(&f.choices);
    pst_batch_fini(&batch);
    pstd_plan_close(&p);
    return status;
}

const struct pstctl_command pstctl_plan = {
    "plan",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_PLAN | PSTD_OPT_PICTURE | PSTD_OPT_JSON,
    "predict memory, time and waiting of each rank",
    "Nothing is run. Without --costs, times are estimated from operations and "
    "bytes,\n"
    "at the rates that `penstock calibrate` measures: trust their ratios more "
    "than\n"
    "their absolute values.",
    run_plan,
    true};
