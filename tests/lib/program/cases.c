// SPDX-License-Identifier: Apache-2.0
/*
 * usage: lib-cases FILE [NAME]...
 *
 * Runs the programs of a file of cases (tests/alias/README.md) through
 * penstock_call, prints those that differ from what PyTorch's eager mode gave,
 * and ends with "N passed, N failed". Each program runs twice: with storages
 * that are given, and, unless it counts from their beginning, with storages
 * that the library derives from addresses.
 */
#include "tests/lib/drive.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>

#define MOST 64

struct storage {
    const char *name;
    DLDataType type;
    size_t bytes;
    char *data; /* `bytes` bytes, without a byte more */
    bool steps; /* a leaf is in it that an optimizer moves */
};

struct window {
    const char *name;
    struct storage *storage;
    DLTensor tensor;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
};

struct run {
    const json_t *json, *want, *plan;
    bool derive; /* storages are not given */
    struct storage storages[MOST];
    struct window windows[MOST];
    size_t n_storages, n_windows;
    penstock_program *program;
    struct penstock_call_info info;
    struct penstock_error error;
    char wrong[600]; /* the first difference; "": none */
};

static void add_error(struct run *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void add_error(struct run *r, const char *fmt, ...)
{
    va_list args;

    if (r->wrong[0] != '\0')
        return;
    va_start(args, fmt);
    (void)vsnprintf(r->wrong, sizeof(r->wrong), fmt, args);
    va_end(args);
}

/* --- numbers -------------------------------------------------------------- */

static DLDataType type_of(const char *name)
{
    static const struct {
        const char *name;
        DLDataType type;
    } rows[] = {{"float32", {kDLFloat, 32, 1}},  {"float64", {kDLFloat, 64, 1}},
                {"int64", {kDLInt, 64, 1}},      {"int32", {kDLInt, 32, 1}},
                {"int16", {kDLInt, 16, 1}},      {"int8", {kDLInt, 8, 1}},
                {"uint8", {kDLUInt, 8, 1}},      {"bool", {6, 8, 1}},
                {"bfloat16", {kDLBfloat, 16, 1}}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (name != NULL && strcmp(name, rows[i].name) == 0)
            return rows[i].type;
    fprintf(stderr, "no dtype %s\n", name);
    exit(1);
}

static double number(const json_t *x)
{
    return json_is_boolean(x) ? json_is_true(x) : json_number_value(x);
}

static void store_number(DLDataType type, char *to, const json_t *x)
{
    const int64_t i =
        json_is_integer(x) ? json_integer_value(x) : (int64_t)number(x);
    const double d = number(x);
    const float f = (float)d;

    if (type.code == kDLFloat && type.bits == 64) {
        memcpy(to, &d, 8);
    } else if (type.code == kDLFloat) {
        memcpy(to, &f, 4);
    } else if (type.code == kDLBfloat) {
        memcpy(to, (const char *)&f + 2, 2); /* cases have exact ones */
    } else {
        memcpy(to, &i, type.bits / 8); /* little endian */
    }
}

static double load_number(DLDataType type, const char *from)
{
    int64_t i = 0;
    double d;
    float f = 0;

    if (type.code == kDLFloat && type.bits == 64) {
        memcpy(&d, from, 8);
        return d;
    }
    if (type.code == kDLFloat) {
        memcpy(&f, from, 4);
        return (double)f;
    }
    if (type.code == kDLBfloat) {
        memcpy((char *)&f + 2, from, 2);
        return (double)f;
    }
    memcpy(&i, from, type.bits / 8);
    if (type.code == kDLInt && type.bits < 64 && (i >> (type.bits - 1)) & 1)
        i -= (int64_t)1 << type.bits;
    return (double)i;
}

static bool is_near(double x, double y)
{
    if (isnan(y) || isinf(y))
        return isnan(y) ? isnan(x) : x == y;
    return fabs(x - y) <= 1e-6 * fabs(y) + 1e-12;
}

static size_t numel(const DLTensor *t)
{
    size_t n = 1;

    for (int d = 0; d < t->ndim; d++)
        n *= (size_t)t->shape[d];
    return n;
}

/* Returns the address of element i in row-major order. */
static const char *element(const DLTensor *t, size_t i)
{
    const char *ret = (const char *)t->data + t->byte_offset;

    for (int d = t->ndim - 1; d >= 0; d--) {
        ret += (int64_t)(i % (size_t)t->shape[d]) * t->strides[d] *
               (t->dtype.bits / 8);
        i /= (size_t)t->shape[d];
    }
    return ret;
}

static void check_values(struct run *r, const char *what, const json_t *want,
                         const DLTensor *t)
{
    const size_t n = numel(t);

    if (json_array_size(want) != n)
        add_error(r, "%s: %zu elements, not %zu", what, n,
                  json_array_size(want));
    for (size_t i = 0; i < n && r->wrong[0] == '\0'; i++) {
        const double y = number(json_array_get(want, i));
        const double x = load_number(t->dtype, element(t, i));

        if (!is_near(x, y))
            add_error(r, "%s[%zu] is %.9g, not %.9g", what, i, x, y);
    }
}

/* --- the caller's memory -------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static struct storage *find_storage(struct run *r, const char *name)
{
    for (size_t i = 0; i < r->n_storages; i++)
        if (name != NULL && strcmp(r->storages[i].name, name) == 0)
            return &r->storages[i];
    return NULL;
}

static void add_storages(struct run *r)
{
    const char *key;
    json_t *storage, *x;
    size_t i;

    json_object_foreach(json_object_get(r->json, "storages"), key, storage)
    {
        struct storage *s = &r->storages[r->n_storages++];
        const json_t *values = json_object_get(storage, "values");
        const json_t *zeros = json_object_get(storage, "zeros");
        const size_t n = zeros != NULL ? (size_t)json_integer_value(zeros)
                                       : json_array_size(values);

        require(r->n_storages < MOST);
        s->name = key;
        s->type = type_of(text_of(storage, "dtype"));
        s->bytes = n * (s->type.bits / 8);
        s->data = calloc(1, s->bytes > 0 ? s->bytes : 1);
        require(s->data != NULL);
        json_array_foreach((json_t *)values, i, x)
            store_number(s->type, s->data + i * (s->type.bits / 8), x);
    }
}

static void add_window(struct run *r, const char *name)
{
    const json_t *from =
        json_object_get(json_object_get(r->json, "tensors"), name);
    struct window *w = &r->windows[r->n_windows];
    const json_t *sizes = json_object_get(from, "sizes");

    for (size_t i = 0; i < r->n_windows; i++)
        if (strcmp(r->windows[i].name, name) == 0)
            return;
    if (from == NULL) /* `before` makes it */
        return;
    require(++r->n_windows < MOST && json_array_size(sizes) <= MAX_DIMS);
    w->name = name;
    w->storage = find_storage(r, text_of(from, "storage"));
    require(w->storage != NULL);
    if (json_object_get(r->json, "sgd") != NULL &&
        json_is_true(json_object_get(from, "requires_grad")))
        w->storage->steps = true;
    for (size_t d = 0; d < json_array_size(sizes); d++) {
        w->shape[d] = json_integer_value(json_array_get(sizes, d));
        w->strides[d] = json_integer_value(
            json_array_get(json_object_get(from, "strides"), d));
    }
    w->tensor = (DLTensor){.data = w->storage->data,
                           .device = {.device_type = kDLCPU},
                           .ndim = (int)json_array_size(sizes),
                           .dtype = type_of(text_of(from, "dtype")),
                           .shape = w->shape,
                           .strides = w->strides};
    w->tensor.byte_offset =
        (uint64_t)json_integer_value(json_object_get(from, "offset")) *
        (w->tensor.dtype.bits / 8);
}

static void add_windows(struct run *r)
{
    const char *key;
    json_t *x;
    size_t i;

    json_array_foreach(json_object_get(r->json, "args"), i, x)
        add_window(r, json_string_value(x));
    if (json_object_get(r->json, "before") == NULL)
        return;
    json_object_foreach(json_object_get(r->json, "tensors"), key, x)
        add_window(r, key);
}

static void overwrite(struct run *r, const json_t *values)
{
    const char *key;
    json_t *list, *x;
    size_t i;

    json_object_foreach((json_t *)values, key, list)
    {
        struct storage *s = find_storage(r, key);

        json_array_foreach(list, i, x)
        {
            require(s != NULL && (i + 1) * (s->type.bits / 8) <= s->bytes);
            store_number(s->type, s->data + i * (s->type.bits / 8), x);
        }
    }
}

/* --- a call --------------------------------------------------------------- */

static void open_program(struct run *r)
{
    const json_t *sgd = json_object_get(r->json, "sgd");
    char *text = json_dumps(r->json, JSON_REAL_PRECISION(17));
    char lr[32], decay[32];
    const struct penstock_option options[] = {
        {"optimizer", "sgd"}, {"lr", lr}, {"weight-decay", decay}};
    struct penstock_program_config config = PENSTOCK_INIT(config);

    require(text != NULL);
    (void)snprintf(lr, sizeof(lr), "%.17g",
                   json_number_value(json_object_get(sgd, "lr")));
    (void)snprintf(decay, sizeof(decay), "%.17g",
                   json_number_value(json_object_get(sgd, "weight_decay")));
    config.options = options;
    config.n_options = sgd != NULL ? 3 : 0;
    if (penstock_program_open(text, strlen(text), &config, &r->program,
                              &r->error) != 0)
        r->program = NULL;
    free(text);
}

/* Checks that the call was to be refused, and by that reason. With other
 * storages a sentence has other offsets, but the same name. */
static void check_refusal(struct run *r)
{
    const char *error = text_of(r->plan, "error");
    char name[32] = "";

    if (error == NULL)
        error = text_of(r->plan, "or_error");
    /* Elements of two sizes may need the storage that they count from. */
    if (r->derive && strncmp(r->error.text, "E_UNALIGNED", 11) == 0 &&
        strstr(r->error.text, "the memory that it shares") != NULL)
        return;
    if (error == NULL || strcmp(error, "refused") == 0) {
        if (error == NULL)
            add_error(r, "refused: %s", r->error.text);
        return;
    }
    if (r->derive && strncmp(error, "E_", 2) == 0) {
        (void)snprintf(name, sizeof(name), "%.*s",
                       (int)strspn(error, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"),
                       error);
        error = name;
    }
    if (strstr(r->error.text, error) == NULL &&
        (!r->derive || strncmp(error, "E_", 2) == 0))
        add_error(r, "refused otherwise: %s", r->error.text);
}

static bool call(struct run *r)
{
    struct penstock_operand operands[MOST];
    char *before[MOST];
    int status = -1;

    for (size_t i = 0; i < r->n_storages; i++) {
        before[i] = malloc(r->storages[i].bytes + 1);
        require(before[i] != NULL);
        memcpy(before[i], r->storages[i].data, r->storages[i].bytes);
    }
    for (size_t i = 0; i < r->n_windows; i++) {
        const struct window *w = &r->windows[i];

        operands[i] = (struct penstock_operand){
            w->name, &w->tensor, r->derive ? NULL : w->storage->data,
            r->derive ? 0 : w->storage->bytes};
    }
    r->info = (struct penstock_call_info)PENSTOCK_INIT(r->info);
    if (r->program != NULL)
        status = penstock_call(r->program, operands, r->n_windows, &r->info,
                               &r->error);
    if (status != 0)
        check_refusal(r);
    else if (text_of(r->plan, "error") != NULL)
        add_error(r, "not refused (%s)", text_of(r->plan, "error"));
    for (size_t i = 0; i < r->n_storages; i++) {
        if (status != 0 &&
            memcmp(before[i], r->storages[i].data, r->storages[i].bytes) != 0)
            add_error(r, "refused, but \"%s\" has changed",
                      r->storages[i].name);
        free(before[i]);
    }
    return status == 0;
}

/* --- what it must have left ----------------------------------------------- */

/* Checks sizes, strides and offset. storage NULL: memory of the program's. */
static void check_geometry(struct run *r, const char *what, const json_t *want,
                           const struct storage *storage,
                           const struct penstock_tensor *got)
{
    const json_t *sizes = json_object_get(want, "sizes");
    const json_t *strides = json_object_get(want, "strides");
    const size_t offset =
        (size_t)json_integer_value(json_object_get(want, "offset")) *
        (got->tensor.dtype.bits / 8);
    const DLTensor *t = &got->tensor;

    if ((size_t)t->ndim != json_array_size(sizes)) {
        add_error(r, "%s has %d dimensions", what, t->ndim);
        return;
    }
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] !=
                json_integer_value(json_array_get(sizes, (size_t)d)) ||
            t->strides[d] !=
                json_integer_value(json_array_get(strides, (size_t)d)))
            add_error(r, "%s: size %lld, stride %lld in dimension %d", what,
                      (long long)t->shape[d], (long long)t->strides[d], d);
    if (storage == NULL
            ? t->byte_offset != offset
            : (char *)t->data + t->byte_offset != storage->data + offset)
        add_error(r, "%s begins elsewhere", what);
    if (storage != NULL && !r->derive && t->data != storage->data)
        add_error(r, "%s is in another storage", what);
}

