// SPDX-License-Identifier: Apache-2.0
/* Tests data of several files: lists, patterns, weights, indices. */
#include "tests/test.h"

#include "stages/base/str.h"
#include "stages/files/data.h"
#include "stages/files/data/blend.h"
#include "stages/files/data/list.h"
#include "stages/files/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS   6u /* rows of a step, in 2 microbatches */
#define WINDOW 5u

static char dir[] = "/tmp/pst-files-XXXXXX";
static struct pst_diag diag;

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Writes n tokens: first, first + 1, ... */
static void write_tokens(const char *name, unsigned first, unsigned n)
{
    unsigned char bytes[256];

    for (unsigned i = 0; i < n; i++)
        bytes[i] = (unsigned char)(first + i);
    write_file(name, bytes, n);
}

/* Writes x f32[n, 2], whose row r is (first + r, -(first + r)). */
static void write_rows(const char *name, unsigned first, unsigned n)
{
    float x[128];
    const int64_t sizes[] = {n, 2};
    const struct pst_safetensors_entry entry = {
        "x", pst_meta_make(PST_F32, 2, sizes), x, 0};

    for (unsigned i = 0; i < n; i++) {
        x[2 * i] = (float)(first + i);
        x[2 * i + 1] = -(float)(first + i);
    }
    assert_ok(pst_safetensors_save(name, &entry, 1, &diag), &diag);
}

/* Opens files of tokens for a model with tokens and targets, or of tensors for
 * one with the input x; a step has `rows` samples in 2 microbatches. */
static enum pst_status open_files(const char *text, unsigned rows, bool shuffle,
                                  struct pst_data **ret)
{
    const int64_t ids[] = {rows / 2, WINDOW}, x[] = {rows / 2, 2};
    const struct pst_data_input inputs[] = {
        {"ids", pst_meta_make(PST_I64, 2, ids)},
        {"y", pst_meta_make(PST_I64, 2, ids)}};
    const struct pst_data_input rows_of = {"x", pst_meta_make(PST_F32, 2, x)};
    const bool tensors = pst_data_list_has_tensors(text);

    return pst_data_open(
        &(struct pst_data_options){.path = text, .shuffle = shuffle, .seed = 3},
        tensors ? &rows_of : inputs, tensors ? 1 : 2,
        (struct pst_data_step){2, 0}, ret, &diag);
}

/* Reads the samples of a step: of tensors the first number of each row; of
 * tokens the first one of each window, which checks the rest of the window and
 * its targets, if `ascending`. */
static void read_step(struct pst_data *d, uint64_t step, unsigned rows,
                      bool tensors, bool ascending, int64_t *ret)
{
    for (unsigned m = 0; m < 2; m++) {
        float x[64 * 2];
        int64_t ids[64 * WINDOW], y[64 * WINDOW];

        if (tensors) {
            assert_ok(pst_data_fill(d, step, m, 0, x, &diag), &diag);
        } else {
            assert_ok(pst_data_fill(d, step, m, 0, ids, &diag), &diag);
            assert_ok(pst_data_fill(d, step, m, 1, y, &diag), &diag);
        }
        for (unsigned i = 0; i < rows / 2; i++) {
            ret[m * (rows / 2) + i] =
                tensors ? (int64_t)x[2 * i] : ids[i * WINDOW];
            if (tensors)
                assert_true(x[2 * i + 1] == -x[2 * i]);
            for (unsigned k = 0; k < WINDOW && !tensors && ascending; k++) {
                assert_int_equal(ids[i * WINDOW + k], ids[i * WINDOW] + k);
                assert_int_equal(y[i * WINDOW + k], ids[i * WINDOW] + k + 1);
            }
        }
    }
}

/* Compares the samples of some steps. */
static void assert_same(const char *a, const char *b, bool shuffle)
{
    const bool tensors = pst_data_list_has_tensors(a);
    struct pst_data *one, *other;

    assert_ok(open_files(a, ROWS, shuffle, &one), &diag);
    assert_ok(open_files(b, ROWS, shuffle, &other), &diag);
    assert_int_equal(pst_data_samples(one, ROWS),
                     pst_data_samples(other, ROWS));
    for (uint64_t step = 0; step < 20; step++) {
        int64_t x[ROWS], y[ROWS];

        read_step(one, step, ROWS, tensors, true, x);
        read_step(other, step, ROWS, tensors, true, y);
        assert_memory_equal(x, y, sizeof(x));
    }
    pst_data_close(one);
    pst_data_close(other);
}

