// SPDX-License-Identifier: Apache-2.0
/*
 * One step of every golden in every schedule gives PyTorch's numbers for the
 * uncut model: with one microbatch, and with eight that have different data.
 * The outcome, beside PyTorch's own, is the table in stages/split/PYTORCH.md;
 * PST_UPDATE_GOLDEN=1 rewrites it.
 */
#include "tests/split/golden/golden.h"
#include "tests/step.h"

#include "stages/base/str.h"
#include "stages/files/safetensors.h"
#include "stages/graph/build.h"
#include "stages/ops/core/op.h"
#include "stages/run/dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct golden goldens[GOLDEN_MAX];
static bool is_right[GOLDEN_MAX];
static size_t n_goldens, n_runs;
static struct pst_diag diag;
static const char *table_path, *many_folder;

#define MANY  8 /* as in make_microbatches.py */
#define LARGE 2048
#define EVERY 17

/* --- a model that returns its loss --------------------------------------- */

/* Adds a loss: the mean squared error of output 0 and a new input "target". */
static void add_loss(struct pst_model *model, const struct pst_meta *target)
{
    struct pst_graph *graph = model->graph;
    struct pst_output output = {.kind = PST_OUTPUT_USER, .path = "loss"};
    struct pst_value *value;
    struct pst_build build;

    pst_build_init(&build, graph, &diag);
    value = pst_graph_add_value(graph, PST_VALUE_INPUT, "target", NULL, target);
    assert_non_null(value);
    output.arg =
        pst_v(pst_emit(&build, pst_op_find("aten.mse_loss.default"),
                       PST_ARGS(graph->outputs.at[0].arg, pst_v(value))));
    assert_ok(build.status, &diag);
    assert_ok(pst_graph_add_output(graph, &output, &diag), &diag);
}

static enum pst_status open_and_split(const struct golden *golden,
                                      const struct pst_safetensors *numbers,
                                      struct pst_model **model,
                                      struct pst_plan **plan)
{
    struct pst_split_options options = golden_options(golden);
    const char *loss = golden_text(golden->file, "loss");
    enum pst_status status = pst_model_open(golden->model, model, &diag);

    if (status != PST_OK)
        return status;
    options.loss = "loss";
    if (pst_has_prefix(loss, "output:"))
        options.loss = loss + strlen("output:");
    else
        add_loss(*model, &pst_safetensors_find(numbers, "target")->meta);
    return pst_split(*model, &options, plan, &diag);
}

/* --- comparison --------------------------------------------------------- */

struct run {
    const struct golden *golden;
    struct pst_plan *plan;
    const struct pst_safetensors *numbers, *many;
    const char *schedule;
    unsigned ranks, microbatches;
};

/* Returns the expected numbers for one or MANY microbatches. */
static const struct pst_safetensors *expected_numbers(const struct run *run)
{
    return run->microbatches == 1 ? run->numbers : run->many;
}

/* Finds an input by its path: PyTorch's names of nested inputs have _ instead
 * of a dot. */
static const struct pst_safetensors_entry *find_input(
    const struct pst_safetensors *numbers, const char *name)
{
    char key[256];

    if (strcmp(name, "target") == 0)
        return pst_safetensors_find(numbers, "target") != NULL
                   ? pst_safetensors_find(numbers, "target")
                   : pst_safetensors_find(numbers, "input.target");
    snprintf(key, sizeof(key), "input.%s", name);
    for (char *c = key + strlen("input."); *c != '\0'; c++)
        *c = *c == '.' ? '_' : *c;
    return pst_safetensors_find(numbers, key);
}

/* Writes the data of a microbatch, derived from the golden's as in
 * make_microbatches.py. */