static void check_return(struct run *r, size_t i, const json_t *want)
{
    struct penstock_tensor got = PENSTOCK_INIT(got);
    struct storage *storage = find_storage(r, text_of(want, "storage"));
    const DLDataType type = type_of(text_of(want, "dtype"));
    char what[64];

    (void)snprintf(what, sizeof(what), "return %zu", i);
    if (penstock_result(r->program, i, &got, &r->error) != 0) {
        add_error(r, "%s: %s", what, r->error.text);
        return;
    }
    if (got.tensor.dtype.code != type.code ||
        got.tensor.dtype.bits != type.bits)
        add_error(r, "%s has another dtype", what);
    if (numel(&got.tensor) == 0) /* an empty tensor shares nothing */
        return;
    if ((got.operand >= 0) != (storage != NULL))
        add_error(r, "%s is in storage %d, not in \"%s\"", what, got.operand,
                  text_of(want, "storage"));
    else if (storage != NULL && r->windows[got.operand].storage != storage)
        add_error(r, "%s is in the storage of \"%s\"", what,
                  r->windows[got.operand].name);
    check_geometry(r, what, want, storage, &got);
    /* A view of a leaf shows the optimizer's step; the case has the value of
     * before. */
    if (storage == NULL || !storage->steps)
        check_values(r, what, json_object_get(want, "values"), &got.tensor);
}

