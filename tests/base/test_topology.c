// SPDX-License-Identifier: Apache-2.0
/* Processors of machines that are described by files, as /sys has them, and
 * where threads are bound. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "stages/base/host/pool.h"
#include "stages/base/host/thread.h"
#include "stages/base/host/topology.h"
#include "tests/folder.h"
#include "tests/test.h"

static struct pst_diag diag;

static void write_file(const char *folder, const char *name, unsigned value)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%u-%u,%u\n", value, value, value + 1);
    assert_int_equal(fclose(file), 0);
}

/* Describes a processor below the folder `root`. */
static void describe(const char *root, unsigned id, unsigned core,
                     unsigned cache, unsigned node)
{
    static const char *const parts[] = {"topology", "cache", "cache/index3"};
    char folder[128], path[256];

    (void)snprintf(folder, sizeof(folder), "%s/sys/devices/system/cpu/cpu%u",
                   root, id);
    assert_ok(pst_mkdirs(folder, 0755, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(parts); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, parts[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/node%u", folder, node);
    assert_int_equal(mkdir(path, 0755), 0);
    write_file(folder, "topology/thread_siblings_list", core);
    write_file(folder, "cache/index3/shared_cpu_list", cache);
}

static void check_printed(const struct pst_topology *t, const char *want)
{
    struct pst_str text = {0};

    pst_topology_print(t, &text);
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
}

/* Checks the processors of `threads` threads. */
static void check_places(const struct pst_topology *t, unsigned threads,
                         const unsigned *want)
{
    for (unsigned i = 0; i < threads; i++) {
        const unsigned got =
            t->processors.at[pst_topology_place(t, i, threads)].id;

        if (got != want[i])
            fail_msg("thread %u of %u: processor %u, not %u", i, threads, got,
                     want[i]);
    }
}

/* Two sockets of four cores with two threads each; Linux has numbered the first
 * threads of all cores before the second ones. */
static void two_sockets(void **state)
{
    struct pst_topology t = {0};

    (void)state;
    for (unsigned i = 0; i < 16; i++)
        describe("two", i, i % 8, i % 8 / 4 * 4, i % 8 / 4);
    assert_ok(pst_topology_read("two", "0-15", &t, &diag), &diag);
    check_printed(&t, "16 processors, 8 cores, 2 NUMA nodes");
    check_places(&t, 1, (const unsigned[]){0});
    check_places(&t, 2, (const unsigned[]){0, 4});
    check_places(&t, 4, (const unsigned[]){0, 2, 4, 6});
    check_places(&t, 8, (const unsigned[]){0, 1, 2, 3, 4, 5, 6, 7});
    check_places(&t, 16,
                 (const unsigned[]){0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6,
                                    14, 7, 15});
    check_places(&t, 12,
                 (const unsigned[]){0, 8, 1, 2, 10, 3, 4, 12, 5, 6, 14, 7});
    pst_topology_fini(&t);

    /* A batch system has left two whole cores and one half of another. */
    t = (struct pst_topology){0};
    assert_ok(pst_topology_read("two", "5,13,14,6-6,3", &t, &diag), &diag);
    check_printed(&t, "5 processors, 3 cores, 2 NUMA nodes");
    check_places(&t, 3, (const unsigned[]){3, 5, 6});
    check_places(&t, 5, (const unsigned[]){3, 5, 13, 6, 14});
    pst_topology_fini(&t);
}

/* Numbers of neighbours, and caches that do not follow the numbers. */
static void caches(void **state)
{
    struct pst_topology t = {0};

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        describe("one", i, i / 2 * 2, i / 2 % 2 * 2, 0);
    assert_ok(pst_topology_read("one", "0-7", &t, &diag), &diag);
    check_printed(&t, "8 processors, 4 cores, 1 NUMA node");
    assert_int_equal(t.n_caches, 2);
    check_places(&t, 4, (const unsigned[]){0, 4, 2, 6});
    pst_topology_fini(&t);
}

/* Without files each processor is a core. */
static void nothing_known(void **state)
{
    static const char *const bad[] = {"1-", "x", "3-2", "1,,2", "8192", "1;2"};
    struct pst_topology t = {0};

    (void)state;
    assert_ok(pst_topology_read("none", "0-2", &t, &diag), &diag);
    check_printed(&t, "3 processors, 3 cores, 1 NUMA node");
    pst_topology_fini(&t);
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        t = (struct pst_topology){0};
        assert_int_equal(pst_topology_read("none", bad[i], &t, &diag),
                         PST_ERR_UNSUPPORTED);
        pst_topology_fini(&t);
    }
}

static unsigned count_own(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    return (unsigned)CPU_COUNT(&set);
}

static void *count_in_thread(void *ctx)
{
    *(unsigned *)ctx = count_own();
    return NULL;
}

static void note_part(void *ctx, unsigned part, unsigned parts)
{
    int *at = ctx;

    (void)parts;
    at[part] = count_own() == 1 ? sched_getcpu() : -1;
}

/* The threads of a pool run where they are bound; threads that a bound thread
 * starts do not. */
static void bound(void **state)
{
    const unsigned before = count_own();
    struct pst_topology t = {0};
    struct pst_pool *pool;
    pthread_t thread;
    unsigned processors[2], seen = 0;
    int at[2];

    (void)state;
    assert_ok(pst_topology_read("", NULL, &t, &diag), &diag);
    assert_int_equal(t.processors.n, before);
    processors[0] = t.processors.at[t.processors.n - 1].id;
    processors[1] = t.processors.at[0].id;
    pst_topology_fini(&t);
    assert_ok(pst_pool_new(2, &pool, &diag), &diag);
    assert_ok(pst_pool_bind(pool, pthread_self(), processors, &diag), &diag);
    pst_pool_run(pool, note_part, at);
    assert_int_equal(at[0], processors[0]);
    assert_int_equal(at[1], processors[1]);
    assert_int_equal(pst_thread_start(&thread, count_in_thread, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen, before);
    pst_pool_free(pool);
    assert_int_equal(
        pst_thread_bind(pthread_self(), PST_MAX_PROCESSORS - 1, &diag),
        PST_ERR_IO);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sockets),
        cmocka_unit_test(caches),
        cmocka_unit_test(nothing_known),
        cmocka_unit_test(bound),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
