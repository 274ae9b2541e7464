// SPDX-License-Identifier: Apache-2.0
/* Tests whether views of one storage share elements: random views, compared
 * with the sets of their elements, and views with too many elements to
 * count. */
#include "stages/frontend/functional/overlap.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS  20000
#define STORAGE 200 /* elements of the storage */

static struct pst_diag diag;

static struct pst_meta view_of(unsigned rank, const int64_t *sizes,
                               const int64_t *strides)
{
    struct pst_meta meta = pst_meta_make(PST_F32, rank, sizes);

    memcpy(meta.stride, strides, rank * sizeof(*strides));
    return meta;
}

/* Draws a view of up to three dimensions, some of which have size or stride 0.
 */
static struct pst_meta draw(unsigned *seed)
{
    int64_t sizes[3], strides[3];
    const unsigned rank = (unsigned)rand_r(seed) % 4;

    for (unsigned d = 0; d < rank; d++) {
        sizes[d] = rand_r(seed) % 20 == 0 ? 0 : 1 + rand_r(seed) % 6;
        strides[d] = rand_r(seed) % 12;
    }
    return view_of(rank, sizes, strides);
}

static void mark_elements(const struct pst_meta *meta, int64_t at, unsigned d,
                          bool *marks)
{
    if (d == meta->rank)
        marks[at] = true;
    for (int64_t i = 0; d < meta->rank && i < meta->size[d]; i++)
        mark_elements(meta, at + i * meta->stride[d], d + 1, marks);
}

static void views_meet_as_their_elements(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const struct pst_meta metas[2] = {draw(&seed), draw(&seed)};
        const struct pst_window a = {&metas[0], rand_r(&seed) % 20};
        const struct pst_window b = {&metas[1], rand_r(&seed) % 20};
        bool in_a[STORAGE] = {false}, in_b[STORAGE] = {false};
        bool meet = false, covers = true, got;

        mark_elements(a.meta, a.offset, 0, in_a);
        mark_elements(b.meta, b.offset, 0, in_b);
        for (unsigned i = 0; i < STORAGE; i++) {
            meet = meet || (in_a[i] && in_b[i]);
            covers = covers && (in_a[i] || !in_b[i]);
        }
        assert_ok(pst_windows_overlap(&a, &b, &got, &diag), &diag);
        if (got != meet)
            fail_msg("round %u: they meet: %d", round, meet);
        assert_ok(pst_window_covers(&a, &b, &got, &diag), &diag);
        if (got != covers)
            fail_msg("round %u: the first covers the second: %d", round,
                     covers);
    }
}

#define MANY ((int64_t)1 << 40)

/* Views whose elements would take hours to count. */
static void indices_are_not_counted(void **state)
{
    const int64_t still[] = {0, 2}, two[] = {MANY, 2}, flat[] = {1, 1};
    const int64_t square[] = {1 << 20, 1 << 20}, coprime[] = {2, 3};
    const struct {
        struct pst_meta meta;
        int64_t offset;
        bool meets; /* true: the view contains the element at offset 1 */
    } cases[] = {
        {view_of(2, two, still), 0, false},      /* offsets 0 2 */
        {view_of(2, two, still), 1, true},       /* offsets 1 3 */
        {view_of(2, square, flat), 0, true},     /* offsets 0 1 2 ... */
        {view_of(2, square, coprime), 0, false}, /* offsets 0 2 3 4 ... */
    };
    const struct pst_meta one = pst_meta_make(PST_F32, 0, NULL);
    const struct pst_window at = {&one, 1};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_window w = {&cases[i].meta, cases[i].offset};
        bool got;

        assert_ok(pst_windows_overlap(&w, &at, &got, &diag), &diag);
        assert_true(got == cases[i].meets);
        assert_ok(pst_windows_overlap(&at, &w, &got, &diag), &diag);
        assert_true(got == cases[i].meets);
        assert_ok(pst_window_covers(&w, &at, &got, &diag), &diag);
        assert_true(got == cases[i].meets);
    }
}

/* Views are refused if a bitmap of their elements would take terabytes. */
static void large_storages_are_refused(void **state)
{
    const int64_t sizes[] = {2, 1 << 20}, strides[] = {MANY, 2};
    const struct pst_meta meta = view_of(2, sizes, strides);
    const struct pst_window a = {&meta, 0}, b = {&meta, 1};
    bool got;

    (void)state;
    assert_int_equal(pst_windows_overlap(&a, &b, &got, &diag), PST_ERR_SHAPE);
    assert_non_null(strstr(diag.text, "too large to be compared"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_meet_as_their_elements),
        cmocka_unit_test(indices_are_not_counted),
        cmocka_unit_test(large_storages_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
