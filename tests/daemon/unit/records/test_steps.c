// SPDX-License-Identifier: Apache-2.0
/* Tests the history of a run: its format and its writer. */
#include "daemon/common/steps/writer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "stages/base/host/alive.h"
#include "tests/folder.h"
#include "tests/test.h"

static struct pst_diag diag;
static unsigned failures;
static const struct pstd_steps_head mine = {
    .run = "0123456789abcdef0123456789abcdef", .tokens = true};

static void count_failure(void *ctx, const char *dir,
                          const struct pst_diag *why)
{
    (void)ctx;
    assert_string_equal(dir, "d");
    assert_non_null(strstr(why->text, PSTD_STEPS_FILE));
    failures++;
}

static void begin(struct pstd_steps_writer *w, uint64_t base)
{
    struct pstd_steps_head head = mine;
    const char *const dirs[2] = {"d", NULL};

    head.base = base;
    (void)mkdir("d", 0700);
    failures = 0;
    assert_int_equal(pstd_steps_begin(w, &head, dirs, &diag), PST_OK);
}

/* Adds steps first to last. sign: sign of their losses, by which a test tells
 * two runs apart. */
static void add(struct pstd_steps_writer *w, uint64_t first, uint64_t last,
                double sign)
{
    for (uint64_t k = first; k <= last; k++) {
        const struct pstd_steps_record r = {.step = k,
                                            .loss = sign * (double)k,
                                            .lr = 0.1,
                                            .grad_norm = NAN,
                                            .seconds = 0.5f,
                                            .count = 7};

        (void)pstd_steps_add(w, &r, 0);
    }
}

static void flush(struct pstd_steps_writer *w)
{
    pstd_steps_close_moved(w);
    pstd_steps_flush(w, 0, count_failure, NULL);
}

struct sums {
    uint64_t n, last;
    double loss;
};

static bool add_record(void *ctx, const struct pstd_steps_record *r)
{
    struct sums *s = ctx;

    assert_true(r->step > s->last && r->count == 7 && r->lr == 0.1 &&
                isnan(r->grad_norm));
    s->n++;
    s->last = r->step;
    s->loss += r->loss;
    return true;
}

static struct sums read_all(const char *path, struct pstd_steps_counts *counts)
{
    struct sums s = {0};
    struct pstd_steps h;

    assert_int_equal(pstd_steps_open(path, &h, &diag), PST_OK);
    assert_int_equal(pstd_steps_each(&h, add_record, &s, counts, &diag),
                     PST_OK);
    pstd_steps_close(&h);
    return s;
}

static void thins_later_steps(void **state)
{
    const uint64_t all = PSTD_STEPS_ALL;
    const uint64_t late[] = {
        all,      all + 10,       2 * all,
        10 * all, 10 * all + 100, PSTD_STEPS_MOST / 1000000000 * 1000000000};
    uint64_t slot, last = 0;

    (void)state;
    for (uint64_t k = 1; k < 10; k++) {
        assert_true(pstd_steps_slot(k, &slot));
        assert_int_equal(slot, k - 1);
        assert_int_equal(pstd_steps_after(slot), k);
    }
    for (size_t i = 0; i < PST_COUNT(late); i++) {
        assert_true(pstd_steps_slot(late[i], &slot));
        assert_true(slot > last);
        assert_int_equal(pstd_steps_after(slot), late[i]);
        assert_int_equal(pstd_steps_slots(late[i]), slot + 1);
        /* No step in between is recorded. */
        assert_int_equal(pstd_steps_after(slot - 1) < late[i], true);
        last = slot;
    }
    assert_false(pstd_steps_slot(0, &slot));
    assert_false(pstd_steps_slot(all + 1, &slot));
    assert_false(pstd_steps_slot(10 * all + 10, &slot));
    assert_false(pstd_steps_slot(PSTD_STEPS_MOST + 1, &slot));
    assert_int_equal(pstd_steps_slots(all + 9), all);
    assert_int_equal(pstd_steps_slots(all + 19), all + 1);
    /* Records adjacent in the file, around the steps from which fewer are
     * recorded. */
    for (uint64_t s = all - 3; s < all + 3; s++)
        assert_true(pstd_steps_slot(pstd_steps_after(s), &slot) && slot == s);
    for (uint64_t s = all / 10 * 19 - 3; s < all / 10 * 19 + 3; s++)
        assert_true(pstd_steps_slot(pstd_steps_after(s), &slot) && slot == s);
}

static void goes_on_and_back(void **state)
{
    struct pstd_steps_writer w;
    struct pstd_steps_counts counts;
    struct sums s;

    (void)state;
    begin(&w, 0);
    add(&w, 1, 300, 1);
    flush(&w);
    add(&w, 301, 310, 1);
    pstd_steps_drop_after(&w, 290);
    s = read_all("d", &counts);
    assert_int_equal(s.last, 290);
    add(&w, 291, 295, 1);
    flush(&w);
    pstd_steps_end(&w);
    assert_int_equal(read_all("d", &counts).n, 295);
    begin(&w, 200); /* a resume */
    add(&w, 201, 210, -1);
    add(&w, 212, 212, -1); /* step 211 was skipped */
    flush(&w);
    pstd_steps_end(&w);
    s = read_all("d", &counts);
    assert_int_equal(s.n, 211);
    assert_int_equal(counts.missing, 1);
    assert_true(s.loss == 200 * 201 / 2 - 10 * 205.5 - 212);
    assert_int_equal(failures, 0);
}

