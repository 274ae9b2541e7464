// SPDX-License-Identifier: Apache-2.0
/* Tests batches from files: which sample is in which microbatch, and what is
 * refused. */
#include "tests/files/data/data.h"

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/files/data.h"
#include "stages/files/safetensors.h"
#include "stages/run/data/width.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum pst_status open_batch(const struct pst_data_input *inputs, size_t n,
                                  bool shuffle, struct pst_data **ret)
{
    const struct pst_data_options options = {
        .path = "b.safetensors", .shuffle = shuffle, .seed = 5};

    return pst_data_open(&options, inputs, n, (struct pst_data_step){3, 0}, ret,
                         &diag);
}

static void steps_see_their_rows(void **state)
{
    const struct pst_data_input inputs[] = {{"s", meta(PST_F32, 0, 0, 0)},
                                            {"x", meta(PST_F32, 2, 2, 2)},
                                            {"k", meta(PST_I64, 0, 0, 0)},
                                            {"pos", meta(PST_I64, 1, 3, 0)}};
    struct pst_data *d;
    float x[4], s;
    int64_t k, pos[3];

    (void)state;
    write_batch();
    assert_ok(open_batch(inputs, 4, false, &d), &diag);
    assert_int_equal(pst_data_samples(d, 6), 6); /* samples of x */
    assert_int_equal(pst_data_samples(d, 3), 3); /* samples of k */
    assert_int_equal(pst_data_samples(d, 9), 9);
    for (uint64_t step = 0; step < 2; step++) {
        for (unsigned m = 0; m < 3; m++) {
            assert_ok(pst_data_fill(d, step, m, 0, &s, &diag), &diag);
            assert_ok(pst_data_fill(d, step, m, 1, x, &diag), &diag);
            assert_ok(pst_data_fill(d, step, m, 2, &k, &diag), &diag);
            assert_ok(pst_data_fill(d, step, m, 3, pos, &diag), &diag);
            assert_true(s == 0.5f);
            assert_true(x[0] == 4.0f * (float)m && x[3] == x[0] + 3);
            assert_int_equal(k, 10 * (m + 1));
            assert_int_equal(pos[0], 3 * m);
            assert_int_equal(pos[2], 3 * m + 2);
        }
    }
    pst_data_close(d);
    /* Inputs with other numbers of rows per microbatch stay together when
     * shuffled. */
    assert_ok(open_batch(inputs + 1, 3, true, &d), &diag);
    for (unsigned m = 0; m < 9; m++) {
        assert_ok(pst_data_fill(d, 0, m, 0, x, &diag), &diag);
        assert_ok(pst_data_fill(d, 0, m, 1, &k, &diag), &diag);
        assert_ok(pst_data_fill(d, 0, m, 2, pos, &diag), &diag);
        assert_true(x[0] == 4.0f * (float)(k / 10 - 1));
        assert_int_equal(pos[0], 3 * (k / 10 - 1));
    }
    pst_data_close(d);
}

/* With leave_rest, the caller chooses the rows of each microbatch: a group of
 * rows, which is repeated to fill the microbatch. If inputs have different
 * numbers of rows, the caller chooses whole microbatches. */
static void rows_as_the_caller_chooses(void **state)
{
    const struct pst_data_input inputs[] = {{"x", meta(PST_F32, 2, 4, 2)},
                                            {"pos", meta(PST_I64, 1, 6, 0)}};
    struct pst_data_options options = {.path = "b.safetensors",
                                       .leave_rest = true};
    const struct pst_data_step step = {1, 0};
    struct pst_data_extent extent;
    struct pst_data *d;
    int64_t pos[6];
    float x[8];

    (void)state;
    write_batch();
    assert_ok(pst_data_open(&options, inputs, 1, step, &d, &diag), &diag);
    extent = pst_data_extent(d);
    assert_int_equal(extent.rows, 6);
    assert_int_equal(extent.each, 4);
    assert_false(extent.whole);
    assert_ok(pst_data_read(d, 4, 2, 0, x, &diag), &diag);
    for (int i = 0; i < 8; i++)
        assert_true(x[i] == (float)(8 + i % 4));
    assert_ok(pst_data_read(d, 5, 1, 0, x, &diag), &diag);
    for (int i = 0; i < 8; i++)
        assert_true(x[i] == (float)(10 + i % 2));
    pst_data_close(d);
    /* Inputs with 6 and 9 rows give one microbatch, of 4 and 6 rows, and a
     * tail. */
    assert_ok(pst_data_open(&options, inputs, 2, step, &d, &diag), &diag);
    extent = pst_data_extent(d);
    assert_true(extent.whole && extent.rows == 6 && extent.each == 4);
    assert_ok(pst_data_read(d, 0, 4, 1, pos, &diag), &diag);
    assert_int_equal(pos[5], 5);
    pst_data_close(d);
    options.leave_rest = false;
    assert_int_equal(pst_data_open(&options, inputs, 2, step, &d, &diag),
                     PST_ERR_SHAPE);
}

