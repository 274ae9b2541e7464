// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FILES_DISK_H
#define PENSTOCK_TESTS_FILES_DISK_H
/*
 * A disk that loses power: what this program does to files below a folder is
 * noted, operation by operation, and what a disk may have of it afterwards can
 * be made as a folder of its own.
 *
 * What an fsync has not made sure may be there or not: of a file's writes any,
 * and pieces of them by sectors; of the operations on a folder's entries the
 * first ones, in their order, as journals of file systems keep it, but of each
 * folder as many as chance has it; a move from one to another is one of both.
 * fsync of a file says nothing of its name.
 *
 * Calls of the C library are caught by the linker (--wrap, meson.build). One
 * thread.
 */
#include <stddef.h>
#include <stdint.h>

/* Takes what is there now for sure, and notes from here on. Below that folder
 * there are files and folders. */
void disk_begin(const char *folder);
/* Ends noting; how many operations there were. */
size_t disk_end(void);
/* What operation number i was, for messages: "fsync ck/step-2/a". */
const char *disk_name(size_t i);
/* Makes `to`, a new folder, as the disk may be when the power is lost before
 * operation number `at`, by chance. */
void disk_crash(size_t at, uint64_t seed, const char *to);
/* The same when the process alone is killed there: nothing is lost that was
 * done. */
void disk_kill(size_t at, const char *to);
/* How many operations there were so far. */
size_t disk_count(void);
/* While something is noted: operation number `at`, if it is a write, a sync or
 * a rename, fails with that errno. Once; -1: none does. */
void disk_fail(size_t at, int err);
void disk_free(void);

#endif
