// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates a job that is restarted: the supervisor (daemon/ctl/run/supervise.c
 * and what it decides by) and checkpoints (stages/files/) on a disk that loses
 * unsynced data (tests/files/disk.h). Ranks are killed, crash, hang and leave;
 * hosts are missing; the file server or the whole machine loses power, also
 * during a save or at the start; saves fail; users stop the job and start it
 * again.
 *
 * Invariants: a start continues from the newest checkpoint that was reported as
 * saved, or from a newer one, with its values. At most one interval and the
 * work in progress are lost. Starts, delays and ranks are those that
 * docs/jobs.md promises, computed here independently. A job that nobody ends
 * reaches its end.
 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/run/supervise.h"
#include "stages/base/host/fs.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/run/watch/pulse.h"
#include "tests/files/disk.h"

#define DIGEST "0123456789abcdef0123456789abcdef"
#define DIR    "w/ck"
#define VALUES 150 /* elements of a tensor: several sectors */
#define STEPS  32

enum kind {
    DONE,    /* the run finishes */
    KILL,    /* a rank dies by SIGKILL */
    OOM,     /* the same, out of memory */
    CRASH,   /* a rank dies by SIGSEGV */
    LEAVE,   /* a rank exits with an error code */
    HANG,    /* a rank hangs, and the watchdog reports it */
    ORPHANS, /* mpirun is killed */
    CUT,     /* a host is lost while the job runs */
    AWAY,    /* hosts are missing at the start */
    POWER,   /* the file server loses power, and the ranks end */
    MACHINE, /* this machine loses power, with the supervisor */
    FAULT,   /* the run cannot continue */
    STOP     /* a user stops it */
};

static const char *const names[] = {
    "done", "kill", "oom",   "crash",   "leave", "hang", "orphans",
    "cut",  "away", "power", "machine", "fault", "stop",
};

struct save {
    uint64_t step;
    size_t from, to; /* disk operations of the save */
    bool good;       /* it reported success */
};

static struct {
    struct pstd_config config;
    struct pstctl_launch launch;
    unsigned stages, least, replicas;
    /* crash_step: step at which the run crashes; 0: none. every, lag: steps
     * from save to save, and most steps that one takes. limit: --max-restarts
     */
    uint64_t steps, every, lag, limit, crash_step;
    unsigned keep, troubles, machines;
    bool foreign; /* the folder has another run's checkpoints at first */
    /* State of the job. */
    uint64_t committed; /* newest checkpoint that was reported as saved */
    uint64_t newest;    /* newest checkpoint on the disk */
    uint64_t reached;   /* newest step of the newest start */
    unsigned starts;
    bool is_over, failed_save;
    bool rewinds;    /* --resume=STEP is set, and no start has used it */
    enum kind ended; /* end of the newest start */
    /* Expected decision of the supervisor. */
    bool again;
    unsigned delay, ranks;
    uint64_t streak, best; /* starts without a newer checkpoint than `best` */
    unsigned losses;
    uint64_t losses_best;
    /* State of one start. */
    struct save saves[STEPS];
    unsigned n_saves;
    size_t ends[STEPS + 1]; /* disk operations at each step's end */
    uint64_t first;         /* step that it continues from */
    size_t begun;           /* number of disk operations at its beginning */
} w;

static struct pst_diag diag;

/* --- the disk ------------------------------------------------------------- */

static float value_of(uint64_t step, unsigned stage, bool foreign)
{
    return (float)(step * 100 + stage * 10 + (foreign ? 5 : 0));
}

static enum pst_status save_shard(uint64_t step, unsigned rank, unsigned ranks,
                                  bool foreign,
                                  struct pst_checkpoint_shard *ret)
{
    const int64_t n = VALUES;
    const struct pst_meta meta = pst_meta_make(PST_F32, 1, &n);
    struct pst_safetensors_writer *writer = NULL;
    const unsigned from = rank * w.stages / ranks,
                   to = (rank + 1) * w.stages / ranks;
    enum pst_status status =
        pst_checkpoint_shard_new(DIR, step, rank, &writer, &diag);
    char name[64];

