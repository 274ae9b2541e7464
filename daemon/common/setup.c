// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "stages/cost/cost.h"
#include "stages/files/data/list.h"
#include "stages/ops/rates/rates.h"
#include "stages/tune/estimate.h"

#define WATCHDOG_S 60

static void set_if_given(double given, double *option)
{
    if (!isnan(given))
        *option = given;
}

/* Appends the optimizers that have an option: "sgd, adamw". */
static void add_owners(const char *option, struct pst_str *out)
{
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    for (size_t i = 0; i < n; i++)
        if (pst_optim_has(rows[i], option))
            pst_str_addf(out, "%s%s", out->len > 0 ? ", " : "", rows[i]->name);
}

/* If --optimizer is none, refuses the options that all optimizers have. */
static enum pst_status check_no_optimizer(const struct pstd_config *config,
                                          const struct pst_optim *optim,
                                          struct pst_diag *diag)
{
    static const struct {
        size_t at;
        const char *name;
    } options[] = {
        {offsetof(struct pstd_config, lr), "lr"},
        {offsetof(struct pstd_config, lr_schedule), "lr-schedule"},
        {offsetof(struct pstd_config, warmup), "warmup"},
        {offsetof(struct pstd_config, weight_decay), "weight-decay"},
        {offsetof(struct pstd_config, group), "group"},
        {offsetof(struct pstd_config, no_decay), "no-decay"},
        {offsetof(struct pstd_config, ema), "ema"},
    };

    for (size_t i = 0; optim == NULL && i < PST_COUNT(options); i++)
        if (pstd_config_given(config, options[i].at))
            return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                                "--%s is an option of optimizers that move "
                                "parameters, not of --optimizer %s",
                                options[i].name, config->optimizer);
    return PST_OK;
}

/* Refuses options that the optimizer does not have, since they would have no
 * effect. */
static enum pst_status check_optimizer(const struct pstd_config *config,
                                       const struct pst_optim *optim,
                                       struct pst_diag *diag)
{
#define OPTION(member, name)                                                   \
    {                                                                          \
        offsetof(struct pstd_config, member), name                             \
    }
    static const struct {
        size_t at;
        const char *name;
    } options[] = {OPTION(momentum, "momentum"),
                   OPTION(dampening, "dampening"),
                   OPTION(nesterov, "nesterov"),
                   OPTION(beta1, "beta1"),
                   OPTION(beta2, "beta2"),
                   OPTION(eps, "eps"),
                   OPTION(alpha, "alpha"),
                   OPTION(centered, "centered"),
                   OPTION(rho, "rho"),
                   OPTION(lr_decay, "lr-decay"),
                   OPTION(ns_steps, "ns-steps"),
                   OPTION(beta2_decay, "beta2-decay"),
                   OPTION(eps2, "eps2"),
                   OPTION(clip_threshold, "clip-threshold"),
                   OPTION(match_rms_adamw, "match-rms-adamw"),
                   OPTION(state_dtype, "state-dtype")};
#undef OPTION

    for (size_t i = 0; i < PST_COUNT(options); i++) {
        struct pst_str owners = {0};

        if (!pstd_config_given(config, options[i].at) ||
            (optim != NULL && pst_optim_has(optim, options[i].name)))
            continue;
        add_owners(options[i].name, &owners);
        (void)pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                           "--%s is an option of --optimizer %s, not of %s",
                           options[i].name, pst_str_text(&owners),
                           config->optimizer);
        pst_str_fini(&owners);
        return PST_ERR_USAGE;
    }
    return check_no_optimizer(config, optim, diag);
}

unsigned pstd_local_rank(unsigned rank, unsigned size)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                                        "SLURM_LOCALID"};

    for (size_t i = 0; i < PST_COUNT(names); i++) {
        const char *text = getenv(names[i]); // NOLINT(concurrency-mt-unsafe)

        if (text != NULL && size > 1)
            return (unsigned)strtoul(text, NULL, 10);
    }
    return size > 1 ? rank : 0;
}

