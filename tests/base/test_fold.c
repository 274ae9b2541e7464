// SPDX-License-Identifier: Apache-2.0
/* Lines that differ only in their numbers are stored once. */
#include "tests/test.h"

#include "stages/base/fold/fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 400

static struct pst_diag diag;
static uint64_t seed;

static unsigned pick(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* Folds the text and returns the bytes that are kept. Unfolding must restore
 * the lines, also from runs stored as bytes. */
static size_t fold(const struct pst_str *text)
{
    struct pst_folded folded = {0}, read = {0};
    struct pst_str again = {0}, runs = {0};
    size_t ret;

    assert_false(text->failed);
    assert_ok(pst_fold_lines(pst_str_text(text), text->len, &folded, &diag),
              &diag);
    assert_ok(pst_fold_pack_runs(&folded, &runs, &diag), &diag);
    assert_ok(pst_fold_unpack_runs(pst_str_text(&runs), runs.len, text->len,
                                   &read, &diag),
              &diag);
    pst_str_addn(&read.lines, pst_str_text(&folded.lines), folded.lines.len);
    assert_ok(pst_unfold_lines(&read, SIZE_MAX, &again, &diag), &diag);
    if (again.len != text->len ||
        memcmp(pst_str_text(&again), pst_str_text(text), text->len) != 0)
        fail_msg("of:\n%scame:\n%s", pst_str_text(text), pst_str_text(&again));
    ret = folded.lines.len + runs.len;
    pst_folded_fini(&folded);
    pst_folded_fini(&read);
    pst_str_fini(&again);
    pst_str_fini(&runs);
    return ret;
}

static void layers_are_stored_once(void **state)
{
    struct pst_str text = {0};
    size_t one = 0, many;

    (void)state;
    pst_str_add(&text, "%linear = linear(%x, %p_0_w)  # 0\n");
    for (int i = 0; i < 64; i++) {
        char relu[16] = "", next[16] = "";

        if (i > 0)
            (void)snprintf(relu, sizeof(relu), "_%d", i);
        if (i > 0)
            (void)snprintf(next, sizeof(next), "_%d", 2 * i);
        pst_str_addf(&text, "%%relu%s = relu(%%linear%s)  # %d\n", relu, next,
                     i);
        pst_str_addf(&text, "%%linear_%d = linear(%%relu%s, %%p_%d_w)  # %d\n",
                     2 * i + 1, relu, i, i);
        pst_str_addf(&text,
                     "%%linear_%d = linear(%%linear_%d, %%p_%d_v)  # %d\n",
                     2 * i + 2, 2 * i + 1, i + 1, i + 1);
        if (i == 1)
            one = text.len;
    }
    many = fold(&text);
    if (many > one)
        fail_msg("%zu bytes of 64 layers, %zu of 2", many, one);
    pst_str_fini(&text);
}

/* Restores strings that look like numbers but are not, and texts in which the
 * placeholder of a number occurs. */
static void odd_numbers_come_back(void **state)
{
    static const char *const lines[] = {"%x",
                                        "%x_0",
                                        "%x_01",
                                        "%x_1",
                                        "%x_2",
                                        "%x_00",
                                        "%",
                                        "%_",
                                        "%_1",
                                        "%1",
                                        "%1_1",
                                        "100%",
                                        "100% 5",
                                        "%x_1%x_2",
                                        "007",
                                        "08",
                                        "0",
                                        "00",
                                        "1.50",
                                        "1e-05",
                                        "999999999999999999",
                                        "1000000000000000000",
                                        "18446744073709551615",
                                        "-5",
                                        "%x_999999999999999999",
                                        "%x_1000000000000000000",
                                        "",
                                        " ",
                                        "%x_1_2",
                                        "%x_1_0",
                                        "a1b2c3"};
    struct pst_str text = {0};

    (void)state;
    for (size_t a = 0; a < PST_COUNT(lines); a++)
        for (size_t b = 0; b < PST_COUNT(lines); b++) {
            text.len = 0;
            for (int i = 0; i < 6; i++)
                pst_str_addf(&text, "some text before it: %s\n",
                             lines[i % 2 ? b : a]);
            (void)fold(&text);
        }
    pst_str_fini(&text);
}

/* Adds a line of a few kinds, with numbers that grow from block to block. */
static void add_random(struct pst_str *text, unsigned kind, unsigned block)
{
    static const char *const formats[] = {
        "  %%add_%u: f32[%u] = add(%%mul_%u, %u)\n", "%u %u %u %u\n",
        "p.%u.weight.%u home %u:%u\n", "%%a%u_%u%%b_%u c%u\n"};

    pst_str_addf(text, formats[kind % 4], kind * block, kind, block + kind / 4,
                 kind > 6 ? pick(9) : 3);
}

static void random_texts_come_back(void **state)
{
    struct pst_str text = {0};

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        text.len = 0;
        for (unsigned part = pick(4); part > 0; part--) {
            const unsigned period = 1 + pick(9), first = pick(3);
            const unsigned kinds = pick(12);

            for (unsigned block = 0; block < 1 + pick(12); block++)
                for (unsigned k = 0; k < period; k++)
                    add_random(&text, (k * 7 + kinds) % 9, first + block);
            if (pick(2))
                add_random(&text, pick(9), pick(1000));
        }
        (void)fold(&text);
    }
    pst_str_fini(&text);
}