    for (unsigned s = from; s < to && status == PST_OK; s++) {
        (void)snprintf(name, sizeof(name), PST_CHECKPOINT_PARAM "layers.%u.w",
                       s);
        status = pst_safetensors_writer_declare(writer, name, &meta, &diag);
    }
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(writer, &diag);
    for (unsigned s = from; s < to && status == PST_OK; s++) {
        float data[VALUES];

        for (size_t i = 0; i < VALUES; i++)
            data[i] = value_of(step, s, foreign);
        status = pst_safetensors_writer_put(writer, s - from, data, &diag);
    }
    if (status == PST_OK)
        return pst_checkpoint_shard_commit(writer, ret, &diag);
    pst_safetensors_writer_free(writer);
    return status;
}

/* Saves the shards in any order, and the manifest last. */
static enum pst_status save(uint64_t step, unsigned ranks, bool foreign)
{
    const struct pst_checkpoint_info info = {
        .step = step, .model_digest = DIGEST, .optimizer = "adamw"};
    struct pst_checkpoint_shard shards[8] = {0};
    const unsigned first = (unsigned)sim_pick(ranks);
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < ranks && status == PST_OK; i++) {
        const unsigned rank = (first + i) % ranks;

        status = save_shard(step, rank, ranks, foreign, &shards[rank]);
    }
    if (status == PST_OK)
        status = pst_checkpoint_commit(DIR, &info, NULL, shards, ranks, w.keep,
                                       &diag);
    for (unsigned i = 0; i < ranks && status != PST_OK; i++)
        pst_checkpoint_shard_discard(DIR, step, &shards[i]);
    return status;
}

/* True if a checkpoint has the values of our run or of the other one, and is
 * not torn. */
static bool is_whole(const struct pst_checkpoint *ckpt, bool *ret_foreign)
{
    float data[VALUES];

    for (unsigned s = 0; s < w.stages; s++) {
        const struct pst_safetensors_entry *e;
        char name[64];

        (void)snprintf(name, sizeof(name), PST_CHECKPOINT_PARAM "layers.%u.w",
                       s);
        e = pst_checkpoint_find(ckpt, name);
        if (e == NULL || e->bytes != sizeof(data) ||
            pst_safetensors_read(e, 0, sizeof(data), data, &diag) != PST_OK)
            return false;
        if (s == 0)
            *ret_foreign = data[0] == value_of(ckpt->info.step, 0, true);
        for (size_t i = 0; i < VALUES; i++)
            if (data[i] != value_of(ckpt->info.step, s, *ret_foreign))
                return false;
    }
    return true;
}

/* Returns the step of checkpoint `which` (a step, or the newest) of our run; 0:
 * none. */
static uint64_t newest_step(uint64_t which, enum pst_status *ret_status)
{
    const struct pst_checkpoint_query query = {
        .dir = DIR, .step = which, .model_digest = DIGEST, .verify = true};
    struct pst_checkpoint *ckpt = NULL;
    bool foreign = false;
    uint64_t step;

    *ret_status = pst_checkpoint_open(&query, &ckpt, &diag);
    if (*ret_status != PST_OK)
        return 0;
    sim_check(is_whole(ckpt, &foreign), "the checkpoint of step %llu is torn",
              (unsigned long long)ckpt->info.step);
    step = foreign ? 0 : ckpt->info.step;
    pst_checkpoint_close(ckpt);
    return step;
}

/* --- a start of the ranks ------------------------------------------------- */

/* Simulates rank 0's handling of the folder before the first step
 * (daemon/exec/). */
static enum pst_status claim_folder(const struct pstd_config *options,
                                    struct pst_checkpoint_owner **ret)
{
    struct pst_checkpoint_run run = {0};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_claim claim = {.dir = DIR,
                                         .model_digest = DIGEST,
                                         .run = run.name,
                                         .resume = options->resume.on,
                                         .adopt = options->adopt};
    enum pst_status status = PST_OK;

    if (options->resume.on)
        status = pst_checkpoint_read_run(DIR, &run, &diag);
    if (run.name[0] == '\0')
        pst_checkpoint_name_run(run.name);
    if (status == PST_OK)
        status = pst_checkpoint_acquire(&claim, ret, &former, &diag);
    pst_free(run.fallback);
    return status;
}

