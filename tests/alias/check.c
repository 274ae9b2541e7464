// SPDX-License-Identifier: Apache-2.0
/* Compares the result of a run with what the case expects. */
#include "tests/alias/case.h"

#include "stages/optim/rows.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct checker {
    struct alias_case *c;
    const json_t *want, *plan;
    struct pst_call_result result;
    struct alias_verdict *verdict;
    struct pst_alias_operand first[CASE_MAX]; /* operands of the first run */
    bool changed; /* operands differ from the first run's */
};

static void add_error(struct checker *k, const char *fmt, ...) PST_PRINTF(2, 3);

static void add_error(struct checker *k, const char *fmt, ...)
{
    va_list args;

    if (k->verdict->text[0] != '\0')
        return;
    va_start(args, fmt);
    (void)vsnprintf(k->verdict->text, sizeof(k->verdict->text), fmt, args);
    va_end(args);
}

static bool is_near(double x, double y)
{
    if (isnan(y) || isinf(y))
        return isnan(y) ? isnan(x) : x == y;
    return fabs(x - y) <= 1e-6 * fabs(y) + 1e-12;
}

/* Compares elements in row-major order. */
static void check_values(struct checker *k, const char *what,
                         const json_t *want, const struct pst_meta *meta,
                         const void *data)
{
    const int64_t n = pst_meta_numel(meta);

    if (data == NULL) {
        add_error(k, "%s: there is none", what);
        return;
    }
    if ((int64_t)json_array_size(want) != n) {
        add_error(k, "%s: %lld elements, not %zu", what, (long long)n,
                  json_array_size(want));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double y = alias_number(json_array_get(want, (size_t)i));
        const double x =
            pst_load_f64(meta->dtype, data, pst_meta_offset(meta, i));

        if (!is_near(x, y))
            add_error(k, "%s[%lld] is %.9g, not %.9g", what, (long long)i, x,
                      y);
    }
}

static void check_geometry(struct checker *k, const char *what,
                           const json_t *want, const struct pst_meta *meta,
                           int64_t offset)
{
    int64_t sizes[PST_MAX_RANK], strides[PST_MAX_RANK];
    const unsigned rank = alias_ints(json_object_get(want, "sizes"), sizes);
    const int64_t from = json_integer_value(json_object_get(want, "offset"));
    char text[PST_META_TEXT];

    (void)alias_ints(json_object_get(want, "strides"), strides);
    if (rank != meta->rank)
        add_error(k, "%s is %s", what, pst_meta_text(meta, text));
    for (unsigned d = 0; d < rank && d < meta->rank; d++)
        if (sizes[d] != meta->size[d] || strides[d] != meta->stride[d])
            add_error(k, "%s is %s: stride %lld in dimension %u, not %lld",
                      what, pst_meta_text(meta, text),
                      (long long)meta->stride[d], d, (long long)strides[d]);
    if (offset != from)
        add_error(k, "%s begins at %lld, not at %lld", what, (long long)offset,
                  (long long)from);
}

static void check_return(struct checker *k, unsigned i, const json_t *want)
{
    const struct pst_alias_program_place *place = &k->result.bound->returns[i];
    const char *storage = "new";
    struct pst_meta meta = place->meta;
    const void *data = NULL;
    char what[64];

    (void)snprintf(what, sizeof(what), "return %u", i);
    if (place->operand >= 0) {
        const struct pst_alias_program_operand *o =
            &k->c->operands[place->operand];

        if (!o->from_before) {
            storage = k->c->storage_names[o->as.storage];
            data = (const char *)k->c->storages[o->as.storage].data +
                   place->offset * (int64_t)pst_dtype_size(meta.dtype);
        }
    }
    if (pst_meta_numel(&meta) > 0 && /* an empty tensor shares nothing */
        (alias_text(want, "storage") == NULL ||
         strcmp(storage, alias_text(want, "storage")) != 0))
        add_error(k, "%s lies in storage \"%s\", not \"%s\"", what, storage,
                  alias_text(want, "storage") != NULL
                      ? alias_text(want, "storage")
                      : "");
    if (meta.dtype != pst_alias_text_dtype(alias_text(want, "dtype")))
        add_error(k, "%s is %s", what, pst_dtype_name(meta.dtype));
    check_geometry(k, what, want, &meta, place->offset);
    if (place->output >= 0) {
        data = k->result.returns[i];
        pst_meta_set_contiguous(&meta);
    }
    check_values(k, what, json_object_get(want, "values"), &meta, data);
}

