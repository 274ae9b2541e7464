// SPDX-License-Identifier: Apache-2.0
/* Tests sizes beyond any memory, and arenas that do not fit. */
#include "tests/split/model.h"

#include "stages/base/checked.h"
#include "stages/base/host/fs.h"
#include "stages/base/host/headroom.h"
#include "stages/compile/memplan.h"
#include "stages/run/exec.h"
#include "stages/tune/choose.h"

#include <stdio.h>
#include <sys/resource.h>

#define NODE " # m zoo.py:1 F id=0\n"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static struct pst_diag diag;

static void sizes_stay_too_large(void **state)
{
    const size_t too_large = PST_SIZE_TOO_LARGE;
    struct pst_interval intervals[3] = {
        {.size = SIZE_MAX / 2}, {.size = SIZE_MAX / 2}, {.size = SIZE_MAX / 2}};
    size_t size;

    (void)state;
    assert_int_equal(pst_size_add(3, 4), 7);
    assert_int_equal(pst_size_mul(3, 4), 12);
    assert_int_equal(pst_size_round(65, 64), 128);
    assert_int_equal(pst_size_add(SIZE_MAX - 1, 2), too_large);
    assert_int_equal(pst_size_add(too_large, 64), too_large);
    assert_int_equal(pst_size_mul((size_t)1 << 62, 4), too_large);
    assert_int_equal(pst_size_mul(too_large, 1), too_large);
    assert_int_equal(pst_size_mul(too_large, 0), 0);
    assert_int_equal(pst_size_round(SIZE_MAX - 5, 64), too_large);
    assert_true(pst_size_fits(PTRDIFF_MAX));
    assert_false(pst_size_fits((size_t)PTRDIFF_MAX + 1));
    assert_ok(pst_mem_pack(intervals, 3, &size, &diag), &diag);
    assert_int_equal(size, too_large);
}

static enum pst_status planned(const char *text, unsigned microbatches)
{
    const struct pst_exec_options options = {.schedule = "gpipe",
                                             .ranks = 1,
                                             .microbatches = microbatches,
                                             .train = true,
                                             .threads = 1};
    const struct pst_split_options how = {0};
    struct pst_memory memory;
    struct pst_model model;
    struct pst_plan *plan;
    enum pst_status status;

    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &how, &plan, &diag), &diag);
    status = pst_exec_plan(plan, &options, &memory, &diag);
    pst_plan_free(plan);
    model_fini(&model);
    return status;
}

/* Each tensor fits the address space, their slots together do not. */
static void slots_that_wrap_are_refused(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[17592186044416]\n"
        "  param %w \"w\" grad: f32[]\n"
        "  %a: f32[17592186044416] = aten.mul.Tensor(%x, %w)" NODE
        "  %b: f32[17592186044416] = aten.exp.default(%a)" NODE
        "  %c: f32[17592186044416] = aten.mul.Tensor(%b, %a)" NODE
        "  %d: f32[17592186044416] = aten.exp.default(%c)" NODE
        "  %loss: f32[] = aten.mean.default(%d)" NODE
        "  output user %loss \"0\"\n"
        "}\n";

    (void)state;
    assert_ok(planned(text, 1), &diag);
    assert_int_equal(planned(text, 70000), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "larger than any memory"));
}

static void tensors_that_wrap_are_refused(void **state)
{
    static const char text[] = "graph next_id=1 {\n"
                               "  input %x: f32[1152921504606846976]\n"
                               "  output user %x \"0\"\n"
                               "}\n";
    struct pst_graph *graph;

    (void)state;
    assert_int_not_equal(pst_graph_parse(text, &graph, &diag), PST_OK);
    assert_non_null(strstr(diag.text, "too large to address"));
}

/* --- what is left --------------------------------------------------------- */

static char root[] = "/tmp/pst-room-XXXXXX";

static void write_text(const char *path, const char *text)
{
    char full[256], *slash;

    (void)snprintf(full, sizeof(full), "%s%s", root, path);
    slash = strrchr(full, '/');
    *slash = '\0';
    assert_ok(pst_mkdirs(full, 0700, &diag), &diag);
    *slash = '/';
    assert_ok(pst_file_write(full, text, strlen(text), &diag), &diag);
}

static void fresh_root(void)
{
    assert_ok(pst_remove_tree(root, &diag), &diag);
    assert_ok(pst_mkdirs(root, 0700, &diag), &diag);
    write_text("/proc/sys/kernel/random/boot_id", "one\n");
}