static enum pst_status load(const struct pstd_config *options)
{
    struct pst_checkpoint_former former = {0};
    enum pst_status status = PST_OK;

    w.first = 0;
    if (!options->resume.on)
        return PST_OK;
    w.first = newest_step(options->resume.step > 0 ? options->resume.step
                                                   : PST_CHECKPOINT_LATEST,
                          &status);
    if (status != PST_OK)
        return status;
    return options->resume.step > 0
               ? pst_checkpoint_set_aside(DIR, w.first, &former, &diag)
               : pst_checkpoint_set_lost_aside(DIR, w.first, &former, &diag);
}

static void do_save(uint64_t step, unsigned ranks)
{
    struct save *s = &w.saves[w.n_saves++];
    const bool is_sick = sim_once_in(12);

    s->step = step;
    s->from = disk_count();
    if (is_sick)
        disk_fail(s->from + sim_pick(24), sim_once_in(2) ? ENOSPC : EIO);
    s->good = save(step, ranks, false) == PST_OK;
    disk_fail(SIZE_MAX, 0);
    s->to = disk_count();
    sim_trace("save of step %llu %s", (unsigned long long)step,
              s->good ? "is good" : "failed");
}

/* Runs steps up to `last`, and saves, which are written while later steps run.
 */
static void do_steps(uint64_t last, unsigned ranks)
{
    uint64_t due = 0;

    for (uint64_t step = w.first + 1; step <= last; step++) {
        sim_sleep(sim_between(SIM_MS, SIM_S));
        if (due > 0 && (step > due + w.lag || step == last)) {
            do_save(due, ranks);
            due = 0;
        }
        w.ends[step] = disk_count();
        if (step % w.every == 0)
            due = step;
    }
    /* Saves the last step again until its save succeeds; first finishes a save
     * in progress. */
    if (due > 0 || last == w.steps)
        do_save(due > 0 ? due : last, ranks);
    while (
        last == w.steps &&
        (!w.saves[w.n_saves - 1].good || w.saves[w.n_saves - 1].step != last) &&
        w.n_saves < STEPS)
        do_save(last, ranks);
}

/* Sets the disk, and what was reached and saved, to the state before operation
 * `at`. */
static void rewind_disk(size_t at, bool power)
{
    uint64_t reached = w.first;

    (void)disk_end();
    w.failed_save = false;
    for (unsigned i = 0; i < w.n_saves; i++) {
        const struct save *s = &w.saves[i];

        if (s->to <= at && s->good)
            w.committed = PST_MAX(w.committed, s->step);
        if (s->to <= at && !s->good)
            w.failed_save = true;
    }
    for (uint64_t s = w.first + 1; s <= w.reached && w.ends[s] <= at; s++)
        reached = s;
    w.reached = w.begun <= at ? reached : 0;
    sim_check(pst_remove_tree("w", &diag) == PST_OK, "%s", diag.text);
    if (power)
        disk_crash(at, sim_pick(1u << 30), "w");
    else
        disk_kill(at, "w");
    sim_trace("%s before operation %zu; step %llu, saved %llu",
              power ? "power is lost" : "the ranks end", at,
              (unsigned long long)w.reached, (unsigned long long)w.committed);
    disk_free();
}

/* Draws the disk operation at which a start ends: one at its beginning, one of
 * its newest save, any one, or the end of all work. */
static size_t draw_end(void)
{
    const size_t n = disk_count();
    const struct save *s = w.n_saves > 0 ? &w.saves[w.n_saves - 1] : NULL;

    if (sim_once_in(8))
        return sim_pick(w.begun + 1);
    if (s != NULL && sim_once_in(2))
        return s->from + sim_pick(s->to - s->from + 1);
    if (sim_once_in(6))
        return sim_pick(n + 1);
    return s != NULL && sim_once_in(2) ? s->from : n;
}

/* --- what the supervisor must make of it ---------------------------------- */

static bool is_loss(enum kind kind)
{
    return kind == KILL || kind == OOM || kind == HANG || kind == CUT ||
           kind == AWAY || kind == POWER;
}

/* Returns true, and lowers w.ranks, if docs/jobs.md, "Fewer ranks", demands it.
 * missing: ranks without a host. */
