// SPDX-License-Identifier: Apache-2.0
/*
 * Tests that attention has the same bits whether or not keys that a mask hides
 * are skipped. A large negative number hides a key, too, with a weight that is
 * exactly 0, but no key is skipped for it.
 */
#include "tests/ops/metas.h"
#include "tests/sanitized.h"
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/graph/tensor.h"
#include "stages/ops/core/call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH (SANITIZED ? 1 : 2)
#define HEADS 4
#define E     24
#define EV    20

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

/* How a mask hides a key. */
enum kind { BOOL, INFINITE, FINITE, NONE, N_KINDS };

/* Which keys a query sees. */
enum pattern {
    DOCUMENTS, /* those of its document, up to itself */
    WINDOW,    /* the 40 before it, and 30 after it */
    PADDING    /* all but the first and the last 70 of a row */
};

struct shape {
    enum pattern pattern;
    int64_t rows, groups; /* rows: queries and keys; groups: key heads */
    double dropout;
    bool causal;
    unsigned threads;
};

static bool is_visible(const struct shape *s, int64_t query, int64_t key)
{
    static const int64_t ends[] = {70, 71, 150, 223, 500};
    unsigned a = 0, b = 0;

    if (s->pattern == WINDOW)
        return key > query - 40 && key < query + 30;
    if (s->pattern == PADDING)
        return key >= 70 && key < s->rows - 70;
    while (ends[a] <= query)
        a++;
    while (ends[b] <= key)
        b++;
    return a == b && key <= query;
}

static void fill(struct pst_operand *o, struct pst_meta meta, unsigned seed)
{
    const int64_t n = pst_meta_numel(&meta);

    o->meta = test_meta(meta);
    o->data = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
    assert_non_null(o->data);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)o->data)[i] = (float)(seed >> 8) / (1 << 22) - 2.0f;
    }
}

/* Makes the mask (1 or the batch, 1, rows, rows). A row of padding is the same
 * for all queries, which a stride of 0 says. */
static void make_mask(struct pst_operand *o, const struct shape *s,
                      enum kind kind)
{
    const bool same = s->pattern == PADDING;
    const int64_t size[] = {1, 1, same ? 1 : s->rows, s->rows};
    const enum pst_dtype dtype = kind == BOOL ? PST_BOOL : PST_F32;

    fill(o, pst_meta_make(PST_F32, 4, size), 7);
    o->meta = test_meta(pst_meta_make(dtype, 4, size));
    for (int64_t i = 0; i < size[2]; i++)
        for (int64_t j = 0; j < s->rows; j++) {
            const bool seen = is_visible(s, i, j);
            const int64_t at = i * s->rows + j;

            if (kind == BOOL)
                ((uint8_t *)o->data)[at] = seen;
            else if (!seen)
                ((float *)o->data)[at] = kind == FINITE ? -1e30f : -INFINITY;
            else
                ((float *)o->data)[at] = 0.0f;
        }
}

/* Runs the best kernel of the operator. */
static void run_op(const char *name, struct pst_call *c, const struct shape *s,
                   enum pst_isa isa)
{
    const struct pst_kernel *kernel =
        pst_kernel_choose(pst_op_find(name), c, isa, NULL);

    assert_non_null(kernel);
    assert_null(strstr(kernel->name, "_ref"));
    assert_ok(pst_pool_new(s->threads, &c->pool, &diag), &diag);
    c->scratch_size = kernel->scratch(c, s->threads);
    c->scratch = aligned_alloc(64, (c->scratch_size + 127) / 64 * 64);
    assert_non_null(c->scratch);
    memset(c->scratch, 0xff, c->scratch_size); /* NaN */
    kernel->run(c);
    pst_pool_free(c->pool);
    free(c->scratch);
}

/* Returns a copy of all results in one block of *bytes bytes. */
static float *join(const struct pst_operand *out, unsigned n, size_t *bytes)
{
    char *all;

    *bytes = 0;
    for (unsigned i = 0; i < n; i++)
        *bytes += pst_meta_bytes(out[i].meta);
    all = malloc(*bytes);
    assert_non_null(all);
    *bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        memcpy(all + *bytes, out[i].data, pst_meta_bytes(out[i].meta));
        *bytes += pst_meta_bytes(out[i].meta);
    }
    return (float *)all;
}

/* Runs attention, and its backward if that is wanted; returns the results of
 * the last one. */
