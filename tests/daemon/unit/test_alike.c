// SPDX-License-Identifier: Apache-2.0
/* Tests which bytes of data files ranks compare. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/inputs.h"
#include "tests/test.h"

/* Returns the digest of a file of zeros with a one at offset `place`, if that
 * is inside it. */
static uint64_t digest(off_t size, off_t place)
{
    char path[] = "/tmp/pst-alike-XXXXXX";
    const int fd = mkstemp(path);
    struct pst_file file = {0};
    struct pst_diag diag;
    uint64_t ret = 0;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    if (place < size)
        assert_int_equal(pwrite(fd, "\1", 1, place), 1);
    assert_int_equal(close(fd), 0);
    assert_ok(pst_file_open(path, &file, &diag), &diag);
    assert_int_equal(pstd_hash_data(&file, &ret), PST_OK);
    pst_file_close(&file);
    assert_int_equal(unlink(path), 0);
    return ret;
}

/* All bytes of a small file are compared, and both ends of a large one. */
static void sees_what_differs(void **state)
{
    static const off_t sizes[] = {1, 4096, 4097, 300001, 4 << 20};
    const off_t large = (4 << 20) + 8191;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(sizes); i++) {
        const uint64_t zeros = digest(sizes[i], sizes[i]);

        assert_true(digest(sizes[i], sizes[i] - 1) != zeros);
        assert_true(digest(sizes[i], sizes[i] / 3) != zeros);
        assert_true(digest(sizes[i], 0) != zeros);
    }
    assert_true(digest(large, 0) != digest(large, large));
    assert_true(digest(large, large - 1) != digest(large, large));
    assert_true(digest(large, large - 4096) != digest(large, large));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sees_what_differs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
