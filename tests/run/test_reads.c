// SPDX-License-Identifier: Apache-2.0
/*
 * A rank reads the weights of its own stages twice, for their digest and into
 * its arena, and none of other stages: measured by the kernel's counters, on
 * real ranks.
 *
 *   mpiexec -n 2 test-run-reads
 */
#include "tests/ranks.h"
#include "tests/split/model.h"

#include "stages/split/split.h"

#include <stdio.h>
#include <unistd.h>

#define NODE " # m zoo.py:1 F id=0\n"
#define MIB  ((size_t)1 << 20)
/* Bytes of stage 0 and of stage 1. */
static const size_t weights[] = {24 * MIB, 8 * MIB};
#define TIMES 2
/* Allowance for plan.pb, headers of safetensors files, /proc. */
#define BESIDES MIB

static struct pst_transport *mpi;
static struct pst_diag diag;
static char folder[] = "/tmp/pst-reads-XXXXXX"; /* the same on all ranks */

/* Returns the bytes that this process has read by system calls. */
static size_t bytes_read(void)
{
    FILE *f = fopen("/proc/self/io", "re");
    size_t ret = 0;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "rchar: %zu", &ret), 1);
    (void)fclose(f);
    return ret;
}

/* True if a file of the plan is mapped, so that its pages could be read without
 * being counted. */
static bool is_mapped(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    bool ret = false;
    char line[4096];

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL)
        ret |= strstr(line, folder) != NULL;
    (void)fclose(f);
    return ret;
}

static void save(void)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[4, 1024]\n"
        "  param %a \"a\" grad: f32[3072, 1024]\n"
        "  param %b \"b\" grad: f32[1024, 3072]\n"
        "  param %c \"c\" grad: f32[1024, 1024]\n"
        "  param %d \"d\" grad: f32[1024, 1024]\n"
        "  %h: f32[4, 3072] = aten.linear.default(%x, %a)" NODE
        "  %i: f32[4, 1024] = aten.linear.default(%h, %b)" NODE
        "  pippy._pipe_split.default()" NODE
        "  %j: f32[4, 1024] = aten.linear.default(%i, %c)" NODE
        "  %k: f32[4, 1024] = aten.linear.default(%j, %d)" NODE
        "  %y: f32[] = aten.mean.default(%k)" NODE "  output user %y \"0\"\n"
        "}\n";
    const struct pst_split_options how = {0};
    char path[64];
    struct pst_model model;
    struct pst_plan *plan;

    (void)snprintf(path, sizeof(path), "%s/plan", folder);
    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &how, &plan, &diag), &diag);
    assert_ok(pst_plan_save(plan, path, &diag), &diag);
    pst_plan_free(plan);
    model_fini(&model);
}

static void reads_its_own_weights(void **state)
{
    struct pst_exec_options options = {.schedule = "gpipe",
                                       .ranks = 2,
                                       .replicas = 1,
                                       .microbatches = 2,
                                       .threads = 1,
                                       .train = true};
    const unsigned rank = mpi->ops->rank(mpi);
    struct pst_engine *engine;
    struct pst_plan *plan;
    size_t before, read;
    char path[64];

    (void)state;
    if (rank == 0)
        save();
    /* A rank that has received the path knows that the plan is saved. */
    (void)snprintf(path, sizeof(path), "%s/plan", folder);
    assert_ok(pst_engine_broadcast(mpi, path, sizeof(path), NULL, NULL, &diag),
              &diag);
    assert_ok(pst_optim_defaults("sgd", &options.optim, &diag), &diag);
    before = bytes_read();
    assert_ok(pst_plan_load(path, &plan, &diag), &diag);
    assert_ok(pst_engine_new(plan, mpi, &options, &engine, &diag), &diag);
    read = bytes_read() - before;
    print_message("rank %u: %zu bytes of %zu and %zu\n", rank, read, weights[0],
                  weights[1]);
    assert_true(read >= TIMES * weights[rank]);
    assert_true(read < TIMES * weights[rank] + BESIDES);
    assert_false(is_mapped());
    pst_engine_free(engine);
    pst_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_its_own_weights),
    };
    int failed;

    pst_diag_init(&diag);
    mpi = ranks_open(folder, sizeof(folder));
    if (mpi == NULL)
        return 1;
    failed = cmocka_run_group_tests_name("reads", tests, NULL, NULL);
    return ranks_close(mpi, folder, failed);
}
