// SPDX-License-Identifier: Apache-2.0
/* Microbatches of other sizes than the model was exported with, against what
 * PyTorch computes with that many rows (tests/golden/make_dynamic.py). */
#include "tests/test.h"

#include "stages/archive/safetensors.h"
#include "stages/exec/crew.h"
#include "stages/exec/dump.h"
#include "stages/split/bind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pst_diag diag;
static struct pst_model *model;
static struct pst_plan *plan;
static struct pst_safetensors *data;

static const char *golden_path(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", getenv("PST_GOLDEN"),
             name); // NOLINT(concurrency-mt-unsafe)
    return path;
}

static int setup(void **state)
{
    const struct pst_split_options options = {0};

    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_model_open(golden_path("dynamic.pt2"), &model, &diag), &diag);
    assert_ok(pst_split(model, &options, &plan, &diag), &diag);
    assert_ok(
        pst_safetensors_open(golden_path("dynamic.safetensors"), &data, &diag),
        &diag);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pst_safetensors_close(data);
    pst_plan_free(plan);
    pst_model_close(model);
    return 0;
}

static const struct pst_safetensors_entry *entry(unsigned rows,
                                                 const char *name)
{
    const struct pst_safetensors_entry *e;
    char key[100];

    snprintf(key, sizeof(key), "%u/%s", rows, name);
    e = pst_safetensors_find(data, key);
    if (e == NULL)
        fail_msg("the golden has no %s", key);
    return e;
}

/* The largest difference, relative to the largest number. */
static double distance(const struct pst_safetensors_entry *want,
                       const struct pst_dump_item *got)
{
    double most = 0, worst = 0;

    assert_non_null(got);
    assert_int_equal(pst_meta_numel(&got->meta), pst_meta_numel(&want->meta));
    for (int64_t i = 0; i < pst_meta_numel(&got->meta); i++) {
        const double a = pst_load_f64(want->meta.dtype, want->data, i);
        const double b = pst_load_f64(got->meta.dtype, got->data, i);

        most = fmax(most, fabs(a));
        worst = fmax(worst, fabs(a - b));
    }
    return worst / fmax(most, 1e-30);
}

static void compare(const struct pst_dump *dump, unsigned rows,
                    const char *golden, const char *name)
{
    const double far = distance(entry(rows, golden), pst_dump_find(dump, name));

    if (!(far <= 1e-6))
        fail_msg("%s of %u rows is off by %g", name, rows, far);
}

static void compare_grads(const struct pst_dump *dump, unsigned rows)
{
    size_t n;
    const struct pst_dump_item *items = pst_dump_items(dump, &n);

    for (size_t i = 0; i < n; i++)
        if (strncmp(items[i].name, "grad.", 5) == 0)
            compare(dump, rows, items[i].name, items[i].name);
}

struct fill {
    unsigned rows; /* of the golden */
};

static enum pst_status fill_whole(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst, struct pst_diag *d)
{
    const struct fill *fill = ctx;
    const struct pst_safetensors_entry *e =
        entry(fill->rows, plan->inputs.at[input].name);

    (void)step;
    (void)microbatch;
    (void)d;
    memcpy(dst, e->data, e->bytes);
    return PST_OK;
}

static struct pst_exec_options options_for(unsigned ranks,
                                           unsigned microbatches)
{
    return (struct pst_exec_options){
        .schedule = "1f1b",
        .ranks = ranks,
        .microbatches = microbatches,
        .train = true,
        .keep_outputs = true,
        .threads = 1,
        .optim = {.name = "none"},
    };
}

/* One step; its dump. */
static struct pst_dump *run(struct pst_plan *p,
                            const struct pst_exec_options *options,
                            pst_fill_fn fill, void *ctx)
{
    struct pst_step_result result;
    struct pst_transport *self;
    struct pst_dump *dump;
    struct pst_crew *crew;
    char size[16];

    snprintf(size, sizeof(size), "%u", options->ranks);
    assert_ok(pst_transport_self.open(size, &self, &diag), &diag);
    assert_ok(pst_crew_new(p, self, options, &crew, &diag), &diag);
    assert_ok(pst_crew_step(crew, 0, fill, ctx, 0, &result, &diag), &diag);
    assert_ok(pst_crew_dump_first(crew, &dump, &diag), &diag);
    for (unsigned k = 0; k < pst_crew_n_local(crew); k++)
        assert_int_equal(pst_crew_high_water(crew, k),
                         pst_crew_memory(crew, k).arena);
    pst_crew_free(crew);
    pst_transport_self.close(self);
    return dump;
}

static void bound_plans_are_pytorchs(void **state)
{
    static const unsigned sizes[] = {2, 3, 5, 10};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(sizes); i++) {
        for (unsigned ranks = 1; ranks <= 3; ranks += 2) {
            struct pst_exec_options options = options_for(ranks, 1);
            struct fill fill = {sizes[i]};
            struct pst_plan *bound;
            struct pst_dump *dump;

            assert_ok(pst_plan_bind(plan, sizes[i], &bound, &diag), &diag);
            dump = run(bound, &options, fill_whole, &fill);
            compare(dump, sizes[i], "output.0", "loss");
            compare(dump, sizes[i], "output.1", "output.1");
            compare(dump, sizes[i], "output.2", "output.2");
            compare_grads(dump, sizes[i]);
            pst_dump_free(dump);
            pst_plan_free(bound);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bound_plans_are_pytorchs),
    };

    return cmocka_run_group_tests_name("rows", tests, setup, teardown);
}