static float *run(bool backward, const struct shape *s, enum kind kind,
                  enum pst_isa isa, size_t *bytes)
{
    const int64_t q[] = {BATCH, HEADS, s->rows, E};
    const int64_t k[] = {BATCH, s->groups, s->rows, E};
    const int64_t v[] = {BATCH, s->groups, s->rows, EV};
    const int64_t g[] = {BATCH, HEADS, s->rows, EV};
    const int64_t sums[] = {BATCH, HEADS, s->rows, 2};
    const int64_t *const sizes[] = {g, sums, q, k, v};
    struct pst_operand in[7] = {{0}}, out[5];
    struct pst_arg args[11] = {{0}};
    struct pst_fault fault;
    struct pst_call forward = {.in = in + 3,
                               .out = out,
                               .n_in = 4,
                               .n_out = 2,
                               .args = args + 3,
                               .fault = &fault};
    struct pst_call after = {.in = in,
                             .out = out + 2,
                             .n_in = 7,
                             .n_out = 3,
                             .args = args,
                             .fault = &fault};
    float *ret;

    fill(&in[0], pst_meta_make(PST_F32, 4, g), 4);
    fill(&in[3], pst_meta_make(PST_F32, 4, q), 1);
    fill(&in[4], pst_meta_make(PST_F32, 4, k), 2);
    fill(&in[5], pst_meta_make(PST_F32, 4, v), 3);
    args[6].kind = kind == NONE ? PST_ARG_NONE : PST_ARG_VALUE;
    if (kind != NONE)
        make_mask(&in[6], s, kind);
    args[7].f = s->dropout;
    args[8].b = s->causal;
    args[10].b = true;
    for (unsigned i = 0; i < 5; i++)
        fill(&out[i], pst_meta_make(PST_F32, 4, sizes[i]), 9);
    run_op("penstock.sdpa_with_sums.default", &forward, s, isa);
    in[2] = out[1];
    if (backward)
        run_op("penstock.sdpa_backward.default", &after, s, isa);
    ret = backward ? join(out + 2, 3, bytes) : join(out, 2, bytes);
    in[2].data = NULL;
    for (unsigned i = 0; i < 5; i++)
        free(out[i].data);
    for (unsigned i = 0; i < 7; i++)
        free(in[i].data);
    return ret;
}

static void check(bool backward, const struct shape *s, enum pst_isa isa)
{
    size_t n, bytes;
    float *want = run(backward, s, FINITE, isa, &n);

    for (size_t i = 0; i < n / sizeof(*want); i++)
        assert_true(isfinite(want[i]));
    for (enum kind kind = BOOL; kind < N_KINDS; kind++) {
        float *got = run(backward, s, kind, isa, &bytes);

        assert_int_equal(bytes, n);
        if ((memcmp(want, got, n) == 0) != (kind != NONE))
            fail_msg("%s: pattern %d, mask %d, %lld rows, %lld groups, dropout "
                     "%g, causal %d, %u threads",
                     backward ? "backward" : "forward", (int)s->pattern,
                     (int)kind, (long long)s->rows, (long long)s->groups,
                     s->dropout, s->causal, s->threads);
        free(got);
    }
    free(want);
}

static void same_bits(void **state)
{
    static const struct shape shapes[] = {
        {DOCUMENTS, 300, 4, 0, false, 1},  {DOCUMENTS, 301, 2, .25, false, 2},
        {DOCUMENTS, 257, 4, 0, true, 2},   {WINDOW, 300, 4, 0, false, 2},
        {WINDOW, 299, 1, .5, false, 1},    {PADDING, 211, 4, 0, false, 2},
        {PADDING, 300, 2, .125, false, 1},
    };
    static const enum pst_isa sets[] = {PST_ISA_ANY, PST_ISA_AVX2,
                                        PST_ISA_AVX512};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(shapes); i++)
        for (size_t k = 0; k < PST_COUNT(sets); k++) {
            if (sets[k] > pst_cpu_isa() || (SANITIZED && (i + k) % 2 != 0))
                continue;
            check(false, &shapes[i], sets[k]);
            check(true, &shapes[i], sets[k]);
        }
}

/* Rows that see no key: 0, no sum, and no gradient. */
static void hidden_rows(void **state)
{
    const struct shape s = {PADDING, 140, 4, 0, false, 2};

    (void)state;
    for (unsigned backward = 0; backward < 2; backward++)
        for (enum kind kind = BOOL; kind < FINITE; kind++) {
            size_t n, sums = backward ? 0 : (size_t)BATCH * HEADS * 140 * 2;
            float *got = run(backward, &s, kind, pst_cpu_isa(), &n);

            n /= sizeof(*got);
            for (size_t i = 0; i < n - sums; i++)
                assert_true(got[i] == 0.0f);
            for (size_t i = n - sums; i < n; i += 2)
                assert_true(got[i] == -INFINITY && got[i + 1] == 0.0f);
            free(got);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(hidden_rows),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