static void reads_a_list_like_one_file(void **state)
{
    (void)state;
    write_tokens("whole.bin", 0, 101);
    write_tokens("s-1.bin", 0, 7); /* windows go on in the next file */
    write_tokens("s-2.bin", 7, 2);
    write_tokens("s-3.bin", 9, 92);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        assert_same("whole.bin", "s-1.bin,s-2.bin,s-3.bin", shuffle);
        assert_same("whole.bin", "s-*.bin", shuffle);
        assert_same("whole.bin", "s-1.bin,s-[23].bin", shuffle);
    }
    write_rows("whole.safetensors", 0, 41);
    write_rows("r-1.safetensors", 0, 1);
    write_rows("r-2.safetensors", 1, 30);
    write_rows("r-3.safetensors", 31, 10);
    for (int shuffle = 0; shuffle < 2; shuffle++)
        assert_same("whole.safetensors", "r-?.safetensors", shuffle);
}

static void names_the_file_of_each_row(void **state)
{
    struct pst_str text = {0};
    struct pst_data *d;

    (void)state;
    assert_ok(open_files("s-*.bin", ROWS, false, &d), &diag);
    pst_data_rows(d, 0, 0, &text);
    assert_string_equal(pst_str_text(&text),
                        "tokens 0 to 6 of s-1.bin, 0 to 1 of s-2.bin, 0 to 5 "
                        "of s-3.bin (counted from 0)");
    pst_str_fini(&text);
    pst_data_close(d);
    assert_ok(
        open_files("r-1.safetensors:1,r-2.safetensors:1", ROWS, false, &d),
        &diag);
    pst_data_rows(d, 0, 1, &text);
    assert_string_equal(pst_str_text(&text),
                        "rows 1 of r-2.safetensors, 0 of r-1.safetensors, 2 of "
                        "r-2.safetensors (counted from 0)");
    pst_str_fini(&text);
    pst_data_close(d);
    assert_ok(open_files("whole.safetensors", 40, true, &d), &diag);
    pst_data_rows(d, 0, PST_DATA_STEP, &text);
    assert_non_null(strstr(pst_str_text(&text),
                           " of whole.safetensors and others (counted from "));
    pst_str_fini(&text);
    pst_data_close(d);
}

/* --- weights -------------------------------------------------------------- */

/* Compares blends with their definition. */
static void blends_in_proportion(void **state)
{
    static const double weights[][4] = {
        {.7, .3},         {1, 1, 1},      {3, 0, 1},           {1, 1e-9},
        {.1, .2, .3, .4}, {1e300, 3e300}, {1e-300, 1e-300, 0}, {1e12, 1e12, 1}};
    static const uint64_t periods[] = {10, 3, 4, 65536, 10, 4, 2, 65536};

    (void)state;
    for (unsigned c = 0; c < PST_COUNT(weights); c++) {
        uint64_t seen[4] = {0};
        struct pst_arena arena;
        struct pst_blend b;
        double sum = 0;

        pst_arena_init(&arena, PST_TAG_ARCHIVE);
        for (unsigned k = 0; k < 4; k++)
            sum += weights[c][k] / weights[c][0];
        assert_ok(pst_blend_make(weights[c], 4, &arena, &b, &diag), &diag);
        assert_int_equal(b.period, periods[c]);
        for (uint64_t n = 0; n < 3 * b.period; n++) {
            const struct pst_blend_sample s = pst_blend_at(&b, n);

            for (unsigned k = 0; k < 4; k++) {
                const double due =
                    (double)(n + 1) * (weights[c][k] / weights[c][0]) / sum;

                /* checked rarely with a long period: counting takes time then
                 */
                if (b.period < 100 || n % 4999 == 0)
                    assert_int_equal(pst_blend_count(&b, k, n), seen[k]);
                /* no source is more than a sample away from its share */
                if (c != 3 && c != 7)
                    assert_true(
                        fabs((double)(seen[k] + (k == s.source)) - due) < 1.5);
            }
            assert_int_equal(s.index, seen[s.source]++);
            assert_true(weights[c][s.source] > 0);
        }
        /* each source is drawn, however small its weight is */
        if (c == 3)
            assert_int_equal(seen[1], 3);
        if (c == 7)
            assert_int_equal(seen[2], 3);
        pst_arena_fini(&arena);
    }
}

