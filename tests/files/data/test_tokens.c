// SPDX-License-Identifier: Apache-2.0
/* Tests files of tokens: windows and their successors, and what is refused. */
#include "tests/files/data/data.h"

#include "stages/files/data.h"

#include <string.h>

static void tokens_and_their_successors(void **state)
{
    static const uint16_t tokens[] = {100, 101, 102, 103, 104, 105,
                                      106, 107, 108, 109, 110, 40000};
    const struct pst_data_input inputs[] = {{"ids", meta(PST_I64, 2, 2, 3)},
                                            {"y", meta(PST_I32, 1, 6, 0)}};
    struct pst_data_options options = {.path = "t.bin",
                                       .token_dtype = "uint16"};
    const struct pst_data_input small[] = {{"ids", meta(PST_I16, 1, 3, 0)}};
    struct pst_data *d;
    int64_t ids[6];
    int32_t y[6];
    int16_t shorts[3];

    (void)state;
    write_file("t.bin", tokens, sizeof(tokens));
    assert_ok(pst_data_open(&options, inputs, 2, (struct pst_data_step){1, 0},
                            &d, &diag),
              &diag);
    assert_int_equal(pst_data_samples(d, 2), 3);
    assert_ok(pst_data_fill(d, 0, 0, 0, ids, &diag), &diag);
    assert_ok(pst_data_fill(d, 0, 0, 1, y, &diag), &diag);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ids[i], 100 + i);
        assert_int_equal(y[i], 101 + i);
    }
    /* Continues at the beginning of the file. */
    assert_ok(pst_data_fill(d, 1, 0, 0, ids, &diag), &diag);
    assert_int_equal(ids[0], 106);
    assert_int_equal(ids[3], 100);
    pst_data_close(d);
    /* Without targets the last token belongs to a window of its own. */
    assert_ok(pst_data_open(&options, small, 1, (struct pst_data_step){1, 0},
                            &d, &diag),
              &diag);
    assert_int_equal(pst_data_samples(d, 1), 4);
    assert_ok(pst_data_fill(d, 2, 0, 0, shorts, &diag), &diag);
    assert_int_equal(pst_data_fill(d, 3, 0, 0, shorts, &diag), PST_ERR_RANGE);
    assert_non_null(strstr(diag.text, "token 40000 at place 11"));
    pst_data_close(d);
    /* Names may be given; then the order of the inputs does not matter. */
    options.tokens = "y";
    options.targets = "ids";
    assert_ok(pst_data_open(&options, inputs, 2, (struct pst_data_step){1, 0},
                            &d, &diag),
              &diag);
    assert_int_equal(pst_data_samples(d, 1), 1);
    assert_ok(pst_data_fill(d, 0, 0, 0, ids, &diag), &diag);
    assert_ok(pst_data_fill(d, 0, 0, 1, y, &diag), &diag);
    assert_int_equal(ids[0], 101);
    assert_int_equal(y[0], 100);
    pst_data_close(d);
    options.tokens = "z";
    assert_int_equal(pst_data_open(&options, inputs, 2,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_NOT_FOUND);
}

