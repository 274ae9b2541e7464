// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FILES_DATA_DATA_H
#define PENSTOCK_TESTS_FILES_DATA_DATA_H
/* A folder for the files of tests of training data, and their shapes. */
#include "tests/test.h"

#include "stages/base/host/fs.h"
#include "stages/files/safetensors.h"
#include "stages/graph/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[] = "/tmp/pst-data-XXXXXX";
static struct pst_diag diag;

static inline int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

static inline struct pst_meta meta(enum pst_dtype dtype, unsigned rank,
                                   int64_t a, int64_t b)
{
    const int64_t sizes[2] = {a, b};

    return pst_meta_make(dtype, rank, sizes);
}

/* Writes b.safetensors: x f32[6, 2] = 0..11, k i64[3] = 10, 20, 30, s f32[] =
 * 0.5, pos i64[9] = 0..8. */
static inline void write_batch(void)
{
    static float x[12], s = 0.5f;
    static int64_t k[3] = {10, 20, 30}, pos[9];
    const struct pst_safetensors_entry entries[] = {
        {"x", meta(PST_F32, 2, 6, 2), x, 0},
        {"k", meta(PST_I64, 1, 3, 0), k, 0},
        {"s", meta(PST_F32, 0, 0, 0), &s, 0},
        {"pos", meta(PST_I64, 1, 9, 0), pos, 0}};

    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    for (int i = 0; i < 9; i++)
        pos[i] = i;
    assert_ok(pst_safetensors_save("b.safetensors", entries, 4, &diag), &diag);
}

static inline void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

#endif