static void check_storage(struct checker *k, const char *name,
                          const json_t *want)
{
    const int at = alias_case_storage(k->c, name);
    const enum pst_dtype dtype = k->c->storage_dtypes[at];
    const int64_t n =
        (int64_t)(k->c->storages[at].bytes / pst_dtype_size(dtype));
    const struct pst_meta all = pst_meta_make(dtype, 1, &n);
    double sum = 0;

    if (json_is_array(want)) {
        check_values(k, name, want, &all, k->c->storages[at].data);
        return;
    }
    /* A long tensor has only {"sum", "last_32"} */
    for (int64_t i = 0; i < n; i++)
        sum += pst_load_f64(dtype, k->c->storages[at].data, i);
    if (!is_near(sum, json_number_value(json_object_get(want, "sum"))))
        add_error(k, "the sum of %s is %.9g", name, sum);
    for (size_t i = 0; i < 32; i++)
        if (!is_near(pst_load_f64(dtype, k->c->storages[at].data,
                                  n - 32 + (int64_t)i),
                     alias_number(
                         json_array_get(json_object_get(want, "last_32"), i))))
            add_error(k, "%s[%lld]", name, (long long)n - 32 + (long long)i);
}

static void check_leaf(struct checker *k, const struct pst_caller *caller,
                       const char *name, const json_t *want, bool value)
{
    char what[100];

    for (unsigned i = 0; i < k->c->n_operands; i++) {
        const struct pst_alias_program_operand *o = &k->c->operands[i];
        struct pst_meta meta = o->as.meta;

        if (o->leaf == NULL || strcmp(o->leaf, name) != 0)
            continue;
        (void)snprintf(what, sizeof(what), "%s of %s",
                       value ? "value" : "gradient", name);
        pst_meta_set_contiguous(&meta);
        check_values(k, what, want, &meta,
                     pst_caller_grad(caller, name, value));
        return;
    }
    add_error(k, "no leaf is called \"%s\"", name);
}

static void check_inner(struct checker *k)
{
    const struct pst_alias *alias = &k->result.bound->alias;
    const json_t *want = json_object_get(k->plan, "inner");
    size_t at = 0;

    for (unsigned b = 0; b < alias->n_bases; b++) {
        const char *name = json_string_value(json_array_get(want, at++));

        if (name == NULL ||
            strcmp(name, k->c->storage_names[alias->bases[b].storage]) != 0)
            add_error(k, "inner operand %zu is the base of \"%s\"", at - 1,
                      k->c->storage_names[alias->bases[b].storage]);
    }
    for (unsigned i = 0; i < k->c->n_args; i++) {
        const char *name;

        if (alias->parts[i].base >= 0 || alias->parts[i].same != i)
            continue;
        name = json_string_value(json_array_get(want, at++));
        if (name == NULL || strcmp(name, k->c->operands[i].as.name) != 0)
            add_error(k, "inner operand %zu is \"%s\"", at - 1,
                      k->c->operands[i].as.name);
    }
    if (at != json_array_size(want))
        add_error(k, "%zu inner operands, not %zu", at, json_array_size(want));
}

static void check_plan(struct checker *k)
{
    const struct pst_alias *alias = &k->result.bound->alias;
    const json_t *x = json_object_get(k->plan, "bases");
    json_t *keep;
    size_t i;

    k->verdict->bases = alias->n_bases;
    if (x != NULL && json_integer_value(x) != alias->n_bases)
        add_error(k, "%u bases, not %d", alias->n_bases,
                  (int)json_integer_value(x));
    if (json_object_get(k->plan, "inner") != NULL)
        check_inner(k);
    json_array_foreach(json_object_get(k->plan, "keep"), i, keep)
    {
        if ((alias->parts[i].same == i) != (json_integer_value(keep) != 0))
            add_error(k, "operand %zu is%s passed", i,
                      alias->parts[i].same == i ? "" : " not");
    }
    x = json_object_get(k->plan, "copied_bytes_at_most");
    if (x != NULL && k->result.copied > (size_t)json_integer_value(x))
        add_error(k, "%zu bytes were copied", k->result.copied);
    x = json_object_get(k->plan, "wire_bytes");
    if (x != NULL && alias->bytes != (size_t)json_integer_value(x))
        add_error(k, "%zu bytes are passed", alias->bytes);
    x = json_object_get(k->plan, "alias");
    if (x != NULL) {
        const struct pst_alias_program_place *v =
            pst_map_get(&k->result.bound->places, "v");

        if (v == NULL || (v->operand >= 0) != json_is_true(x))
            add_error(k, "\"v\" is%s an alias", json_is_true(x) ? " not" : "");
    }
}

