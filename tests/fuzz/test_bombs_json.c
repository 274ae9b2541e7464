// SPDX-License-Identifier: Apache-2.0
/*
 * Tests JSON that expands to many times its size: each reader (weights, models,
 * costs, indices, manifests) takes at most 40 times the file and 64 MiB, and
 * says what is wrong. Genuine models are read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zip.h>

#include "stages/base/host/fs.h"
#include "stages/base/untrusted/budget.h"
#include "stages/base/untrusted/json_file.h"
#include "stages/files/checkpoint/manifest.h"
#include "stages/files/given.h"
#include "stages/files/safetensors.h"
#include "stages/frontend/model.h"
#include "stages/sched/costs.h"
#include "tests/fuzz/measure.h"
#include "tests/test.h"

#define SMALL ((size_t)1 << 20) /* bytes of JSON */
#define LARGE ((size_t)3 << 20)

static char dir[] = "/tmp/pst-bombs-XXXXXX";
static char path[128];

/* --- the texts ----------------------------------------------------------- */

/* Returns random numbers, which deflate hardly compresses. */
static unsigned next(void)
{
    static unsigned seed = 1;

    seed = seed * 1664525u + 1013904223u;
    return seed >> 16;
}

static void add_digit(struct bytes *b)
{
    const char digit = (char)('0' + next() % 9 + 1);

    put(b, &digit, 1);
}

static void add_object(struct bytes *b)
{
    put(b, "{}", 2);
}

static void add_list(struct bytes *b)
{
    put(b, "[]", 2);
}

static void add_text(struct bytes *b)
{
    char text[16];
    const int n = snprintf(text, sizeof(text), "\"%x\"", next() & 0xffffu);

    put(b, text, (size_t)n);
}

static void add_pairs(struct bytes *b)
{
    char text[32];
    const int n = snprintf(text, sizeof(text), "{\"%x\":%u}", next() & 0xffu,
                           next() % 10);

    put(b, text, (size_t)n);
}

static void add_deep(struct bytes *b)
{
    put(b, "[[[[{}]]]]", 10);
}

static const struct {
    const char *name;
    void (*add)(struct bytes *b);
} kinds[] = {{"digits", add_digit}, {"objects", add_object},
             {"lists", add_list},   {"texts", add_text},
             {"pairs", add_pairs},  {"deep", add_deep}};

/* Writes {"key": [element, element, ...]} of `size` bytes. */
static void fill(struct bytes *b, void (*add)(struct bytes *b), size_t size)
{
    put(b, "{\"graph_module\":[", 17);
    while (b->n + 32 < size) {
        add(b);
        put(b, ",", 1);
    }
    add(b);
    put(b, "]}", 2);
}

/* --- the readers --------------------------------------------------------- */

