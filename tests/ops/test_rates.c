// SPDX-License-Identifier: Apache-2.0
/* Tests measured rates of this machine, and the decisions made from them. */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/rates/rates.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The faster kernel is chosen as measured, otherwise by CPU features. */
static void prefers_the_faster_way(void **state)
{
    static const char *const slow = "fma avx512f avx512dq avx512_bf16";
    static const char *const fast = "fma avx512dq avx512_bf16 amx_bf16";
    struct pst_rates rates = pst_rates_by_features(slow);

    (void)state;
    assert_false(pst_rates_prefer_bf16(&rates));
    rates.bf16 = 1.1 * rates.f32; /* as if measured */
    assert_true(pst_rates_prefer_bf16(&rates));
    rates = pst_rates_by_features(fast);
    assert_true(pst_rates_prefer_bf16(&rates));
    rates.bf16 = rates.f32 / 2;
    assert_false(pst_rates_prefer_bf16(&rates));
    rates = pst_rates_by_features("amd fma avx512f avx512dq avx512_bf16");
    assert_true(pst_rates_prefer_bf16(&rates));
    rates = pst_rates_by_features("none");
    assert_true(rates.f32 > 0 && rates.f64 > 0 && rates.bytes > 0);
    assert_false(rates.measured || pst_rates_prefer_bf16(&rates));
    assert_true(rates.f32 < pst_rates_by_features("avx2 fma").f32);
}

/* Returns the rates that a newly started process uses. */
static struct pst_rates rates_of_child(void)
{
    struct pst_rates rates = {0};
    int ends[2], how;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        rates = *pst_rates_here();
        _exit(write(ends[1], &rates, sizeof(rates)) != sizeof(rates));
    }
    assert_int_equal(read(ends[0], &rates, sizeof(rates)), sizeof(rates));
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    close(ends[0]);
    close(ends[1]);
    return rates;
}

struct kept {
    char dir[40];
    struct pst_str path, key;
};

static void save_rates(struct kept *k, const struct pst_rates *rates)
{
    struct pst_diag d;

    pst_diag_init(&d);
    pst_str_fini(&k->path);
    assert_ok(pst_rates_save(rates, &k->path, &d), &d);
}

static void write_text(const struct kept *k, const char *text)
{
    struct pst_diag d;

    pst_diag_init(&d);
    assert_ok(pst_file_write(pst_str_text(&k->path), text, strlen(text), &d),
              &d);
}

static int setup(void **state)
{
    static struct kept k;

    k = (struct kept){.dir = "/tmp/penstock-rates-XXXXXX"};
    *state = &k;
    return mkdtemp(k.dir) == NULL || setenv("XDG_CACHE_HOME", k.dir, 1) != 0;
}

static int teardown(void **state)
{
    struct kept *k = *state;
    struct pst_diag d;

    pst_str_fini(&k->path);
    pst_str_fini(&k->key);
    return pst_remove_tree(k->dir, &d) != PST_OK;
}

/* The next process finds the measured rates; lines of other machines stay in
 * the file. */
static void keeps_what_was_measured(void **state)
{
    const struct pst_rates again = {
        .f32 = 3e9, .f64 = 2e9, .bf16 = 1e9, .bytes = 5e9, .launch = 2e-7};
    struct kept *k = *state;
    struct pst_rates rates;
    struct pst_diag d;
    char *text;
    size_t size;

    pst_diag_init(&d);
    assert_false(rates_of_child().measured);
    assert_ok(pst_rates_measure(&rates, &d), &d);
    assert_true(rates.f32 > 1e8 && rates.f64 > 1e8);
    assert_int_equal(rates.bf16 > 0, pst_gemm_has_bf16());
    assert_true(rates.bytes > 1e8 && rates.launch > 1e-9);
    save_rates(k, &rates);
    write_text(k, "other: f32=1 bf16=2\n");
    save_rates(k, &rates);
    save_rates(k, &again);
    assert_ok(pst_file_read(pst_str_text(&k->path), 1 << 16, &text, &size, &d),
              &d);
    assert_int_equal(strncmp(text, "other: f32=1 bf16=2\n", 20), 0);
    pst_str_addf(&k->key, "%s; ", pst_cpu_features());
    assert_int_equal(strncmp(text + 20, k->key.text, k->key.len), 0);
    assert_non_null(strstr(
        text, ": f32=3e+09 f64=2e+09 bf16=1e+09 bytes=5e+09 launch=2e-07\n"));
    assert_int_equal(strchr(text + 20, '\n') + 1 - text, size);
    pst_free(text);
    rates = rates_of_child();
    assert_true(rates.measured && rates.f32 == 3e9 && rates.f64 == 2e9);
    assert_true(rates.bf16 == 1e9 && rates.bytes == 5e9 &&
                rates.launch == 2e-7);
    /* These rates are not in the file: they have defaults. */
    assert_true(rates.wire > 0 && rates.wake > 0);
}

/* A line that was changed is ignored. */
static void refuses_what_is_damaged(void **state)
{
    static const char *const bad[] = {
        "",
        " f32=1e11",
        " f32=1e11 f64=5e10 bf16=0 bytes=1e10 launch=0",
        " f32=1e11 f64=5e10 bf16=0 bytes=nan launch=1e-6",
        " f32=-1e11 f64=5e10 bf16=0 bytes=1e10 launch=1e-6",
        " f32=1e300 f64=5e10 bf16=0 bytes=1e10 launch=1e-6",
        " f32=inf f64=5e10 bf16=0 bytes=1e10 launch=1e-6",
        " f32=0 f64=5e10 bf16=0 bytes=1e10 launch=1e-6",
        " f64=5e10 f32=1e11 bf16=0 bytes=1e10 launch=1e-6",
        " f32=1e11 f64=5e10 bf16=0 bytes=1e10 launch=1e-6 more=1",
        " f32=1e11x f64=5e10 bf16=0 bytes=1e10 launch=1e-6",
    };
    const struct pst_rates assumed = pst_rates_by_features(pst_cpu_features());
    const struct pst_rates plain = {
        .f32 = 1e11, .f64 = 5e10, .bytes = 1e10, .launch = 1e-6};
    struct kept *k = *state;
    struct pst_diag d;
    char *text;
    size_t size;

    pst_diag_init(&d);
    save_rates(k, &plain);
    assert_ok(pst_file_read(pst_str_text(&k->path), 1 << 16, &text, &size, &d),
              &d);
    assert_true(rates_of_child().measured); /* measured even if bf16 is 0 */
    *strstr(text, " f32=") = '\0';
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        struct pst_str line = {0};
        struct pst_rates got;

        pst_str_addf(&line, "%s%s\n", text, bad[i]);
        write_text(k, pst_str_text(&line));
        got = rates_of_child();
        assert_false(got.measured);
        assert_true(got.f32 == assumed.f32 && got.bytes == assumed.bytes);
        pst_str_fini(&line);
    }
    pst_free(text);
}

/* All ranks use the rates of rank 0. */
static void ranks_adopt_rates(void **state)
{
    struct pst_rates rates = *pst_rates_here();

    (void)state;
    rates.bytes = 12345;
    pst_rates_adopt(&rates);
    assert_true(pst_rates_here()->bytes == 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefers_the_faster_way),
        cmocka_unit_test_setup_teardown(keeps_what_was_measured, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_damaged, setup,
                                        teardown),
        cmocka_unit_test(ranks_adopt_rates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
