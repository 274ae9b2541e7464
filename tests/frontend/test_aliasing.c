// SPDX-License-Identifier: Apache-2.0
/*
 * Tests programs that write through aliases (tests/golden/aliasing.json),
 * functionalised and run by the reference kernels. The results must equal those
 * of eager PyTorch: returned values, storages after the run, gradients of
 * leaves. Each storage is a graph input (a parameter if it has a leaf), each
 * tensor a window on it.
 */
#include "stages/frontend/functional/functionalise.h"
#include "stages/ops/core/call.h"
#include "stages/passes/autodiff.h"
#include "tests/test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 16

/* Cases that this pass alone cannot decide, and cases that are refused by name.
 */
static const struct {
    const char *name, *reason;
} refused[] = {
    {"a11", "batch_norm's hidden writes are made explicit by the importer"},
    {"a20", "which stages write a buffer is seen by the splitter"},
    {"a22b", "a parameter is not updated inside the model"},
};

struct machine {
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_functionalise *f;
    struct pst_diag diag;
    const json_t *json;
    struct pst_map names;    /* names of the program's values */
    struct pst_map storages; /* name -> INPUT or PARAM value */
    void *memory[MAX_NAMES]; /* contents of storages, by position in the JSON */
    bool missing;            /* an operator has no row */
};

static enum pst_dtype dtype_of(const char *torch)
{
    static const struct {
        const char *name;
        enum pst_dtype dtype;
    } rows[] = {
        {"float32", PST_F32}, {"float64", PST_F64}, {"int64", PST_I64},
        {"int32", PST_I32},   {"bool", PST_BOOL},   {"bfloat16", PST_BF16},
        {"float16", PST_F16}, {"uint8", PST_U8},
    };

    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (strcmp(rows[i].name, torch) == 0)
            return rows[i].dtype;
    return PST_N_DTYPES;
}

static double number(const json_t *x)
{
    return json_is_boolean(x) ? json_is_true(x) : json_number_value(x);
}

static const char *text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static unsigned read_ints(const json_t *list, int64_t *ret)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        ret[i] = json_integer_value(json_array_get(list, i));
    return (unsigned)json_array_size(list);
}

/* --- storages and tensors ----------------------------------------------- */

static int64_t storage_numel(const json_t *storage)
{
    const json_t *zeros = json_object_get(storage, "zeros");

    return zeros != NULL
               ? json_integer_value(zeros)
               : (int64_t)json_array_size(json_object_get(storage, "values"));
}

static const json_t *leaf_of(const struct machine *m, const char *storage)
{
    const char *key;
    json_t *tensor;

    json_object_foreach(json_object_get(m->json, "tensors"), key, tensor)
    {
        if (strcmp(text(tensor, "storage"), storage) == 0 &&
            json_is_true(json_object_get(tensor, "requires_grad")))
            return tensor;
    }
    return NULL;
}

static void add_storages(struct machine *m)
{
    const char *key;
    json_t *storage;
    unsigned k = 0;

    json_object_foreach(json_object_get(m->json, "storages"), key, storage)
    {
        const enum pst_dtype dtype = dtype_of(text(storage, "dtype"));
        const int64_t n = storage_numel(storage);
        const json_t *leaf = leaf_of(m, key);
        struct pst_meta meta = pst_meta_make(dtype, 1, &n);
        int64_t sizes[PST_MAX_RANK];
        struct pst_value *value;

        if (leaf != NULL)
            meta = pst_meta_make(
                dtype, read_ints(json_object_get(leaf, "sizes"), sizes), sizes);
        value = pst_graph_add_value(
            m->graph, leaf != NULL ? PST_VALUE_PARAM : PST_VALUE_INPUT, key,
            leaf != NULL ? key : NULL, &meta);
        value->requires_grad = leaf != NULL;
        assert_true(pst_map_put(&m->storages, key, value));
        assert_true(k < MAX_NAMES);
        m->memory[k] =
            pst_calloc(PST_TAG_TEST, (size_t)n + 1, pst_dtype_size(dtype));
        for (int64_t i = 0; !json_object_get(storage, "zeros") && i < n; i++)
            pst_store_f64(
                dtype, m->memory[k], i,
                number(json_array_get(json_object_get(storage, "values"), i)));
        k++;
    }
}