/* A source of a blend gives its samples in the order that it has alone. */
static void draws_from_sources_in_order(void **state)
{
    const char *const lists[] = {"a.bin:.7,b.bin:.3",
                                 "a.safetensors:.7,b.safetensors:.3"};

    (void)state;
    write_tokens("a.bin", 0, 41);   /* 8 windows */
    write_tokens("b.bin", 100, 56); /* 11 windows */
    write_rows("a.safetensors", 0, 8);
    write_rows("b.safetensors", 100, 11);
    for (unsigned t = 0; t < 2; t++) {
        unsigned seen[2] = {0};
        struct pst_data *d;

        assert_ok(open_files(lists[t], ROWS, false, &d), &diag);
        assert_int_equal(pst_data_samples(d, ROWS), 19);
        for (uint64_t step = 0; step < 25; step++) {
            int64_t x[ROWS];

            read_step(d, step, ROWS, t == 1, true, x);
            for (unsigned i = 0; i < ROWS; i++) {
                const unsigned source = x[i] >= 100;
                const unsigned n = seen[source]++ % (source ? 11 : 8);

                assert_int_equal(x[i], 100 * source + n * (t ? 1 : WINDOW));
            }
        }
        assert_int_equal(seen[0], 105); /* 70 % of 150 samples */
        pst_data_close(d);
    }
}

/* A run that stops after any step, and continues with steps of another size,
 * draws the samples of one that never stopped. */
static void continues_a_blend(void **state)
{
    const char *const lists[] = {"a.bin:3,b.bin:1",
                                 "a.safetensors:3,b.safetensors:1",
                                 "b.safetensors:1,a.safetensors:.123"};

    (void)state;
    for (unsigned t = 0; t < 6; t++) {
        const char *list = lists[t % 3];
        const bool shuffle = t >= 3, tensors = t % 3 > 0;
        int64_t all[240], x[240];
        struct pst_data_place place;
        struct pst_data *d;

        assert_ok(open_files(list, 6, shuffle, &d), &diag);
        for (uint64_t step = 0; step < 40; step++)
            read_step(d, step, 6, tensors, true, all + 6 * step);
        for (unsigned stop = 0; stop < 9; stop++) {
            struct pst_data *first, *next;

            assert_ok(open_files(list, 4, shuffle, &first), &diag);
            for (uint64_t step = 0; step < stop; step++)
                read_step(first, step, 4, tensors, true, x + 4 * step);
            assert_true(pst_data_place(first, stop, &place));
            assert_ok(open_files(list, 10, shuffle, &next), &diag);
            assert_ok(pst_data_begin(next, stop, &place, &diag), &diag);
            for (uint64_t step = 0; step < 10; step++)
                read_step(next, stop + step, 10, tensors, true,
                          x + 4 * stop + 10 * step);
            assert_memory_equal(x, all, (4 * stop + 100) * sizeof(*x));
            pst_data_close(first);
            pst_data_close(next);
        }
        pst_data_close(d);
    }
}

/* Going back to step 4, once from after step 9 and then from after three more,
 * leaves out what all these steps drew; the samples after them follow. */