static void refuses_token_files_that_do_not_fit(void **state)
{
    const struct pst_data_input floats[] = {{"ids", meta(PST_I64, 2, 2, 3)},
                                            {"y", meta(PST_I64, 2, 2, 3)},
                                            {"mask", meta(PST_F32, 1, 2, 0)}};
    struct pst_data_options options = {.path = "t.txt"};
    struct pst_data *d;
    int64_t y[6];

    (void)state;
    write_file("t.txt", "abc", 3); /* no window of 3 has a successor */
    assert_int_equal(pst_data_open(&options, floats, 2,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "t.txt: 0 sequences of 3 tokens, a "
                                      "microbatch has 2"));
    write_file("t.txt", "abcdef", 6); /* one window, which occurs twice */
    assert_ok(pst_data_open(&options, floats, 2, (struct pst_data_step){1, 0},
                            &d, &diag),
              &diag);
    assert_ok(pst_data_fill(d, 0, 0, 1, y, &diag), &diag);
    assert_true(y[0] == 'b' && y[2] == 'd' && memcmp(y, y + 3, 24) == 0);
    pst_data_close(d);
    write_file("t.txt", "abcdefg", 7);
    assert_int_equal(pst_data_open(&options, floats, 3,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "'mask' (f32[2]) cannot be made"));
    options.seq_len = 4;
    assert_int_equal(pst_data_open(&options, floats, 2,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_SHAPE);
    options.seq_len = 3;
    options.token_dtype = "uint16";
    assert_int_equal(pst_data_open(&options, floats, 2,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_INPUT);
    options.token_dtype = "int64";
    assert_int_equal(pst_data_open(&options, floats, 2,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_USAGE);
    options.token_dtype = NULL;
    assert_ok(pst_data_open(&options, floats, 2, (struct pst_data_step){1, 0},
                            &d, &diag),
              &diag);
    pst_data_close(d);
    write_file("t.txt", "", 0);
    assert_int_equal(pst_data_open(&options, floats, 2,
                                   (struct pst_data_step){1, 0}, &d, &diag),
                     PST_ERR_SHAPE);
}

/* The header of llm.c is skipped; other headers and widths are refused. */
static void looks_at_what_tokens_are(void **state)
{
    const struct pst_data_input window = {"ids", meta(PST_I64, 2, 1, 4), 0, 0,
                                          NULL};
    const struct pst_data_step one = {1, 0};
    struct pst_data_options options = {.path = "look.bin"};
    static uint32_t words[256 + 64], wide[256];
    static uint64_t widest[128];
    static uint16_t shorts[512 + 64];
    const struct {
        const void *bytes;
        size_t n;
        const char *dtype, *said;
    } cases[] = {
        {shorts, 1024 + 128, "uint16", NULL},
        {shorts, 1024 + 128, "uint32", "give --token-dtype uint16"},
        {shorts, 1024 + 126, "uint16", "announces 64 tokens, but 63 follow"},
        {wide, sizeof(wide), "uint32", NULL},
        {wide, sizeof(wide), "uint16", "1 of each 2 tokens are mostly zero"},
        {wide, sizeof(wide), "uint8", "3 of each 4 tokens are mostly zero"},
        {widest, sizeof(widest), "uint16", "3 of each 4 tokens are zero"},
        {widest, sizeof(widest), "uint32", "1 of each 2 tokens are zero"},
        {"\x28\xb5\x2f\xfd............", 16, "uint16", "(.zst)"},
    };
    struct pst_data *d;
    int64_t ids[4];

    (void)state;
    words[0] = 20240520;
    words[1] = 1;
    words[2] = 64;
    memcpy(shorts, words, 1024);
    for (unsigned i = 0; i < 64; i++)
        shorts[512 + i] = (uint16_t)(i + 1);
    for (unsigned i = 0; i < 256; i++)
        wide[i] = 1 + i * 400; /* exceeds 2^16 at the end */
    for (unsigned i = 0; i < 128; i++)
        widest[i] = 1 + i * 300;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const char *said = cases[i].said;

        write_file("look.bin", cases[i].bytes, cases[i].n);
        options.token_dtype = cases[i].dtype;
        if (said == NULL) {
            assert_ok(pst_data_open(&options, &window, 1, one, &d, &diag),
                      &diag);
            assert_ok(pst_data_fill(d, 0, 0, 0, ids, &diag), &diag);
            assert_int_equal(ids[0], 1);
            pst_data_close(d);
            continue;
        }
        assert_int_equal(pst_data_open(&options, &window, 1, one, &d, &diag),
                         PST_ERR_INPUT);
        if (strstr(diag.text, said) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", said, diag.text);
    }
}

/* If requested, numbers outside the vocabulary are found when the file is
 * opened, before a step reads them. */
static void compares_with_the_vocabulary(void **state)
{
    static const uint8_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 99};
    struct pst_data_input window = {
        "ids", meta(PST_I64, 2, 1, 4), 0, 0, NULL, false, {.below = 9}};
    struct pst_data_input rows[] = {
        {"x", meta(PST_F32, 2, 2, 2)},
        {"k", meta(PST_I64, 1, 1, 0), 0, 0, NULL, false, {.below = 30}},
        {"s", meta(PST_F32, 0, 0, 0), -1},
        {"pos", meta(PST_I64, 1, 3, 0), 0, 0, NULL, false, {.below = 9}}};
    struct pst_data_options options = {.path = "look.bin", .compare = true};
    const struct pst_data_step one = {1, 0};
    struct pst_data *d;

    (void)state;
    write_file("look.bin", tokens, sizeof(tokens));
    assert_ok(pst_data_open(&options, &window, 1, one, &d, &diag), &diag);
    pst_data_close(d); /* no window reads the rest */
    window.bound.below = 8;
    assert_int_equal(pst_data_open(&options, &window, 1, one, &d, &diag),
                     PST_ERR_RANGE);
    assert_non_null(strstr(diag.text, "token 8 at place 7 is outside of the "
                                      "vocabulary"));
    write_batch();
    options.path = "b.safetensors";
    assert_int_equal(pst_data_open(&options, rows, 4, one, &d, &diag),
                     PST_ERR_RANGE);
    assert_non_null(strstr(diag.text, "tensor 'k' has the number 30 (element "
                                      "2 of 3)"));
    rows[1].bound.ignores = true;
    rows[1].bound.ignored = 30;
    assert_ok(pst_data_open(&options, rows, 4, one, &d, &diag), &diag);
    pst_data_close(d);
    rows[3].bound.below = 8;
    assert_int_equal(pst_data_open(&options, rows, 4, one, &d, &diag),
                     PST_ERR_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_their_successors),
        cmocka_unit_test(looks_at_what_tokens_are),
        cmocka_unit_test(compares_with_the_vocabulary),
        cmocka_unit_test(refuses_token_files_that_do_not_fit),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