static void check_plan(struct run *r)
{
    const json_t *x = json_object_get(r->plan, "bases");

    if (x != NULL && (size_t)json_integer_value(x) != r->info.bases)
        add_error(r, "%zu bases, not %d", r->info.bases,
                  (int)json_integer_value(x));
    x = json_object_get(r->plan, "copied_bytes_at_most");
    if (x != NULL && r->info.copied > (size_t)json_integer_value(x))
        add_error(r, "%zu bytes were copied", r->info.copied);
    x = json_object_get(r->plan, "wire_bytes");
    if (x != NULL && r->info.passed != (size_t)json_integer_value(x))
        add_error(r, "%zu bytes were passed", r->info.passed);
}

/* Checks the geometry of the operands, and gives them to the next call if
 * that is for the same tensors. *ret_moved: one has changed. */
static void check_operands(struct run *r, bool last, bool *ret_moved)
{
    const json_t *want = json_object_get(r->want, "geometry");
    struct storage *storages[MOST]; /* storages of the operands */

    for (size_t i = 0; i < r->n_windows; i++)
        storages[i] = r->windows[i].storage;
    for (size_t i = 0; i < json_array_size(json_object_get(r->json, "args"));
         i++) {
        const char *name = json_string_value(
            json_array_get(json_object_get(r->json, "args"), i));
        const json_t *new = json_object_get(want, name);
        struct penstock_tensor got = PENSTOCK_INIT(got);
        struct window *w = NULL;

        for (size_t k = 0; k < r->n_windows; k++)
            if (strcmp(r->windows[k].name, name) == 0)
                w = &r->windows[k];
        if (w == NULL)
            continue;
        if (penstock_result_operand(r->program, name, &got, &r->error) != 0) {
            add_error(r, "%s: %s", name, r->error.text);
            continue;
        }
        if (last && new != NULL)
            check_geometry(r, name, new,
                           got.operand >= 0 ? storages[got.operand] : NULL,
                           &got);
        if (!got.moved || got.operand < 0 ||
            json_is_true(json_object_get(r->json, "fresh")))
            continue;
        *ret_moved = true;
        w->storage = storages[got.operand];
        memcpy(w->shape, got.tensor.shape, sizeof(w->shape[0]) * MAX_DIMS);
        memcpy(w->strides, got.tensor.strides, sizeof(w->strides));
        w->tensor.ndim = got.tensor.ndim;
        w->tensor.data = got.tensor.data;
        w->tensor.byte_offset = got.tensor.byte_offset;
    }
}

