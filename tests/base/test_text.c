// SPDX-License-Identifier: Apache-2.0
/* Tests text, numbers, similar names, messages, digests and random streams. */
#include "tests/test.h"

#include "stages/base/crc32c.h"
#include "stages/base/host/log.h"
#include "stages/base/rng.h"
#include "stages/base/str.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void sums_as_others_do(void **state)
{
    unsigned char data[300];

    (void)state;
    assert_int_equal(pst_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(pst_crc32c(0, data, 0), 0);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i + 7 * i);
    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n + at <= sizeof(data); n++) {
            const uint32_t sum = pst_crc32c_table(0, data + at, n);

            assert_int_equal(pst_crc32c(0, data + at, n), sum);
            assert_int_equal(pst_crc32c(pst_crc32c(0, data + at, n / 3),
                                        data + at + n / 3, n - n / 3),
                             sum);
        }
}

static void parses_whole_numbers_only(void **state)
{
    static const char *const bad[] = {
        "", " 1", "1 ", "1x", "-", "9223372036854775808", "0x1", "+", "1.0"};
    int64_t i = 5;

    (void)state;
    assert_true(pst_parse_i64("-9223372036854775808", &i));
    assert_true(i == INT64_MIN);
    assert_true(pst_parse_i64("+010", &i));
    assert_int_equal(i, 10);
    for (size_t k = 0; k < PST_COUNT(bad); k++)
        assert_false(pst_parse_i64(bad[k], &i));
    assert_int_equal(i, 10);
}

static void parses_real_numbers(void **state)
{
    static const char *const bad[] = {"",   " 1",    "1e",     "0x10",
                                      "1,", "1e999", "nan(1)", "-1e999",
                                      "-",  "1.5 ",  "e5"};
    double x = 1;

    (void)state;
    assert_true(pst_parse_f64("-2.5e-3", &x));
    assert_true(x == -2.5e-3);
    assert_true(pst_parse_f64(".5", &x));
    assert_true(x == .5);
    assert_true(pst_parse_f64("4.9406564584124654e-324", &x));
    assert_true(x == 0x1p-1074);
    assert_true(pst_parse_f64("-Infinity", &x) && isinf(x) && x < 0);
    assert_true(pst_parse_f64("NaN", &x) && isnan(x));
    for (size_t k = 0; k < PST_COUNT(bad); k++)
        assert_false(pst_parse_f64(bad[k], &x));
}

static void adds_numbers(void **state)
{
    static const int64_t cases[] = {0,    7,         -1,        10, -99,
                                    1234, INT64_MAX, INT64_MIN, 100};
    struct pst_str have = {0}, want = {0};

    (void)state;
    for (size_t k = 0; k < PST_COUNT(cases); k++) {
        pst_str_add_i64(&have, cases[k]);
        pst_str_add_u64(&have, (uint64_t)cases[k]);
        pst_str_addf(&want, "%" PRId64 "%" PRIu64, cases[k],
                     (uint64_t)cases[k]);
        assert_string_equal(pst_str_text(&have), pst_str_text(&want));
    }
    pst_str_fini(&have);
    pst_str_fini(&want);
}

static void expect_format(size_t size, const char *fmt, ...)
{
    char want[64] = "untouched", have[64] = "untouched";
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(want, size, fmt, ap);
    assert_int_equal(pst_vformat(have, size, fmt, again), n);
    assert_memory_equal(have, want, sizeof(want));
    va_end(again);
    va_end(ap);
}

/* Formats like printf: formats of our own, formats left to printf, both in one
 * string, and truncated texts. */
static void formats_as_the_library(void **state)
{
    (void)state;
    for (size_t size = 0; size < 40; size++) {
        expect_format(size, "no argument, 100%%");
        expect_format(size, "%s_%u|%d", "name", UINT_MAX, INT_MIN);
        expect_format(size, "%ld %lld %" PRId64, LONG_MIN, LLONG_MAX,
                      (int64_t)-1);
        expect_format(size, "%lu|%llu|%zu", ULONG_MAX, 0ull, (size_t)10);
        expect_format(size, "%.3s|%.0s|%.*s|%.*s", "four", "none", 2, "abc", -1,
                      "whole");
        expect_format(size, "%.s|%.99s", "none", "all");
        expect_format(size, "%s %c%5d %-3s", "some", 'c', -12, "x");
        expect_format(size, "%u %.2f %x %03u", 1u, .125, 255u, 7u);
        expect_format(size, "%d %.3d", 1, 2);
    }
}

