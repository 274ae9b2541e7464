// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FILES_REPACK_H
#define PENSTOCK_TESTS_FILES_REPACK_H
/* Damaged and modified copies of valid archives, in the working folder. */
#include <stddef.h>

/* One edit. entry: name below the root. find NULL: the entry becomes `replace`;
 * if that is NULL, too, it is removed. Otherwise every occurrence of find is
 * replaced; there must be at least one. */
struct repack_edit {
    const char *entry, *find, *replace;
};

/* Returns the full path of a file in tests/golden. Static storage. */
const char *golden(const char *name);
/* Writes the archive `to` from the archive `from`, as other zip tools would;
 * with deflate, entries are compressed. The root folder is "m" unless root is
 * given ("": none). */
void repack(const char *from, const char *to, const char *root, int deflate,
            const struct repack_edit *edits, size_t n_edits);
/* Writes a file with one compressed entry. */
void pack_one(const char *to, const char *name, const void *data, size_t size);
/* Reads a whole file; free with free(). */
unsigned char *slurp(const char *path, size_t *ret_size);
void spill(const char *path, const void *data, size_t size);

#endif