/* Bytes of a text have the same distribution at all positions, and so do
 * numbers below 256. The two bytes of a 16-bit number have different ones. */
static void halves_of_wider_tokens(void **state)
{
    static unsigned char bytes[1 << 14];
    static const unsigned limits[] = {200, 1000, 32000, 50257};
    struct pst_byte_counts counts;
    uint32_t x = 1;

    (void)state;
    for (size_t kind = 0; kind < 3 + PST_COUNT(limits); kind++) {
        for (size_t i = 0; i < sizeof(bytes); i += 2) {
            unsigned token;

            x = x * 1664525u + 1013904223u;
            token = x >> 8;
            if (kind >= 3)
                token %= limits[kind - 3];
            bytes[i] = (unsigned char)token;
            bytes[i + 1] = (unsigned char)(token >> 8);
            for (size_t k = 0; k < 2 && kind < 2; k++) /* letters or digits */
                bytes[i + k] = (unsigned char)(kind ? '0' + bytes[i + k] % 10
                                                    : 97 + bytes[i + k] % 26);
        }
        memset(&counts, 0, sizeof(counts));
        pst_bytes_count(&counts, bytes, sizeof(bytes));
        assert_int_equal(pst_bytes_are_halves(&counts), kind >= 3);
        memset(&counts, 0, sizeof(counts));
        pst_bytes_count(&counts, bytes, 100); /* too few to decide */
        assert_false(pst_bytes_are_halves(&counts));
    }
}

/* Inputs that nothing reads may be missing or have any shape; only the other
 * inputs determine the number of rows. */