static void formats_shortest_round_trip(void **state)
{
    static const struct {
        double x;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1.0 / 3, "0.3333333333333333"},
                 {3e-4, "0.0003"},
                 {1e300, "1e+300"},
                 {0x1p-1074, "5e-324"},
                 {-0.0, "-0"},
                 {-INFINITY, "-Infinity"},
                 {NAN, "NaN"}};
    struct pst_rng_key key = {.seed = 3};
    char text[32];

    (void)state;
    for (size_t k = 0; k < PST_COUNT(cases); k++) {
        pst_format_f64(cases[k].x, text);
        assert_string_equal(text, cases[k].text);
    }
    for (uint64_t i = 0; i < 2000; i++) {
        uint32_t words[4];
        double x, back;

        pst_rng_block(&key, i, words);
        memcpy(&x, words, sizeof(x));
        if (!isfinite(x))
            continue;
        pst_format_f64(x, text);
        assert_true(pst_parse_f64(text, &back));
        assert_memory_equal(&x, &back, sizeof(x));
    }
}

static void finds_near_names(void **state)
{
    static const char *const names[] = {
        "layers.0.attn", "layers.1.attn", "head", "gpipe",
        "1f1b",          "stash",         "batch"};

    (void)state;
    assert_int_equal(pst_nearest("layer.1.attn", names, 5), 1);
    assert_int_equal(pst_nearest("gpip", names, 5), 3);
    assert_int_equal(pst_nearest("1b1f", names, 5), 4);
    assert_int_equal(pst_nearest("btach", names, 7), 6);
    assert_int_equal(pst_nearest("embedding", names, 5), -1);
    assert_int_equal(pst_nearest("", names, 5), -1);
    assert_int_equal(pst_nearest("x", names, 5), -1);
    assert_int_equal(pst_nearest("head", names, 0), -1);
}

/* Counts the edits from a to b by trying all of them: they are few. */
static size_t count_edits(const char *a, const char *b)
{
    size_t change, more, less, swap = SIZE_MAX - 1;

    if (*a == '\0' || *b == '\0')
        return strlen(a) + strlen(b);
    if (*a == *b)
        return count_edits(a + 1, b + 1);
    change = count_edits(a + 1, b + 1);
    less = count_edits(a + 1, b);
    more = count_edits(a, b + 1);
    if (a[1] == b[0] && a[0] == b[1])
        swap = count_edits(a + 2, b + 2);
    return 1 + PST_MIN(PST_MIN(change, swap), PST_MIN(less, more));
}

/* Which name is nearest does not depend on which ones are compared in full. */
static void finds_the_nearest_of_all(void **state)
{
    const struct pst_rng_key key = {.seed = 7};
    uint32_t words[4];

    (void)state;
    for (uint64_t k = 0; k < 3000; k++) {
        char names[8][8] = {{0}};
        const char *at[7];
        size_t best, len;
        int want = -1;

        for (unsigned i = 0; i < 8; i++) {
            pst_rng_block(&key, 8 * k + i, words);
            for (unsigned j = 0; j < words[0] % 7; j++)
                names[i][j] = (char)('a' + (words[1] >> (4 * j)) % 3);
            if (i < 7)
                at[i] = names[i];
        }
        len = strlen(names[7]);
        best = PST_MIN(PST_MAX(len / 3, (size_t)2), len ? len - 1 : 0) + 1;
        for (int i = 0; i < 7; i++) {
            const size_t d = count_edits(names[7], names[i]);

            if (d < best) {
                best = d;
                want = i;
            }
        }
        assert_int_equal(pst_nearest(names[7], at, 7), want);
    }
}