static void counts_what_is_left_out(void **state)
{
    const char *const lists[] = {"a.bin", "a.bin:3,b.bin:1", "a.safetensors",
                                 "a.safetensors:3,b.safetensors:1"};

    (void)state;
    for (unsigned t = 0; t < 8; t++) {
        const bool shuffle = t >= 4, tensors = t % 4 >= 2;
        const uint64_t row = tensors ? 1 : WINDOW;
        const struct pst_data_place unknown = {0};
        struct pst_data_place back, to, now;
        int64_t all[ROWS * 20], x[ROWS];
        struct pst_data *d;

        assert_ok(open_files(lists[t % 4], ROWS, shuffle, &d), &diag);
        for (uint64_t step = 0; step < 20; step++)
            read_step(d, step, ROWS, tensors, true, all + ROWS * step);
        assert_true(pst_data_place(d, 4, &back) && pst_data_place(d, 9, &to));
        assert_int_equal(to.left_out, 0);
        assert_ok(pst_data_skip(d, 4, &back, &to, &diag), &diag);
        assert_true(pst_data_place(d, 7, &to));
        assert_int_equal(to.left_out, 5 * ROWS * row);
        assert_ok(pst_data_skip(d, 4, &back, &to, &diag), &diag);
        for (uint64_t step = 4; step < 12; step++) {
            read_step(d, step, ROWS, tensors, true, x);
            assert_memory_equal(x, all + ROWS * (step + 8), sizeof(x));
        }
        assert_true(pst_data_place(d, 11, &now));
        assert_int_equal(now.left_out, 8 * ROWS * row);
        assert_ok(pst_data_skip(d, 11, &now, &unknown, &diag), &diag);
        read_step(d, 11, ROWS, tensors, true, x);
        assert_memory_equal(x, all + ROWS * 19, sizeof(x));
        now.left_out = INT64_MAX;
        assert_true(pst_data_place(d, 12, &to));
        assert_ok(pst_data_skip(d, 11, &now, &to, &diag), &diag);
        assert_true(pst_data_place(d, 11, &to));
        assert_int_equal(to.left_out, INT64_MAX);
        pst_data_close(d);
    }
}

/* With other weights, or other sources beside it, each source continues after
 * its last sample. */
static void continues_each_source(void **state)
{
    static const unsigned sizes[] = {8, 11, 30};
    unsigned seen[3] = {0};
    struct pst_data_place place;
    struct pst_data *d;
    int64_t x[ROWS];

    (void)state;
    write_rows("c.safetensors", 200, 30);
    assert_ok(open_files("a.safetensors:3,b.safetensors:1", ROWS, false, &d),
              &diag);
    for (uint64_t step = 0; step < 9; step++) {
        if (step == 5) {
            assert_true(pst_data_place(d, step, &place));
            pst_data_close(d);
            assert_ok(open_files("c.safetensors:1,b.safetensors:2,"
                                 "./a.safetensors:1",
                                 ROWS, false, &d),
                      &diag);
            /* as if the checkpoint were of ./a.safetensors */
            (void)strcpy(place.sources[0].name, "./a.safetensors");
            assert_ok(pst_data_begin(d, step, &place, &diag), &diag);
        }
        read_step(d, step, ROWS, true, true, x);
        for (unsigned i = 0; i < ROWS; i++) {
            const unsigned k = (unsigned)x[i] / 100;

            assert_int_equal(x[i], 100 * k + seen[k]++ % sizes[k]);
        }
    }
    assert_int_equal(seen[2], 6); /* a quarter of 24 samples */
    pst_data_close(d);
}

/* A run of one file becomes a source; files that were moved continue by their
 * number. */
static void continues_moved_files(void **state)
{
    struct pst_data_place place;
    struct pst_data *d;
    int64_t x[ROWS];

    (void)state;
    assert_ok(open_files("a.safetensors", 4, false, &d), &diag);
    assert_true(pst_data_place(d, 1, &place));
    pst_data_close(d);
    assert_ok(open_files("b.safetensors:1,a.safetensors:1", 4, false, &d),
              &diag);
    assert_ok(pst_data_begin(d, 1, &place, &diag), &diag);
    read_step(d, 1, 4, true, true, x);
    assert_true(x[0] == 100 && x[1] == 4 && x[2] == 101 && x[3] == 5);
    assert_true(pst_data_place(d, 2, &place));
    pst_data_close(d);
    assert_ok(open_files("b.safetensors:1,r-2.safetensors:1", 4, false, &d),
              &diag);
    assert_ok(pst_data_begin(d, 2, &place, &diag), &diag);
    read_step(d, 2, 4, true, true, x);
    assert_true(x[0] == 102 && x[1] == 7 && x[2] == 103 && x[3] == 8);
    place.sources[1].pass = UINT64_MAX;
    assert_int_equal(pst_data_begin(d, 2, &place, &diag), PST_ERR_INPUT);
    pst_data_close(d);
}