unsigned pstd_local_size(unsigned size)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE",
                                        "SLURM_STEP_TASKS_PER_NODE"};

    for (size_t i = 0; i < PST_COUNT(names); i++) {
        const char *text = getenv(names[i]); // NOLINT(concurrency-mt-unsafe)
        const unsigned long n = text != NULL ? strtoul(text, NULL, 10) : 0;

        if (n > 0 && n <= size && size > 1)
            return (unsigned)n;
    }
    return size;
}

enum pst_status pstd_refuse_ramp(const struct pstd_config *config,
                                 const char *what, struct pst_diag *diag)
{
    if (config->microbatches.n == 1)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_RAMP,
                        "%s has steps of one size: give --microbatches N",
                        what);
}

/* Refuses options that have no effect because of other options. */
static enum pst_status check_effects(const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    if (config->stash_keep > 0 && strcmp(config->stash, "none") == 0)
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--stash-keep needs --stash ram or disk:FOLDER");
    if (config->microbatches.n > 1 && config->batch > 0)
        return pst_diag_set(diag, PST_E_RUN_RAMP,
                            "--batch sets the rows of every step, and a ramp "
                            "of --microbatches changes them: give "
                            "--microbatch-size instead");
    return PST_OK;
}

/* Refuses options of token files for files of tensors, which have names and
 * shapes. */
static enum pst_status check_data(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    static const struct {
        size_t at;
        const char *name;
    } rows[] = {
        {offsetof(struct pstd_config, token_dtype), "token-dtype"},
        {offsetof(struct pstd_config, seq_len), "seq-len"},
        {offsetof(struct pstd_config, tokens_input), "tokens-input"},
        {offsetof(struct pstd_config, targets_input), "targets-input"},
        {offsetof(struct pstd_config, pack), "pack"},
        {offsetof(struct pstd_config, positions_input), "positions-input"},
        {offsetof(struct pstd_config, documents_input), "documents-input"},
        {offsetof(struct pstd_config, mask_input), "mask-input"},
    };

    if (config->data == NULL)
        return pst_diag_set(diag, PST_E_DATA_MISSING, "--data FILE is missing");
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (pstd_config_given(config, rows[i].at) &&
            pst_data_list_has_tensors(config->data))
            return pst_diag_set(diag, PST_E_DATA_TOKEN_DTYPE,
                                "--%s is for files of tokens; %s has tensors "
                                "with names",
                                rows[i].name, config->data);
    return PST_OK;
}

static const char *recompute_option(const struct pstd_config *config)
{
    return strcmp(config->recompute, "none") == 0 ? NULL : config->recompute;
}

double pstd_watchdog(const struct pstd_config *config)
{
    return isnan(config->watchdog) ? WATCHDOG_S : config->watchdog;
}

enum pst_status pstd_exec_options(const struct pstd_config *config,
                                  unsigned ranks, bool train,
                                  struct pst_exec_options *ret,
                                  struct pst_diag *diag)
{
    struct pst_exec_options o = {
        .schedule = config->schedule,
        .place = config->place,
        .ranks = ranks,
        .replicas = train ? pstd_replicas(config) : 1,
        .watchdog = pstd_watchdog(config),
        .microbatches = pstd_ramp_first(&config->microbatches),
        .weigh_equal = strcmp(config->microbatch_weights, "equal") == 0,
        .scatter = strcmp(config->data_at, "first") == 0,
        .train = train,
        .check_grads = train,
        .keep_outputs = !train || config->dump != NULL,
        .threads = (unsigned)config->threads,
        .bind = strcmp(config->bind, "cores") == 0,
        .seed = config->seed,
        .bf16 = strcmp(config->dtype, "bf16") == 0,
        .groups = train ? config->group : NULL,
        .no_decay = train ? config->no_decay : NULL,
        .rates = pst_rates_here(),
        .costs = config->costs,
        .memory_limit = config->memory_limit * 1048576.0,
        .overcommit = config->overcommit,
        .no_fallback = config->no_fallback,
        .no_graphs = config->no_graphs,
        .tf32 = config->tf32,
        .whole_logits = config->no_chunked_loss,
        .no_chains = config->no_chains,
        .verify = config->verify,
        .recompute = recompute_option(config),
        .stash =
            train && strcmp(config->stash, "none") != 0 ? config->stash : NULL,
        .stash_keep = (unsigned)config->stash_keep,
        .shard_by = strcmp(config->shard, "none") != 0 ? config->shard : NULL,
        .shard_rows = strcmp(config->shard_layout, "rows") == 0,
        .gather_bf16 = strcmp(config->gather_dtype, "bf16") == 0,
        .unshard_window = (unsigned)config->unshard_window,
    };
    enum pst_status status =
        pst_optim_defaults(train ? config->optimizer : "none", &o.optim, diag);