static void what_nobody_reads(void **state)
{
    struct pst_data_input inputs[] = {
        {"not there", meta(PST_F32, 2, 2, 7), 0, 0, NULL, true},
        {"k", meta(PST_F32, 1, 4, 0), 0, 0, NULL, true},
        {"x", meta(PST_F32, 2, 2, 2)}};
    struct pst_data *d;
    float values[14], x[4];

    (void)state;
    write_batch();
    assert_ok(open_batch(inputs, 3, false, &d), &diag);
    assert_int_equal(pst_data_samples(d, 6), 6);
    assert_ok(pst_data_fill(d, 0, 1, 2, x, &diag), &diag);
    assert_true(x[0] == 4.0f && x[3] == 7.0f);
    memset(values, 1, sizeof(values));
    assert_ok(pst_data_fill(d, 0, 1, 0, values, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(values); i++)
        assert_true(values[i] == 0.0f);
    pst_data_close(d);
    assert_ok(open_batch(inputs, 2, false, &d), &diag);
    assert_int_equal(pst_data_samples(d, 6), 6);
    pst_data_close(d);
    inputs[0].unread = false;
    assert_int_equal(open_batch(inputs, 3, false, &d), PST_ERR_NOT_FOUND);
}

/* Conformance 20: 128, 256 and 512 rows are divided into 2 microbatches of 64,
 * 128 and 256 each, which together give the whole again. */
static void conformance_20_inputs_of_other_rows(void **state)
{
    static float data[3][512 * 8], got[512 * 8];
    struct pst_safetensors_entry entries[3];
    struct pst_data_input inputs[3];
    static const char *const names[] = {"x0", "x1", "x2"};
    const struct pst_data_options options = {.path = "c.safetensors"};
    struct pst_data *d;

    (void)state;
    for (unsigned k = 0; k < 3; k++) {
        const int64_t rows = 128 << k;

        for (int64_t i = 0; i < rows * 8; i++)
            data[k][i] = (float)(i + k);
        entries[k] = (struct pst_safetensors_entry){
            names[k], meta(PST_F32, 2, rows, 8), data[k], 0};
        inputs[k] = (struct pst_data_input){
            names[k], meta(PST_F32, 2, rows / 2, 8), 0, 0};
    }
    assert_ok(pst_safetensors_save("c.safetensors", entries, 3, &diag), &diag);
    assert_ok(pst_data_open(&options, inputs, 3, (struct pst_data_step){2, 0},
                            &d, &diag),
              &diag);
    for (unsigned k = 0; k < 3; k++) {
        const size_t half = (size_t)(64 << k) * 8;

        for (unsigned m = 0; m < 2; m++)
            assert_ok(pst_data_fill(d, 0, m, k, got + m * half, &diag), &diag);
        assert_memory_equal(got, data[k], 2 * half * sizeof(float));
    }
    pst_data_close(d);
}

/* Rows that are shuffled together stay together in a run that continues with
 * larger microbatches. */
static void goes_on_with_other_microbatches(void **state)
{
    static float got[2][64 * 8];
    const struct pst_data_options options = {
        .path = "c.safetensors", .shuffle = true, .seed = 5};
    struct pst_data_input inputs[3] = {{"x0", meta(PST_F32, 2, 8, 8)},
                                       {"x1", meta(PST_F32, 2, 16, 8)},
                                       {"x2", meta(PST_F32, 2, 32, 8)}};
    struct pst_data_place place;
    struct pst_data *before, *now;
    struct pst_str text = {0};

    /* Uses the file of the previous test, with inputs of 128, 256 and 512
     * rows. */
    (void)state;
    assert_ok(pst_data_open(&options, inputs, 3, (struct pst_data_step){2, 0},
                            &before, &diag),
              &diag);
    /* the second pass is number 1 */
    assert_true(pst_data_place(before, 11, &place));
    assert_int_equal(place.sources[0].pass, 1);
    assert_int_equal(place.sources[0].at, 11 * 16 - 128);
    assert_int_equal(place.unit, 8);
    for (unsigned k = 0; k < 3; k++)
        inputs[k].meta = meta(PST_F32, 2, 16 << k, 8);
    assert_ok(pst_data_open(&options, inputs, 3, (struct pst_data_step){1, 0},
                            &now, &diag),
              &diag);
    assert_ok(pst_data_begin(now, 11, &place, &diag), &diag);
    for (uint64_t step = 11; step < 22; step++) {
        for (unsigned k = 0; k < 3; k++) {
            for (unsigned m = 0; m < 2; m++)
                assert_ok(pst_data_fill(before, step, m, k,
                                        got[0] + m * (64u << k), &diag),
                          &diag);
            assert_ok(pst_data_fill(now, step, 0, k, got[1], &diag), &diag);
            assert_memory_equal(got[0], got[1], (128u << k) * sizeof(float));
        }
    }
    pst_data_rows(now, 11, 0, &text);
    assert_non_null(strstr(text.text, " of 'x0' in c.safetensors"));
    pst_str_fini(&text);
    place.sources[0].pass = UINT64_MAX;
    assert_int_equal(pst_data_begin(now, 11, &place, &diag), PST_ERR_INPUT);
    pst_data_close(before);
    pst_data_close(now);
}

/* Conformance 22: an input that is divided along another dimension, one that
 * every microbatch gets whole, and an integer common to all. */
static void conformance_22_divided_as_asked_for(void **state)
{
    const struct pst_data_input inputs[] = {
        {"x", meta(PST_F32, 2, 6, 1), 1, 0},
        {"pos", meta(PST_I64, 1, 9, 0), -1, 0},
        {"s", meta(PST_F32, 0, 0, 0), -1, 0}};
    const struct pst_data_input part = {"pos", meta(PST_I64, 1, 3, 0), -1, 0};
    struct pst_data *d;
    int64_t pos[9];
    float x[6], s;

    (void)state;
    write_batch();
    assert_ok(open_batch(inputs, 3, false, &d), &diag);
    for (unsigned m = 0; m < 3; m++) { /* columns 0, 1, 0 of x */
        assert_ok(pst_data_fill(d, 0, m, 0, x, &diag), &diag);
        assert_ok(pst_data_fill(d, 0, m, 1, pos, &diag), &diag);
        assert_ok(pst_data_fill(d, 0, m, 2, &s, &diag), &diag);
        for (int i = 0; i < 6; i++)
            assert_true(x[i] == (float)(2 * i + (int)m % 2));
        assert_true(pos[0] == 0 && pos[8] == 8 && s == 0.5f);
    }
    pst_data_close(d);
    assert_int_equal(open_batch(&part, 1, false, &d), PST_ERR_SHAPE);
    /* Without an input that is divided, the file counts as one sample. */
    assert_ok(open_batch(inputs + 1, 2, false, &d), &diag);
    assert_int_equal(pst_data_samples(d, 1), 1);
    pst_data_set_microbatches(d, 3);
    assert_int_equal(pst_data_samples(d, 1), 1);
    pst_data_close(d);
}

/* Conformance 24: 10 rows in 4 microbatches are 3, 3, 2, 2; the next step
 * continues with row 10. */
static void conformance_24_uneven_rows(void **state)
{
    static const int64_t rows[] = {3, 3, 2, 2};
    const struct pst_data_input inputs[] = {
        {"pos", meta(PST_I64, 1, 3, 0), 0, 2},
        {"w", meta(PST_I64, 2, 6, 2), 0, 4}};
    int64_t pos[30], w[120], got[12];
    const struct pst_safetensors_entry entries[] = {
        {"pos", meta(PST_I64, 1, 30, 0), pos, 0},
        {"w", meta(PST_I64, 2, 60, 2), w, 0}};
    struct pst_data_options options = {.path = "d.safetensors"};
    const struct pst_data_step step = {4, 2};
    int64_t at = 0;
    struct pst_data *d;

    (void)state;
    for (int i = 0; i < 30; i++)
        pos[i] = i;
    for (int i = 0; i < 120; i++)
        w[i] = i;
    assert_ok(pst_safetensors_save("d.safetensors", entries, 2, &diag), &diag);
    assert_ok(pst_data_open(&options, inputs, 2, step, &d, &diag), &diag);
    for (unsigned s = 0; s < 4; s++) {
        for (unsigned m = 0; m < 4; m++) {
            assert_ok(pst_data_fill(d, s, m, 0, got, &diag), &diag);
            for (int64_t r = 0; r < rows[m]; r++)
                assert_int_equal(got[r], (at + r) % 30);
            assert_ok(pst_data_fill(d, s, m, 1, got, &diag), &diag);
            assert_int_equal(got[0], 4 * at % 120);
            assert_int_equal(got[4 * rows[m] - 1],
                             (4 * (at + rows[m]) - 1) % 120);
            at += rows[m];
        }
    }
    pst_data_close(d);
    options.shuffle = true;
    assert_int_equal(pst_data_open(&options, inputs, 2, step, &d, &diag),
                     PST_ERR_UNSUPPORTED);
    assert_ok(pst_data_open(&options, inputs, 1, step, &d, &diag), &diag);
    at = 0;
    for (unsigned k = 0; k < 12; k++) { /* an epoch has each row once */
        assert_ok(pst_data_fill(d, k / 4, k % 4, 0, got, &diag), &diag);
        for (int64_t r = 0; r < rows[k % 4]; r++)
            at |= (int64_t)1 << got[r];
    }
    assert_int_equal(at, ((int64_t)1 << 30) - 1);
    pst_data_close(d);
}

static void wraps_and_shuffles_by_epoch(void **state)
{
    const struct pst_data_input x1 = {"x", meta(PST_F32, 2, 1, 2)};
    unsigned char order[2][6], seen;
    struct pst_data *d;
    float x[2];

    (void)state;
    write_batch();
    /* 3 microbatches of 1: two steps an epoch. */
    assert_ok(open_batch(&x1, 1, false, &d), &diag);
    assert_ok(pst_data_fill(d, 3, 2, 0, x, &diag), &diag);
    assert_true(x[0] == 10);
    assert_ok(pst_data_fill(d, 4, 0, 0, x, &diag), &diag);
    assert_true(x[0] == 0);
    pst_data_close(d);
    assert_ok(open_batch(&x1, 1, true, &d), &diag);
    for (unsigned epoch = 0; epoch < 2; epoch++) {
        seen = 0;
        for (unsigned i = 0; i < 6; i++) {
            assert_ok(pst_data_fill(d, 2 * epoch + i / 3, i % 3, 0, x, &diag),
                      &diag);
            order[epoch][i] = (unsigned char)(x[0] / 2);
            seen = (unsigned char)(seen | 1u << order[epoch][i]);
        }
        assert_int_equal(seen, 0x3f);
    }
    assert_memory_not_equal(order[0], order[1], 6);
    pst_data_close(d);
}

/* The samples need not fill whole microbatches, or even one. */
static void wraps_within_a_microbatch(void **state)
{
    struct pst_data *d;
    float x[16];

    (void)state;
    write_batch();
    for (int64_t rows = 4; rows < 9; rows++) {
        const struct pst_data_input in = {"x", meta(PST_F32, 2, rows, 2)};
        uint64_t at = 0;
        unsigned seen[6] = {0};

        assert_ok(open_batch(&in, 1, false, &d), &diag);
        for (unsigned k = 0; k < 9; k++) {
            assert_ok(pst_data_fill(d, k / 3, k % 3, 0, x, &diag), &diag);
            for (int64_t r = 0; r < rows; r++, at++)
                assert_true(x[2 * r] == (float)(at % 6 * 2) &&
                            x[2 * r + 1] == (float)(at % 6 * 2 + 1));
        }
        pst_data_close(d);
        assert_ok(open_batch(&in, 1, true, &d), &diag);
        /* These 6 batches are `rows` passes over the file. */
        for (unsigned k = 0; k < 6; k++) {
            assert_ok(pst_data_fill(d, k / 3, k % 3, 0, x, &diag), &diag);
            for (int64_t r = 0; r < rows; r++)
                seen[(unsigned)x[2 * r] / 2]++;
        }
        for (unsigned i = 0; i < PST_COUNT(seen); i++)
            assert_int_equal(seen[i], rows);
        pst_data_close(d);
    }
}

static void refuses_batches_that_do_not_fit(void **state)
{
    static const struct {
        struct pst_data_input inputs[2];
        size_t n;
        enum pst_status status;
        const char *says;
    } cases[] = {
        {{{"y", {PST_F32, 1, {2}}}}, 1, PST_ERR_NOT_FOUND, "'y'; it has: k, "},
        {{{"x", {PST_F64, 2, {2, 2}}}}, 1, PST_ERR_SHAPE, "f32[6, 2], but"},
        {{{"x", {PST_F32, 2, {2, 3}}}}, 1, PST_ERR_SHAPE, "is f32[2, 3]"},
        {{{"x", {PST_F32, 1, {2}}}}, 1, PST_ERR_SHAPE, "f32[6, 2], but"},
        {{{"x", {PST_F32, 0, {0}}}}, 1, PST_ERR_SHAPE, "f32[6, 2], but"},
        {{{"s", {PST_F32, 1, {1}}}}, 1, PST_ERR_SHAPE, "f32[], but"},
        {{{"x", {PST_F32, 2, {4, 2}}}, {"pos", {PST_I64, 1, {6}}}},
         2,
         PST_ERR_SHAPE,
         "6 rows, which is not a multiple of the 4"},
        {{{"x", {PST_F32, 2, {0, 2}}}}, 1, PST_ERR_SHAPE, "microbatch has 0"},
        {{{"x", {PST_F32, 2, {3, 2}}}, {"k", {PST_I64, 0, {0}}}},
         2,
         PST_ERR_SHAPE,
         "'x' holds 6 rows for microbatches of 3, 'k' holds 3 for those of 1"},
    };
    const uint64_t live = pst_alloc_live(PST_TAG_ARCHIVE);

    (void)state;
    write_batch();
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_data *d = NULL;
        const enum pst_status status =
            open_batch(cases[i].inputs, cases[i].n, false, &d);

        if (status != cases[i].status || !strstr(diag.text, cases[i].says))
            fail_msg("case %zu: %s: %s", i, pst_status_name(status), diag.text);
    }
    assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), live);
}

