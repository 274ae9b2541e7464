// SPDX-License-Identifier: Apache-2.0
#include "tests/files/repack.h"

#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

const char *golden(const char *name)
{
    static char path[4096];
    const char *folder = getenv("PST_GOLDEN");

    assert_non_null(folder);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

unsigned char *slurp(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data;
    long size;

    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size = ftell(f);
    rewind(f);
    data = calloc((size_t)size + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)size, f), size);
    fclose(f);
    *ret_size = (size_t)size;
    return data;
}

void spill(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Replaces all occurrences; *data is reallocated. */
static void substitute(char **data, size_t *size, const char *find,
                       const char *replace)
{
    const size_t a = strlen(find), b = strlen(replace);
    const char *p = *data, *stop = *data + *size;
    char *out, *end;
    size_t n = 0;

    while ((p = memmem(p, (size_t)(stop - p), find, a)) != NULL) {
        p += a;
        n++;
    }
    p = *data;
    out = end = malloc(*size + n * b + 1);
    assert_non_null(out);
    while (p < stop) {
        const char *q = memmem(p, (size_t)(stop - p), find, a);
        const char *until = q != NULL ? q : stop;

        end = mempcpy(end, p, (size_t)(until - p));
        p = until;
        if (q != NULL) {
            end = mempcpy(end, replace, b);
            p = q + a;
        }
    }
    if (n == 0)
        fail_msg("nothing to replace: %s", find);
    *end = '\0';
    free(*data);
    *data = out;
    *size = (size_t)(end - out);
}

static void add_entry(zip_t *zip, const char *root, const char *name,
                      void *data, size_t size, int deflate)
{
    zip_source_t *source;
    char full[512];
    zip_int64_t i;

    if (size == 0) { /* libzip would not free it */
        free(data);
        data = NULL;
    }
    source = zip_source_buffer(zip, data, size, 1);
    snprintf(full, sizeof(full), "%s%s%s", root, root[0] != '\0' ? "/" : "",
             name);
    assert_non_null(source);
    i = zip_file_add(zip, full, source, ZIP_FL_ENC_UTF_8);
    assert_true(i >= 0);
    assert_int_equal(
        zip_set_file_compression(zip, (zip_uint64_t)i,
                                 deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0),
        0);
}

void pack_one(const char *to, const char *name, const void *data, size_t size)
{
    zip_t *zip = zip_open(to, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    void *copy = malloc(size);

    assert_true(zip != NULL && copy != NULL);
    memcpy(copy, data, size);
    add_entry(zip, "", name, copy, size, 1);
    assert_int_equal(zip_close(zip), 0);
}

/* Applies the edits to one entry; 0: the entry is left out. */
static int edit(const char *name, char **data, size_t *size,
                const struct repack_edit *edits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(edits[i].entry, name) != 0)
            continue;
        if (edits[i].find != NULL) {
            substitute(data, size, edits[i].find, edits[i].replace);
        } else if (edits[i].replace == NULL) {
            return 0;
        } else {
            free(*data);
            *data = strdup(edits[i].replace);
            *size = strlen(*data);
        }
    }
    return 1;
}

void repack(const char *from, const char *to, const char *root, int deflate,
            const struct repack_edit *edits, size_t n_edits)
{
    zip_t *in = zip_open(from, ZIP_RDONLY, NULL), *out;
    zip_int64_t n;

    root = root != NULL ? root : "m";
    unlink(to);
    out = zip_open(to, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(in);
    assert_non_null(out);
    n = zip_get_num_entries(in, 0);
    for (zip_int64_t i = 0; i < n; i++) {
        zip_stat_t s;
        zip_file_t *f;
        const char *name;
        size_t size;
        char *data;

        assert_int_equal(zip_stat_index(in, (zip_uint64_t)i, 0, &s), 0);
        name = strchr(s.name, '/') + 1;
        size = (size_t)s.size;
        data = calloc(size + 1, 1);
        f = zip_fopen_index(in, (zip_uint64_t)i, 0);
        assert_int_equal(zip_fread(f, data, size), size);
        zip_fclose(f);
        if (edit(name, &data, &size, edits, n_edits))
            add_entry(out, root, name, data, size, deflate);
        else
            free(data);
    }
    for (size_t i = 0; i < n_edits; i++) { /* adds the new entries */
        char full[512];

        snprintf(full, sizeof(full), "%s%s%s", root, root[0] != '\0' ? "/" : "",
                 edits[i].entry);
        if (edits[i].find == NULL && edits[i].replace != NULL &&
            zip_name_locate(out, full, 0) < 0)
            add_entry(out, root, edits[i].entry, strdup(edits[i].replace),
                      strlen(edits[i].replace), deflate);
    }
    assert_int_equal(zip_close(out), 0);
    zip_discard(in);
}
