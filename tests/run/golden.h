// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_GOLDEN_H
#define PENSTOCK_TESTS_RUN_GOLDEN_H
/* Compares one step of a plan with what PyTorch computed for a set of inputs
 * (tests/golden/make/frontend/make_dynamic.py). */
#include "tests/split/model.h"
#include "tests/step.h"

#include "stages/files/safetensors.h"
#include "stages/run/dump.h"
#include "stages/run/engine.h"
#include "stages/split/bind/bind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pst_diag diag;
static struct pst_safetensors *data; /* tensors of all sets of inputs */

static inline const char *golden_path(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", getenv("PST_GOLDEN"),
             name); // NOLINT(concurrency-mt-unsafe)
    return path;
}

/* Returns a tensor of a set of inputs: "2", "3", "5" or "10" (number of rows),
 * "full" or "ignored". */
static inline const struct pst_safetensors_entry *entry(const char *set,
                                                        const char *name)
{
    const struct pst_safetensors_entry *e;
    char key[100];

    snprintf(key, sizeof(key), "%s/%s", set, name);
    e = pst_safetensors_find(data, key);
    if (e == NULL)
        fail_msg("the golden has no %s", key);
    return e;
}

/* Returns the largest difference of a result from the expected tensor, relative
 * to the largest expected number. */
static inline double distance(const struct pst_safetensors_entry *want,
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

static inline void compare(const struct pst_dump *dump, const char *set,
                           const char *golden, const char *name)
{
    const double off = distance(entry(set, golden), pst_dump_find(dump, name));

    if (!(off <= 1e-6))
        fail_msg("%s of %s rows is off by %g", name, set, off);
}

static inline void compare_grads(const struct pst_dump *dump, const char *set)
{
    size_t n;
    const struct pst_dump_item *items = pst_dump_items(dump, &n);

    for (size_t i = 0; i < n; i++)
        if (strncmp(items[i].name, "grad.", 5) == 0)
            compare(dump, set, items[i].name, items[i].name);
}

struct fill {
    const struct pst_plan *plan;
    const char *set;
};

static inline enum pst_status fill_whole(void *ctx, uint64_t step,
                                         unsigned microbatch, unsigned input,
                                         void *dst, struct pst_diag *d)
{
    const struct fill *fill = ctx;
    const struct pst_safetensors_entry *e =
        entry(fill->set, fill->plan->inputs.at[input].name);

    (void)step;
    (void)microbatch;
    (void)d;
    memcpy(dst, e->data, e->bytes);
    return PST_OK;
}

static inline struct pst_exec_options options_for(unsigned ranks,
                                                  unsigned microbatches)
{
    return (struct pst_exec_options){
        .schedule = "1f1b",
        .ranks = ranks,
        .microbatches = microbatches,
        .train = true,
        .keep_outputs = true,
        .threads = 1,
    };
}

#endif