/* Sources with the same name, or with the same end of a long name, keep their
 * own positions. */
static void keeps_sources_apart(void **state)
{
    static char deep[2][400];
    char list[900], part[61];
    struct pst_data_place place;
    const char *const lists[] = {"a.safetensors:2,a.safetensors:1", list};

    (void)state;
    memset(part, 'p', 60);
    part[60] = '\0';
    for (unsigned i = 0; i < 2; i++) {
        (void)sprintf(deep[i], "%s/%s/%s/x.safetensors", i ? "de" : "en", part,
                      part);
        for (char *at = strchr(deep[i], '/'); at != NULL;
             at = strchr(at + 1, '/')) {
            *at = '\0';
            assert_int_equal(mkdir(deep[i], 0700), 0);
            *at = '/';
        }
        write_rows(deep[i], 100 * i, 20);
    }
    (void)sprintf(list, "%s:2,%s:1", deep[0], deep[1]);
    for (unsigned t = 0; t < 2; t++) {
        struct pst_data *one, *two;
        int64_t x[ROWS], y[ROWS];

        assert_ok(open_files(lists[t], ROWS, false, &one), &diag);
        assert_ok(open_files(lists[t], ROWS, false, &two), &diag);
        assert_true(pst_data_place(one, 3, &place));
        assert_true(place.sources[0].at != place.sources[1].at);
        assert_ok(pst_data_begin(two, 3, &place, &diag), &diag);
        for (uint64_t step = 3; step < 8; step++) {
            read_step(one, step, ROWS, true, true, x);
            read_step(two, step, ROWS, true, true, y);
            assert_memory_equal(x, y, sizeof(x));
        }
        pst_data_close(one);
        pst_data_close(two);
    }
}

/* A source of weight 0 is never read, so it may be empty, and its tokens may
 * lack what the others need. */
static void ignores_sources_of_weight_0(void **state)
{
    static const char *const lists[][2] = {
        {"a.bin:1,none.bin:0", "a.bin:1"},
        {"none.bin:0,a.bin:1", "a.bin:1"},
        {"a.bin:2,none.bin:0,b.bin:1", "a.bin:2,b.bin:1"},
        {"none.safetensors:0,a.safetensors:1", "a.safetensors:1"},
        {"a.safetensors:1,none.safetensors:0", "a.safetensors:1"}};
    struct pst_data_place place;
    struct pst_data *d;

    (void)state;
    write_tokens("a.bin", 0, 41);
    write_tokens("b.bin", 100, 56);
    write_tokens("none.bin", 0, 0);
    write_rows("a.safetensors", 0, 8);
    write_rows("none.safetensors", 0, 0);
    for (unsigned t = 0; t < PST_COUNT(lists); t++)
        for (unsigned shuffle = 0; shuffle < 2; shuffle++) {
            assert_same(lists[t][0], lists[t][1], shuffle);
            assert_ok(open_files(lists[t][0], ROWS, shuffle, &d), &diag);
            assert_true(pst_data_place(d, 7, &place));
            assert_ok(pst_data_begin(d, 7, &place, &diag), &diag);
            pst_data_close(d);
        }
    assert_int_equal(open_files("a.bin:1,none.bin:1", ROWS, false, &d),
                     PST_ERR_SHAPE);
    assert_int_equal(
        open_files("a.safetensors:1,none.safetensors:1", ROWS, false, &d),
        PST_ERR_SHAPE);
    assert_int_equal(open_files("a.bin:1,gone.bin:0", ROWS, false, &d),
                     PST_ERR_IO);
}

/* --- what is refused ------------------------------------------------------ */