    if (status == PST_OK && train)
        status = check_optimizer(config, o.optim.row, diag);
    if (status == PST_OK)
        status = check_effects(config, diag);
    if (status != PST_OK)
        return status;
    set_if_given(config->lr, &o.optim.lr);
    set_if_given(config->momentum, &o.optim.momentum);
    set_if_given(config->dampening, &o.optim.dampening);
    set_if_given(config->beta1, &o.optim.beta1);
    set_if_given(config->beta2, &o.optim.beta2);
    set_if_given(config->eps, &o.optim.eps);
    set_if_given(config->alpha, &o.optim.alpha);
    set_if_given(config->rho, &o.optim.rho);
    set_if_given(config->lr_decay, &o.optim.lr_decay);
    set_if_given(config->beta2_decay, &o.optim.beta2_decay);
    set_if_given(config->eps2, &o.optim.eps2);
    set_if_given(config->clip_threshold, &o.optim.clip_threshold);
    set_if_given(config->weight_decay, &o.optim.weight_decay);
    if (pstd_config_given(config, offsetof(struct pstd_config, nesterov)))
        o.optim.nesterov = config->nesterov;
    if (pstd_config_given(config, offsetof(struct pstd_config, ns_steps)))
        o.optim.ns_steps = (double)config->ns_steps;
    o.optim.match_rms_adamw = config->match_rms_adamw;
    o.optim.centered = config->centered;
    if (o.optim.row != NULL && o.optim.row->signs != NULL)
        (void)pst_optim_store_find(config->state_dtype, &o.optim.store);
    o.optim.clip_norm = config->clip_norm;
    o.optim.clip_value = config->clip_value;
    if (train && status == PST_OK)
        status = pst_loss_scale_read(config->loss_scale, &o.loss_scale, diag);
    o.optim.ema = o.optim.row != NULL ? config->ema : 0;
    if (train && status == PST_OK)
        status = pstd_rate_options(config, &o.optim, diag);
    if (status == PST_OK)
        status = pst_optim_check(&o.optim, diag);
    if (status == PST_OK)
        *ret = o;
    return status;
}

void pstd_set_batch(struct pst_exec_options *options,
                    const struct pst_batch *batch)
{
    options->tail = batch->tail;
    options->n_tail = batch->n_tail;
}

enum pst_status pstd_set_side_by_side(const struct pst_plan *plan,
                                      struct pst_exec_options *options,
                                      struct pst_diag *diag)
{
    double *seconds =
        pst_calloc(PST_TAG_DAEMON, plan->stages.n, sizeof(*seconds));
    double sum = 0;
    enum pst_status status;

    if (seconds == NULL)
        return pst_diag_nomem(diag, plan->stages.n * sizeof(*seconds));
    status = pst_plan_seconds(plan, options, seconds, diag);
    for (size_t i = 0; i < plan->stages.n && status == PST_OK; i++)
        sum += seconds[i];
    pst_free(seconds);
    options->side_by_side =
        sum >= 4 * pst_rates_here()->wake * (double)plan->stages.n;
    return status;
}

/* True if an entry of the list before `spec` has the same name. */
static bool is_repeated(const char *specs, const char *spec)
{
    const size_t n = strcspn(spec, "=,") + 1;

    for (; specs < spec; specs += strcspn(specs, ",") + 1)
        if (strncmp(specs, spec, n) == 0)
            return true;
    return false;
}