#define LARGE (2u << 20) /* bytes: too large to be read completely */

static void write_zeros(const char *path, const char *name)
{
    float *large = calloc(1, LARGE);

    assert_non_null(large);
    assert_ok(pst_safetensors_save(
                  path,
                  &(struct pst_safetensors_entry){
                      name, meta(PST_F32, 2, LARGE / 8, 2), large, 0},
                  1, &diag),
              &diag);
    free(large);
}

/* If a file is truncated during use, the error text names it. */
static void reports_that_the_file_was_cut(void **state)
{
    const struct pst_data_input batch = {"x", meta(PST_F32, 2, 2, 2), 0, 0,
                                         NULL};
    const struct pst_data_input window = {"ids", meta(PST_I64, 2, 1, 4), 0, 0,
                                          NULL};
    const struct pst_data_options tokens = {.path = "cut.bin"};
    const struct pst_data_step one = {1, 0};
    struct pst_data *data;
    int64_t ids[4];
    float x[4];

    (void)state;
    /* A small file was read completely. */
    write_batch();
    assert_ok(open_batch(&batch, 1, false, &data), &diag);
    assert_int_equal(truncate("b.safetensors", 100), 0);
    assert_ok(pst_data_fill(data, 0, 1, 0, x, &diag), &diag);
    assert_true(x[0] == 4 && x[3] == 7);
    pst_data_close(data);

    write_zeros("b.safetensors", "x");
    assert_ok(open_batch(&batch, 1, false, &data), &diag);
    assert_ok(pst_data_fill(data, 0, 0, 0, x, &diag), &diag);
    assert_int_equal(truncate("b.safetensors", 100), 0);
    assert_int_equal(pst_data_fill(data, 1, 0, 0, x, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "b.safetensors has become shorter"));
    pst_data_close(data);

    write_file("cut.bin", "0123456789abcdef", 16);
    assert_ok(pst_data_open(&tokens, &window, 1, one, &data, &diag), &diag);
    assert_ok(pst_data_fill(data, 3, 0, 0, ids, &diag), &diag);
    assert_int_equal(ids[3], 'f');
    assert_null(pst_data_take_written(data));
    assert_int_equal(truncate("cut.bin", 14), 0);
    assert_int_equal(pst_data_fill(data, 3, 0, 0, ids, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "cut.bin has become shorter"));
    pst_data_close(data);
}