static void move(const struct pst_safetensors_entry *entry, unsigned microbatch,
                 void *dst)
{
    const int64_t n = pst_meta_numel(&entry->meta);
    const enum pst_dtype dtype = entry->meta.dtype;
    const size_t size = pst_dtype_size(dtype);

    for (int64_t i = 0; i < n; i++) {
        const char *from = (const char *)entry->data +
                           (size_t)((i + 3 * (int64_t)microbatch) % n) * size;
        char *to = (char *)dst + (size_t)i * size;

        if (dtype == PST_F32) {
            float x;

            memcpy(&x, from, sizeof(x));
            x *= 1.0f - (float)microbatch / 16.0f;
            memcpy(to, &x, sizeof(x));
        } else {
            assert_int_equal(pst_dtype_kind(dtype), PST_KIND_INT);
            memcpy(to, from, size);
        }
    }
}

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *d)
{
    const struct run *run = ctx;
    const struct pst_plan_input *in = &run->plan->inputs.at[input];
    const struct pst_safetensors_entry *entry =
        find_input(run->numbers, in->name);

    (void)step;
    if (entry == NULL || !pst_meta_same(&entry->meta, &in->meta))
        return pst_diag_set(d, PST_E_PT2_INCONSISTENT, "no data for %s",
                            in->name);
    move(entry, microbatch, dst);
    return PST_OK;
}

/* Compares a result with the expected numbers. With MANY microbatches the
 * goldens have only every EVERY-th number of a large tensor. */
static void compare(const struct run *run, const char *name,
                    const struct pst_dump_item *got,
                    const struct pst_safetensors_entry *want, double rtol,
                    double atol)
{
    const int64_t n = pst_meta_numel(&want->meta);
    int64_t every = 1;

    if (got == NULL)
        fail_msg("%s %s: no %s", run->golden->name, run->schedule, name);
    assert_int_equal(got->meta.dtype, want->meta.dtype);
    if (run->microbatches > 1 && pst_meta_numel(&got->meta) > LARGE)
        every = EVERY;
    assert_int_equal((pst_meta_numel(&got->meta) + every - 1) / every, n);
    for (int64_t i = 0; i < n; i++) {
        const double x = pst_load_f64(got->meta.dtype, got->data, i * every);
        const double y = pst_load_f64(want->meta.dtype, want->data, i);

        if (!(fabs(x - y) <= atol + rtol * fabs(y)))
            fail_msg("%s, %s, %u ranks, %u microbatches: %s[%lld] is %.9g, "
                     "not %.9g",
                     run->golden->name, run->schedule, run->ranks,
                     run->microbatches, name, (long long)i, x, y);
    }
}

static void compare_gradient(const struct run *run, const struct pst_dump *dump,
                             const struct pst_safetensors_entry *want)
{
    const int k = pst_plan_find_param(run->plan, want->name + strlen("grad."));
    char name[300];

    assert_true(k >= 0);
    snprintf(name, sizeof(name), "grad.%s", run->plan->params.at[k].fqn);
    compare(run, name, pst_dump_find(dump, name), want, 1e-5, 4e-5);
}

/* Returns the absolute tolerance of an output: make_microbatches.py gives it
 * where large numbers cancel. */
static double bound_of(const struct run *run, const char *name)
{
    const struct pst_safetensors_entry *bound;
    char key[300];

    snprintf(key, sizeof(key), "error.%s", name);
    bound = pst_safetensors_find(expected_numbers(run), key);
    return bound != NULL ? pst_load_f64(bound->meta.dtype, bound->data, 0)
                         : 1e-5;
}

/* Compares an output. A dump numbers tensors only; the goldens number None and
 * numbers too. */
static void compare_output(const struct run *run, const struct pst_dump *dump,
                           const struct pst_safetensors_entry *want)
{
    const int index = atoi(want->name + strlen("output."));
    unsigned number = 0;
    char name[32];

    assert_true(index < (int)run->plan->outputs.n);
    for (int i = 0; i < index; i++)
        number += run->plan->outputs.at[i].is_tensor;
    snprintf(name, sizeof(name), "output.%u", number);
    compare(run, want->name, pst_dump_find(dump, name), want, 1.3e-6,
            bound_of(run, want->name));
}

