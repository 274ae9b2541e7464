// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FILES_DISK_H
#define PENSTOCK_TESTS_FILES_DISK_H
/*
 * Simulates a disk that loses power. File operations of this program below a
 * folder are recorded one by one; any state that a disk may have after a power
 * loss can then be made in a folder of its own.
 *
 * Operations without a later fsync may be lost: any writes to a file, and parts
 * of them by sectors. Operations on folder entries survive in order, as file
 * systems with a journal guarantee, but the number that survives is random for
 * each folder. A move between folders belongs to both. fsync of a file does not
 * make its name durable.
 *
 * The linker intercepts calls of the C library (--wrap, meson.build). One
 * thread.
 */
#include <stddef.h>
#include <stdint.h>

/* Takes the present contents of the folder as durable, and starts recording. It
 * must contain only files and folders. */
void disk_begin(const char *folder);
/* Stops recording; returns the number of operations. */
size_t disk_end(void);
/* Describes operation i for messages: "fsync ck/step-2/a". */
const char *disk_name(size_t i);
/* Makes the new folder `to` a random state that the disk may have if power is
 * lost before operation number `at`. */
void disk_crash(size_t at, uint64_t seed, const char *to);
/* Makes `to` the state if only the process is killed before operation number
 * `at`: no finished operation is lost. */
void disk_kill(size_t at, const char *to);
/* Returns the number of operations so far. */
size_t disk_count(void);
/* While recording, makes operation number `at` fail once with that errno, if it
 * is a write, a sync or a rename. SIZE_MAX: none fails. */
void disk_fail(size_t at, int err);
void disk_free(void);

#endif