static void limits_of_both_versions_are_found(void **state)
{
    struct pst_headroom headroom;
    uint64_t id;

    (void)state;
    fresh_root();
    pst_headroom_read(root, &headroom); /* no file says anything */
    assert_true(headroom.host == UINT64_MAX && headroom.group == UINT64_MAX);
    write_text("/proc/meminfo",
               "MemTotal:  9000 kB\nMemAvailable:    2048 kB\n");
    write_text("/proc/self/cgroup", "0::/a/b\n");
    write_text("/sys/fs/cgroup/a/b/memory.max", "max\n");
    write_text("/sys/fs/cgroup/a/b/memory.current", "100\n");
    pst_headroom_read(root, &headroom);
    assert_int_equal(headroom.host, 2048 * 1024);
    assert_true(headroom.group == UINT64_MAX);
    write_text("/sys/fs/cgroup/a/memory.max", "1000\n");
    write_text("/sys/fs/cgroup/a/memory.current", "900\n");
    pst_headroom_read(root, &headroom);
    assert_int_equal(headroom.group, 100);
    id = headroom.group_id;
    /* Page cache can be reclaimed; the tightest group counts. */
    write_text("/sys/fs/cgroup/a/memory.stat",
               "anon 5\ninactive_file 300\nactive_file 20\n");
    write_text("/sys/fs/cgroup/a/b/memory.max", "400\n");
    pst_headroom_read(root, &headroom);
    assert_int_equal(headroom.group, 300);
    assert_true(headroom.group_id != id);

    fresh_root();
    write_text("/proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n0::/\n");
    write_text("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
    write_text("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000\n");
    write_text("/sys/fs/cgroup/memory/job/memory.stat",
               "total_inactive_file 7\n");
    pst_headroom_read(root, &headroom);
    assert_int_equal(headroom.group, 1007);

    fresh_root(); /* files with unreadable contents */
    write_text("/proc/meminfo", "MemAvailable: -5 kB\n");
    write_text("/proc/self/cgroup", "::\n0::/../../..\nx\n");
    pst_headroom_read(root, &headroom);
    assert_true(headroom.host == UINT64_MAX && headroom.group == UINT64_MAX);
}

/* Kills in other jobs do not count where control groups are separate. */
static void counts_who_was_killed_for_memory(void **state)
{
    (void)state;
    fresh_root();
    assert_int_equal(pst_headroom_oom_kills(root), 0);
    write_text("/proc/vmstat", "nr_free_pages 7\noom_kill 12\n");
    assert_int_equal(pst_headroom_oom_kills(root), 12);
    write_text("/proc/self/cgroup", "0::/a/b\n");
    assert_int_equal(pst_headroom_oom_kills(root), 12);
    write_text("/sys/fs/cgroup/a/b/memory.events",
               "low 0\noom 4\noom_kill 3\noom_group_kill 0\n");
    assert_int_equal(pst_headroom_oom_kills(root), 3);
    write_text("/proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n");
    write_text("/sys/fs/cgroup/memory/job/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    assert_int_equal(pst_headroom_oom_kills(root), 1);
}

/* Starts two ranks with a little more than 4 MiB each. */
static enum pst_status started(bool overcommit)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[4]\n"
        "  buffer %n \"n\" persistent: f32[1048576]\n"
        "  buffer %m \"m\" persistent: f32[1048576]\n"
        "  %a: f32[1048576] = aten.exp.default(%n)" NODE
        "  %c: f32[] = aten.mean.default(%a)" NODE
        "  %s: f32[4] = aten.mul.Tensor(%x, %c)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %d: f32[1048576] = aten.exp.default(%m)" NODE
        "  %e: f32[] = aten.mean.default(%d)" NODE
        "  %y: f32[4] = aten.mul.Tensor(%s, %e)" NODE "  output user %y \"0\"\n"
        "}\n";
    const struct pst_exec_options options = {.schedule = "gpipe",
                                             .ranks = 2,
                                             .microbatches = 1,
                                             .threads = 1,
                                             .overcommit = overcommit};
    const struct pst_split_options how = {0};
    struct pst_transport *self;
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_engine *engine;
    enum pst_status status;

    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &how, &plan, &diag), &diag);
    assert_ok(pst_transport_self.open("2", &self, &diag), &diag);
    status = pst_engine_new(plan, self, &options, &engine, &diag);
    if (status == PST_OK)
        pst_engine_free(engine);
    pst_transport_self.close(self);
    pst_plan_free(plan);
    model_fini(&model);
    return status;
}

static void ranks_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    fresh_root();
    assert_int_equal(setenv("PST_HEADROOM_ROOT", root, 1), 0);
    write_text("/proc/meminfo", "MemAvailable: 60000 kB\n");
    assert_ok(started(false), &diag);
    /* Enough for one rank, not for both. */
    write_text("/proc/meminfo", "MemAvailable: 12000 kB\n");
    assert_int_equal(started(false), PST_ERR_NOMEM);
    assert_non_null(
        strstr(diag.text, "the 2 ranks on the host of rank 0 need"));
    assert_non_null(strstr(diag.text, "11.72 MiB are left on it"));
    assert_non_null(strstr(diag.text, "--overcommit"));
    assert_ok(started(true), &diag);
    write_text("/proc/meminfo", "MemAvailable: 60000 kB\n");
    write_text("/proc/self/cgroup", "0::/\n");
    write_text("/sys/fs/cgroup/memory.max", "12582912\n");
    write_text("/sys/fs/cgroup/memory.current", "2097152\n");
    assert_int_equal(started(false), PST_ERR_NOMEM);
    assert_non_null(strstr(diag.text, "10.00 MiB are left below the limit of"));
    assert_int_equal(unsetenv("PST_HEADROOM_ROOT"), 0);
}