static void keeps_another_run(void **state)
{
    struct pstd_steps_writer w;
    struct pstd_steps_counts counts;

    (void)state;
    begin(&w, 0);
    memset(w.head.run, 'f', 32);
    add(&w, 1, 3, 1);
    flush(&w);
    pstd_steps_end(&w);
    assert_int_equal(read_all("d/" PSTD_STEPS_FORMER, &counts).n, 211);
    assert_int_equal(read_all("d", &counts).n, 3);
    /* A run whose folder has lost the file begins another one there. */
    begin(&w, 1000);
    add(&w, 1001, 1001, 1);
    flush(&w);
    assert_int_equal(read_all("d/" PSTD_STEPS_FORMER, &counts).n, 3);
    assert_int_equal(unlink("d/" PSTD_STEPS_FILE), 0);
    add(&w, 1002, 1002, 1);
    flush(&w);
    pstd_steps_end(&w);
    assert_int_equal(read_all("d", &counts).last, 1002);
    assert_int_equal(counts.missing, 1);
    assert_int_equal(failures, 0);
}

/* A folder that is moved away, and whose copy takes its place, or that comes
 * back, keeps all steps. */
static void follows_its_folder(void **state)
{
    struct pstd_steps_writer w;
    struct pstd_steps_counts counts;

    (void)state;
    (void)unlink("d/" PSTD_STEPS_FILE);
    begin(&w, 0);
    add(&w, 1, 20, 1);
    flush(&w);
    assert_int_equal(system("cp -r d copy && mv d away && mv copy d"), 0);
    add(&w, 21, 25, 1);
    flush(&w);
    assert_int_equal(read_all("d", &counts).n, 25);
    assert_int_equal(read_all("away", &counts).n, 20);
    assert_int_equal(failures, 0);
    assert_int_equal(system("rm -r away && mv d away"), 0);
    add(&w, 26, 27, 1);
    flush(&w);
    assert_int_equal(failures, 1);
    assert_int_equal(rename("away", "d"), 0);
    flush(&w);
    pstd_steps_drop_after(&w, 23);
    assert_int_equal(system("cp -r d copy && rm -r d && mv copy d"), 0);
    add(&w, 24, 24, -1);
    flush(&w);
    pstd_steps_end(&w);
    assert_int_equal(read_all("d", &counts).n, 24);
    assert_int_equal(counts.damaged + counts.missing, 0);
}

static void outlasts_a_full_disk(void **state)
{
    const struct rlimit small = {PSTD_STEPS_HEAD + 10 * PSTD_STEPS_RECORD + 5,
                                 RLIM_INFINITY},
                        none = {RLIM_INFINITY, RLIM_INFINITY};
    struct pstd_steps_writer w;
    struct pstd_steps_counts counts;
    bool lacking;

    (void)state;
    (void)unlink("d/" PSTD_STEPS_FILE);
    begin(&w, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    add(&w, 1, 20, 1);
    flush(&w);
    flush(&w);
    assert_int_equal(failures, 1); /* failures in a row are reported once */
    lacking = pstd_steps_is_lacking(&w);
    assert_int_equal(read_all("d", &counts).n, 10);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_true(lacking);
    flush(&w); /* the records that wait are written */
    assert_false(pstd_steps_is_lacking(&w));
    assert_int_equal(read_all("d", &counts).n, 20);
    assert_int_equal(counts.damaged + counts.missing, 0);
    /* More records wait than fit into memory: the newest ones stay. */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    add(&w, 21, 100, 1);
    flush(&w);
    assert_int_equal(failures, 2);
    add(&w, 101, 3 * PSTD_STEPS_WAITING, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    flush(&w);
    assert_true(pstd_steps_is_lacking(&w)); /* dropped for ever */
    pstd_steps_end(&w);
    assert_int_equal(read_all("d", &counts).last, 3 * PSTD_STEPS_WAITING);
    assert_true(counts.missing > 0 && counts.good >= PSTD_STEPS_WAITING / 2);
}

static void leaves_a_locked_file(void **state)
{
    struct pstd_steps_writer w;
    const int fd = open("d/" PSTD_STEPS_FILE, O_RDWR);
    struct stat before, after;

    (void)state;
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0 && fstat(fd, &before) == 0);
    begin(&w, 0);
    add(&w, 1, 3, 1);
    flush(&w);
    assert_int_equal(failures, 1);
    assert_int_equal(fstat(fd, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    (void)close(fd);
    flush(&w);
    pstd_steps_end(&w);
    assert_int_equal(failures, 1);
}

/* Prints how long a step takes; checks nothing. */
static void measure(void **state)
{
    enum { N = 200000 };
    struct pstd_steps_writer w;
    double begun, seconds;

    (void)state;
    begin(&w, 0);
    begun = pst_now();
    for (uint64_t k = 1; k <= N; k++) {
        const struct pstd_steps_record r = {.step = k, .loss = 1, .lr = 1};

        if (pstd_steps_add(&w, &r, 0))
            flush(&w);
    }
    flush(&w);
    seconds = pst_now() - begun;
    pstd_steps_end(&w);
    printf("%d steps: %.0f ns each, %d bytes each\n", N, 1e9 * seconds / N,
           PSTD_STEPS_RECORD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thins_later_steps),
        cmocka_unit_test(goes_on_and_back),
        cmocka_unit_test(keeps_another_run),
        cmocka_unit_test(follows_its_folder),
        cmocka_unit_test(outlasts_a_full_disk),
        cmocka_unit_test(leaves_a_locked_file),
        cmocka_unit_test(measure),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