static void quotes_what_needs_it(void **state)
{
    struct pst_str s = {0};

    (void)state;
    assert_string_equal(pst_str_text(&s), "");
    pst_str_add_json(&s, "a\"b\\c\n\x01\xc3\xa9\xff\xc3");
    assert_string_equal(
        pst_str_text(&s),
        "\"a\\\"b\\\\c\\n\\u0001\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"");
    pst_str_fini(&s);
    pst_str_add_logfmt(&s, "plain.name");
    pst_str_add(&s, " ");
    pst_str_add_logfmt(&s, "");
    pst_str_add(&s, " ");
    pst_str_add_logfmt(&s, "a=b c\nrank=1");
    assert_string_equal(pst_str_text(&s), "plain.name \"\" \"a=b c\\nrank=1\"");
    pst_str_fini(&s);
}

/* Bytes that are no UTF-8 become U+FFFD; control characters that JSON libraries
 * leave as they are get escaped. */
static void repairs_json_of_libraries(void **state)
{
    struct pst_str s = {0};

    (void)state;
    pst_str_add_utf8(&s, "a\x01\xc3\xa9\xff\xc3");
    assert_string_equal(pst_str_text(&s),
                        "a\x01\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
    pst_str_fini(&s);
    pst_str_add_json_shown(&s, "{\n \"a\\n\x7f\xc3\xa9\": \"\xc2\x9b"
                               "\xe2\x80\xae\"}");
    assert_string_equal(pst_str_text(&s), "{\n \"a\\n\\u007f\xc3\xa9\": "
                                          "\"\\u009b\\u202e\"}");
    pst_str_fini(&s);
}

static void checks_utf8(void **state)
{
    (void)state;
    assert_int_equal(pst_utf8_length("a"), 1);
    assert_int_equal(pst_utf8_length("\xe2\x82\xac"), 3);
    assert_int_equal(pst_utf8_length("\xf0\x9f\x98\x80"), 4);
    assert_int_equal(pst_utf8_length(""), 0);
    assert_int_equal(pst_utf8_length("\xc0\x80"), 0);     /* overlong */
    assert_int_equal(pst_utf8_length("\xe0\x80\x80"), 0); /* overlong */
    assert_int_equal(pst_utf8_length("\xed\xa0\x80"), 0); /* surrogate */
    assert_int_equal(pst_utf8_length("\xf4\x90\x80\x80"), 0);
    assert_int_equal(pst_utf8_length("\xe2\x82"), 0);
    assert_int_equal(pst_utf8_length("\x80"), 0);
}

static void text_remembers_failure(void **state)
{
    struct pst_str s = {0};
    size_t len;

    (void)state;
    pst_str_add(&s, "kept");
    pst_alloc_fail_at(1);
    for (int i = 0; i < 50; i++)
        pst_str_addf(&s, "%s", "much more text");
    pst_alloc_fail_at(0);
    assert_true(s.failed);
    len = s.len;
    pst_str_add(&s, "x");
    assert_int_equal(s.len, len);
    assert_int_equal(strlen(s.text), s.len);
    pst_str_fini(&s);
}

static void diagnosis_is_one_clean_line(void **state)
{
    static char lengthy[2 * PST_DIAG_TEXT];
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    assert_int_equal(
        pst_diag_set(&diag, PST_E_OP_SHAPE, "node %s\n\x1b[31m", "add"),
        PST_ERR_SHAPE);
    assert_string_equal(diag.text, "node add\\n\\x1b[31m");
    pst_diag_prefix(&diag, "rank %d", 1);
    assert_string_equal(diag.text, "rank 1: node add\\n\\x1b[31m");
    assert_int_equal(pst_diag_errno(&diag, ENOENT, "file"), PST_ERR_IO);
    assert_string_equal(diag.text, "file: No such file or directory");
    assert_int_equal(pst_diag_errno(NULL, ENOMEM, "x"), PST_ERR_NOMEM);

    for (size_t i = 0; i + 1 < sizeof(lengthy); i++)
        lengthy[i] = i % 2 ? '\xa9' : '\xc3';
    (void)pst_diag_set(&diag, PST_E_PT2_INCONSISTENT, "x%s", lengthy);
    for (const char *p = diag.text; *p; p += pst_utf8_length(p))
        assert_int_not_equal(pst_utf8_length(p), 0);
}

/* Asserts valid UTF-8 without control characters of a terminal. */
static void assert_clean(const char *text)
{
    while (*text != '\0') {
        const size_t n = pst_utf8_length(text);

        if (n == 0 || pst_utf8_hidden(text, n))
            fail_msg("byte %02x is raw in \"%s\"", (unsigned char)*text, text);
        text += n;
    }
}

/* No byte is shown raw, alone or after the first byte of a C1 character. */
static void shows_no_byte_raw(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 2; first++)
        for (int byte = 1; byte < 256; byte++) {
            const char lead[2] = {first ? '\xc2' : '\0'};
            struct pst_str s[5] = {{.visible = 1}};
            struct pst_diag diag;
            char name[8];

            (void)snprintf(name, sizeof(name), "a%s%cb", lead, byte);
            pst_str_addf(&s[0], "%s %c %-7.3s|%5d %zu %.2f%%", name, byte, name,
                         byte, (size_t)byte, 0.5);
            pst_str_add_visible(&s[1], name);
            pst_str_add_json(&s[2], name);
            pst_str_add_logfmt(&s[3], name);
            pst_str_add_lines(&s[4], name);
            (void)pst_diag_set(&diag, PST_E_PT2_INCONSISTENT, "name %s", name);
            for (size_t i = 0; i < 4; i++)
                assert_clean(pst_str_text(&s[i]));
            if (byte != '\n')
                assert_clean(pst_str_text(&s[4]));
            assert_clean(diag.text);
            pst_diag_prefix(&diag, "%s", name);
            assert_clean(diag.text);
            for (size_t i = 0; i < PST_COUNT(s); i++)
                pst_str_fini(&s[i]);
        }
}

static void formats_as_printf_does(void **state)
{
    struct pst_str s = {.visible = 1};

    (void)state;
    pst_str_addf(&s, "%5u|%-5d|%05.1f|%llu|%zu|%x|%*s|%-*s|%.*s|%c%%\n", 7u, -7,
                 2.25, 1ull << 40, (size_t)9, 255u, 4, "ab", 4, "cd", 2, "efg",
                 'h');
    assert_string_equal(
        pst_str_text(&s),
        "    7|-7   |002.2|1099511627776|9|ff|  ab|cd  |ef|h%\n");
    pst_str_fini(&s);
    pst_str_addf(&s, "%s", "\x1b[1m\xc2\x9b\xff\n\xe2\x80\xae");
    assert_string_equal(pst_str_text(&s), "\\x1b[1m\\u009b\\xff\\n\\u202e");
    pst_str_fini(&s);
}

static void statuses_have_exit_codes(void **state)
{
    (void)state;
    assert_string_equal(pst_status_name(PST_ERR_SHAPE), "ERR_SHAPE");
    assert_int_equal(pst_status_exit_code(PST_ERR_USAGE), 64);
    assert_int_equal(pst_status_exit_code(PST_OK), 0);
    assert_string_equal(pst_status_name((enum pst_status) - 99),
                        "ERR_INTERNAL");
}

static void digest_is_xxh3_128(void **state)
{
    char text[33];

    (void)state;
    pst_digest("", 0, text); /* published digest of the empty input */
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
}

/* Known answers from the Random123 library, which comes with the paper. */
static void philox_known_answers(void **state)
{
    static const uint32_t cases[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
         0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];

        pst_rng_philox(cases[i], cases[i] + 4, out);
        assert_memory_equal(out, cases[i] + 6, sizeof(out));
    }
}