static void write_bytes(const struct bytes *b, const char *name)
{
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "wbe");
    assert_non_null(f);
    assert_int_equal(fwrite(b->at, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static void write_weights(const struct bytes *b)
{
    struct bytes file = map_bytes();
    const uint64_t n = b->n;

    put(&file, &n, sizeof(n));
    put(&file, b->at, b->n);
    write_bytes(&file, "w.safetensors");
    (void)munmap(file.at, CAPACITY);
}

static void add_entry(zip_t *z, const char *name, const void *data, size_t n,
                      bool packed)
{
    zip_source_t *source = zip_source_buffer(z, data, n, 0);
    const zip_int64_t index = zip_file_add(z, name, source, 0);

    assert_true(index >= 0);
    assert_int_equal(
        zip_set_file_compression(z, (zip_uint64_t)index,
                                 packed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 1),
        0);
}

static void write_archive(const struct bytes *b, bool packed)
{
    zip_t *z;

    (void)snprintf(path, sizeof(path), "%s/m.pt2", dir);
    z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(z);
    add_entry(z, "m/archive_format", "pt2", 3, false);
    add_entry(z, "m/archive_version", "0", 1, false);
    add_entry(z, "m/models/model.json", b->at, b->n, packed);
    assert_int_equal(zip_close(z), 0);
}

static void write_model(const struct bytes *b)
{
    write_archive(b, false);
}

static void write_packed(const struct bytes *b)
{
    write_archive(b, true);
}

static void write_costs(const struct bytes *b)
{
    write_bytes(b, "costs.json");
}

static void write_index(const struct bytes *b)
{
    write_bytes(b, "model.safetensors.index.json");
}

static void write_manifest(const struct bytes *b)
{
    write_bytes(b, "manifest.json");
}

static enum pst_status read_weights(const struct bytes *b,
                                    struct pst_diag *diag)
{
    struct pst_safetensors *st = NULL;
    const enum pst_status status = pst_safetensors_open(path, &st, diag);

    (void)b;
    if (status == PST_OK)
        pst_safetensors_close(st);
    return status;
}

static enum pst_status read_model(const struct bytes *b, struct pst_diag *diag)
{
    struct pst_model *model = NULL;
    const enum pst_status status = pst_model_open(path, &model, diag);

    (void)b;
    if (status == PST_OK)
        pst_model_close(model);
    return status;
}

static enum pst_status read_costs(const struct bytes *b, struct pst_diag *diag)
{
    struct pst_costs costs;
    const enum pst_status status = pst_costs_read(path, &costs, diag);

    (void)b;
    if (status == PST_OK)
        pst_costs_fini(&costs);
    return status;
}

static enum pst_status read_index(const struct bytes *b, struct pst_diag *diag)
{
    struct pst_given *given = NULL;
    const enum pst_status status = pst_given_open(path, &given, diag);

    (void)b;
    if (status == PST_OK)
        pst_given_close(given);
    return status;
}

static enum pst_status read_manifest(const struct bytes *b,
                                     struct pst_diag *diag)
{
    struct pst_manifest manifest;
    enum pst_status status;

    (void)b;
    pst_manifest_init(&manifest);
    status = pst_manifest_read(dir, &manifest, diag);
    pst_manifest_fini(&manifest);
    return status;
}

static const struct {
    const char *name;
    void (*write)(const struct bytes *b);
    reader_fn read;
    size_t size;
} readers[] = {{"weights", write_weights, read_weights, SMALL},
               {"a model", write_model, read_model, SMALL},
               {"a packed model", write_packed, read_model, LARGE},
               {"costs", write_costs, read_costs, SMALL},
               {"an index", write_index, read_index, SMALL},
               {"a manifest", write_manifest, read_manifest, SMALL}};

/* ------------------------------------------------------------------------- */

static unsigned try_one(size_t reader, size_t kind, const struct bytes *text)
{
    struct measured m;
    struct pst_file file;
    struct pst_diag diag;

    readers[reader].write(text);
    pst_diag_init(&diag);
    assert_ok(pst_file_open(path, &file, &diag), &diag);
    m = measure(readers[reader].read, text, (struct tries){.most = 1});
    if (getenv("PST_VERBOSE") != NULL) // NOLINT(concurrency-mt-unsafe)
        print_message("%-15s %-8s %9llu bytes %7.2f ms %6.2f times  %s\n",
                      readers[reader].name, kinds[kind].name,
                      (unsigned long long)file.size, m.ms,
                      (double)m.grown / (double)file.size, m.text);
    pst_file_close(&file);
    if (m.status == PST_OK || m.status == PST_ERR_NOMEM || m.text[0] == '\0' ||
        (!SANITIZED && m.grown > pst_budget_of(file.size) + SLACK)) {
        print_error("%s of %s: %s, %zu bytes for %llu: %s\n",
                    readers[reader].name, kinds[kind].name,
                    pst_status_name(m.status), m.grown,
                    (unsigned long long)file.size, m.text);
        return 1;
    }
    return 0;
}

static void memory_is_bounded(void **state)
{
    struct bytes text = map_bytes();
    unsigned failed = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t k = 0; k < PST_COUNT(kinds); k++)
        for (size_t r = 0; r < PST_COUNT(readers); r++) {
            text.n = 0;
            fill(&text, kinds[k].add, readers[r].size);
            failed += try_one(r, k, &text);
        }
    assert_ok(pst_remove_tree(dir, NULL), &(struct pst_diag){0});
    (void)munmap(text.at, CAPACITY);
    assert_int_equal(failed, 0);
}

/* Escaped quotes and backslashes in a string do not hide the brackets and
 * commas after it, from which the memory of parsing is estimated. */
static void escapes_hide_nothing(void **state)
{
    static const char *const begins[] = {"[", "[\"\\\"\",", "[\"\\\\\",",
                                         "[\"a\\\\\\\"\","};
    struct bytes text = map_bytes();
    char folder[] = "/tmp/pst-bombs-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/a.json", folder);
    for (size_t i = 0; i < PST_COUNT(begins); i++) {
        struct pst_diag diag;
        char *got = NULL;
        size_t size;
        FILE *f = fopen(path, "wbe");

        text.n = 0;
        put(&text, begins[i], strlen(begins[i]));
        while (text.n < LARGE)
            put(&text, "[],", 3);
        put(&text, "1]", 2);
        assert_non_null(f);
        assert_int_equal(fwrite(text.at, 1, text.n, f), text.n);
        assert_int_equal(fclose(f), 0);
        pst_diag_init(&diag);
        assert_int_equal(pst_json_file_read(path, CAPACITY, &got, &size, &diag),
                         PST_ERR_INPUT);
        assert_int_equal(diag.error, PST_E_FILE_TOO_LARGE);
    }
    assert_ok(pst_remove_tree(folder, NULL), &(struct pst_diag){0});
    (void)munmap(text.at, CAPACITY);
}

/* Budgets count live memory, and may be nested. */
static void budgets_count(void **state)
{
    struct pst_budget outer, inner;
    void *before = pst_alloc(PST_TAG_TEST, 100), *a, *b;

    (void)state;
    pst_budget_begin(&outer, 0);
    a = pst_alloc(PST_TAG_TEST, 40 << 20);
    assert_non_null(a);
    pst_budget_begin(&inner, 0);
    /* With it the outer budget of 64 MiB would have 70 MiB. */
    assert_null(pst_alloc(PST_TAG_TEST, 30 << 20));
    assert_true(outer.exceeded);
    assert_false(inner.exceeded);
    b = pst_calloc(PST_TAG_TEST, 20, 1 << 20);
    assert_non_null(b);
    assert_null(pst_realloc(PST_TAG_TEST, b, 50 << 20));
    pst_free(a);
    b = pst_realloc(PST_TAG_TEST, b, 50 << 20);
    assert_non_null(b);
    pst_budget_end(&inner);
    pst_free(before); /* allocated before the budgets began: counts as -100 */
    pst_free(b);
    assert_int_equal(outer.used, -100);
    pst_budget_end(&outer);
    a = pst_alloc(PST_TAG_TEST, 70 << 20);
    assert_non_null(a);
    pst_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(escapes_hide_nothing),
        cmocka_unit_test(budgets_count),
    };

    return cmocka_run_group_tests_name("bombs of JSON", tests, NULL, NULL);
}
