// SPDX-License-Identifier: Apache-2.0
/* Tests packed documents: positions, documents, masks and targets of a window.
 */
#include "tests/test.h"

#include "stages/base/host/fs.h"
#include "stages/files/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS 61u
#define WINDOW 8u
#define ROWS   3u /* rows of a microbatch */
#define END    9

static char dir[] = "/tmp/pst-pack-XXXXXX";
static struct pst_diag diag;
static unsigned char tokens[TOKENS];

/* Two files; documents have 1 to 12 tokens, one of them only its end, and one
 * of them goes on from the first file to the second. */
static int make_files(void **state)
{
    static const unsigned ends[] = {2, 3, 4, 9, 15, 27, 30, 31, 39, 47, 55};
    unsigned next = 0;
    FILE *f;

    (void)state;
    if (mkdtemp(dir) == NULL || chdir(dir) != 0)
        return -1;
    for (unsigned i = 0; i < TOKENS; i++) {
        const bool ends_here = next < PST_COUNT(ends) && ends[next] == i;

        tokens[i] = ends_here ? END : (unsigned char)(10 + i);
        next += ends_here;
    }
    f = fopen("a.bin", "wb");
    if (f == NULL || fwrite(tokens, 1, 20, f) != 20 || fclose(f) != 0)
        return -1;
    f = fopen("b.bin", "wb");
    return f != NULL && fwrite(tokens + 20, 1, TOKENS - 20, f) == TOKENS - 20 &&
                   fclose(f) == 0
               ? 0
               : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

/* Inputs of a model; each of them gets a microbatch of ROWS windows. */
enum { POSITIONS, IDS, MASK, DOCUMENTS, TARGETS, ADDED, N };

static void make_inputs(struct pst_data_input *ret, bool ignores)
{
    const int64_t flat[] = {ROWS, WINDOW}, square[] = {ROWS, 1, WINDOW, WINDOW};
    static const char *const names[N] = {"position_ids", "x", "attention_mask",
                                         "segment_ids",  "y", "bias"};

    for (unsigned i = 0; i < N; i++)
        ret[i] = (struct pst_data_input){
            names[i], i == MASK    ? pst_meta_make(PST_BOOL, 4, square)
                      : i == ADDED ? pst_meta_make(PST_F32, 4, square)
                                   : pst_meta_make(PST_I64, 2, flat)};
    ret[TARGETS].bound =
        (struct pst_data_bound){.ignores = ignores, .ignored = -100};
}

/* Compares a microbatch with its definition. */
static void check_microbatch(struct pst_data *d, unsigned m, bool ignores)
{
    int64_t got[N][ROWS * WINDOW];
    bool mask[ROWS][WINDOW][WINDOW];

    for (unsigned i = 0; i < N; i++)
        if (i != MASK && i != ADDED)
            assert_ok(pst_data_fill(d, 0, m, i, got[i], &diag), &diag);
    assert_ok(pst_data_fill(d, 0, m, MASK, mask, &diag), &diag);
    for (unsigned r = 0; r < ROWS; r++) {
        unsigned begin = 0, document = 0;

        for (unsigned i = 0; i < WINDOW; i++) {
            const unsigned at = ((m * ROWS + r) % 7) * WINDOW + i;
            const unsigned to = r * WINDOW + i;

            assert_int_equal(got[IDS][to], tokens[at]);
            assert_int_equal(got[POSITIONS][to], i - begin);
            assert_int_equal(got[DOCUMENTS][to], document);
            assert_int_equal(got[TARGETS][to], ignores && tokens[at] == END
                                                   ? -100
                                                   : tokens[at + 1]);
            for (unsigned k = 0; k < WINDOW; k++)
                assert_int_equal(mask[r][i][k], k >= begin && k <= i);
            if (tokens[at] == END) {
                document++;
                begin = i + 1;
            }
        }
    }
}

static void packs_documents(void **state)
{
    float added[ROWS][WINDOW][WINDOW];
    struct pst_data_input inputs[N];
    struct pst_data *d;

    (void)state;
    for (int ignores = 0; ignores < 2; ignores++) {
        make_inputs(inputs, ignores);
        inputs[ADDED].name = "unknown"; /* the mask is found by its name */
        assert_ok(pst_data_open(
                      &(struct pst_data_options){
                          .path = "a.bin,b.bin", .pack = "9", .compare = true},
                      inputs, N - 1, (struct pst_data_step){4, 0}, &d, &diag),
                  &diag);
        for (unsigned m = 0; m < 4; m++)
            check_microbatch(d, m, ignores);
        assert_int_equal(pst_data_targets(d), TARGETS);
        assert_true(pst_data_packing(d).packed && pst_data_packing(d).mask &&
                    pst_data_packing(d).positions &&
                    pst_data_packing(d).documents &&
                    pst_data_packing(d).ignores == ignores);
        pst_data_close(d);
    }
    /* a mask that is added; named by an option */
    make_inputs(inputs, true);
    inputs[MASK] = inputs[ADDED];
    assert_ok(pst_data_open(
                  &(struct pst_data_options){
                      .path = "a.bin,b.bin", .pack = "9", .mask = "bias"},
                  inputs, N - 1, (struct pst_data_step){4, 0}, &d, &diag),
              &diag);
    assert_ok(pst_data_fill(d, 0, 0, MASK, added, &diag), &diag);
    assert_true(added[0][3][3] == 0 && added[0][3][2] == -INFINITY &&
                added[0][2][0] == 0 && added[0][0][1] == -INFINITY);
    pst_data_close(d);
}

static enum pst_status open_with(const struct pst_data_options *options,
                                 const struct pst_data_input *inputs)
{
    struct pst_data *d;
    const enum pst_status status = pst_data_open(
        options, inputs, N - 1, (struct pst_data_step){4, 0}, &d, &diag);

    if (status == PST_OK)
        pst_data_close(d);
    return status;
}

static void refuses_what_does_not_fit(void **state)
{
    const int64_t half[] = {ROWS, WINDOW / 2}, low[] = {ROWS, 1, 4, 4};
    struct pst_data_options options = {
        .path = "a.bin,b.bin", .pack = "9", .compare = true};
    struct pst_data_input inputs[N];

    (void)state;
    make_inputs(inputs, true);
    assert_ok(open_with(&options, inputs), &diag);
    options.pack = "200";
    assert_int_equal(open_with(&options, inputs), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "the token 200, which ends documents by "
                                      "--pack, does not occur"));
    options.path = "a.bin:1,b.bin:2";
    options.pack = "10"; /* the token 10 is only in a.bin */
    assert_int_equal(open_with(&options, inputs), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "b.bin: the token 10"));
    for (unsigned i = 0; i < 4; i++) {
        options.pack = (const char *const[]){"-1", "x", "", "4294967296"}[i];
        assert_int_equal(open_with(&options, inputs), PST_ERR_INPUT);
        assert_non_null(strstr(diag.text, "give the number of the token"));
    }
    options.pack = "9";
    inputs[POSITIONS].meta = pst_meta_make(PST_I64, 2, half);
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "'position_ids' (i64[3, 4]) does not fit "
                                      "3 windows of 8 tokens"));
    make_inputs(inputs, true);
    inputs[MASK].meta = pst_meta_make(PST_BOOL, 4, low);
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "does not fit 3 windows of 8 tokens"));
    options.mask = "x";
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "input 'x' is i64[3, 8], it has to be "
                                      "bool or float"));
    options.mask = "none";
    assert_int_equal(open_with(&options, inputs), PST_ERR_NOT_FOUND);
    options.mask = NULL;
    inputs[DOCUMENTS].name = "x2"; /* a third integer input without a role */
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "input 'y' (i64[3, 8]) cannot be made"));
}