static bool is_as_first(const struct checker *k, unsigned i)
{
    const struct pst_alias_program_place *after = &k->result.bound->after[i];
    const struct pst_alias_operand *first = &k->first[i];

    if (!k->result.bound->moved[i])
        return true;
    if (after->operand < 0 || after->offset != first->offset ||
        k->c->operands[after->operand].as.storage != first->storage ||
        !pst_meta_same_shape(&after->meta, &first->meta))
        return false;
    for (unsigned d = 0; d < first->meta.rank; d++)
        if (first->meta.size[d] != 1 &&
            first->meta.stride[d] != after->meta.stride[d])
            return false;
    return true;
}

/* Checks the geometry of the operands after the run: it must be as in the case,
 * or unchanged if the case does not mention it. */
static void check_operands(struct checker *k)
{
    const json_t *want = json_object_get(k->want, "geometry");

    for (unsigned i = 0; i < k->c->n_args; i++) {
        const struct pst_alias_program_operand *o = &k->c->operands[i];
        const json_t *new = json_object_get(want, o->as.name);

        if (new != NULL)
            check_geometry(k, o->as.name, new, &k->result.bound->after[i].meta,
                           k->result.bound->after[i].offset);
        else if (!is_as_first(k, i))
            add_error(k, "the geometry of \"%s\" has changed", o->as.name);
    }
}

/* Sets the operands of the next run: the same tensors, with the geometry that
 * this run has given them. */
static void keep_geometry(struct checker *k)
{
    struct pst_alias_program_operand *at = k->c->operands;
    struct pst_alias_operand now[CASE_MAX];

    for (unsigned i = 0; i < k->c->n_args; i++) {
        const struct pst_alias_program_place *after =
            &k->result.bound->after[i];

        now[i] = at[i].as;
        if (!k->result.bound->moved[i] || after->operand < 0 ||
            at[after->operand].from_before)
            continue;
        k->changed = true;
        now[i].storage = at[after->operand].as.storage;
        now[i].meta = after->meta;
        now[i].offset = after->offset;
    }
    for (unsigned i = 0; i < k->c->n_args; i++)
        at[i].as = now[i];
}

/* Extracts "E_LEAF" from a sentence that contains it. */
static void note_refusal(struct alias_verdict *verdict, const char *text)
{
    const char *name = strstr(text, "E_");
    const size_t n =
        name != NULL ? strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") : 0;

    (void)snprintf(verdict->refusal, sizeof(verdict->refusal), "%.*s",
                   name != NULL ? (int)n : 7, name != NULL ? name : "refused");
}

static bool is_refused(struct checker *k, enum pst_status status,
                       const struct pst_diag *diag)
{
    const char *error = alias_text(k->plan, "error");
    const char *or_error = alias_text(k->plan, "or_error");

    if (status == PST_OK) {
        if (error != NULL)
            add_error(k, "not refused (%s)", error);
        return false;
    }
    note_refusal(k->verdict, diag->text);
    if (error == NULL && or_error == NULL)
        add_error(k, "refused: %s", diag->text);
    else if (error != NULL ? strcmp(error, "refused") != 0 &&
                                 strstr(diag->text, error) == NULL
                           : strstr(diag->text, or_error) == NULL)
        add_error(k, "refused otherwise: %s", diag->text);
    return true;
}