static struct pst_value *emit(struct machine *m, const char *op,
                              const struct pst_arg *args, unsigned n)
{
    const struct pst_op *row = pst_op_find(op);

    if (row == NULL) {
        print_message("    no row for %s\n", op);
        m->missing = true;
    }
    return row == NULL ? NULL : pst_emit(&m->build, row, args, n);
}

static void add_tensors(struct machine *m)
{
    const char *key;
    json_t *tensor;

    json_object_foreach(json_object_get(m->json, "tensors"), key, tensor)
    {
        struct pst_value *v =
            pst_map_get(&m->storages, text(tensor, "storage"));
        const enum pst_dtype dtype = dtype_of(text(tensor, "dtype"));
        int64_t sizes[PST_MAX_RANK], strides[PST_MAX_RANK];
        const unsigned rank =
            read_ints(json_object_get(tensor, "sizes"), sizes);

        read_ints(json_object_get(tensor, "strides"), strides);
        if (!json_is_true(json_object_get(tensor, "requires_grad")))
            v = emit(m, "aten.as_strided.default",
                     PST_ARGS(pst_v(v), pst_ints(sizes, rank),
                              pst_ints(strides, rank),
                              pst_i(json_integer_value(
                                  json_object_get(tensor, "offset")))));
        if (v != NULL && v->meta.dtype != dtype)
            v = emit(m, "aten.view.dtype",
                     PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
        assert_true(pst_map_put(&m->names, key, v));
    }
}

/* --- the program -------------------------------------------------------- */

static struct pst_value *find_name(struct machine *m, const char *name)
{
    struct pst_value *v = pst_map_get(&m->names, name);

    if (v == NULL) /* "%0": by position */
        v = pst_map_get(&m->names,
                        json_string_value(json_array_get(
                            json_object_get(m->json, "args"), atoi(name))));
    assert_non_null(v);
    return v;
}

static struct pst_arg read_arg(struct machine *m, const json_t *x, bool raw)
{
    struct pst_arena *arena = &m->graph->arena;
    const size_t n = json_array_size(x);
    struct pst_arg ret = {.kind = PST_ARG_INTS, .n = (unsigned)n};

    if (json_is_null(x))
        return pst_none();
    if (json_is_boolean(x))
        return pst_b(json_is_true(x));
    if (json_is_integer(x))
        return pst_i(json_integer_value(x));
    if (json_is_real(x))
        return pst_f(json_real_value(x));
    if (json_is_string(x) && json_string_value(x)[0] == '%') {
        struct pst_value *v = find_name(m, json_string_value(x) + 1);

        return pst_v(raw ? v : pst_functionalise_read(m->f, v));
    }
    if (json_is_string(x))
        return pst_dtype_arg(dtype_of(json_string_value(x)));
    ret.ints = pst_arena_calloc(arena, n + 1, sizeof(int64_t));
    if (n > 0 && json_is_string(json_array_get(x, 0))) {
        ret.kind = PST_ARG_VALUES;
        for (size_t i = 0; i < n; i++)
            ret.values[i] = read_arg(m, json_array_get(x, i), false).value;
        return ret;
    }
    read_ints(x, (int64_t *)ret.ints);
    return ret;
}

/* Writes the full name of an operator. "aten.clone" means "aten.clone.default";
 * "aten.add.Tensor" means "aten.add.Scalar" if its second argument is a
 * number. */
static void full_name(const json_t *op, char out[128])
{
    const char *name = text(op, "op");
    const char *last = strrchr(name, '.');
    const json_t *second = json_array_get(json_object_get(op, "args"), 1);

    if (last == strchr(name, '.'))
        snprintf(out, 128, "%s.default", name);
    else if (strcmp(last, ".Tensor") == 0 && json_is_number(second) &&
             pst_has_suffix(name, "add_.Tensor"))
        snprintf(out, 128, "%.*s.Scalar", (int)(last - name), name);
    else
        snprintf(out, 128, "%s", name);
}

static bool run_op(struct machine *m, const json_t *op)
{
    const json_t *args = json_object_get(op, "args");
    const json_t *outs = json_object_get(op, "out");
    const unsigned n = (unsigned)json_array_size(args);
    const struct pst_op *row, *variant = NULL;
    struct pst_arg list[16];
    char name[128];

    full_name(op, name);
    row = pst_op_find(name);
    if (row == NULL)
        variant = pst_functional_variant(name);
    if (row == NULL && variant == NULL) {
        print_message("    no row for %s\n", name);
        m->missing = true;
        return false;
    }
    m->build.no_grad = json_is_true(json_object_get(op, "no_grad"));
    for (unsigned i = 0; i < n; i++)
        list[i] =
            read_arg(m, json_array_get(args, i), i == 0 && variant != NULL);
    if (m->build.status != PST_OK)
        return false;
    if (variant != NULL) {
        if (pst_functionalise_inplace(m->f, variant, list, n) == NULL)
            return false;
        return pst_map_put(&m->names,
                           json_string_value(json_array_get(outs, 0)),
                           list[0].value);
    } else {
        struct pst_value *const *results;
        const struct pst_node *node;
        struct pst_rewrite w;

        if (pst_op_is_rewrite(row)) {
            if (pst_op_rewrite(row, &m->build, list, n, &w) != PST_OK)
                return false;
            results = w.outs;
        } else {
            node = pst_emit_node(&m->build, row, list, n);
            if (node == NULL)
                return false;
            results = node->outs;
        }
        for (unsigned k = 0; k < json_array_size(outs); k++)
            assert_true(pst_map_put(&m->names,
                                    json_string_value(json_array_get(outs, k)),
                                    results[k]));
        return true;
    }
}

/* Builds the graph. Returns false if the program is refused (diag) or an
 * operator has no row. */
static bool build_program(struct machine *m)
{
    static const char *const lists[] = {"before", "ops"};
    json_t *op, *name;
    size_t i;

    for (unsigned l = 0; l < 2; l++)
        json_array_foreach(json_object_get(m->json, lists[l]), i, op)
        {
            if (!run_op(m, op))
                return false;
        }
    json_array_foreach(json_object_get(m->json, "returns"), i, name)
    {
        struct pst_value *v = find_name(m, json_string_value(name));
        struct pst_output out = {.kind = PST_OUTPUT_USER};

        out.arg = pst_v(pst_functionalise_read(m->f, v));
        if (m->build.status != PST_OK)
            return false;
        assert_ok(pst_graph_add_output(m->graph, &out, &m->diag), &m->diag);
    }
    if (pst_functionalise_finish(m->f, &m->diag) != PST_OK)
        return false;
    if (m->graph->outputs.n == 0)
        return true;
    return pst_functionalise_check_silent(
               m->f, &m->graph->outputs.at[0].arg.value, 1, &m->diag) == PST_OK;
}

/* --- running ------------------------------------------------------------ */

static void expect_values(struct machine *m, const char *what,
                          const json_t *want, const struct pst_meta *meta,
                          const void *data)
{
    const int64_t n = pst_meta_numel(meta);

    assert_non_null(data);
    if (json_is_object(want)) /* a long storage has only {"sum", "last_32"} */
        want = json_object_get(want, "last_32");
    for (int64_t i = 0; i < (int64_t)json_array_size(want); i++) {
        const int64_t at = n - (int64_t)json_array_size(want) + i;
        const double x =
            pst_load_f64(meta->dtype, data, pst_meta_offset(meta, at));
        const double y = number(json_array_get(want, i));

        if (!(fabs(x - y) <= 1e-6 * fabs(y)))
            fail_msg("%s: %s[%d] is %g, not %g", text(m->json, "name"), what,
                     (int)i, x, y);
    }
}

/* Stores the updates that the graph returns in the storages. */
static void apply_updates(struct machine *m, const struct pst_eval *eval)
{
    for (size_t i = 0; i < m->graph->outputs.n; i++) {
        const struct pst_output *out = &m->graph->outputs.at[i];
        unsigned k = 0;

        if (out->kind == PST_OUTPUT_USER)
            continue;
        while (m->storages.entries[k].value != out->target)
            k++;
        pst_copy_strided(&out->arg.value->meta,
                         pst_eval_get(eval, out->arg.value), &out->target->meta,
                         m->memory[k]);
    }
}

static void overwrite(struct machine *m, const json_t *run)
{
    const char *key;
    json_t *values;
    size_t i;

    json_object_foreach((json_t *)run, key, values)
    {
        unsigned k = 0;
        json_t *x;

        while (strcmp(m->storages.entries[k].key, key) != 0)
            k++;
        json_array_foreach(values, i, x)
        {
            const struct pst_value *v = m->storages.entries[k].value;

            pst_store_f64(v->meta.dtype, m->memory[k], (int64_t)i, number(x));
        }
    }
}

static void run_program(struct machine *m, const json_t *want,
                        const struct pst_autodiff_result *grads, float *seed)
{
    const json_t *want_grads = json_object_get(want, "grads");
    const json_t *plan = json_object_get(m->json, "plan");
    float sums[MAX_NAMES][64] = {{0}};
    struct pst_eval *eval;
    json_t *t;
    size_t i;

    if (want_grads == NULL)
        want_grads = json_object_get(plan, "grads");
    assert_ok(pst_eval_new(m->graph, &eval, &m->diag), &m->diag);
    for (size_t k = 0; k < m->storages.n; k++)
        assert_ok(pst_eval_set(eval, m->storages.entries[k].value, m->memory[k],
                               &m->diag),
                  &m->diag);
    for (size_t k = 0; k < m->graph->extras.n; k++)
        assert_ok(pst_eval_set(eval, m->graph->extras.at[k],
                               m->graph->extras.at[k]->kind == PST_VALUE_SEED
                                   ? seed
                                   : sums[k],
                               &m->diag),
                  &m->diag);
    assert_ok(pst_eval_run(eval, true, NULL, &m->diag), &m->diag);
    json_array_foreach(json_object_get(want, "returns"), i, t)
    {
        const struct pst_value *v = m->graph->outputs.at[i].arg.value;

        expect_values(m, "return", json_object_get(t, "values"), &v->meta,
                      pst_eval_get(eval, v));
    }
    for (size_t k = 0; grads != NULL && k < m->graph->params.n; k++)
        if (grads->grads[k] != NULL)
            expect_values(
                m, "gradient",
                json_object_get(want_grads, m->graph->params.at[k]->fqn),
                &grads->grads[k]->meta, pst_eval_get(eval, grads->grads[k]));
        else
            assert_null(want_grads);
    apply_updates(m, eval);
    pst_eval_free(eval);
}

static void check_storages(struct machine *m)
{
    const json_t *want =
        json_object_get(json_object_get(m->json, "expect"), "storages");

    for (size_t k = 0; k < m->storages.n; k++) {
        const struct pst_value *v = m->storages.entries[k].value;
        const json_t *after = json_object_get(want, m->storages.entries[k].key);

        if (after != NULL && v->kind == PST_VALUE_INPUT)
            expect_values(m, "storage", after, &v->meta, m->memory[k]);
    }
}

static void run_all(struct machine *m)
{
    const json_t *expect = json_object_get(m->json, "expect");
    const json_t *runs = json_object_get(m->json, "runs");
    const size_t n_runs = runs != NULL ? json_array_size(runs) : 1;
    struct pst_autodiff_result grads;
    const bool backward = json_is_true(json_object_get(m->json, "backward"));
    struct pst_seed seed;
    float one = 1.0f;

    if (backward) {
        seed.value = m->graph->outputs.at[0].arg.value;
        seed.seed = pst_graph_add_value(m->graph, PST_VALUE_SEED, "seed", NULL,
                                        &seed.value->meta);
        assert_ok(pst_autodiff(m->graph, &seed, 1, NULL, 0, &grads, &m->diag),
                  &m->diag);
    }
    assert_ok(pst_graph_verify(m->graph, &m->diag), &m->diag);
    for (size_t r = 0; r < n_runs; r++) {
        json_t *want = json_pack(
            "{sOsO?}", "returns",
            json_object_get(expect, "returns") != NULL
                ? json_array_get(json_object_get(expect, "returns"), r)
                : json_null(),
            "grads", json_object_get(expect, "grads"));

        overwrite(m, json_array_get(runs, r));
        run_program(m, want, backward ? &grads : NULL, &one);
        json_decref(want);
    }
    check_storages(m);
}

/* --- cases -------------------------------------------------------------- */

static bool is_refused(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(refused); i++)
        if (strcmp(refused[i].name, name) == 0)
            return true;
    return false;
}