/* Copies a file over another one, which stays the same inode. */
static void overwrite(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "r+b");
    char bytes[4096];
    size_t n;

    assert_true(in != NULL && out != NULL);
    while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(fclose(in), 0);
}

/* A write that may have changed rows is reported once; after one that has moved
 * the tensors nothing more is read. */
static void reports_that_the_file_was_written(void **state)
{
    const struct pst_data_input batch = {"x", meta(PST_F32, 2, 2, 2), 0, 0,
                                         NULL};
    const struct timespec past[2] = {{1, 0}, {1, 0}};
    struct pst_data *data;
    float x[4];

    (void)state;
    write_zeros("b.safetensors", "x");
    write_zeros("long.safetensors", "x_and_a_name_that_moves_the_numbers");
    /* Else the clock of the file system might not have moved on. */
    assert_int_equal(utimensat(AT_FDCWD, "b.safetensors", past, 0), 0);
    assert_ok(open_batch(&batch, 1, false, &data), &diag);
    assert_ok(pst_data_fill(data, 0, 0, 0, x, &diag), &diag);
    assert_null(pst_data_take_written(data));
    write_zeros("same.safetensors", "x");
    overwrite("same.safetensors", "b.safetensors");
    assert_ok(pst_data_fill(data, 0, 1, 0, x, &diag), &diag);
    assert_string_equal(pst_data_take_written(data), "b.safetensors");
    assert_ok(pst_data_fill(data, 0, 2, 0, x, &diag), &diag);
    assert_null(pst_data_take_written(data));
    overwrite("long.safetensors", "b.safetensors");
    assert_int_equal(pst_data_fill(data, 1, 0, 0, x, &diag), PST_ERR_IO);
    assert_int_equal(diag.error, PST_E_FILE_CHANGED);
    assert_non_null(strstr(diag.text, "its header is another one"));
    pst_data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_as_the_caller_chooses),
        cmocka_unit_test(halves_of_wider_tokens),
        cmocka_unit_test(steps_see_their_rows),
        cmocka_unit_test(what_nobody_reads),
        cmocka_unit_test(conformance_20_inputs_of_other_rows),
        cmocka_unit_test(goes_on_with_other_microbatches),
        cmocka_unit_test(conformance_22_divided_as_asked_for),
        cmocka_unit_test(conformance_24_uneven_rows),
        cmocka_unit_test(wraps_and_shuffles_by_epoch),
        cmocka_unit_test(wraps_within_a_microbatch),
        cmocka_unit_test(refuses_batches_that_do_not_fit),
        cmocka_unit_test(reports_that_the_file_was_cut),
        cmocka_unit_test(reports_that_the_file_was_written),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
