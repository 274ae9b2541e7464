// SPDX-License-Identifier: Apache-2.0
/*
 * Tests saves on a disk that loses power at each operation. Whatever state the
 * disk then has, it holds the old checkpoint or the new one, and that one is
 * complete. Once the save has reported success, it is the new one. The next
 * save works.
 *
 *     PST_FUZZ=N                 number of disk states for each operation
 *     test-files-power CASE OPERATION SEED    one of them again
 */
#include "tests/files/checkpoints.h"
#include "tests/files/disk.h"

#include <fcntl.h>
#include <time.h>

#define SOME   12
#define VALUES 700 /* elements of a tensor: several sectors */

struct save_case {
    const char *name;
    uint64_t steps[3]; /* checkpoints that exist; 0: none */
    uint64_t step;     /* step that is saved */
    unsigned keep;
};

static const struct save_case cases[] = {
    {"the first one", {0}, 1, 1},          {"one is kept", {1, 2}, 3, 1},
    {"two are kept", {1, 2}, 3, 2},        {"all are kept", {1, 2}, 3, 0},
    {"the same step again", {1, 2}, 2, 1}, {"an older step", {1, 3}, 2, 2},
};

static unsigned long long seeds;

/* Returns the value that is saved for a step. is_new: by the save that is
 * tested, which may save an existing step again. */
static float value_of(uint64_t step, bool is_new)
{
    return (float)step * 10 + (float)(is_new ? 5 : 0);
}

static void prepare(const struct save_case *c)
{
    assert_ok(pst_remove_tree("ck", &diag), &diag);
    assert_ok(pst_mkdirs("ck", 0700, &diag), &diag);
    for (size_t i = 0; i < 3 && c->steps[i] > 0; i++)
        assert_ok(save(c->steps[i], VALUES, value_of(c->steps[i], false), 0),
                  &diag);
}

/* Returns the first value of the newest checkpoint; 0: there is none; -1: its
 * values were never saved. */
static float newest(uint64_t *ret_step)
{
    struct pst_checkpoint *ckpt = NULL;
    float first = -1, data[VALUES];
    enum pst_status status =
        open_ck(PST_CHECKPOINT_LATEST, DIGEST, true, &ckpt, NULL);

    if (status == PST_ERR_NOT_FOUND)
        return 0;
    if (status != PST_OK)
        return -1;
    *ret_step = ckpt->info.step;
    for (unsigned r = 0; r < 2; r++) {
        const struct pst_safetensors_entry *e = pst_checkpoint_find(
            ckpt, r == 0 ? "param.layers.0.w" : "param.layers.1.w");

        if (e == NULL || e->bytes != sizeof(data) ||
            pst_safetensors_read(e, 0, sizeof(data), data, &diag) != PST_OK)
            first = -1;
        else if (r == 0)
            first = data[0];
        for (size_t i = 0; i < VALUES && first >= 0; i++)
            if (data[i] != first + (float)r)
                first = -1;
    }
    pst_checkpoint_close(ckpt);
    return first;
}

static void check_newest(const struct save_case *c, size_t at, uint64_t seed,
                         size_t said)
{
    uint64_t step = 0;
    float old = 0, found, after;
    const float fresh = value_of(c->step, true);
    bool is_newest = true;

    for (size_t i = 0; i < 3 && c->steps[i] > 0; i++) {
        old = value_of(c->steps[i], false);
        is_newest = is_newest && c->steps[i] <= c->step;
    }
    assert_ok(pst_remove_tree("ck", &diag), &diag);
    disk_crash(at, seed, "ck");
    pst_diag_init(&diag);
    found = newest(&step);
    /* The old checkpoint may be the newest one before the save has reported
     * success, or if its step is greater than the saved one. */
    if (!(found == old && (at < said || !is_newest)) &&
        !(found == fresh && is_newest))
        fail_msg("%s: power lost before operation %zu (%s), seed %llu: the "
                 "newest one has %g (step %llu), not %g or %g: %s",
                 c->name, at, disk_name(at), (unsigned long long)seed,
                 (double)found, (unsigned long long)step, (double)old,
                 (double)fresh, diag.text);
    assert_ok(save(9, VALUES, 90, 1), &diag);
    after = newest(&step);
    if (after != 90 || step != 9)
        fail_msg("%s: after power was lost before operation %zu, seed %llu, "
                 "the next save is not the newest one",
                 c->name, at, (unsigned long long)seed);
}

