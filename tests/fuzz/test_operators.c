// SPDX-License-Identifier: Apache-2.0
/*
 * Runs samples of operators (tests/ops/) with random changes of sizes, strides,
 * dtypes, arguments and bytes of bools. Each is refused with a sentence, or the
 * best kernels compute the same as the reference, and gradients run. None
 * crashes or hangs (SIGPROF); a sample that does is printed.
 *
 *     PST_FUZZ=N       number of changed samples
 *     PST_TEST_SEED=N  other changes
 */
#include "tests/ops/samples/sample.h"

#include "stages/passes/autodiff.h"
#include "tests/fuzz/mutate.h"
#include "tests/patience.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TOKENS   400
#define MAX_GIVEN    32
#define MAX_ELEMENTS 100000
#define SECONDS      20

static const char *const numbers[] = {"0",
                                      "1",
                                      "2",
                                      "3",
                                      "4",
                                      "5",
                                      "7",
                                      "8",
                                      "16",
                                      "17",
                                      "33",
                                      "-1",
                                      "-2",
                                      "-3",
                                      "-7",
                                      "100",
                                      "0.5",
                                      "-0.5",
                                      "1e300",
                                      "2147483647",
                                      "2147483648",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "4611686018427387904",
                                      "nan",
                                      "inf"};
static const char *const words[] = {"True",     "False",  "None", "[]",
                                    "[1]",      "[2, 2]", "[-1]", "[0]",
                                    "\"mean\"", "\"x\"",  "i64",  "f32"};
static const char *const dtypes[] = {"f64", "f32", "bf16", "f16", "i64",
                                     "i32", "i16", "i8",   "u8",  "bool"};

static const struct pst_rng_key key = {.seed = 7, .step = 3, .microbatch = 1};
static struct mutator chance = {.state = 20261121};
static struct {
    unsigned tried, parsed, ran, refused, differentiated, failed;
} seen;

/* Reports a failure and continues, so that one run finds all failures. */
#define complain(...)                                                          \
    do {                                                                       \
        print_error(__VA_ARGS__);                                              \
        print_error("\n");                                                     \
        seen.failed++;                                                         \
    } while (0)

/* A text divided into words, numbers and signs. */
struct tokens {
    char *at[MAX_TOKENS];
    unsigned n;
};

static size_t token_length(const char *s)
{
    size_t n = 1;

    if (*s == '%' || isalpha((unsigned char)*s) || *s == '_') {
        while (isalnum((unsigned char)s[n]) || s[n] == '_' ||
               (s[n] == '.' && *s != '%'))
            n++;
    } else if (isdigit((unsigned char)*s) ||
               (*s == '-' && isdigit((unsigned char)s[1]))) {
        while (isdigit((unsigned char)s[n]) || s[n] == '.' ||
               (s[n] == 'e' &&
                (isdigit((unsigned char)s[n + 1]) || s[n + 1] == '-')) ||
               (s[n] == '-' && s[n - 1] == 'e'))
            n++;
    } else if (*s == '"') {
        while (s[n] != '\0' && s[n - (n > 1)] != '\0' && s[n] != '"')
            n++;
        n++;
    }
    return n;
}

static void tokens_read(struct tokens *t, const char *text)
{
    t->n = 0;
    while (*text != '\0' && t->n < MAX_TOKENS) {
        const size_t n = token_length(text);

        t->at[t->n] = strndup(text, n);
        assert_non_null(t->at[t->n++]);
        text += n;
    }
}

static bool is_number(const char *token)
{
    return isdigit((unsigned char)token[token[0] == '-']) != 0;
}

static void set(struct tokens *t, unsigned i, const char *to)
{
    char *copy = strdup(to);

    assert_non_null(copy);
    free(t->at[i]);
    t->at[i] = copy;
}

/* Changes a number: all equal ones in the same way, or this one alone. */
static void change_number(struct tokens *t, unsigned i)
{
    const char *to = numbers[mutator_pick(&chance, PST_COUNT(numbers))];
    char *from = strdup(t->at[i]), near[32];
    const bool all = mutator_pick(&chance, 2);

    assert_non_null(from);
    if (mutator_pick(&chance, 2)) {
        (void)snprintf(near, sizeof(near), "%ld",
                       (long)(int)strtol(from, NULL, 10) - 2 +
                           (long)mutator_pick(&chance, 5));
        to = near;
    }
    set(t, i, to);
    for (unsigned k = 0; all && k < t->n; k++)
        if (strcmp(t->at[k], from) == 0)
            set(t, k, to);
    free(from);
}