static enum pst_status unfold_run(const char *lines, struct pst_fold_run run,
                                  int64_t delta, size_t max)
{
    struct pst_folded folded = {0};
    struct pst_str text = {0};
    enum pst_status status;

    pst_str_add(&folded.lines, lines);
    assert_true(pst_vec_push(PST_TAG_TEST, &folded.runs, run));
    for (size_t i = 0; i < run.n_deltas; i++)
        assert_true(pst_vec_push(PST_TAG_TEST, &folded.deltas, delta));
    status = pst_unfold_lines(&folded, max, &text, &diag);
    pst_folded_fini(&folded);
    pst_str_fini(&text);
    return status;
}

static void forged_runs_are_refused(void **state)
{
    static const struct {
        struct pst_fold_run run;
        int64_t delta;
        const char *said; /* text of the refusal; NULL: accepted */
    } forgeries[] = {
        {{2, 1, 3, 0, 1}, 1, NULL},
        {{2, 2, 3, 0, 2}, 1, NULL},
        {{2, 0, 3, 0, 1}, 1, "no lines"},
        {{2, 3, 3, 0, 1}, 1, "no lines"},
        {{0, 1, 3, 0, 1}, 1, "no lines"},
        {{2, 1, 0, 0, 1}, 1, "no lines"},
        {{3, 1, 3, 0, 1}, 1, "too early"},
        {{2, UINT32_MAX, 3, 0, 1}, 1, "no lines"},
        {{2, 1, UINT32_MAX, 0, 1}, 1, "too many"},
        {{2, 1, 3, 0, 2}, 1, "more numbers"},
        {{2, 1, 3, 0, 1}, -5, "out of range"},
        {{2, 1, 3, 0, 1}, INT64_MAX, "too large"},
        {{2, 1, 3, 0, 1}, INT64_C(999999999999999999), "out of range"},
        {{2, 1, 3, 0, 1}, INT64_MIN, "out of range"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(forgeries); i++) {
        const enum pst_status status = unfold_run(
            "a 5\nb 4\n", forgeries[i].run, forgeries[i].delta, 4000);

        if (forgeries[i].said == NULL)
            assert_ok(status, &diag);
        else if (status != PST_ERR_INPUT ||
                 strstr(diag.text, forgeries[i].said) == NULL)
            fail_msg("case %zu: %s", i, diag.text);
    }
    assert_int_equal(unfold_run("a 5\nb", forgeries[0].run, 1, 4000),
                     PST_ERR_INPUT);
    /* 5 lines of 4 bytes and their offsets */
    assert_ok(unfold_run("a 5\nb 4\n", forgeries[0].run, 1, 60), &diag);
    assert_int_equal(unfold_run("a 5\nb 4\n", forgeries[0].run, 1, 59),
                     PST_ERR_INPUT);
}

/* Runs of numbers are restored exactly. Input that is truncated, too large, or
 * expands to too much is refused. */
static void runs_come_back(void **state)
{
    static const int64_t deltas[] = {
        0, 0, 1, -1, 7, -7, 8, 0,   -8, 0, 0, 0, 0, 0, 0, 0,         0,
        0, 0, 0, 0,  0, 0,  5, 300, 0,  0, 0, 0, 0, 0, 0, INT64_MAX, INT64_MIN};
    static const struct {
        const char *bytes;
        size_t n, max;
    } forgeries[] = {
        {"\x02", 1, 10},
        {"\x02\x01\x03\x01", 4, 10},
        {"\x02\x01\x03\x01\x10", 5, 10},     /* its last delta is missing */
        {"\x02\x01\x03\x01\xa2\x01", 6, 10}, /* 11 deltas: 10 zeros and 1 */
        {"\x02\x01\x03\x02\x02\x02", 6, 1},
        {"\xff\xff\xff\xff\x7f\x01\x03\x00", 8, 10},
        {"\x02\x01\xff\xff\xff\xff\x0f\x00\x02\x01\x01\x00", 12, 10},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, 10},
    };
    const struct pst_fold_run run = {7, 3, 90, 0, PST_COUNT(deltas)},
                              next = {100, 1, 4, PST_COUNT(deltas), 0};
    struct pst_folded folded = {0}, read = {0};
    struct pst_str bytes = {0};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(deltas); i++)
        assert_true(pst_vec_push(PST_TAG_TEST, &folded.deltas, deltas[i]));
    assert_true(pst_vec_push(PST_TAG_TEST, &folded.runs, run) &&
                pst_vec_push(PST_TAG_TEST, &folded.runs, next));
    assert_ok(pst_fold_pack_runs(&folded, &bytes, &diag), &diag);
    assert_ok(pst_fold_unpack_runs(bytes.text, bytes.len, PST_COUNT(deltas),
                                   &read, &diag),
              &diag);
    assert_int_equal(read.runs.n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read.runs.at[i].line, folded.runs.at[i].line);
        assert_int_equal(read.runs.at[i].period, folded.runs.at[i].period);
        assert_int_equal(read.runs.at[i].count, folded.runs.at[i].count);
        assert_int_equal(read.runs.at[i].first, folded.runs.at[i].first);
        assert_int_equal(read.runs.at[i].n_deltas, folded.runs.at[i].n_deltas);
    }
    assert_memory_equal(read.deltas.at, deltas, sizeof(deltas));
    pst_folded_fini(&read);
    for (size_t i = 0; i < PST_COUNT(forgeries); i++) {
        if (pst_fold_unpack_runs(forgeries[i].bytes, forgeries[i].n,
                                 forgeries[i].max, &read,
                                 &diag) != PST_ERR_INPUT)
            fail_msg("taken: %zu", i);
        pst_folded_fini(&read);
    }
    pst_folded_fini(&folded);
    pst_str_fini(&bytes);
}