/* Every part of the key changes the stream; moments match the distributions. */
static void streams_are_independent(void **state)
{
    const struct pst_rng_key keys[] = {{1, 2, 3, 4},
                                       {1ull << 32 | 1, 2, 3, 4},
                                       {1, 1ull << 32 | 2, 3, 4},
                                       {1, 2, 4, 3},
                                       {2, 1, 3, 4}};
    double sum = 0, sum2 = 0, uniform = 0;
    uint32_t a[4], b[4];

    (void)state;
    for (size_t i = 0; i < PST_COUNT(keys); i++) {
        for (size_t j = 0; j < i; j++) {
            pst_rng_block(&keys[i], 9, a);
            pst_rng_block(&keys[j], 9, b);
            assert_memory_not_equal(a, b, sizeof(a));
        }
    }
    pst_rng_block(&keys[0], 1ull << 32, a);
    pst_rng_block(&keys[0], 0, b);
    assert_memory_not_equal(a, b, sizeof(a));
    for (uint64_t i = 0; i < 20000; i++) {
        const double x = pst_rng_normal(&keys[0], i);
        const float u = pst_rng_f32(&keys[0], i);

        assert_true(u >= 0 && u < 1);
        sum += x;
        sum2 += x * x;
        uniform += u;
    }
    assert_true(fabs(sum / 20000) < 0.03);
    assert_true(fabs(sum2 / 20000 - 1) < 0.05);
    assert_true(fabs(uniform / 20000 - 0.5) < 0.01);
}

static void record_line(void *ctx, enum pst_log_level level, const char *topic,
                        const char *text)
{
    struct pst_str *s = ctx;

    pst_str_addf(s, "%d %s %s;", (int)level, topic, text);
}

static void log_goes_to_the_sink(void **state)
{
    struct pst_str s = {0};

    (void)state;
    pst_log_set_sink(record_line, &s);
    pst_log(PST_LOG_TRACE, "exec", "hidden");
    pst_debug("exec", "slot %d", 3);
    pst_log_set_sink(NULL, NULL);
    assert_string_equal(pst_str_text(&s), "3 exec slot 3;");
    pst_str_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_as_others_do),
        cmocka_unit_test(parses_whole_numbers_only),
        cmocka_unit_test(parses_real_numbers),
        cmocka_unit_test(adds_numbers),
        cmocka_unit_test(formats_as_the_library),
        cmocka_unit_test(formats_shortest_round_trip),
        cmocka_unit_test(finds_near_names),
        cmocka_unit_test(finds_the_nearest_of_all),
        cmocka_unit_test(quotes_what_needs_it),
        cmocka_unit_test(repairs_json_of_libraries),
        cmocka_unit_test(checks_utf8),
        cmocka_unit_test(text_remembers_failure),
        cmocka_unit_test(diagnosis_is_one_clean_line),
        cmocka_unit_test(shows_no_byte_raw),
        cmocka_unit_test(formats_as_printf_does),
        cmocka_unit_test(statuses_have_exit_codes),
        cmocka_unit_test(digest_is_xxh3_128),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(streams_are_independent),
        cmocka_unit_test(log_goes_to_the_sink),
    };

    setenv("PST_LOG", "debug", 1); /* read once, by the first line */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