static void change(struct tokens *t)
{
    unsigned i = mutator_pick(&chance, t->n), j;
    char *at = t->at[i];

    while (at[0] == ' ' || at[0] == ',' || at[0] == ';') {
        i = mutator_pick(&chance, t->n);
        at = t->at[i];
    }
    if (is_number(at)) {
        change_number(t, i);
    } else if (strcmp(at, "F") == 0) {
        set(t, i, dtypes[mutator_pick(&chance, PST_COUNT(dtypes))]);
    } else if (strncmp(at, "aten.", 5) == 0 && mutator_pick(&chance, 4)) {
        /* mostly keeps operators */
    } else if (at[0] == '%') { /* another value */
        j = mutator_pick(&chance, t->n);
        if (t->at[j][0] == '%' && i > j)
            set(t, i, t->at[j]);
        else
            set(t, i, "None");
    } else if (isalpha((unsigned char)at[0]) || at[0] == '"') {
        set(t, i, words[mutator_pick(&chance, PST_COUNT(words))]);
    } else if (at[0] == '[' || at[0] == ']') {
        if (mutator_pick(&chance, 2))
            set(t, i, at[0] == '[' ? "[1, " : ", 1]");
    } else if (at[0] == ')') {
        char more[64];

        (void)snprintf(
            more, sizeof(more), ", %s)",
            mutator_pick(&chance, 2)
                ? words[mutator_pick(&chance, PST_COUNT(words))]
                : numbers[mutator_pick(&chance, PST_COUNT(numbers))]);
        set(t, i, more);
    }
}

static char *tokens_text(struct tokens *t)
{
    size_t n = 1;
    char *ret, *end;

    for (unsigned i = 0; i < t->n; i++)
        n += strlen(t->at[i]);
    ret = end = malloc(n);
    assert_non_null(ret);
    for (unsigned i = 0; i < t->n; i++) {
        end = stpcpy(end, t->at[i]);
        free(t->at[i]);
    }
    return ret;
}

static void check_refusal(enum pst_status status, const struct pst_diag *diag,
                          const char *text)
{
    if (status == PST_ERR_INTERNAL || strlen(diag->text) < 8 ||
        strchr(diag->text, '\n') != NULL)
        complain("%s: %s: %s", text, pst_status_name(status), diag->text);
    if (getenv("PST_FUZZ_SHOW") != NULL)
        print_message("%s: %s\n", pst_status_name(status), diag->text);
    seen.refused++;
}

static bool is_small(const struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_meta *m = &graph->values.at[i]->meta;

        if (pst_meta_numel(m) > MAX_ELEMENTS ||
            pst_meta_span(m) > 8 * MAX_ELEMENTS)
            return false;
    }
    return true;
}

static struct pst_eval *evaluate(const struct pst_graph *graph, void **given,
                                 bool reference, enum pst_status *status,
                                 struct pst_diag *diag)
{
    struct pst_eval *eval;

    assert_ok(pst_eval_new(graph, &eval, diag), diag);
    for (size_t i = 0; i < graph->inputs.n; i++)
        assert_ok(pst_eval_set(eval, graph->inputs.at[i], given[i], diag),
                  diag);
    for (size_t i = 0; i < graph->extras.n; i++)
        if (graph->extras.at[i]->kind == PST_VALUE_SEED)
            assert_ok(pst_eval_set(eval, graph->extras.at[i],
                                   given[graph->inputs.n + i], diag),
                      diag);
    *status = pst_eval_run(eval, reference, &key, diag);
    return eval;
}

static bool is_close(double a, double b, double scale)
{
    return a == b || (isnan(a) && isnan(b)) ||
           fabs(a - b) <= 2e-3 * (scale + 1e-3);
}

/* Compares the results of the last node, by the reference and by the best
 * kernels. */
static void compare(const struct pst_graph *graph, const struct pst_eval *want,
                    const struct pst_eval *got, const char *text)
{
    const struct pst_node *node = sample_node(graph);

    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_meta *m = &node->outs[k]->meta;
        const void *a = pst_eval_get(want, node->outs[k]);
        const void *b = pst_eval_get(got, node->outs[k]);
        double largest = 0;

        if (m->dtype == PST_BF16 || m->dtype == PST_F16)
            continue; /* one rounding may cross a discontinuity */
        for (int64_t i = 0; i < pst_meta_numel(m); i++) {
            const double x = pst_load_f64(m->dtype, a, pst_meta_offset(m, i));

            if (isfinite(x))
                largest = fmax(largest, fabs(x));
        }
        for (int64_t i = 0; i < pst_meta_numel(m); i++) {
            const double x = pst_load_f64(m->dtype, a, pst_meta_offset(m, i));
            const double y = pst_load_f64(m->dtype, b, pst_meta_offset(m, i));

            if (!is_close(x, y, largest)) {
                complain("%s: result %u[%lld] is %.9g by the reference, %.9g "
                         "by the best kernel",
                         text, k, (long long)i, x, y);
                return;
            }
        }
    }
}