/* An arena that exceeds the address space, limited as by ulimit -v, is refused.
 */
static void address_limits_are_named(void **state)
{
    struct rlimit was, now;
    unsigned long pages = 0;
    FILE *f;

    (void)state;
    if (SANITIZED) /* sanitizers need unlimited address space */
        return;
    f = fopen("/proc/self/statm", "re");
    assert_ok(started(false), &diag); /* libraries are loaded by then */
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    (void)fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    now = was;
    now.rlim_cur = pages * 4096 + (3 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
    assert_int_equal(started(false), PST_ERR_NOMEM);
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
}

/* --- what is resident ----------------------------------------------------- */

/* Returns the number of bytes that /proc/self/status has for `key`. */
static size_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "re");
    unsigned long kib = 0;
    char line[256];

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtoul(line + strlen(key), NULL, 10);
    (void)fclose(f);
    assert_true(kib > 0);
    return (size_t)kib * 1024;
}

/* Resets VmHWM, the peak of resident memory. */
static void reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");

    assert_non_null(f);
    assert_true(fputs("5", f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Saves two stages with two tensors of 16 MiB each, and frees them. */
static void save_large(const char *folder)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[4, 1024]\n"
        "  param %a \"a\" grad: f32[4096, 1024]\n"
        "  param %b \"b\" grad: f32[1024, 4096]\n"
        "  param %c \"c\" grad: f32[4096, 1024]\n"
        "  param %d \"d\" grad: f32[1024, 4096]\n"
        "  %h: f32[4, 4096] = aten.linear.default(%x, %a)" NODE
        "  %i: f32[4, 1024] = aten.linear.default(%h, %b)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %j: f32[4, 4096] = aten.linear.default(%i, %c)" NODE
        "  %k: f32[4, 1024] = aten.linear.default(%j, %d)" NODE
        "  %y: f32[] = aten.mean.default(%k)" NODE "  output user %y \"0\"\n"
        "}\n";
    const struct pst_split_options how = {0};
    struct pst_model model;
    struct pst_plan *plan;

    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &how, &plan, &diag), &diag);
    assert_ok(pst_plan_save(plan, folder, &diag), &diag);
    pst_plan_free(plan);
    model_fini(&model);
}

/* Weights are read from the file into the arenas and are in memory once; zero3
 * needs one whole tensor at a time in addition. */
static void weights_are_resident_once(void **state)
{
    const size_t mib = 1 << 20, tensor = 16 * mib;
    char folder[64];

    (void)state;
    if (SANITIZED) /* sanitizers need memory themselves */
        return;
    snprintf(folder, sizeof(folder), "%s/large", root);
    save_large(folder);
    for (unsigned replicas = 1; replicas <= 2; replicas++) {
        struct pst_exec_options options = {.schedule = "gpipe",
                                           .ranks = 2,
                                           .replicas = replicas,
                                           .microbatches = 2,
                                           .threads = 1,
                                           .train = true,
                                           .shard_by = "zero3"};
        struct pst_transport *self;
        struct pst_engine *engine;
        struct pst_plan *plan;
        size_t before, peak, arenas = 0;

        assert_ok(pst_optim_defaults("sgd", &options.optim, &diag), &diag);
        assert_ok(pst_plan_load(folder, &plan, &diag), &diag);
        assert_ok(
            pst_transport_self.open(replicas == 1 ? "2" : "4", &self, &diag),
            &diag);
        before = status_bytes("VmRSS:");
        reset_peak();
        assert_ok(pst_engine_new(plan, self, &options, &engine, &diag), &diag);
        peak = status_bytes("VmHWM:");
        for (unsigned k = 0; k < pst_engine_n_local(engine); k++)
            arenas += pst_engine_memory(engine, k).arena;
        assert_true(arenas >= 8 * tensor);
        assert_true(peak > before && peak - before > arenas * 9 / 10);
        assert_true(peak - before <
                    arenas + tensor / 2 + (replicas > 1 ? tensor : 0));
        pst_engine_free(engine);
        pst_transport_self.close(self);
        pst_plan_free(plan);
    }
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return pst_remove_tree(root, &diag) == PST_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_stay_too_large),
        cmocka_unit_test(slots_that_wrap_are_refused),
        cmocka_unit_test(tensors_that_wrap_are_refused),
        cmocka_unit_test(limits_of_both_versions_are_found),
        cmocka_unit_test(counts_who_was_killed_for_memory),
        cmocka_unit_test(ranks_that_do_not_fit_are_refused),
        cmocka_unit_test(address_limits_are_named),
        cmocka_unit_test(weights_are_resident_once),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests_name("memory", tests, make_root, remove_root);
}