static void refuses_lists(void **state)
{
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"a.bin,,b.bin", "a name is empty"},
        {"a.bin,", "a name is empty"},
        {":0.5", "a name is empty"},
        {"a.bin:0.5,b.bin", "give each file a weight"},
        {"a.bin,b.bin:1", "give each file a weight"},
        {"a.bin:0,b.bin:0", "all weights are 0"},
        {"a.bin:-1,b.bin:2", "a.bin:-1: a weight is a number of 0 or more"},
        {"a.bin:nan,b.bin:2", "a.bin:nan: a weight is a number"},
        {"a.bin:inf,b.bin:2", "a.bin:inf: a weight is a number"},
        {"none-*.bin", "none-*.bin: no file with tokens or tensors matches"},
        {"a.bin,a.safetensors", "cannot be mixed"},
        {"a.bin:1,a.safetensors:2", "cannot be mixed"},
    };
    struct pst_data_list list;
    char many[40 * 16] = "";
    struct pst_data *d;

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(cases); i++) {
        diag = (struct pst_diag){0};
        assert_int_equal(open_files(cases[i].text, ROWS, false, &d),
                         PST_ERR_INPUT);
        if (strstr(diag.text, cases[i].what) == NULL)
            fail_msg("%s: %s", cases[i].text, diag.text);
        assert_int_equal(diag.error, PST_E_DATA_LIST);
    }
    for (unsigned i = 0; i < 33; i++)
        (void)sprintf(many + strlen(many), "%sa.bin:1", i ? "," : "");
    assert_int_equal(pst_data_list_read(many, &list, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "more than 32 sources"));
    assert_int_equal(open_files("a.bin,missing.bin", ROWS, false, &d),
                     PST_ERR_IO);
    assert_non_null(strstr(diag.text, "missing.bin"));
}

/* A file may have any name. */
static void reads_odd_names(void **state)
{
    static const char *const names[] = {"a,b.bin", "c.bin:0.5", "d*.bin",
                                        "e.bin:1,f.bin:2"};
    struct pst_str text = {0};
    struct pst_data_list list;

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(names); i++) {
        write_tokens(names[i], 0, 20);
        assert_ok(pst_data_list_read(names[i], &list, &diag), &diag);
        assert_int_equal(list.files.n, 1);
        assert_string_equal(list.files.at[0], names[i]);
        assert_false(list.weighted);
        pst_data_list_fini(&list);
    }
    pst_data_list_add_absolute("a.bin:1,/x/b.bin:2,*.c:3", "/dir", &text);
    assert_string_equal(pst_str_text(&text),
                        "/dir/a.bin:1,/x/b.bin:2,/dir/*.c:3");
    pst_str_fini(&text);
    pst_data_list_add_absolute("a,b.bin", "/dir", &text);
    assert_string_equal(pst_str_text(&text), "/dir/a,b.bin");
    pst_str_fini(&text);
}

static void refuses_tensors_that_differ(void **state)
{
    const int64_t sizes[] = {4, 2};
    float x[8] = {0}, s[2] = {1, 2};
    struct pst_safetensors_entry entries[] = {
        {"x", pst_meta_make(PST_F32, 2, sizes), x, 0},
        {"s", pst_meta_make(PST_F32, 0, NULL), &s[0], 0}};
    const struct pst_data_input inputs[] = {
        {"x", pst_meta_make(PST_F32, 2, sizes)},
        {"s", pst_meta_make(PST_F32, 0, NULL), -1}};
    const struct pst_data_step step = {1, 0};
    struct pst_data_options options = {.path = "u.safetensors,v.safetensors"};
    struct pst_data *d;

    (void)state;
    assert_ok(pst_safetensors_save("u.safetensors", entries, 2, &diag), &diag);
    assert_ok(pst_safetensors_save("v.safetensors", entries, 2, &diag), &diag);
    assert_ok(pst_data_open(&options, inputs, 2, step, &d, &diag), &diag);
    pst_data_close(d);
    entries[1].data = &s[1];
    assert_ok(pst_safetensors_save("v.safetensors", entries, 2, &diag), &diag);
    assert_int_equal(pst_data_open(&options, inputs, 2, step, &d, &diag),
                     PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "v.safetensors: tensor 's' differs"));
    entries[1] = (struct pst_safetensors_entry){
        "s", pst_meta_make(PST_F32, 1, &sizes[1]), s, 0};
    assert_ok(pst_safetensors_save("v.safetensors", entries, 2, &diag), &diag);
    assert_int_equal(pst_data_open(&options, inputs, 2, step, &d, &diag),
                     PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "one number here and several"));
    assert_ok(pst_safetensors_save("v.safetensors", entries, 1, &diag), &diag);
    assert_int_equal(pst_data_open(&options, inputs, 2, step, &d, &diag),
                     PST_ERR_NOT_FOUND);
    assert_non_null(strstr(diag.text, "v.safetensors has no tensor"));
    options.path = "a.bin:1";
    options.in_order = true;
    assert_int_equal(pst_data_open(&options, inputs, 1, step, &d, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "each row is evaluated once"));
}

