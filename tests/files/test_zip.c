// SPDX-License-Identifier: Apache-2.0
/* Tests zip archives: those of PyTorch and of other writers are read; any
 * damage is refused, and nothing is read outside the file. */
#include "tests/test.h"

#include "stages/base/host/alive.h"
#include "stages/files/zip.h"
#include "tests/files/repack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/pst-zip-XXXXXX";
static struct pst_diag diag;
static unsigned char *good; /* contents of tiny.pt2 */
static size_t good_size;

static int setup(void **state)
{
    (void)state;
    good = slurp(golden("tiny.pt2"), &good_size);
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(good);
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

static uint64_t get_number(const unsigned char *p, unsigned n)
{
    uint64_t x = 0;

    while (n-- > 0)
        x = x << 8 | p[n];
    return x;
}

static void put_number(unsigned char *p, unsigned n, uint64_t x)
{
    for (unsigned i = 0; i < n; i++, x >>= 8)
        p[i] = (unsigned char)x;
}

static void put16(unsigned char *p, uint16_t x)
{
    put_number(p, 2, x);
}

/* Returns entry number i of the central directory of `data`. */
static unsigned char *central(unsigned char *data, size_t size, unsigned i)
{
    unsigned char *p = data + get_number(data + size - 22 + 16, 4);

    while (i-- > 0)
        p += 46 + get_number(p + 28, 2) + get_number(p + 30, 2) +
             get_number(p + 32, 2);
    assert_memory_equal(p, "PK\1\2", 4);
    return p;
}

/* Returns the number of the entry with that name. */
static unsigned number(const char *name)
{
    for (unsigned i = 0;; i++) {
        unsigned char *p = central(good, good_size, i);

        if (get_number(p + 28, 2) == strlen(name) &&
            memcmp(p + 46, name, strlen(name)) == 0)
            return i;
    }
}

static void parts_are_read(void **state)
{
    struct pst_zip_entry *e;
    struct pst_zip *zip;
    unsigned char data[16 * 8 * 4];
    char *text;

    (void)state;
    assert_ok(pst_zip_open(golden("tiny.pt2"), &zip, &diag), &diag);
    assert_string_equal(zip->root, "tiny");
    e = pst_zip_find(zip, "data/weights/weight_0");
    assert_non_null(e);
    assert_int_equal(e->size, 16 * 8 * 4);
    assert_int_equal(e->begin % 64, 0);
    assert_ok(pst_zip_read(zip, e, 1 << 20, &text, &diag), &diag);
    assert_false(e->verified);
    /* Only the first read verifies the checksum. */
    for (unsigned k = 0; k < 2; k++) {
        memset(data, 0, sizeof(data));
        assert_ok(pst_zip_read_part(zip, e, 8, 100, data, &diag), &diag);
        assert_memory_equal(data, text + 8, 100);
        assert_int_equal(data[100], 0);
        assert_true(e->verified);
    }
    assert_ok(pst_zip_read_part(zip, e, 0, sizeof(data), data, &diag), &diag);
    assert_memory_equal(data, text, sizeof(data));
    assert_int_equal(pst_zip_read_part(zip, e, 8, e->size, data, &diag),
                     PST_ERR_INTERNAL);
    pst_free(text);
    e = pst_zip_find(zip, "archive_format");
    assert_ok(pst_zip_read(zip, e, 100, &text, &diag), &diag);
    assert_string_equal(text, "pt2");
    pst_free(text);
    assert_int_equal(pst_zip_read(zip, e, 2, &text, &diag), PST_ERR_INPUT);
    assert_null(pst_zip_find(zip, "weight_0"));
    pst_zip_close(zip);
}

/* Reading many parts of a deflated entry in order inflates it twice in all: to
 * verify and to read. A small entry is inflated once, in any order. */
static void parts_are_inflated_once(void **state)
{
    static const size_t sizes[] = {(size_t)1 << 20, (size_t)24 << 20};
    enum { PARTS = 4096 };

    (void)state;
    for (size_t k = 0; k < PST_COUNT(sizes); k++) {
        const size_t size = sizes[k], part = size / PARTS;
        unsigned char *data = malloc(size), *back = malloc(part + 1);
        struct pst_zip_entry *e;
        struct pst_zip *zip;
        double begin;

        assert_true(data != NULL && back != NULL);
        for (size_t i = 0; i < size; i++)
            data[i] = (unsigned char)(i * i >> 9);
        pack_one("deflated.pt2", "m/x", data, size);
        assert_ok(pst_zip_open("deflated.pt2", &zip, &diag), &diag);
        e = pst_zip_find(zip, "x");
        assert_non_null(e);
        assert_true(e->deflated && e->size == size);
        begin = pst_now();
        for (size_t i = 0; i < PARTS; i++) {
            const size_t at = k == 0 ? PARTS - 1 - i : i;

            assert_ok(pst_zip_read_part(zip, e, at * part, part, back, &diag),
                      &diag);
            assert_memory_equal(back, data + at * part, part);
        }
        /* Inflating again for each part would take minutes. */
        assert_true(pst_now() - begin < 20);
        /* A part that lies before the last one, or is empty, is right too. */
        assert_ok(pst_zip_read_part(zip, e, 5, 9, back, &diag), &diag);
        assert_memory_equal(back, data + 5, 9);
        assert_ok(pst_zip_read_part(zip, e, size, 0, back, &diag), &diag);
        pst_zip_close(zip);
        free(data);
        free(back);
    }
}

/* Archives of other writers are read: no alignment, no descriptors, no zip64
 * records, deflated entries. */
static void other_writers_are_read(void **state)
{
    static const char *const roots[] = {NULL, "größe", ""};
    struct pst_zip *a, *b;
    char *x, *y;

    (void)state;
    assert_ok(pst_zip_open(golden("tiny.pt2"), &a, &diag), &diag);
    for (unsigned k = 0; k < 2 * PST_COUNT(roots); k++) {
        repack(golden("tiny.pt2"), "r.pt2", roots[k / 2], k % 2, NULL, 0);
        assert_ok(pst_zip_open("r.pt2", &b, &diag), &diag);
        assert_int_equal(a->entries.n, b->entries.n);
        for (size_t i = 0; i < a->entries.n; i++) {
            struct pst_zip_entry *e = &a->entries.at[i];
            struct pst_zip_entry *f = pst_zip_find(b, e->name);

            assert_non_null(f);
            assert_int_equal(e->size, f->size);
            assert_ok(pst_zip_read(a, e, SIZE_MAX / 4, &x, &diag), &diag);
            y = malloc(e->size + 1);
            assert_non_null(y);
            assert_ok(pst_zip_read_part(b, f, 0, f->size, y, &diag), &diag);
            assert_memory_equal(x, y, e->size);
            pst_free(x);
            free(y);
        }
        pst_zip_close(b);
    }
    pst_zip_close(a);
}

/* Opens the bytes as a file and reads everything in it. */
static enum pst_status try_bytes(const void *data, size_t size)
{
    struct pst_zip *zip;
    enum pst_status status;
    char *text;

    spill("x.pt2", data, size);
    diag.text[0] = '\0';
    status = pst_zip_open("x.pt2", &zip, &diag);
    if (status != PST_OK) {
        assert_true(strncmp(diag.text, "x.pt2: ", 7) == 0);
        return status;
    }
    for (size_t i = 0; i < zip->entries.n && status == PST_OK; i++) {
        status = pst_zip_read(zip, &zip->entries.at[i], 1 << 24, &text, &diag);
        if (status == PST_OK)
            pst_free(text);
    }
    if (status != PST_OK)
        assert_int_not_equal(diag.text[0], '\0');
    pst_zip_close(zip);
    return status;
}

static void refused(const void *data, size_t size, const char *why)
{
    assert_int_equal(try_bytes(data, size), PST_ERR_INPUT);
    if (strstr(diag.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, why);
}

static void other_files_are_refused(void **state)
{
    static const unsigned char empty_zip[22] = {'P', 'K', 5, 6};
    struct pst_zip *zip;

    (void)state;
    refused("", 0, "not a .pt2");
    refused("hello", 5, "not a .pt2");
    refused("PK\3\4 and nothing more", 21, "truncated");
    refused(empty_zip, sizeof(empty_zip), "empty zip");
    assert_int_not_equal(pst_zip_open("none.pt2", &zip, &diag), PST_OK);
    assert_non_null(strstr(diag.text, "none.pt2"));
}

static void truncation_is_noticed(void **state)
{
    (void)state;
    for (size_t n = 4; n < good_size; n += 211)
        refused(good, n, "truncated");
    refused(good, good_size - 1, "truncated");
}

/* Each patch of the directory has its own message. */
static void damage_is_named(void **state)
{
    const unsigned w = number("tiny/data/weights/weight_0");
    unsigned char *data = malloc(good_size), *p, *q;

    (void)state;
#define FRESH() (memcpy(data, good, good_size), central(data, good_size, w))
    p = FRESH();
    put16(p + 8, (uint16_t)(get_number(p + 8, 2) | 1));
    refused(data, good_size, "encrypted");
    p = FRESH();
    put16(p + 10, 12);
    refused(data, good_size, "method");
    p = FRESH();
    put16(p + 34, 3);
    refused(data, good_size, "another part");
    p = FRESH();
    put_number(p + 24, 4, 1 << 20);
    refused(data, good_size, "impossible size");
    p = FRESH();
    put_number(p + 20, 4, 1 << 20);
    put_number(p + 24, 4, 1 << 20);
    refused(data, good_size, "reaches outside");
    p = FRESH();
    put_number(p + 24, 4, 0xffffffff);
    refused(data, good_size, "extra field");
    p = FRESH();
    put_number(p + 42, 4, 0x7fffffff);
    refused(data, good_size, "outside the file");
    p = FRESH();
    put_number(p + 42, 4, 5);
    refused(data, good_size, "no local header");
    p = FRESH();
    memcpy(p + 46 + 5, "..", 2);
    refused(data, good_size, "differs from its local header");
    memcpy(data + get_number(p + 42, 4) + 30 + 5, "..", 2);
    assert_int_equal(try_bytes(data, good_size), PST_OK); /* "..ta" is valid */
    p = FRESH();
    q = data + get_number(p + 42, 4) + 30;
    memcpy(p + 46, "tiny/../", 8);
    memcpy(q, "tiny/../", 8);
    refused(data, good_size, "\"..\" part");
    memcpy(p + 46, "tiny/d\xff", 7);
    memcpy(q, "tiny/d\xff", 7);
    refused(data, good_size, "UTF-8");
    p[46 + 6] = q[6] = '\\';
    refused(data, good_size, "backslash");
    p[46 + 6] = q[6] = '\0';
    refused(data, good_size, "zero byte");
    memcpy(p + 46, "/", 1);
    memcpy(q, "/", 1);
    refused(data, good_size, "zero byte");
    p = FRESH();
    q = data + get_number(p + 42, 4) + 30;
    p[46 + get_number(p + 28, 2) - 1] = q[get_number(p + 28, 2) - 1] = '1';
    refused(data, good_size, "two entries");
    p = FRESH();
    q = data + get_number(p + 42, 4) + 30;
    p[46] = q[0] = 'T';
    refused(data, good_size, "outside the folder");
    /* Two directory entries with one local header: they overlap. */
    p = FRESH();
    q = central(data, good_size, w + 1);
    assert_int_equal(get_number(p + 28, 2), get_number(q + 28, 2));
    put_number(p + 42, 4, get_number(q + 42, 4));
    memcpy(p + 46, q + 46, get_number(q + 28, 2));
    put_number(p + 20, 4, get_number(q + 20, 4));
    put_number(p + 24, 4, get_number(q + 24, 4));
    refused(data, good_size, "overlaps");
    /* Patches the content itself. */
    p = FRESH();
    q = data + get_number(p + 42, 4);
    q[30 + get_number(q + 26, 2) + get_number(q + 28, 2) + 3] ^= 1;
    refused(data, good_size, "\"data/weights/weight_0\" is damaged (wrong");
    /* Patches the end records. */
    FRESH();
    put_number(data + good_size - 42 + 8, 8, good_size);
    refused(data, good_size, "zip64 end record lies outside");
    FRESH();
    put_number(data + good_size - 22 + 16, 4, 100);
    refused(data, good_size, "two end records");
    FRESH();
    put16(data + good_size - 22 + 4, 1);
    refused(data, good_size, "several parts");
#undef FRESH
    free(data);
}

/* Changes each byte of the directory and each of the first 64 bytes: most
 * changes are refused, and none makes the reader access memory out of
 * bounds. */
static void no_byte_leads_astray(void **state)
{
    const size_t at = get_number(good + good_size - 22 + 16, 4);
    unsigned char *data = malloc(good_size);
    unsigned refusals = 0;

    (void)state;
    for (size_t i = at; i < good_size; i++) {
        memcpy(data, good, good_size);
        data[i] ^= i % 2 ? 0xff : 0x01;
        refusals += try_bytes(data, good_size) != PST_OK;
    }
    for (size_t i = 0; i < 64; i++) {
        memcpy(data, good, good_size);
        data[i] ^= 0xff;
        refusals += try_bytes(data, good_size) != PST_OK;
    }
    assert_true(refusals > (good_size - at) / 2);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_read),
        cmocka_unit_test(parts_are_inflated_once),
        cmocka_unit_test(other_writers_are_read),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(truncation_is_noticed),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(no_byte_leads_astray),
    };

    return cmocka_run_group_tests_name("zip", tests, setup, teardown);
}