static bool must_be_fewer(enum kind kind, unsigned missing)
{
    const unsigned less =
        missing > 0 ? (missing + w.replicas - 1) / w.replicas : 1;

    if (w.newest > w.losses_best)
        w.losses = 0;
    w.losses_best = PST_MAX(w.losses_best, w.newest);
    w.losses = is_loss(kind) ? w.losses + 1 : 0;
    if ((w.losses < 2 && missing == 0) || w.ranks < w.least + less)
        return false;
    w.ranks -= less;
    w.losses = 0;
    return true;
}

/* Computes the expected decision and delay by docs/jobs.md, "Budget". */
static void expect_decision(enum kind kind, unsigned missing)
{
    const bool is_newer = w.newest > w.best;

    w.best = PST_MAX(w.best, w.newest);
    if (must_be_fewer(kind, missing)) {
        w.streak = 0;
        w.delay = 0;
        w.again = w.limit > 0;
        return;
    }
    if (is_newer)
        w.streak = 0;
    w.again = w.streak < w.limit;
    w.delay = w.streak == 0 ? 0 : w.streak > 6 ? 60 : 1u << (w.streak - 1);
    w.streak++;
}

/* --- how it ends ---------------------------------------------------------- */

static void add_output(const char *format, unsigned rank)
{
    struct pst_str line = {0};

    pst_str_addf(&line,
                 "penstockd: " PST_WATCHDOG_TEXT
                 " for 5 s: rank %u is stuck in step 1",
                 rank);
    if (format != NULL) {
        pst_str_fini(&line);
        pst_str_addf(&line, format, rank); // NOLINT: ours
    }
    pstctl_launch_line(&w.launch, pst_str_text(&line));
    pst_str_fini(&line);
}

/* Makes output and exit code of an mpirun that ends this way. */
static enum pst_status end_launch(enum kind kind, unsigned ranks,
                                  struct pst_diag *why)
{
    const unsigned rank = (unsigned)sim_pick(ranks);

    w.launch.is_mpirun = true;
    w.launch.ended = true;
    switch (kind) {
    case KILL:
    case OOM:
    case POWER:
    case MACHINE:
        add_output(
            "mpirun noticed that process rank %u with PID 0 on node x exited "
            "on signal 9 (Killed).",
            rank);
        w.launch.status = 137 << 8;
        break;
    case CRASH:
        add_output(
            "mpirun noticed that process rank %u with PID 0 on node x exited "
            "on signal 11 (Segmentation fault).",
            rank);
        w.launch.status = 139 << 8;
        break;
    case LEAVE:
        add_output("  Process name: [[12345,1],%u]", rank);
        add_output("  Exit code:    %u", 3);
        w.launch.status = 3 << 8;
        break;
    case HANG:
        add_output(NULL, rank);
        w.launch.status = 1 << 8;
        break;
    case ORPHANS:
        w.launch.status = SIGKILL;
        break;
    default: /* CUT */
        w.launch.status = 205 << 8;
        break;
    }
    return pstctl_launch_outcome(&w.launch, NULL, why);
}

static enum kind draw_kind(void)
{
    enum kind kind;

    if (w.troubles == 0)
        return DONE;
    w.troubles--;
    kind = (enum kind)sim_between(KILL, STOP);
    if (w.machines > 0 && sim_once_in(4))
        kind = MACHINE;
    else if (kind == MACHINE)
        kind = POWER;
    if ((kind == FAULT || kind == STOP) && !sim_once_in(6))
        kind = KILL;
    if (kind == AWAY && w.starts == 1)
        kind = CUT;
    return kind;
}

static void check_options(const struct pstd_config *options, unsigned ranks)
{
    sim_check(w.starts == 1 || w.again, "a start that nobody wants");
    sim_check(ranks == w.ranks, "%u ranks are started, not %u", ranks, w.ranks);
    sim_check(options->resume.step == 0 || w.rewinds,
              "it goes back to step %llu once more",
              (unsigned long long)options->resume.step);
    sim_check(w.newest == 0 || options->resume.on,
              "a start from the beginning, although there is step %llu",
              (unsigned long long)w.newest);
    sim_check(ranks == pstd_ranks(&w.config, w.stages) ||
                  !PSTD_GIVEN(options, place),
              "places of other ranks");
}

