// SPDX-License-Identifier: Apache-2.0
/* Tests how several ranks write bytes into one file: no two ranks write in one
 * page. */
#include "stages/run/state/edges.h"
#include "tests/folder.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 64, TRIES = 300, MOST = 40, OWNERS = 4 };

static unsigned next_random(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*x >> 33);
}

/* Consecutive spans with random owners. What an owner writes itself is in pages
 * that belong to it alone; its edges are exactly the rest. */
static void pages_have_one_owner(void **state)
{
    uint64_t x = 1;

    (void)state;
    for (int t = 0; t < TRIES; t++) {
        struct pst_shard_span all[MOST], own[MOST];
        unsigned of[MOST];
        int writer[MOST * 4 * PAGE];
        const unsigned n = 1 + next_random(&x) % MOST;
        uint64_t at = next_random(&x) % (2 * PAGE);

        for (unsigned k = 0; k < n; k++) {
            all[k] = (struct pst_shard_span){
                .begin = at, .bytes = next_random(&x) % (3 * PAGE) / 4 * 4};
            of[k] = next_random(&x) % OWNERS;
            at += all[k].bytes;
        }
        memset(writer, 0xff, sizeof(writer));
        for (unsigned k = 0; k < n; k++)
            for (uint64_t i = 0; i < all[k].bytes; i++)
                writer[all[k].begin + i] = (int)of[k];
        for (unsigned o = 0; o < OWNERS; o++) {
            unsigned m = 0;

            for (unsigned k = 0; k < n; k++)
                if (of[k] == o)
                    own[m++] = all[k];
            pst_spans_divide(own, m, PAGE);
            for (unsigned k = 0; k < m; k++) {
                assert_true(own[k].own_begin <= own[k].own_end);
                assert_true(own[k].own_end <= own[k].bytes);
                for (uint64_t i = 0; i < own[k].bytes; i++) {
                    const uint64_t page = (own[k].begin + i) / PAGE * PAGE;
                    bool alone = true;

                    for (uint64_t j = page; j < page + PAGE; j++)
                        alone &= writer[j] == (int)o;
                    assert_true(alone ==
                                (i >= own[k].own_begin && i < own[k].own_end));
                }
            }
        }
    }
}

static struct pst_diag diag;

/* Opens a file with two tensors; the bytes in the middle of the file belong to
 * another rank. */
static struct pst_safetensors_writer *begun(const char **ret_path)
{
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct pst_meta meta = {.dtype = PST_F32, .rank = 1, .size = {8}};
    struct pst_safetensors_writer *w;

    assert_ok(pst_safetensors_writer_new("file", &w, &diag), &diag);
    assert_ok(pst_safetensors_writer_declare(w, "a", &meta, &diag), &diag);
    assert_ok(pst_safetensors_writer_declare(w, "b", &meta, &diag), &diag);
    assert_ok(pst_safetensors_writer_begin(w, &diag), &diag);
    assert_ok(pst_safetensors_writer_share(w, ret_path, &diag), &diag);
    assert_ok(pst_safetensors_writer_put_part(w, 0, 0, ones, 16, &diag), &diag);
    assert_ok(pst_safetensors_writer_put_part(w, 1, 16, ones, 16, &diag),
              &diag);
    return w;
}

static void edges_come_to_the_file(void **state)
{
    static const float twos[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    struct pst_safetensors_writer *w;
    struct pst_safetensors *st;
    struct pst_edges edges = {0};
    struct pst_file file;
    const char *path;
    float back[8];
    uint64_t at;

    (void)state;
    w = begun(&path);
    assert_ok(pst_file_open(path, &file, &diag), &diag);
    assert_ok(pst_safetensors_open(path, &st, &diag), &diag);
    at = pst_safetensors_find(st, "b")->offset;
    assert_int_equal(at, pst_safetensors_find(st, "a")->offset + 32);
    pst_safetensors_close(st);
    assert_ok(pst_edges_add(&edges, at - 16, twos, 16, &diag), &diag);
    assert_ok(pst_edges_add(&edges, at, twos, 0, &diag), &diag);
    assert_ok(pst_edges_add(&edges, at, twos, 16, &diag), &diag);
    assert_ok(pst_edges_write(&edges, w, &file, &diag), &diag);
    /* Truncated edges, and edges outside of the tensors, are not written. */
    edges.n--;
    assert_int_equal(pst_edges_write(&edges, w, &file, &diag),
                     PST_ERR_INTERNAL);
    edges.n = 8;
    assert_int_equal(pst_edges_write(&edges, w, &file, &diag),
                     PST_ERR_INTERNAL);
    edges.n = 0;
    assert_ok(pst_edges_add(&edges, at + 32, twos, 4, &diag), &diag);
    assert_int_equal(pst_edges_write(&edges, w, &file, &diag),
                     PST_ERR_INTERNAL);
    edges.n = 0;
    assert_ok(pst_edges_add(&edges, 0, twos, 4, &diag), &diag);
    assert_int_equal(pst_edges_write(&edges, w, &file, &diag),
                     PST_ERR_INTERNAL);
    pst_vec_fini(&edges);
    pst_file_close(&file);
    assert_ok(pst_safetensors_writer_commit(w, &diag), &diag);
    pst_safetensors_writer_free(w);
    assert_ok(pst_safetensors_open("file", &st, &diag), &diag);
    for (int k = 0; k < 2; k++) {
        assert_ok(
            pst_safetensors_read(pst_safetensors_find(st, k == 0 ? "a" : "b"),
                                 0, sizeof(back), back, &diag),
            &diag);
        for (int i = 0; i < 8; i++)
            assert_true(back[i] == ((i < 4) == (k == 0) ? 1 : 2));
    }
    pst_safetensors_close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_have_one_owner),
        cmocka_unit_test(edges_come_to_the_file),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
