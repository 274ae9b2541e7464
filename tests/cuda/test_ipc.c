// SPDX-License-Identifier: Apache-2.0
/*
 * Tests messages from GPU to GPU between processes, on the emulated CUDA driver
 * (driver.cpp). The bits are those of one process, whether bytes are copied
 * between the GPUs or pass through the host.
 *
 *   mpiexec -n N test-cuda-ipc STAGES [REPLICAS]
 */
#include "stages/ops/cuda/cuda.h"
#include "tests/ranks.h"
#include "tests/run/net.h"

#include <dlfcn.h>

#define STEPS 3

static unsigned stages, replicas = 1;
static struct pst_transport *mpi;
static char folder[] = "/tmp/pst-ipc-XXXXXX";

static unsigned rank_of(void)
{
    return mpi->ops->rank(mpi);
}

static unsigned size_of(void)
{
    return mpi->ops->size(mpi);
}

/* Returns a counter of the emulated driver. */
static unsigned long driver_count(const char *name)
{
    void *driver = dlopen(getenv("PENSTOCK_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
    const unsigned long *n = driver != NULL ? dlsym(driver, name) : NULL;

    assert_non_null(n);
    return *n;
}

/* How the messages of a run travelled. */
struct travel {
    unsigned peers;
    unsigned long foreign, host; /* bytes from other processes, to the host */
    char why[160];
};

static struct pst_dump *run(struct pst_transport *transport, unsigned n_stages,
                            struct pst_exec_options options,
                            struct travel *travel)
{
    const unsigned long foreign = driver_count("driver_foreign_bytes");
    struct pst_engine *engine;
    struct pst_dump *dump;
    struct net_data data;
    unsigned long host;
    const char *why;
    struct net net;

    options.device = &pst_device_cuda;
    options.ordinal = transport == mpi ? rank_of() % 2 : 0;
    net_init_as(&net, n_stages, replicas > 1 ? NET_STILL : NET_TRANSMIT);
    data = net_data(&net);
    assert_ok(pst_engine_new(net.plan, transport, &options, &engine, &net.diag),
              &net.diag);
    host = driver_count("driver_host_bytes");
    for (unsigned s = 0; s < STEPS; s++) {
        struct pst_step_result result;
        const uint64_t calls = pst_alloc_calls();

        assert_ok(
            pst_engine_step(engine, s, net_fill, &data, 0, &result, &net.diag),
            &net.diag);
        assert_int_equal(pst_alloc_calls(), calls);
        if (s > 0)
            continue;
        travel->host = driver_count("driver_host_bytes") - host;
        assert_ok(pst_engine_dump_first(engine, &dump, &net.diag), &net.diag);
    }
    assert_ok(pst_engine_dump_state(engine, dump, &net.diag), &net.diag);
    travel->foreign = driver_count("driver_foreign_bytes") - foreign;
    travel->peers = pst_engine_peers(engine, 0, &why);
    snprintf(travel->why, sizeof(travel->why), "%s", why);
    pst_engine_free(engine);
    net_fini(&net);
    return dump;
}

/* A variable of the environment by which a rank refuses IPC. */
struct refusal {
    const char *name, *value;
    const char *why;  /* begin of the reason that the rank has */
    bool by_one;      /* by the last rank alone */
    bool is_harmless; /* messages go from GPU to GPU all the same */
};

static const struct refusal refusals[] = {
    {.name = "PENSTOCK_CUDA_IPC", "0", "PENSTOCK_CUDA_IPC=0"},
    {.name = "PENSTOCK_CUDA_IPC", "0", "PENSTOCK_CUDA_IPC=0", .by_one = true},
    {.name = "PENSTOCK_TEST_CUDA_IPC",
     "cuIpcGetMemHandle",
     "cuIpcGetMemHandle: CUDA_ERROR_INVALID_VALUE"},
    {.name = "PENSTOCK_TEST_CUDA_IPC",
     "cuIpcOpenMemHandle_v2",
     "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_VALUE"},
    {.name = "PENSTOCK_TEST_CUDA_IPC",
     "cuIpcOpenMemHandle_v2",
     "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_VALUE",
     .by_one = true},
    /* The owner keeps its memory. */
    {.name = "PENSTOCK_TEST_CUDA_IPC",
     "cuIpcCloseMemHandle",
     "",
     .is_harmless = true},
    {.name = "PENSTOCK_TEST_CUDA_IPC",
     "cuIpcCloseMemHandle",
     "",
     .by_one = true,
     .is_harmless = true},
};

/* Asserts that no message passed a host on its way, and that what a refusal
 * concerns did. */
static void check_travel(const struct refusal *r, const struct travel *direct,
                         const struct travel *other)
{
    const unsigned last = size_of() - 1, all = size_of() - 1;
    const bool refuses = !r->by_one || rank_of() == last;

    assert_string_equal(direct->why, "");
    assert_int_equal(direct->peers, all);
    assert_true(direct->foreign > 0);
    if (r->is_harmless) {
        assert_int_equal(other->peers, all);
        assert_int_equal(other->foreign, direct->foreign);
        assert_int_equal(other->host, direct->host);
        return;
    }
    assert_int_equal(other->peers, refuses ? 0 : all - 1);
    assert_true(other->foreign <= direct->foreign);
    assert_int_equal(other->foreign == 0, refuses || other->peers == 0);
    if (refuses) {
        assert_true(other->host > direct->host);
        assert_memory_equal(other->why, r->why, strlen(r->why));
    }
}

static struct pst_exec_options options_of(const char *schedule,
                                          enum pst_sharing shard)
{
    struct pst_exec_options ret =
        net_options(schedule, size_of() / replicas, 4, "adamw");

    ret.replicas = replicas;
    ret.shard = shard;
    if (replicas > 1)
        ret.optim.clip_norm = 0;
    return ret;
}

static struct pst_dump *run_alone(enum pst_sharing shard)
{
    struct pst_exec_options options = options_of("gpipe", shard);
    struct pst_transport *self;
    struct travel unused;
    struct pst_diag diag;
    struct pst_dump *ret;
    char size[8];

    pst_diag_init(&diag);
    options.ranks = 1;
    snprintf(size, sizeof(size), "%u", replicas);
    assert_ok(pst_transport_self.open(size, &self, &diag), &diag);
    ret = run(self, 1, options, &unused);
    assert_int_equal(unused.foreign, 0);
    pst_transport_self.close(self);
    return ret;
}

static void compare(const struct pst_dump *want, struct pst_dump *got)
{
    if (rank_of() == 0)
        assert_same_dump(want, got);
    pst_dump_free(got);
}

static void keeps_the_bits(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    struct pst_dump *want = run_alone(PST_SHARING_NONE);
    struct travel direct;

    (void)state;
    for (size_t k = 0; k < PST_COUNT(schedules); k++) {
        const struct pst_exec_options options =
            options_of(schedules[k], PST_SHARING_NONE);

        if (k == 2 && options.ranks != stages)
            continue;
        compare(want, run(mpi, stages, options, &direct));
        assert_int_equal(direct.peers, size_of() - 1);
        assert_true(direct.foreign > 0);
    }
    pst_dump_free(want);
}

/* Sums over replicas, gathers and scatters. */
static void shards_keep_the_bits(void **state)
{
    (void)state;
    for (enum pst_sharing shard = PST_SHARING_ZERO1;
         replicas > 1 && shard <= PST_SHARING_ZERO3; shard++) {
        struct pst_dump *want =
            run_alone(shard == PST_SHARING_ZERO1 ? PST_SHARING_NONE : shard);
        struct travel direct;

        compare(want, run(mpi, stages, options_of("1f1b", shard), &direct));
        assert_true(direct.foreign > 0);
        pst_dump_free(want);
    }
}

/* Whatever a rank is refused, the bits are the same, and both of two ranks know
 * how their messages travel. */
static void falls_back(void **state)
{
    const struct pst_exec_options options =
        options_of("1f1b", PST_SHARING_NONE);
    struct pst_dump *want = run_alone(PST_SHARING_NONE);
    struct travel direct, other;

    (void)state;
    compare(want, run(mpi, stages, options, &direct));
    for (size_t i = 0; i < PST_COUNT(refusals); i++) {
        const struct refusal *r = &refusals[i];

        if (!r->by_one || rank_of() == size_of() - 1)
            assert_int_equal(setenv(r->name, r->value, 1), 0);
        compare(want, run(mpi, stages, options, &other));
        assert_int_equal(unsetenv(r->name), 0);
        check_travel(r, &direct, &other);
    }
    pst_dump_free(want);
}

/* A rank on the host, and ranks on GPUs. */
static void mixes_devices(void **state)
{
    struct pst_exec_options options = options_of("1f1b", PST_SHARING_NONE);
    struct pst_engine *engine;
    struct net_data data;
    const char *why;
    struct net net;

    (void)state;
    options.device = rank_of() == 0 ? &pst_device_cpu : &pst_device_cuda;
    options.devices = "cpu,cuda:0"; /* the same on all ranks */
    net_init_as(&net, stages, NET_STILL);
    data = net_data(&net);
    assert_ok(pst_engine_new(net.plan, mpi, &options, &engine, &net.diag),
              &net.diag);
    assert_int_equal(pst_engine_peers(engine, 0, &why),
                     rank_of() == 0 ? 0 : size_of() - 2);
    for (unsigned s = 0; s < STEPS; s++) {
        struct pst_step_result result;

        assert_ok(
            pst_engine_step(engine, s, net_fill, &data, 0, &result, &net.diag),
            &net.diag);
        assert_true(result.applied);
    }
    pst_engine_free(engine);
    net_fini(&net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(shards_keep_the_bits),
        cmocka_unit_test(falls_back),
        cmocka_unit_test(mixes_devices),
    };

    stages = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    replicas = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    mpi = ranks_open(folder, sizeof(folder));
    if (mpi == NULL)
        return 1;
    return ranks_close(mpi, folder, cmocka_run_group_tests(tests, NULL, NULL));
}
