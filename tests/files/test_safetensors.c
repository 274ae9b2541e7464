// SPDX-License-Identifier: Apache-2.0
/* Tests tensor files: what was written is read back, and damaged files are
 * refused. */
#include "tests/folder.h"
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct pst_diag diag;

static struct pst_safetensors_entry entry(const char *name,
                                          enum pst_dtype dtype, unsigned rank,
                                          int64_t a, int64_t b,
                                          const void *data)
{
    const int64_t sizes[2] = {a, b};

    return (struct pst_safetensors_entry){
        name, pst_meta_make(dtype, rank, sizes), data, 0};
}

static const float floats[6] = {1, 2, 3, 4, 5, 6};
static const int64_t longs[2] = {-1, INT64_MAX};
static const uint8_t bytes[3] = {1, 0, 1};

static void round_trip_is_aligned(void **state)
{
    const struct pst_safetensors_entry entries[] = {
        entry("mask", PST_BOOL, 1, 3, 0, bytes),
        entry("w \"q\"\n\xc3\xa9", PST_F32, 2, 2, 3, floats),
        entry("empty", PST_F32, 2, 0, 4, NULL),
        entry("scalar", PST_I64, 0, 0, 0, &longs[1]),
        entry("ids", PST_I64, 1, 2, 0, longs)};
    struct pst_safetensors *st;
    const uint64_t live = pst_alloc_live(PST_TAG_ARCHIVE);

    (void)state;
    assert_ok(pst_safetensors_save("a", entries, 5, &diag), &diag);
    assert_int_equal(folder_count(), 1);
    assert_ok(pst_safetensors_open("a", &st, &diag), &diag);
    assert_null(pst_safetensors_at(st, 0)->data); /* not read yet */
    assert_ok(pst_safetensors_load(st, &diag), &diag);
    assert_int_equal(pst_safetensors_count(st), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct pst_safetensors_entry *e =
            pst_safetensors_find(st, entries[i].name);

        assert_non_null(e);
        assert_string_equal(e->name, entries[i].name);
        assert_true(pst_meta_same(&e->meta, &entries[i].meta));
        assert_int_equal(e->bytes, pst_meta_bytes(&e->meta));
        assert_int_equal(e->offset % pst_dtype_size(e->meta.dtype), 0);
        if (e->bytes)
            assert_memory_equal(e->data, entries[i].data, e->bytes);
    }
    assert_null(pst_safetensors_find(st, "none"));
    assert_null(pst_safetensors_at(st, 5));
    assert_string_equal(pst_safetensors_at(st, 4)->name, "mask");
    assert_null(pst_safetensors_metadata(st, "format"));
    pst_safetensors_close(st);
    assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), live);
}

/* In PyTorch any non-zero byte of a bool is true. Bytes of other dtypes are
 * unchanged. */
static void other_bytes_of_bools_are_true(void **state)
{
    static const uint8_t other[6] = {0xff, 0, 2, 0x80, 0, 1};
    static const uint8_t values[6] = {1, 0, 1, 1, 0, 1};
    const struct pst_safetensors_entry entries[] = {
        entry("mask", PST_BOOL, 2, 2, 3, other),
        entry("bytes", PST_U8, 2, 2, 3, other)};
    struct pst_safetensors *st;
    uint8_t got[6] = {0};

    (void)state;
    assert_ok(pst_safetensors_save("o", entries, 2, &diag), &diag);
    assert_ok(pst_safetensors_open("o", &st, &diag), &diag);
    for (unsigned loaded = 0; loaded < 2; loaded++) {
        const struct pst_safetensors_entry *mask, *plain;

        if (loaded == 1)
            assert_ok(pst_safetensors_load(st, &diag), &diag);
        mask = pst_safetensors_find(st, "mask");
        plain = pst_safetensors_find(st, "bytes");
        assert_ok(pst_safetensors_read(mask, 0, 6, got, &diag), &diag);
        assert_memory_equal(got, values, 6);
        assert_ok(pst_safetensors_read(mask, 2, 3, got, &diag), &diag);
        assert_memory_equal(got, values + 2, 3);
        assert_ok(pst_safetensors_read(plain, 0, 6, got, &diag), &diag);
        assert_memory_equal(got, other, 6);
        if (loaded == 1)
            assert_memory_equal(mask->data, values, 6);
    }
    pst_safetensors_close(st);
}