/* Checkpoints that were there must still be there; lost work is bounded. */
static void check_resume(uint64_t reached)
{
    const uint64_t most = w.every + w.lag;

    sim_check(w.first == w.newest, "it goes on from %llu, not from %llu",
              (unsigned long long)w.first, (unsigned long long)w.newest);
    sim_check(w.first >= w.committed,
              "it goes on from step %llu, but %llu was saved",
              (unsigned long long)w.first, (unsigned long long)w.committed);
    sim_check(w.failed_save || reached <= w.first + most,
              "step %llu was made, it goes on from %llu",
              (unsigned long long)reached, (unsigned long long)w.first);
}

static enum pst_status lose_hosts(unsigned ranks, struct pstctl_fate *ret,
                                  struct pst_diag *why)
{
    const unsigned all = ranks * w.replicas;

    ret->slots = (unsigned)sim_pick(all);
    ret->died = ret->no_hosts = true;
    expect_decision(AWAY, all - ret->slots);
    sim_trace("there is place for %u of %u ranks", ret->slots, all);
    return pst_diag_set(why, PST_E_HOSTS_UNUSABLE, "hosts are away");
}

/* Draws the last step of a start that ends this way. */
static uint64_t draw_last(enum kind *kind)
{
    uint64_t last = w.steps;

    if (*kind != DONE)
        last = w.first + sim_pick(PST_MIN(w.steps - w.first, 3 * w.every) + 1);
    if (w.crash_step > w.first && (last >= w.crash_step || *kind == DONE)) {
        last = w.crash_step - 1;
        *kind = CRASH;
    }
    return last;
}

/* Simulates a complete start and its end. */
static enum pst_status run_start(const struct pstd_config *options,
                                 unsigned ranks, enum kind kind,
                                 struct pstctl_fate *ret, struct pst_diag *why)
{
    struct pst_checkpoint_owner *owner = NULL;
    const uint64_t reached = w.reached;
    enum pst_status status;
    size_t at;

    disk_begin("w");
    w.n_saves = 0;
    status = claim_folder(options, &owner);
    sim_check(status == PST_OK, "the folder is refused: %s", diag.text);
    status = load(options);
    sim_check(status == PST_OK, "nothing can be loaded: %s", diag.text);
    check_resume(reached);
    w.begun = disk_count();
    w.reached = draw_last(&kind);
    w.ended = kind;
    do_steps(w.reached, ranks);
    at = kind == DONE || kind == FAULT || kind == STOP ? disk_count()
                                                       : draw_end();
    pst_checkpoint_release(owner);
    ret->begun = w.begun <= at;
    rewind_disk(at, kind == POWER || kind == MACHINE);
    ret->step = w.reached;
    ret->oom = kind == OOM;
    if (kind == DONE)
        return PST_OK;
    if (kind == FAULT)
        return pst_diag_set(why, PST_E_PT2_INCONSISTENT,
                            "the loss is not finite");
    if (kind == STOP)
        return pst_diag_set(why, PST_E_RUN_STOPPED, "stopped");
    status = end_launch(kind, ranks, why);
    ret->died = status == PST_ERR_PEER;
    sim_check(ret->died, "a %s is no death: %s", names[kind], why->text);
    /* The job may die after a request to stop it, before it stops by itself. */
    if (kind != MACHINE && sim_once_in(12)) {
        sim_trace("somebody had asked it to end");
        ret->asked = PST_E_RUN_STOPPED;
        w.ended = STOP;
    }
    return status;
}

static enum pst_status run(void *ctx, const struct pstd_config *options,
                           unsigned ranks, struct pstctl_fate *ret,
                           struct pst_diag *why)
{
    enum pst_status status, seen;
    enum kind kind;