static void compare_all(const struct run *run, const struct pst_dump *dump)
{
    unsigned gradients = 0;

    for (size_t i = 0; i < pst_safetensors_count(expected_numbers(run)); i++) {
        const struct pst_safetensors_entry *want =
            pst_safetensors_at(expected_numbers(run), i);

        if (pst_has_prefix(want->name, "output."))
            compare_output(run, dump, want);
        else if (strcmp(want->name, "loss") == 0)
            compare(run, "loss", pst_dump_find(dump, "loss"), want, 1.3e-6,
                    1e-5);
        else if (pst_has_prefix(want->name, "buffer."))
            compare(run, want->name, pst_dump_find(dump, want->name), want,
                    1.3e-6, 1e-5);
        else if (pst_has_prefix(want->name, "grad.")) {
            compare_gradient(run, dump, want);
            gradients++;
        }
    }
    assert_true(gradients > 0);
}

/* --- runs --------------------------------------------------------------- */

static void run_step(struct run *run)
{
    struct pst_exec_options options = {.schedule = run->schedule,
                                       .ranks = run->ranks,
                                       .microbatches = run->microbatches,
                                       .train = true,
                                       .keep_outputs = true,
                                       .threads = 1};
    struct pst_dump *dump = step_run(run->plan, &options, fill, run);

    compare_all(run, dump);
    pst_dump_free(dump);
    n_runs++;
}

/* True if the schedule accepts these numbers. */
static bool is_possible(const struct run *run)
{
    const struct pst_schedule_options options = {
        .name = run->schedule,
        .ranks = run->ranks,
        .stages = (unsigned)run->plan->stages.n,
        .microbatches = run->microbatches,
        .train = true};
    struct pst_schedule *sched;

    if (pst_schedule_make(&options, &sched, &diag) != PST_OK)
        return false;
    pst_schedule_free(sched);
    return true;
}

static unsigned run_schedule(struct run run, const char *schedule)
{
    const unsigned stages = (unsigned)run.plan->stages.n;
    unsigned n = 0;

    run.schedule = schedule;
    for (unsigned ranks = stages; ranks > 0; ranks /= 2) {
        for (unsigned k = 0; k < 2; k++) {
            run.ranks = ranks;
            run.microbatches = k == 0 ? 1 : MANY;
            if (!is_possible(&run))
                continue;
            run_step(&run);
            n++;
        }
    }
    return n;
}

/* Returns the number of results with MANY microbatches. */
static size_t many_count(const struct pst_safetensors *numbers)
{
    size_t n = 0;

    for (size_t i = 0; i < pst_safetensors_count(numbers); i++) {
        const char *name = pst_safetensors_at(numbers, i)->name;

        n += strcmp(name, "loss") == 0 || pst_has_prefix(name, "output.") ||
             pst_has_prefix(name, "grad.") || pst_has_prefix(name, "buffer.");
    }
    return n;
}

static void gives_the_numbers(void **state)
{
    const struct golden *golden = *state;
    struct run run = {.golden = golden};
    struct pst_safetensors *numbers, *many;
    struct pst_model *model = NULL;
    char path[512];
    const struct pst_sched_row *rows;
    unsigned runs = 0;
    size_t n;

    assert_ok(pst_safetensors_open(golden->numbers, &numbers, &diag), &diag);
    assert_ok(pst_safetensors_load(numbers, &diag), &diag);
    (void)snprintf(path, sizeof(path), "%s%s", many_folder,
                   strrchr(golden->numbers, '/'));
    assert_ok(pst_safetensors_open(path, &many, &diag), &diag);
    assert_ok(pst_safetensors_load(many, &diag), &diag);
    assert_int_equal(many_count(many), many_count(numbers));
    run.numbers = numbers;
    run.many = many;
    assert_ok(open_and_split(golden, numbers, &model, &run.plan), &diag);
    rows = pst_sched_rows(&n);
    for (size_t i = 0; i < n; i++)
        runs += run_schedule(run, rows[i].name);
    assert_true(runs > 0);
    is_right[golden - goldens] = true;
    pst_plan_free(run.plan);
    pst_model_close(model);
    pst_safetensors_close(numbers);
    pst_safetensors_close(many);
}

/* --- the table ---------------------------------------------------------- */

static const char *const torch_schedules[] = {"GPipe", "1F1B",
                                              "InterleavedZeroBubble"};