/* --- indices -------------------------------------------------------------- */

/* Writes the index of Megatron-LM of a file with two sequences. */
static void write_index(const char *name, unsigned char code, int32_t first,
                        int32_t second, uint64_t count)
{
    unsigned char bytes[34 + 2 * 12 + 3 * 8] = "MMIDIDX\0";
    const uint64_t version = 1, documents = 3;
    const int32_t lengths[] = {first, second};

    memcpy(bytes + 9, &version, 8);
    bytes[17] = code;
    memcpy(bytes + 18, &count, 8);
    memcpy(bytes + 26, &documents, 8);
    memcpy(bytes + 34, lengths, 8);
    write_file(name, bytes, sizeof(bytes));
}

static void reads_the_index_of_megatron(void **state)
{
    static const struct {
        unsigned char code;
        int32_t first, second;
        uint64_t count;
        const char *what;
    } cases[] = {
        {4, 10, 10, 2, "add up to 20 tokens of 4 bytes, but the file has 82"},
        {8, 30, 12, 2, "add up to more than 41 tokens"},
        {8, 30, -1, 2, "add up to more than 41 tokens"},
        {8, 30, 10, 2, "add up to 40 tokens of 2 bytes"},
        {5, 30, 11, 2, "has code 5: int64, tokens have 1, 2 or 4 bytes"},
        {99, 30, 11, 2, "has code 99, tokens have"},
        {8, 30, 11, UINT64_MAX / 2, "m.idx is cut"},
    };
    uint16_t tokens[41];
    struct pst_data *d;
    int64_t x[ROWS];

    (void)state;
    for (unsigned i = 0; i < 41; i++)
        tokens[i] = (uint16_t)(1000 + i);
    write_file("m.bin", tokens, sizeof(tokens));
    write_index("m.idx", 8, 30, 11, 2);
    assert_ok(open_files("m.*", ROWS, false, &d), &diag);
    assert_int_equal(pst_data_width(d, 0), 2);
    read_step(d, 0, ROWS, false, true, x);
    assert_true(x[0] == 1000 && x[5] == 1025);
    pst_data_close(d);
    for (unsigned i = 0; i < PST_COUNT(cases); i++) {
        write_index("m.idx", cases[i].code, cases[i].first, cases[i].second,
                    cases[i].count);
        assert_int_equal(open_files("m.bin", ROWS, false, &d), PST_ERR_INPUT);
        if (strstr(diag.text, cases[i].what) == NULL)
            fail_msg("%u: %s", i, diag.text);
    }
    for (unsigned i = 0; i < 2; i++) { /* another format; truncated */
        write_file("m.idx", i == 0 ? "TNTIDX\0" : "MMIDIDX\0", 8);
        assert_int_equal(open_files("m.bin", ROWS, false, &d), PST_ERR_INPUT);
        assert_non_null(strstr(diag.text, "m.idx is no index of Megatron-LM"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_list_like_one_file),
        cmocka_unit_test(names_the_file_of_each_row),
        cmocka_unit_test(blends_in_proportion),
        cmocka_unit_test(draws_from_sources_in_order),
        cmocka_unit_test(continues_a_blend),
        cmocka_unit_test(counts_what_is_left_out),
        cmocka_unit_test(continues_each_source),
        cmocka_unit_test(continues_moved_files),
        cmocka_unit_test(keeps_sources_apart),
        cmocka_unit_test(ignores_sources_of_weight_0),
        cmocka_unit_test(refuses_lists),
        cmocka_unit_test(reads_odd_names),
        cmocka_unit_test(refuses_tensors_that_differ),
        cmocka_unit_test(reads_the_index_of_megatron),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