/* Runs the call; if it is refused, its operands must be unchanged. */
static bool call(struct checker *k, struct pst_caller *caller)
{
    struct alias_case *c = k->c;
    char *before[CASE_MAX];
    enum pst_status status;
    struct pst_diag diag;
    bool refused;

    for (unsigned i = 0; i < c->n_storages; i++) {
        before[i] = malloc(c->storages[i].bytes + 1);
        assert_non_null(before[i]);
        memcpy(before[i], c->storages[i].data, c->storages[i].bytes);
    }
    pst_diag_init(&diag);
    status = pst_caller_call(caller, c->operands, c->n_operands, c->storages,
                             c->n_storages, &k->result, &diag);
    refused = is_refused(k, status, &diag);
    for (unsigned i = 0; i < c->n_storages; i++) {
        if (refused &&
            memcmp(before[i], c->storages[i].data, c->storages[i].bytes) != 0)
            add_error(k, "refused, but \"%s\" has changed",
                      c->storage_names[i]);
        free(before[i]);
    }
    return !refused;
}

static void check_run(struct checker *k, size_t run)
{
    const json_t *returns =
        json_array_get(json_object_get(k->want, "returns"), run);
    json_t *x;
    size_t i;

    if (returns != NULL && json_array_size(returns) != k->c->program.n_returns)
        add_error(k, "%u returns", k->c->program.n_returns);
    json_array_foreach((json_t *)returns, i, x)
    {
        if (i < k->c->program.n_returns)
            check_return(k, (unsigned)i, x);
    }
    if (run == 0 || !k->changed) /* the plan is that of the first run */
        check_plan(k);
}

static void check_end(struct checker *k, const struct pst_caller *caller)
{
    json_t *grads = json_object_get(k->want, "grads");
    json_t *stepped = json_object_get(k->want, "after_step"), *x;
    const char *key;

    if (grads == NULL)
        grads = json_object_get(k->plan, "grads");
    json_object_foreach(grads, key, x) check_leaf(k, caller, key, x, false);
    json_object_foreach(stepped, key, x) check_leaf(k, caller, key, x, true);
    json_object_foreach(json_object_get(k->want, "storages"), key, x)
    {
        if (alias_case_storage(k->c, key) < 0)
            add_error(k, "no storage is called \"%s\"", key);
        else
            check_storage(k, key, x);
    }
    check_operands(k);
}

void alias_case_check(struct alias_case *c, struct alias_verdict *ret)
{
    static const struct pst_optim *const sgd = &pst_optim_sgd;
    const json_t *rate = json_object_get(c->json, "sgd");
    struct checker k = {.c = c,
                        .want = json_object_get(c->json, "expect"),
                        .plan = json_object_get(c->json, "plan"),
                        .verdict = ret};
    struct pst_optim_options optim = sgd->defaults;
    struct pst_call_options options = {.train = c->text->backward};
    json_t *runs = json_object_get(c->json, "runs");
    const size_t n = runs != NULL ? json_array_size(runs) : 1;
    struct pst_caller *caller;
    struct pst_diag diag;
    bool ran = true;

    *ret = (struct alias_verdict){0};
    pst_diag_init(&diag);
    optim.row = sgd;
    optim.lr = json_number_value(json_object_get(rate, "lr"));
    optim.weight_decay =
        json_number_value(json_object_get(rate, "weight_decay"));
    if (rate != NULL)
        options.optim = &optim;
    assert_ok(pst_caller_new(&c->program, &options, &caller, &diag), &diag);
    for (unsigned i = 0; i < c->n_args; i++)
        k.first[i] = c->operands[i].as;
    for (size_t i = 0; i < n && ran; i++) {
        if (i > 0 && !json_is_true(json_object_get(c->json, "fresh")))
            keep_geometry(&k);
        alias_case_overwrite(c, json_array_get(runs, i));
        ran = call(&k, caller);
        if (ran)
            check_run(&k, i);
    }
    if (ran)
        check_end(&k, caller);
    pst_caller_free(caller);
}

bool alias_key_of(const json_t *cases, const char *name, uint64_t *ret)
{
    const json_t *json;
    size_t i;

    json_array_foreach((json_t *)cases, i, json)
    {
        struct pst_alias_operand as[CASE_MAX];
        struct alias_case c;

        if (alias_text(json, "name") == NULL ||
            strcmp(alias_text(json, "name"), name) != 0)
            continue;
        alias_case_init(&c, json);
        for (unsigned k = 0; k < c.n_operands; k++)
            as[k] = c.operands[k].as;
        *ret = pst_alias_key(as, c.n_operands);
        alias_case_fini(&c);
        return true;
    }
    return false;
}
