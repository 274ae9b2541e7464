// SPDX-License-Identifier: Apache-2.0
/* Tests how a loss scale changes, against torch.amp.GradScaler of PyTorch 2.13,
 * and its text. */
#include "stages/optim/loss_scale.h"
#include "tests/test.h"

#include <string.h>

struct state {
    double scale;
    uint64_t good;
};

/* The scaler's get_scale() and _growth_tracker after steps of which those at
 * 'x' have an infinite gradient. */
static const struct course {
    const char *text, *steps;
    struct state want[20];
} courses[] = {
    {"growth-interval=3",
     "..x...x.......xx...",
     {{65536, 1},
      {65536, 2},
      {32768, 0},
      {32768, 1},
      {32768, 2},
      {65536, 0},
      {32768, 0},
      {32768, 1},
      {32768, 2},
      {65536, 0},
      {65536, 1},
      {65536, 2},
      {131072, 0},
      {131072, 1},
      {65536, 0},
      {32768, 0},
      {32768, 1},
      {32768, 2},
      {65536, 0}}},
    {"init=85070591730234615865843651857942052864,growth-interval=2",
     "......x...",
     {{0x1p126, 1},
      {0x1p127, 0},
      {0x1p127, 1},
      {0x1p127, 0},
      {0x1p127, 1},
      {0x1p127, 0},
      {0x1p126, 0},
      {0x1p126, 1},
      {0x1p127, 0},
      {0x1p127, 1}}},
};

static void follows_pytorch(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < PST_COUNT(courses); i++) {
        const struct course *c = &courses[i];
        struct pst_loss_scale of;
        struct pst_loss_scaler s;
        struct pst_diag diag;
        uint64_t overflows = 0;

        pst_diag_init(&diag);
        assert_ok(pst_loss_scale_read(c->text, &of, &diag), &diag);
        assert_int_equal(of.kind, PST_LOSS_SCALE_DYNAMIC);
        s = pst_loss_scaler_begin(&of);
        for (size_t k = 0; k < strlen(c->steps); k++) {
            const bool overflow = c->steps[k] == 'x';

            overflows += overflow;
            pst_loss_scaler_update(&of, overflow, &s);
            assert_true(s.scale == c->want[k].scale);
            assert_int_equal(s.good, c->want[k].good);
            assert_int_equal(s.overflows, overflows);
        }
    }
}

/* The scale is not halved below its minimum, and a fixed one never. */
static void keeps_to_minimum(void **unused)
{
    struct pst_loss_scale of;
    struct pst_loss_scaler s;
    struct pst_diag diag;

    (void)unused;
    pst_diag_init(&diag);
    assert_ok(pst_loss_scale_read("init=8,min=4", &of, &diag), &diag);
    s = pst_loss_scaler_begin(&of);
    assert_true(pst_loss_scaler_can_halve(&of, &s));
    pst_loss_scaler_update(&of, true, &s);
    assert_true(s.scale == 4 && !pst_loss_scaler_can_halve(&of, &s));
    assert_ok(pst_loss_scale_read("1024", &of, &diag), &diag);
    s = pst_loss_scaler_begin(&of);
    assert_true(s.scale == 1024 && !pst_loss_scaler_can_halve(&of, &s));
    for (unsigned k = 0; k < 3000; k++)
        pst_loss_scaler_update(&of, false, &s);
    assert_true(s.scale == 1024);
    assert_ok(pst_loss_scale_read("none", &of, &diag), &diag);
    s = pst_loss_scaler_begin(&of);
    assert_true(s.scale == 1 && !pst_loss_scaler_can_halve(&of, &s));
}

/* A resume takes the saved state, but no scale below its own minimum. */
static void resumes_above_minimum(void **unused)
{
    const struct pst_loss_scaler saved = {32768, 5, 9}, none = {0};
    struct pst_loss_scale of;
    struct pst_loss_scaler s;
    struct pst_diag diag;

    (void)unused;
    pst_diag_init(&diag);
    assert_ok(pst_loss_scale_read("min=65536", &of, &diag), &diag);
    s = pst_loss_scaler_resume(&of, &saved);
    assert_true(s.scale == 65536 && s.good == 0 && s.overflows == 9);
    assert_false(pst_loss_scaler_can_halve(&of, &s));
    s = pst_loss_scaler_resume(&of, &none);
    assert_true(s.scale == 65536 && s.good == 0 && s.overflows == 0);
    assert_ok(pst_loss_scale_read("min=32768", &of, &diag), &diag);
    s = pst_loss_scaler_resume(&of, &saved);
    assert_true(s.scale == 32768 && s.good == 5 && s.overflows == 9);
    assert_ok(pst_loss_scale_read("1024", &of, &diag), &diag);
    s = pst_loss_scaler_resume(&of, &saved);
    assert_true(s.scale == 1024 && s.good == 0 && s.overflows == 0);
}

static void refuses_texts(void **unused)
{
    static const char *const texts[] = {
        "",
        ",",
        "3",
        "0",
        "-2",
        "inf",
        "nan",
        "1e39",
        "1e-19",
        "init",
        "init=",
        "init=3",
        "min=0",
        "init=2,min=4",
        "growth-interval=0",
        "growth-interval=-1",
        "growth-interval=1.5",
        "growth-interval=9007199254740993",
        "scale=2",
        "init=2,",
        ",init=2",
        "auto,init=2",
        "Auto",
        "init=00000000000000000000000000000000000000000000000000000000000000000"
        "000000000000000000000000000000000002"};

    (void)unused;
    for (size_t i = 0; i < PST_COUNT(texts); i++) {
        struct pst_loss_scale of;
        struct pst_diag diag;

        pst_diag_init(&diag);
        assert_int_equal(pst_loss_scale_read(texts[i], &of, &diag),
                         PST_ERR_USAGE);
        assert_non_null(strstr(diag.text, "--loss-scale: "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_pytorch),
        cmocka_unit_test(keeps_to_minimum),
        cmocka_unit_test(resumes_above_minimum),
        cmocka_unit_test(refuses_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