static void forged_lines_are_no_message(void **state)
{
    static const char *const wrong[] = {
        "a\n",     "1\n",      "a{\n",
        "}\n",     "a{\n}}\n", "a{b1\n}",
        "a[\n",    "a[1 \n",   "a[1  2\n",
        "a[-1\n",  "a1x\n",    "{1\n",
        "|text\n", "a-1\n",    "a18446744073709551616\n",
        "A1\n",    "a?1\n",    "a{\nb{\na1\n}\n",
    };
    struct pst_str lines = {0}, packed = {0};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(wrong); i++) {
        lines.len = packed.len = 0;
        pst_str_add(&lines, wrong[i]);
        if (pst_message_pack(&lines, &packed, &diag) != PST_ERR_INPUT)
            fail_msg("taken: %s", wrong[i]);
    }
    lines.len = 0;
    /* Without a limit on the depth, the stack would overflow. */
    for (int i = 0; i < 100000; i++)
        pst_str_add(&lines, "a{\n");
    assert_int_equal(pst_message_pack(&lines, &packed, &diag), PST_ERR_INPUT);
    pst_str_fini(&lines);
    pst_str_fini(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_stored_once),
        cmocka_unit_test(odd_numbers_come_back),
        cmocka_unit_test(random_texts_come_back),
        cmocka_unit_test(forged_runs_are_refused),
        cmocka_unit_test(runs_come_back),
        cmocka_unit_test(forged_lines_are_no_message),
    };
    const char *given = getenv("PST_TEST_SEED");
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    seed = given != NULL ? strtoull(given, NULL, 10)
                         : (uint64_t)now.tv_nsec / 1000 % 1000000;
    print_message("PST_TEST_SEED=%llu\n", (unsigned long long)seed);
    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
