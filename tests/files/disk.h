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
 * folder as many as chance has it. fsync of a file says nothing of its name.
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
void disk_free(void);

#endif