/* Builds the backward nodes of all floating results and runs them. */
static void differentiate(struct pst_graph *graph, void **given,
                          const char *text, struct pst_diag *diag)
{
    struct pst_node *node = sample_node(graph);
    struct pst_autodiff_result result;
    struct pst_seed seeds[PST_MAX_OUTS];
    struct pst_value *wanted[MAX_GIVEN];
    size_t n_seeds = 0, n = 0;
    enum pst_status status;

    if (node->op->vjp == pst_vjp_none)
        return;
    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_meta meta = node->outs[k]->meta;

        if (pst_dtype_kind(meta.dtype) != PST_KIND_FLOAT)
            continue;
        pst_meta_set_contiguous(&meta);
        seeds[n_seeds].value = node->outs[k];
        seeds[n_seeds].seed =
            pst_graph_add_value(graph, PST_VALUE_SEED, "normal", NULL, &meta);
        assert_non_null(seeds[n_seeds].seed);
        given[graph->inputs.n + n_seeds] = sample_fill(seeds[n_seeds].seed);
        n_seeds++;
    }
    for (size_t i = 0; i < graph->inputs.n; i++)
        if (pst_dtype_kind(graph->inputs.at[i]->meta.dtype) == PST_KIND_FLOAT)
            wanted[n++] = graph->inputs.at[i];
    if (n == 0 || n_seeds == 0)
        return;
    status = pst_autodiff(graph, seeds, n_seeds, wanted, n, &result, diag);
    if (status == PST_OK && is_small(graph)) {
        struct pst_eval *eval = evaluate(graph, given, false, &status, diag);

        pst_eval_free(eval);
        seen.differentiated++;
    }
    if (status != PST_OK)
        check_refusal(status, diag, text);
}

static void check_operator(const char *text)
{
    const struct sample sample = {.text = text};
    void *given[MAX_GIVEN + PST_MAX_OUTS] = {NULL};
    struct pst_eval *want, *got;
    struct pst_graph *graph;
    struct pst_diag diag;
    enum pst_status status, again;

    pst_diag_init(&diag);
    seen.tried++;
    status = sample_parse(&sample, PST_F32, &graph, &diag);
    if (status != PST_OK) {
        check_refusal(status, &diag, text);
        return;
    }
    seen.parsed++;
    if (is_small(graph) && graph->inputs.n <= MAX_GIVEN && graph->nodes.n > 0) {
        for (size_t i = 0; i < graph->inputs.n; i++) {
            given[i] = sample_fill(graph->inputs.at[i]);
            assert_non_null(given[i]);
            if (mutator_pick(&chance, 2))
                sample_other_bytes(&graph->inputs.at[i]->meta, given[i]);
        }
        want = evaluate(graph, given, true, &status, &diag);
        got = evaluate(graph, given, false, &again, &diag);
        if (status != again)
            complain("%s: %s by the reference, %s by the best kernels", text,
                     pst_status_name(status), pst_status_name(again));
        if (status == PST_OK)
            compare(graph, want, got, text);
        else
            check_refusal(status, &diag, text);
        pst_eval_free(want);
        pst_eval_free(got);
        seen.ran += status == PST_OK;
        if (status == PST_OK)
            differentiate(graph, given, text, &diag);
        for (unsigned i = 0; i < PST_COUNT(given); i++)
            pst_free(given[i]);
    }
    pst_graph_free(graph);
}

static void try_one(void)
{
    const struct sample *sample =
        sample_at(mutator_pick(&chance, sample_count()));
    struct tokens tokens;
    char *text;

    /* files contain no operators of penstock */
    while (strstr(sample->text, "penstock.") != NULL)
        sample = sample_at(mutator_pick(&chance, sample_count()));
    tokens_read(&tokens, sample->text);
    if (tokens.n < MAX_TOKENS)
        for (unsigned i = 1 + mutator_pick(&chance, 3); i > 0; i--)
            change(&tokens);
    text = tokens_text(&tokens);
    if (getenv("PST_FUZZ_SHOW") != NULL) {
        (void)fprintf(stdout, "%s\n", text);
        (void)fflush(stdout);
    }
    test_limit_work(SECONDS);
    check_operator(text);
    test_limit_work(0);
    free(text);
}

static void changed_samples_are_refused_or_run(void **state)
{
    const char *count = getenv("PST_FUZZ"), *seed = getenv("PST_TEST_SEED");
    const unsigned n = count ? (unsigned)strtoul(count, NULL, 10) : 3000;
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_registry_init(&diag), &diag);
    if (seed != NULL)
        chance.state += strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < n; i++)
        try_one();
    print_message("%u samples: %u parsed, %u ran, %u refused, %u "
                  "differentiated\n",
                  seen.tried, seen.parsed, seen.ran, seen.refused,
                  seen.differentiated);
    assert_int_equal(seen.failed, 0);
    assert_true(seen.ran > n / 10 && seen.differentiated > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_samples_are_refused_or_run),
    };

    return cmocka_run_group_tests_name("fuzz-operators", tests, NULL, NULL);
}