static void check_storage(struct run *r, const char *name, const json_t *want)
{
    const struct storage *s = find_storage(r, name);
    int64_t n = (int64_t)(s->bytes / (s->type.bits / 8)), one = 1;
    const DLTensor all = {.data = s->data,
                          .ndim = 1,
                          .dtype = s->type,
                          .shape = &n,
                          .strides = &one};
    double sum = 0;

    if (json_is_array(want)) {
        check_values(r, name, want, &all);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        sum += load_number(s->type, element(&all, (size_t)i));
    if (!is_near(sum, json_number_value(json_object_get(want, "sum"))))
        add_error(r, "the sum of %s is %.9g", name, sum);
}

static void check_leaves(struct run *r)
{
    json_t *grads = json_object_get(r->want, "grads"), *x;
    const char *key;

    if (grads == NULL)
        grads = json_object_get(r->plan, "grads");
    json_object_foreach(grads, key, x)
    {
        struct penstock_tensor got = PENSTOCK_INIT(got);

        if (penstock_result_gradient(r->program, key, &got, &r->error) != 0)
            add_error(r, "gradient of %s: %s", key, r->error.text);
        else
            check_values(r, key, x, &got.tensor);
    }
    json_object_foreach(json_object_get(r->want, "after_step"), key,
                        x) for (size_t i = 0; i < r->n_windows;
                                i++) if (strcmp(r->windows[i].name, key) == 0)
        check_values(r, key, x, &r->windows[i].tensor);
    json_object_foreach(json_object_get(r->want, "storages"), key, x)
        check_storage(r, key, x);
}

static void check_run(struct run *r, size_t run, bool moved)
{
    const json_t *returns =
        json_array_get(json_object_get(r->want, "returns"), run);
    const json_t *x;
    size_t i;

    if (returns != NULL && json_array_size(returns) != r->info.results)
        add_error(r, "%zu results", r->info.results);
    json_array_foreach((json_t *)returns, i, x) check_return(r, i, x);
    if (run == 0 || !moved)
        check_plan(r);
}

static void run_case(struct run *r)
{
    const json_t *runs = json_object_get(r->json, "runs");
    const size_t n = runs != NULL ? json_array_size(runs) : 1;
    bool ran = true, moved = false;

    r->want = json_object_get(r->json, "expect");
    r->plan = json_object_get(r->json, "plan");
    r->error = (struct penstock_error)PENSTOCK_INIT(r->error);
    add_storages(r);
    add_windows(r);
    open_program(r);
    for (size_t i = 0; i < n && ran; i++) {
        overwrite(r, json_array_get(runs, i));
        ran = call(r);
        if (ran) {
            check_run(r, i, moved);
            check_operands(r, i + 1 == n, &moved);
        }
    }
    if (ran)
        check_leaves(r);
    if (ran && !moved && r->info.plans != 1)
        add_error(r, "%zu plans for one way of sharing", r->info.plans);
    penstock_program_close(r->program);
    for (size_t i = 0; i < r->n_storages; i++)
        free(r->storages[i].data);
}

/* True if an operator counts from the beginning of a storage, or reaches
 * beyond an operand. */
static bool counts_elements(const json_t *json)
{
    char *text = json_dumps(json, 0);
    bool ret;

    require(text != NULL);
    ret = strstr(text, "as_strided") != NULL || strstr(text, "set_") != NULL ||
          strstr(text, "view.dtype") != NULL;
    free(text);
    return ret;
}

static bool is_selected(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 3;
}

int main(int argc, char **argv)
{
    unsigned passed = 0, failed = 0, derived = 0;
    json_error_t error;
    json_t *cases, *json;
    size_t i;

    require(argc > 1);
    cases = json_load_file(argv[1], 0, &error);
    require(cases != NULL);
    json_array_foreach(cases, i, json)
    {
        const char *name = text_of(json, "name");
        bool bad = false;

        if (!is_selected(name, argc, argv))
            continue;
        for (int k = 0; k < (counts_elements(json) ? 1 : 2); k++) {
            struct run *r = calloc(1, sizeof(*r));

            require(r != NULL);
            r->json = json;
            r->derive = k == 1;
            run_case(r);
            if (r->wrong[0] != '\0') {
                printf("%s%s: %s\n", name, k == 1 ? " (derived)" : "",
                       r->wrong);
                bad = true;
            }
            derived += k == 1;
            free(r);
        }
        *(bad ? &failed : &passed) += 1;
    }
    json_decref(cases);
    fprintf(stderr, "%u with derived storages\n", derived);
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