static void put_in_any_order_each_once(void **state)
{
    const struct pst_meta two = pst_meta_make(PST_I64, 1, (int64_t[]){2});
    struct pst_safetensors_writer *w;
    struct pst_safetensors *st;

    (void)state;
    assert_ok(pst_safetensors_writer_new("b", &w, &diag), &diag);
    assert_ok(pst_safetensors_writer_declare(w, "x", &two, &diag), &diag);
    assert_ok(pst_safetensors_writer_declare(w, "y", &two, &diag), &diag);
    assert_int_equal(pst_safetensors_writer_declare(w, "x", &two, &diag),
                     PST_ERR_INPUT);
    assert_ok(pst_safetensors_writer_metadata(w, "step", "12", &diag), &diag);
    assert_ok(pst_safetensors_writer_begin(w, &diag), &diag);
    assert_ok(pst_safetensors_writer_put(w, 1, floats, &diag), &diag);
    assert_int_equal(pst_safetensors_writer_put(w, 1, floats, &diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(pst_safetensors_writer_commit(w, &diag), PST_ERR_INTERNAL);
    assert_non_null(strstr(diag.text, "'x' was never written"));
    assert_ok(pst_safetensors_writer_put(w, 0, longs, &diag), &diag);
    assert_ok(pst_safetensors_writer_commit(w, &diag), &diag);
    pst_safetensors_writer_free(w);
    assert_ok(pst_safetensors_open("b", &st, &diag), &diag);
    assert_ok(pst_safetensors_load(st, &diag), &diag);
    assert_memory_equal(pst_safetensors_find(st, "x")->data, longs, 16);
    assert_memory_equal(pst_safetensors_find(st, "y")->data, floats, 16);
    assert_string_equal(pst_safetensors_metadata(st, "step"), "12");
    pst_safetensors_close(st);
}

static void full_disk_keeps_the_old_file(void **state)
{
    static float many[4096];
    const struct pst_safetensors_entry small =
        entry("x", PST_F32, 2, 2, 3, floats);
    const struct pst_safetensors_entry large =
        entry("x", PST_F32, 1, 4096, 0, many);
    struct rlimit was, limit;
    struct pst_safetensors *st;
    enum pst_status status;
    const int n = folder_count();

    (void)state;
    assert_ok(pst_safetensors_save("c", &small, 1, &diag), &diag);
    getrlimit(RLIMIT_FSIZE, &was);
    limit = was;
    limit.rlim_cur = 8192;
    setrlimit(RLIMIT_FSIZE, &limit);
    status = pst_safetensors_save("c", &large, 1, &diag);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(status, PST_ERR_IO);
    assert_non_null(strstr(diag.text, "cannot write c"));
    assert_int_equal(folder_count(), n + 1);
    assert_ok(pst_safetensors_open("c", &st, &diag), &diag);
    assert_int_equal(pst_safetensors_find(st, "x")->bytes, 24);
    pst_safetensors_close(st);
}

/* Opens a file of this header text and `data` bytes after it. length: as stated
 * in the file; < 0: that of the header. */
static enum pst_status open_made(const char *header, int64_t length,
                                 size_t data)
{
    static const char zeros[64];
    struct pst_safetensors *st = NULL;
    FILE *f = fopen("made", "wb");
    enum pst_status status;

    if (length < 0)
        length = (int64_t)strlen(header);
    fwrite(&length, sizeof(length), 1, f);
    fwrite(header, 1, strlen(header), f);
    fwrite(zeros, 1, data, f);
    fclose(f);
    status = pst_safetensors_open("made", &st, &diag);
    pst_safetensors_close(st);
    return status;
}

#define ONE(dtype, shape, offsets)                                             \
    "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape                         \
    ",\"data_offsets\":" offsets "}}"

static void refuses_damage(void **state)
{
    static const struct {
        const char *header;
        int64_t length;
        size_t data;
        const char *says;
    } cases[] = {
        {"{}", 100000001, 0, "no safetensors file"},
        {"{}", INT64_MAX, 0, "no safetensors file"},
        {"{}", 3, 0, "no safetensors file"},
        {"", 0, 0, "does not begin with"},
        {" {}", -1, 0, "does not begin with"},
        {"{}", -1, 1, "belong to no tensor"},
        {"{} x", -1, 0, "header: not valid JSON at byte 3"},
        {"{\"a\xff\":{}}", -1, 0, "is not UTF-8"},
        {"{\"a\\u0000\":{}}", -1, 0, "is not a character"},
        {"{\"a\":{},\"a\":{}}", -1, 0, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", -1, 0, "'a' is not a text"},
        {"{\"__metadata__\":[]}", -1, 0, "is not an object"},
        {"{\"x\":3}", -1, 0, "'x' has no dtype"},
        {ONE("F32", "[1]", "[0,4]"), -1, 3, "3 bytes of data"},
        {ONE("F32", "[1]", "[0,4]"), -1, 5, "last 1 bytes"},
        {ONE("F32", "[1]", "[1,5]"), -1, 5, "hole"},
        {ONE("F32", "[2]", "[0,4]"), -1, 4, "shape make 8"},
        {ONE("F32", "[1]", "[4,0]"), -1, 4, "data at 4 to 0"},
        {ONE("F32", "[1]", "[0,-4]"), -1, 4, "natural"},
        {ONE("F32", "[1]", "[0,4.0]"), -1, 4, "natural"},
        {ONE("F32", "[1]", "[0]"), -1, 4, "natural"},
        {ONE("F32", "[-1]", "[0,4]"), -1, 4, "natural"},
        {ONE("F32", "1", "[0,4]"), -1, 4, "not a list"},
        {ONE("F32", "[18446744073709551616]", "[0,0]"), -1, 0, "64 bits"},
        {ONE("F32", "[4294967296,4294967296]", "[0,0]"), -1, 0, "overflows"},
        {ONE("F32", "[0,4294967296,2147483648]", "[0,0]"), -1, 0, "overflows"},
        {ONE("F32", "[4611686018427387904]", "[0,0]"), -1, 0, "overflows"},
        {ONE("C128", "[1]", "[0,16]"), -1, 16, "'C128' is not supported"},
        {ONE("C64", "[1]", "[0,4]"), -1, 4, "dtype and shape make 8"},
        {ONE("C64", "[1,1,1,1,1,1,1,1]", "[0,8]"), -1, 8, "complex tensors"},
        {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), -1, 4, "9 dimensions"},
        {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
         -1, 4, "overlaps"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const enum pst_status status =
            open_made(cases[i].header, cases[i].length, cases[i].data);

        if (status == PST_OK || !strstr(diag.text, cases[i].says) ||
            !pst_has_prefix(diag.text, "made: "))
            fail_msg("case %zu: %s: %s", i, pst_status_name(status),
                     status == PST_OK ? "" : diag.text);
    }
    assert_ok(open_made(ONE("F32", "[]", "[0,4]") "  ", -1, 4), &diag);
    assert_ok(open_made("{\"x\":{\"dtype\":\"U8\",\"shape\":[0],"
                        "\"data_offsets\":[0,0]},\"y\":{\"dtype\":\"F64\","
                        "\"shape\":[0],\"data_offsets\":[0,0]}}",
                        -1, 0),
              &diag);
}

/* No proper prefix of a valid file is accepted. */
static void refuses_every_truncation(void **state)
{
    const struct pst_safetensors_entry e = entry("x", PST_F32, 2, 2, 3, floats);
    size_t size;
    char *whole;

    (void)state;
    assert_ok(pst_safetensors_save("d", &e, 1, &diag), &diag);
    assert_ok(pst_file_read("d", 4096, &whole, &size, &diag), &diag);
    for (size_t n = 0; n < size; n++) {
        struct pst_safetensors *st = NULL;
        FILE *f = fopen("cut", "wb");

        fwrite(whole, 1, n, f);
        fclose(f);
        assert_int_equal(pst_safetensors_open("cut", &st, &diag),
                         PST_ERR_INPUT);
    }
    pst_free(whole);
}

/* A file that is truncated while it is open gives an error, not a signal. */
static void reports_that_a_file_was_cut(void **state)
{
    const struct pst_safetensors_entry e = entry("x", PST_F32, 2, 2, 3, floats);
    const struct pst_safetensors_entry *x;
    struct pst_safetensors *st;
    float got[6];
    char digest[33];

    (void)state;
    assert_ok(pst_safetensors_save("f", &e, 1, &diag), &diag);
    assert_ok(pst_safetensors_open("f", &st, &diag), &diag);
    x = pst_safetensors_find(st, "x");
    assert_ok(pst_safetensors_read(x, 4, 8, got, &diag), &diag);
    assert_memory_equal(got, floats + 1, 8);
    assert_int_equal(pst_safetensors_read(x, 20, 8, got, &diag),
                     PST_ERR_INTERNAL);
    assert_int_equal(truncate("f", (off_t)x->offset + 8), 0);
    assert_int_equal(pst_safetensors_read(x, 4, 8, got, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "f has become shorter while it was in"));
    assert_int_equal(pst_safetensors_load(st, &diag), PST_ERR_IO);
    assert_int_equal(pst_file_digest(pst_safetensors_file(st), digest, &diag),
                     PST_ERR_IO);
    pst_safetensors_close(st);
}

static void survives_failing_memory(void **state)
{
    const struct pst_safetensors_entry e = entry("x", PST_F32, 2, 2, 3, floats);
    const uint64_t live = pst_alloc_live(PST_TAG_ARCHIVE);
    enum pst_status status = PST_ERR_NOMEM;
    const int n = folder_count() + 1;

    (void)state;
    for (uint64_t at = 1; status == PST_ERR_NOMEM; at++) {
        struct pst_safetensors *st = NULL;

        pst_alloc_fail_at(at);
        status = pst_safetensors_save("e", &e, 1, &diag);
        if (status == PST_OK)
            status = pst_safetensors_open("e", &st, &diag);
        pst_alloc_fail_at(0);
        pst_safetensors_close(st);
        assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), live);
        assert_true(folder_count() <= n);
    }
    assert_ok(status, &diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_is_aligned),
        cmocka_unit_test(other_bytes_of_bools_are_true),
        cmocka_unit_test(put_in_any_order_each_once),
        cmocka_unit_test(full_disk_keeps_the_old_file),
        cmocka_unit_test(refuses_damage),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(reports_that_a_file_was_cut),
        cmocka_unit_test(survives_failing_memory),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
