// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/record/tensorboard.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

static size_t size_of(const struct pstd_tensorboard *t)
{
    struct stat st;

    assert_int_equal(fstat(t->fd, &st), 0);
    return (size_t)st.st_size;
}

static void write_step(struct pstd_tensorboard *t, int64_t step)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_STEP);
    pstd_note_int(&note, "step", step);
    pstd_note_real(&note, "loss", 1.5);
    pstd_tensorboard_note(t, &note, 1000000);
}

/* If only the beginning of a record fits, as with a quota or a full disk, it is
 * removed again. */
static void leaves_no_half_record(void **state)
{
    struct pstd_tensorboard t = PSTD_TENSORBOARD_NONE;
    struct rlimit was, limit;
    char dir[] = "/tmp/pst-board-XXXXXX";
    struct pst_diag diag;
    size_t before, record;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_ok(pstd_tensorboard_open(&t, dir, &diag), &diag);
    before = size_of(&t);
    write_step(&t, 1);
    record = size_of(&t) - before;
    assert_true(record > 16 + 8 && !t.failing);

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    limit = was;
    limit.rlim_cur = before + record + record / 2;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    write_step(&t, 2);
    assert_true(t.failing && t.why.error != PST_E_NONE);
    assert_non_null(strstr(t.why.text, t.path));
    assert_int_equal(size_of(&t), before + record);
    write_step(&t, 3);
    assert_int_equal(size_of(&t), before + record);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    write_step(&t, 4);
    assert_false(t.failing);
    assert_int_equal(size_of(&t), before + 2 * record);

    assert_int_equal(unlink(t.path), 0);
    pstd_tensorboard_close(&t);
    write_step(&t, 5); /* the file is closed: nothing is written */
    assert_int_equal(rmdir(dir), 0);
}

/* Events that have no curve in TensorBoard write nothing. */
static void takes_what_it_knows(void **state)
{
    struct pstd_tensorboard t = PSTD_TENSORBOARD_NONE;
    char dir[] = "/tmp/pst-board-XXXXXX";
    struct pst_diag diag;
    struct pstd_note note;
    size_t before;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_ok(pstd_tensorboard_open(&t, dir, &diag), &diag);
    before = size_of(&t);
    pstd_note_init(&note, PSTD_EVENT_TOTALS);
    pstd_note_real(&note, "loss", 1);
    pstd_tensorboard_note(&t, &note, 1);
    pstd_note_init(&note, PSTD_EVENT_STEP);
    pstd_note_int(&note, "step", 1);
    pstd_note_int(&note, "loss", 1);
    pstd_tensorboard_note(&t, &note, 1);
    assert_int_equal(size_of(&t), before);
    assert_int_equal(unlink(t.path), 0);
    pstd_tensorboard_close(&t);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_no_half_record),
        cmocka_unit_test(takes_what_it_knows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