/* Without --pack a window is one document. */
static void fills_one_document(void **state)
{
    const int64_t flat[] = {ROWS, WINDOW};
    struct pst_data_input inputs[N];
    struct pst_data_options options = {.path = "a.bin,b.bin", .compare = true};
    int64_t got[ROWS * WINDOW], ones[ROWS * WINDOW];
    bool mask[ROWS][WINDOW][WINDOW];
    struct pst_data *d;

    (void)state;
    make_inputs(inputs, true);
    /* a mask of the tokens' shape, by the name that it has in a dict */
    inputs[DOCUMENTS].name = "batch.attention_mask";
    inputs[MASK].name = "block_mask";
    assert_ok(pst_data_open(&options, inputs, N - 1,
                            (struct pst_data_step){4, 0}, &d, &diag),
              &diag);
    assert_ok(pst_data_fill(d, 0, 1, POSITIONS, got, &diag), &diag);
    assert_ok(pst_data_fill(d, 0, 1, DOCUMENTS, ones, &diag), &diag);
    assert_ok(pst_data_fill(d, 0, 1, MASK, mask, &diag), &diag);
    for (unsigned i = 0; i < ROWS * WINDOW; i++) {
        assert_int_equal(got[i], i % WINDOW);
        assert_int_equal(ones[i], 1);
        for (unsigned k = 0; k < WINDOW; k++)
            assert_int_equal(mask[i / WINDOW][i % WINDOW][k], k <= i % WINDOW);
    }
    assert_true(pst_data_packing(d).ones && !pst_data_packing(d).packed);
    pst_data_close(d);
    /* integers that are named as a mask, but cannot be one, are no targets */
    make_inputs(inputs, true);
    inputs[TARGETS].name = "loss_mask";
    inputs[DOCUMENTS].name = "mask";
    inputs[DOCUMENTS].meta = pst_meta_make(PST_I32, 1, flat);
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "input 'mask' (i32[3]) cannot be made"));
    inputs[DOCUMENTS] = inputs[POSITIONS];
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "input 'loss_mask' (i64[3, 8])"));
    options.targets = "loss_mask";
    assert_ok(open_with(&options, inputs), &diag);
    options.mask = "loss_mask";
    assert_int_equal(open_with(&options, inputs), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "'loss_mask' is given by two options"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_documents),
        cmocka_unit_test(fills_one_document),
        cmocka_unit_test(refuses_what_does_not_fit),
    };

    return cmocka_run_group_tests(tests, make_files, remove_dir);
}