    (void)ctx;
    w.starts++;
    sim_check(!w.is_over, "the job is over, and starts again");
    sim_check(w.starts < 200, "it starts for ever");
    check_options(options, ranks);
    kind = draw_kind();
    w.ended = kind;
    sim_trace("start %u with %u ranks%s", w.starts, ranks,
              options->resume.on ? ", resumes" : "");
    w.launch = (struct pstctl_launch)PSTCTL_LAUNCH_NONE;
    *ret = (struct pstctl_fate){.launch = &w.launch};
    if (kind == AWAY)
        return lose_hosts(ranks, ret, why);
    status = run_start(options, ranks, kind, ret, why);
    w.rewinds = w.rewinds && !ret->begun;
    if (!w.rewinds)
        w.newest = newest_step(PST_CHECKPOINT_LATEST, &seen);
    sim_check(w.newest >= w.committed,
              "step %llu was saved, and the newest one is %llu: %s",
              (unsigned long long)w.committed, (unsigned long long)w.newest,
              diag.text);
    sim_trace("%s in step %llu; the disk has step %llu", names[w.ended],
              (unsigned long long)w.reached, (unsigned long long)w.newest);
    if (w.ended == MACHINE) { /* the supervisor died too */
        ret->died = false;
        return pst_diag_set(why, PST_E_RUN_TERMINATED, "the power is lost");
    }
    w.is_over = !ret->died || ret->asked != PST_E_NONE;
    if (!w.is_over)
        expect_decision(w.ended, 0);
    return status;
}

static void clear(void *ctx)
{
    (void)ctx;
    sim_check(w.again,
              "it is started again after %llu starts without "
              "progress, of %llu",
              (unsigned long long)w.streak, (unsigned long long)w.limit);
    pstctl_launch_fini(&w.launch);
}

static enum pst_status wait_to_restart(void *ctx, unsigned seconds,
                                       struct pst_diag *why)
{
    (void)ctx;
    sim_check(seconds == w.delay, "it waits for %u s, not for %u", seconds,
              w.delay);
    sim_sleep(seconds * SIM_S);
    if (!sim_once_in(40))
        return PST_OK;
    sim_trace("stopped while it waits");
    w.is_over = true;
    w.ended = STOP;
    return pst_diag_set(why, PST_E_RUN_STOPPED, "stopped");
}

/* --- the world ------------------------------------------------------------ */

static void set(const char *name, uint64_t group, const char *format,
                uint64_t a, uint64_t b)
{
    char text[64];

    (void)snprintf(text, sizeof(text), format, // NOLINT: ours
                   (unsigned long long)a, (unsigned long long)b);
    sim_check(pstd_config_set(&w.config, group, name, text, &diag) == PST_OK,
              "%s", diag.text);
}

static void draw_world(void)
{
    memset(&w, 0, sizeof(w));
    w.stages = (unsigned)sim_between(1, 4);
    w.ranks = (unsigned)sim_between(1, w.stages);
    w.replicas = (unsigned)sim_between(1, 2);
    w.least = sim_once_in(2) ? (unsigned)sim_between(1, w.ranks) : w.ranks;
    w.steps = sim_between(4, STEPS / 2);
    w.every = sim_between(1, 5);
    w.lag = sim_pick(w.every);
    w.limit = sim_between(0, 4);
    w.keep = (unsigned)sim_pick(4);
    w.keep += w.keep == 1; /* --keep 1 acts as 2 (daemon/exec/saves/saving.c) */
    w.troubles = (unsigned)sim_pick(7);
    w.machines = (unsigned)sim_pick(3);
    w.crash_step = sim_once_in(5) ? sim_between(1, w.steps) : 0;
    w.foreign = sim_once_in(6);
    sim_check(pstd_config_init(&w.config, &diag) == PST_OK, "%s", diag.text);
    set("checkpoint", PSTD_OPT_TRAIN, DIR, 0, 0);
    set("schedule", PSTD_OPT_TRAIN, "1f1b", 0, 0);
    set("microbatches", PSTD_OPT_TRAIN, "8", 0, 0);
    set("ranks", PSTD_OPT_RANKS, "%llux%llu", w.replicas, w.ranks);
    set("max-restarts", PSTD_OPT_RUN, "%llu", w.limit, 0);
    if (w.limit > 0 && w.least < w.ranks)
        set("min-ranks", PSTD_OPT_COURSE, "%llu", w.least * w.replicas, 0);
    else
        w.least = w.ranks;
    if (w.foreign)
        set("adopt", PSTD_OPT_TRAIN, "yes", 0, 0);
    sim_trace("%u stages, %u x %u ranks, at least %u; %llu steps, saves every "
              "%llu, %llu later; %llu restarts; crash in step %llu; keeps %u",
              w.stages, w.replicas, w.ranks, w.least,
              (unsigned long long)w.steps, (unsigned long long)w.every,
              (unsigned long long)w.lag, (unsigned long long)w.limit,
              (unsigned long long)w.crash_step, w.keep);
}