static size_t run_recorded(const struct save_case *c)
{
    size_t n;

    prepare(c);
    disk_begin("ck");
    assert_ok(save(c->step, VALUES, value_of(c->step, true), c->keep), &diag);
    n = disk_end();
    assert_true(n > 15); /* else an operation was not recorded */
    return n;
}

static void old_or_new(void **state)
{
    const char *count = getenv("PST_FUZZ");
    const unsigned some =
        count != NULL ? (unsigned)strtoul(count, NULL, 10) : SOME;
    const struct save_case *c = *state;
    const size_t n = run_recorded(c);

    for (size_t at = 0; at <= n; at++)
        for (unsigned i = 0; i < some; i++)
            check_newest(c, at, seeds + i, n);
    print_message("%s: %zu operations, %zu disks\n", c->name, n,
                  (n + 1) * some);
    disk_free();
}

/* Tests the simulation itself: data that is not synced can be lost, synced data
 * cannot. */
static void forgetful_writers_lose(void **state)
{
    unsigned lost = 0, torn = 0, kept = 0;

    (void)state;
    assert_ok(pst_remove_tree("ck", &diag), &diag);
    assert_ok(pst_mkdirs("ck", 0700, &diag), &diag);
    disk_begin("ck");
    for (unsigned i = 0; i < 2; i++) {
        static unsigned char data[4 * 512];
        const int fd = open(i == 0 ? "ck/loose" : "ck/sure",
                            O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        memset(data, 'x', sizeof(data));
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, data, sizeof(data), 0), sizeof(data));
        if (i == 1)
            assert_int_equal(fsync(fd), 0);
        assert_int_equal(close(fd), 0);
        if (i == 1)
            assert_ok(pst_fsync_dir("ck", &diag), &diag);
    }
    assert_int_equal(disk_end(), 6);
    for (unsigned seed = 0; seed < 100; seed++) {
        char *text = NULL;
        size_t size = 0;

        assert_ok(pst_remove_tree("ck", &diag), &diag);
        disk_crash(3, seed, "ck"); /* the second file begins to be written */
        if (pst_file_read("ck/loose", 4096, &text, &size, &diag) != PST_OK)
            lost++;
        else if (size < 4 * 512 || memchr(text, '\0', size) != NULL)
            torn++;
        else
            kept++;
        pst_free(text);
        assert_ok(pst_remove_tree("ck", &diag), &diag);
        disk_crash(6, seed, "ck");
        assert_ok(pst_file_read("ck/sure", 4096, &text, &size, &diag), &diag);
        assert_true(size == 4 * 512 && memchr(text, '\0', size) == NULL);
        pst_free(text);
    }
    assert_true(lost > 5 && torn > 5 && kept > 5);
    disk_free();
}

static int run_once(char **argv)
{
    const struct save_case *c =
        &cases[strtoul(argv[1], NULL, 10) % PST_COUNT(cases)];
    const size_t n = run_recorded(c);

    for (size_t i = 0; i < n; i++)
        print_message("%3zu %s\n", i, disk_name(i));
    check_newest(c, strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), n);
    return 0;
}

int main(int argc, char **argv)
{
    const char *seed = getenv("PST_TEST_SEED");
    struct CMUnitTest tests[PST_COUNT(cases) + 1] = {
        cmocka_unit_test(forgetful_writers_lose),
    };
    struct timespec now;
    int ret;

    (void)strcpy(dir, "/dev/shm/pst-XXXXXX"); /* faster for many small files */
    (void)clock_gettime(CLOCK_REALTIME, &now);
    seeds = seed != NULL ? strtoull(seed, NULL, 10)
                         : (unsigned long long)now.tv_nsec / 1000 % 1000000;
    print_message("PST_TEST_SEED=%llu\n", seeds);
    for (size_t i = 0; i < PST_COUNT(cases); i++)
        tests[i + 1] = (struct CMUnitTest){.name = cases[i].name,
                                           .test_func = old_or_new,
                                           .initial_state = (void *)&cases[i]};
    if (argc == 4) {
        ret = make_dir(NULL);
        if (ret == 0)
            ret = run_once(argv);
        return remove_dir(NULL) != 0 ? 1 : ret;
    }
    return _cmocka_run_group_tests("power", tests, PST_COUNT(tests), make_dir,
                                   remove_dir);
}