/* Sets the dimension along which each input is divided into microbatches, from
 * --chunk: "a=0,b=replicate". */
static enum pst_status set_chunks(const char *specs, struct pst_plan *plan,
                                  struct pst_diag *diag)
{
    const char *const list = specs;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < plan->inputs.n; i++)
        plan->inputs.at[i].chunk = plan->inputs.at[i].meta.rank > 0 ? 0 : -1;
    while (specs != NULL && *specs != '\0' && status == PST_OK) {
        const size_t n = strcspn(specs, ",");
        char spec[256];

        (void)snprintf(spec, sizeof(spec), "%.*s", (int)n, specs);
        if (is_repeated(list, specs))
            return pst_diag_set(diag, PST_E_SIZE_OPTION,
                                "--chunk %.100s: the input is named twice",
                                spec);
        status = pst_plan_chunk(plan, spec, diag);
        specs += n + (specs[n] == ',');
    }
    return status;
}

enum pst_status pstd_open_batch(const struct pstd_config *config,
                                struct pst_plan *plan, struct pst_batch *ret,
                                struct pst_diag *diag)
{
    struct pst_plan *sized = NULL;
    enum pst_status status = set_chunks(config->chunk, plan, diag);

    if (status == PST_OK && config->size != NULL)
        status = pst_plan_resize(plan, config->size, &sized, diag);
    if (status == PST_OK)
        status = pst_batch_init(
            sized != NULL ? sized : plan, (int64_t)config->microbatch_size,
            (int64_t)config->batch, pstd_ramp_first(&config->microbatches), ret,
            diag);
    if (status == PST_OK)
        ret->sized = sized;
    else
        pst_plan_free(sized);
    return status;
}

static enum pst_status open_data(const struct pstd_config *config,
                                 const struct pst_batch *batch, bool leave_rest,
                                 bool compare, struct pst_data **ret,
                                 struct pst_diag *diag)
{
    const struct pst_data_options options = {
        .leave_rest = leave_rest,
        .path = config->data,
        .token_dtype =
            PSTD_GIVEN(config, token_dtype) ? config->token_dtype : NULL,
        .seq_len = (int64_t)config->seq_len,
        .tokens = config->tokens_input,
        .targets = config->targets_input,
        .pack = config->pack,
        .positions = config->positions_input,
        .documents = config->documents_input,
        .mask = config->mask_input,
        .shuffle = config->shuffle,
        .seed = config->seed,
        .compare = compare,
        .in_order = leave_rest,
    };
    const struct pst_data_step step = {batch->microbatches, batch->n_tail};
    const struct pst_plan *plan = batch->plan;
    struct pst_data_input *inputs;
    enum pst_status status;

    status = check_data(config, diag);
    if (status != PST_OK)
        return status;
    inputs = pst_calloc(PST_TAG_DAEMON, plan->inputs.n + 1, sizeof(*inputs));
    if (inputs == NULL)
        return pst_diag_nomem(diag, plan->inputs.n * sizeof(*inputs));
    for (size_t i = 0; i < plan->inputs.n && status == PST_OK; i++) {
        const struct pst_plan_input *in = &plan->inputs.at[i];

        inputs[i] =
            (struct pst_data_input){in->name, in->meta, in->chunk, 0, in->dims};
        inputs[i].unread = !pst_plan_reads_input(plan, (unsigned)i);
        if (batch->tail != NULL && in->chunk >= 0)
            inputs[i].tail = batch->tail->inputs.at[i].meta.size[in->chunk];
        /* Packing needs, on every rank, the target that the loss ignores. */
        if (compare || config->pack != NULL)
            status = pst_plan_bound(plan, (unsigned)i, &inputs[i].bound, diag);
    }
    if (status == PST_OK)
        status =
            pst_data_open(&options, inputs, plan->inputs.n, step, ret, diag);
    pst_free(inputs);
    return status;
}