/* Runs a case and checks its results. Returns false if an operator has no row.
 */
static bool run_case(const json_t *json)
{
    const json_t *plan = json_object_get(json, "plan");
    const char *name = text(json, "name"), *error = text(plan, "error");
    const char *or_error = text(plan, "or_error");
    struct machine m = {.json = json};
    bool missing, built = false;

    pst_diag_init(&m.diag);
    pst_map_init(&m.names, PST_TAG_TEST);
    pst_map_init(&m.storages, PST_TAG_TEST);
    assert_ok(pst_graph_new(&m.graph, &m.diag), &m.diag);
    pst_build_init(&m.build, m.graph, &m.diag);
    assert_ok(pst_functionalise_new(&m.build, &m.f, &m.diag), &m.diag);
    add_storages(&m);
    add_tensors(&m);
    if (!m.missing)
        built = build_program(&m);
    missing = m.missing;
    if (missing) {
        print_message("  %s: not run\n", name);
    } else if (error != NULL && strcmp(error, "refused") != 0) {
        if (built || strstr(m.diag.text, error) == NULL)
            fail_msg("%s: %s expected, got \"%s\"", name, error, m.diag.text);
    } else if (!built) {
        if (error == NULL &&
            (or_error == NULL || strstr(m.diag.text, or_error) == NULL))
            fail_msg("%s: %s", name, m.diag.text);
    } else {
        if (error != NULL)
            fail_msg("%s must be refused", name);
        run_all(&m);
    }
    for (size_t k = 0; k < m.storages.n; k++)
        pst_free(m.memory[k]);
    pst_functionalise_free(m.f);
    pst_graph_free(m.graph);
    pst_map_fini(&m.names);
    pst_map_fini(&m.storages);
    return !missing;
}

static void programs_match_eager(void **state)
{
    const char *folder = getenv("PST_GOLDEN");
    unsigned n_run = 0, n_missing = 0;
    char path[4096];
    json_error_t error;
    json_t *cases, *json;
    size_t i;

    (void)state;
    assert_non_null(folder);
    snprintf(path, sizeof(path), "%s/aliasing.json", folder);
    cases = json_load_file(path, 0, &error);
    assert_non_null(cases);
    json_array_foreach(cases, i, json)
    {
        if (is_refused(text(json, "name")))
            continue;
        if (run_case(json))
            n_run++;
        else
            n_missing++;
    }
    json_decref(cases);
    print_message("%u programs, %u without a row\n", n_run, n_missing);
    assert_true(n_run >= 80);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_match_eager),
    };
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