/* Returns PyTorch's outcome of one run: "right", "refused", "hangs" or "wrong".
 */
static const char *torch_cell(const struct golden *golden, size_t i)
{
    const json_t *torch = json_object_get(golden->split, "torch");
    const json_t *run =
        json_object_get(json_object_get(torch, "runs"), torch_schedules[i]);

    if (json_object_get(torch, "error") != NULL)
        return "no Pipe";
    if (json_is_object(run))
        return "**wrong**";
    if (!json_is_string(run) ||
        pst_has_prefix(json_string_value(run), "refused"))
        return "refused";
    return json_string_value(run);
}

static void add_row(struct pst_str *out, size_t g, unsigned *torch_right,
                    unsigned *torch_runs)
{
    const struct golden *golden = &goldens[g];

    pst_str_addf(out, "| %s | %s", golden->name,
                 is_right[g] ? "right" : "**wrong**");
    for (size_t i = 0; i < PST_COUNT(torch_schedules); i++) {
        const char *cell = torch_cell(golden, i);

        pst_str_addf(out, " | %s", cell);
        *torch_right += strcmp(cell, "right") == 0;
        *torch_runs += strcmp(cell, "no Pipe") != 0;
    }
    pst_str_add(out, " |\n");
}

static void make_table(struct pst_str *out)
{
    unsigned torch_right = 0, torch_runs = 0, right = 0;

    pst_str_add(
        out,
        "# Cuts: penstock beside PyTorch\n\n"
        "Models that are hard to cut, each with its cuts, and what "
        "becomes of one step.\n"
        "*right*: loss, outputs and gradients are those of the uncut "
        "model. The column\n"
        "penstock counts as right only if every schedule is, on as "
        "many ranks as stages\n"
        "and on fewer. PyTorch is 2.13.0, one process per stage over "
        "gloo. The test\n"
        "`tests/split/golden/test_golden_run.c` makes this table and compares "
        "it with this file.\n\n"
        "| case | penstock | GPipe | 1F1B | zero bubble |\n"
        "| --- | --- | --- | --- | --- |\n");
    for (size_t g = 0; g < n_goldens; g++) {
        add_row(out, g, &torch_right, &torch_runs);
        right += is_right[g];
    }
    pst_str_addf(out,
                 "\npenstock is right in %u of %zu cuts, PyTorch in %u of %u "
                 "runs.\n",
                 right, n_goldens, torch_right, torch_runs);
    assert_false(out->failed);
}

static void table_is_current(void **state)
{
    struct pst_str table = {0};
    char *text = NULL;
    size_t size;
    FILE *file;

    (void)state;
    make_table(&table);
    if (getenv("PST_UPDATE_GOLDEN") != NULL) {
        file = fopen(table_path, "w");
        assert_non_null(file);
        assert_true(fputs(table.text, file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    assert_ok(pst_file_read(table_path, 1 << 20, &text, &size, &diag), &diag);
    if (strcmp(text, table.text) != 0)
        fail_msg("%s is not current: run this with PST_UPDATE_GOLDEN=1",
                 table_path);
    printf("%zu runs\n", n_runs);
    pst_free(text);
    pst_str_fini(&table);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[GOLDEN_MAX + 1];
    int failed;

    pst_diag_init(&diag);
    n_goldens = argc < 4 ? 0 : golden_load(argv[1], goldens);
    if (n_goldens == 0 || pst_registry_init(&diag) != PST_OK) {
        print_error("no goldens of the splitter at %s\n",
                    argc < 4 ? "(none)" : argv[1]);
        return 1;
    }
    table_path = argv[2];
    many_folder = argv[3];
    for (size_t i = 0; i < n_goldens; i++)
        tests[i] = (struct CMUnitTest){.name = goldens[i].name,
                                       .test_func = gives_the_numbers,
                                       .initial_state = &goldens[i]};
    tests[n_goldens] = (struct CMUnitTest)cmocka_unit_test(table_is_current);
    failed =
        _cmocka_run_group_tests("numbers", tests, n_goldens + 1, NULL, NULL);
    golden_clear(goldens, n_goldens);
    return failed;
}