enum pst_status pstd_check_backward(const struct pstd_config *config,
                                    const struct pst_plan *plan,
                                    struct pst_diag *diag)
{
    if (plan->lost == NULL || plan->loss < 0 || config->accept_lost_backward)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_LOST_BACKWARD,
                        "the file has not the backward of the "
                        "torch.autograd.Function in %s: with "
                        "--accept-lost-backward the gradient of its forward is "
                        "taken",
                        plan->lost);
}

enum pst_status pstd_open_data(const struct pstd_config *config,
                               const struct pst_batch *batch, bool compare,
                               struct pst_data **ret, struct pst_diag *diag)
{
    return open_data(config, batch, false, compare, ret, diag);
}

enum pst_status pstd_open_eval_data(const struct pstd_config *config,
                                    const struct pst_batch *batch, bool compare,
                                    struct pst_data **ret,
                                    struct pst_diag *diag)
{
    const struct pst_batch alike = {.plan = batch->plan,
                                    .microbatches = batch->microbatches};

    return open_data(config, &alike, true, compare, ret, diag);
}

enum pst_mean_by pstd_mean_by(const struct pstd_config *config)
{
    return strcmp(config->microbatch_weights, "tokens") == 0
               ? PST_MEAN_BY_TARGETS
               : PST_MEAN_BY_EITHER;
}

static double sum_flops(const struct pst_plan *plan)
{
    double flops = 0;

    for (size_t i = 0; plan != NULL && i < plan->stages.n; i++)
        flops += plan->stages.at[i].flops;
    return flops;
}

double pstd_count_flops(const struct pst_batch *batch)
{
    return PST_COST_STEP *
           ((batch->microbatches - batch->n_tail) * sum_flops(batch->plan) +
            batch->n_tail * sum_flops(batch->tail));
}

/* Appends the stages of a rank; consecutive ones become "s-t". */
static void add_stages(const struct pst_schedule *sched, int rank,
                       struct pst_str *out)
{
    const int n = (int)sched->n_stages;
    bool first = true;

    for (int s = 0; s < n; s++) {
        int last = s;

        if (sched->rank_of[s] != rank)
            continue;
        while (last + 1 < n && sched->rank_of[last + 1] == rank)
            last++;
        pst_str_addf(out, "%s%d", first ? "" : ",", s);
        if (last > s)
            pst_str_addf(out, "-%d", last);
        first = false;
        s = last;
    }
}

void pstd_print_placement(const struct pst_schedule *sched, struct pst_str *out)
{
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        if (r > 0)
            pst_str_add(out, ";");
        add_stages(sched, (int)r, out);
    }
}

void pstd_print_stages(const char *placement, unsigned rank,
                       struct pst_str *out)
{
    unsigned n = 1; /* number of ranks of a pipeline */

    for (const char *at = placement; (at = strchr(at, ';')) != NULL; at++)
        n++;
    rank %= n;
    while (rank-- > 0) {
        placement = strchr(placement, ';');
        if (placement == NULL)
            break;
        placement++;
    }
    if (placement == NULL || *placement == '\0' || *placement == ';')
        pst_str_add(out, "-");
    else
        pst_str_addn(out, placement, strcspn(placement, ";"));
}

/* Parses "VmHWM:    1234 kB" of /proc/self/status; 0 if it cannot be read. */
static uint64_t read_status_kib(const char *key)
{
    FILE *f = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[256];

    if (f == NULL)
        return 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        const size_t len = strlen(key);

        if (strncmp(line, key, len) == 0 && line[len] == ':') {
            for (const char *p = line + len + 1; *p != '\0' && *p != 'k'; p++)
                if (*p >= '0' && *p <= '9')
                    kib = 10 * kib + (unsigned)(*p - '0');
            break;
        }
    }
    (void)fclose(f);
    return kib;
}

uint64_t pstd_peak_rss(void)
{
    return read_status_kib("VmHWM") * 1024;
}

uint64_t pstd_rss(void)
{
    return read_status_kib("VmRSS") * 1024;
}

size_t pstd_planned_bytes(const struct pst_engine *engine)
{
    size_t bytes = 0;

    for (unsigned i = 0; i < pst_engine_n_local(engine); i++)
        bytes += pst_engine_memory(engine, i).arena;
    return bytes;
}