/* Saves checkpoints of an earlier run of the same model, with higher step
 * numbers. */
static void save_foreign(void)
{
    const struct pstd_config options = {.adopt = false};
    struct pst_checkpoint_owner *owner = NULL;

    sim_check(claim_folder(&options, &owner) == PST_OK, "%s", diag.text);
    for (unsigned i = 1; i <= 2; i++)
        sim_check(save(w.steps + i, w.ranks, true) == PST_OK, "%s", diag.text);
    pst_checkpoint_release(owner);
}

/* Simulates the supervisor from the user's command to its end. */
static void supervise(void)
{
    struct pstctl_supervisor s = {
        .config = &w.config,
        .starter = {run, clear, wait_to_restart, NULL},
        .record = {.log = {.fd = -1}}};
    struct pst_diag why;
    enum pst_status status;

    w.starts = 0;
    w.ranks = pstd_ranks(&w.config, w.stages);
    w.streak = w.losses = 0;
    w.losses_best = 0; /* earlier checkpoints do not count as progress here */
    w.best = w.config.resume.on ? w.newest : 0;
    status = pstctl_ranks_init(&s.ranks, &w.config, w.stages, w.ranks, &why);
    sim_check(status == PST_OK, "%s", why.text);
    status = pstctl_supervise(&s, &why);
    pstctl_launch_fini(&w.launch);
    if (w.ended == DONE)
        sim_check(status == PST_OK && w.newest == w.steps, "done, and %s",
                  why.text);
    else if (!w.is_over && w.ended != MACHINE)
        sim_check(!w.again, "it is given up after %llu starts of %llu: %s",
                  (unsigned long long)w.streak, (unsigned long long)w.limit,
                  why.text);
    else
        sim_check(status != PST_OK, "it ended well by a %s", names[w.ended]);
    if (w.ended == STOP)
        sim_check(status == PST_ERR_CANCELLED, "stopped, and %s", why.text);
}

/* Draws whether a user continues from an older checkpoint; true if so. */
static bool go_back(void)
{
    struct pst_checkpoint_rows rows = {0};
    uint64_t step = 0;

    if (w.rewinds || sim_once_in(2))
        return w.rewinds;
    sim_check(pst_checkpoint_table(DIR, true, &rows, &diag) == PST_OK, "%s",
              diag.text);
    for (size_t i = 0; i < rows.n; i++)
        if (rows.at[i].state == PST_CHECKPOINT_GOOD &&
            rows.at[i].step < w.newest)
            step = rows.at[i].step; /* the oldest one */
    pst_vec_fini(&rows);
    if (step == 0)
        return false;
    sim_trace("back to step %llu", (unsigned long long)step);
    set("resume", PSTD_OPT_TRAIN, "%llu", step, 0);
    w.rewinds = true;
    w.newest = w.committed = w.reached = step;
    return true;
}

static void play(void)
{
    sim_use_folder();
    draw_world();
    sim_check(pst_mkdirs("w", 0700, &diag) == PST_OK, "%s", diag.text);
    if (w.foreign)
        save_foreign();
    supervise();
    while (w.ended == MACHINE) { /* a user comes back and starts it again */
        w.machines--;
        if (w.newest > 0 && !go_back())
            set("resume", PSTD_OPT_TRAIN, "yes", 0, 0);
        set("adopt", PSTD_OPT_TRAIN, w.config.resume.on ? "no" : "yes", 0, 0);
        supervise();
    }
    pstd_config_fini(&w.config);
    sim_check(pst_remove_tree("w", &diag) == PST_OK, "%s", diag.text);
}

const struct sim_world sim_job_world = {"job", 20, play};
