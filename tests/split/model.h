// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SPLIT_MODEL_H
#define PENSTOCK_TESTS_SPLIT_MODEL_H
/* Models from graph text, with generated weights. */
#include "tests/test.h"

#include "stages/ops/core/call.h"
#include "stages/split/plan.h"

#include <stdlib.h>
#include <string.h>

/* Returns a random number; sums of such numbers round, so that the order of
 * additions matters. */
static inline float model_number(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return ((float)(*seed >> 8) / (float)(1 << 24) - 0.5f) * 3.0f;
}

static inline float *model_numbers(const struct pst_meta *meta, unsigned seed)
{
    const size_t n = pst_meta_span(meta) / sizeof(float) + 1;
    float *ret = malloc(n * sizeof(*ret));

    assert_non_null(ret);
    for (size_t i = 0; i < n; i++)
        ret[i] = model_number(&seed);
    return ret;
}

/* Makes a model of a graph text, with weights for every parameter, buffer and
 * constant, and with modules of these names. */
static inline void model_init(struct pst_model *model, const char *text,
                              const char *const *modules, size_t n_modules)
{
    struct pst_diag diag;

    pst_diag_init(&diag);
    memset(model, 0, sizeof(*model));
    pst_arena_init(&model->arena, PST_TAG_TEST);
    pst_map_init(&model->weights_by_fqn, PST_TAG_TEST);
    model->name = "hand-made";
    strcpy(model->digest, "0123456789abcdef0123456789abcdef");
    assert_ok(pst_registry_init(&diag), &diag);
    assert_ok(pst_graph_parse(text, &model->graph, &diag), &diag);
    for (size_t i = 0; i < n_modules; i++)
        assert_true(pst_vec_push(PST_TAG_TEST, &model->modules, modules[i]));
    for (size_t i = 0; i < model->graph->values.n; i++) {
        const struct pst_value *value = model->graph->values.at[i];
        struct pst_weight *weight;

        if (value->fqn == NULL)
            continue;
        weight = pst_arena_alloc(&model->arena, sizeof(*weight));
        assert_non_null(weight);
        weight->fqn = value->fqn;
        weight->meta = value->meta;
        weight->data = model_numbers(&value->meta, (unsigned)i);
        assert_true(pst_map_put(&model->weights_by_fqn, value->fqn, weight));
    }
}

static inline void model_fini(struct pst_model *model)
{
    for (size_t i = 0; i < model->weights_by_fqn.n; i++) {
        struct pst_weight *weight = model->weights_by_fqn.entries[i].value;

        free((void *)weight->data);
    }
    pst_map_fini(&model->weights_by_fqn);
    pst_vec_fini(&model->modules);
    pst_graph_free(model->graph);
    pst_arena_fini(&model->arena);
}

#endif
