// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_GUARD_H
#define PENSTOCK_STAGES_BASE_HOST_GUARD_H
/*
 * What a process takes away from itself, for the case that what it reads is
 * made to break it. While one thread runs: of other threads that are there
 * already nothing is taken away.
 */
#include <stdbool.h>
#include <stdint.h>

/*
 * No core files, which have parameters, data and the environment in them, and
 * nothing for other users in the files that are made from here on (a mode that
 * was narrower stays so). The process stays dumpable, which MPI's messages
 * through shared memory need.
 */
void pst_guard_process(bool core_files);

/*
 * Landlock: begin, what is allowed, enforce. From then on nothing else can be
 * opened, made or run, no TCP connection made, and children inherit that. Where
 * the kernel lacks Landlock, or refuses, all of it does nothing but log a line
 * at debug.
 */
struct pst_guard {
    int fd;          /* of the rules; -1: there is no Landlock */
    unsigned abi;    /* what the kernel knows */
    uint64_t rights; /* that need a rule */
    int err;         /* why a rule could not be made of what is there; 0 */
};

void pst_guard_begin(struct pst_guard *guard);
/* A file, or all below a folder, may be read. What is not there is left out;
 * what cannot be opened for want of descriptors or memory is in guard->err. */
void pst_guard_sees(struct pst_guard *guard, const char *path);
/* The same of what a user has given: so may the files that links in that folder
 * point at (caches of model hubs have these). */
void pst_guard_reads(struct pst_guard *guard, const char *path);
/* A file or folder may be written: what is beside it can be, too, since it is
 * made there under another name. Of a device it alone. */
void pst_guard_writes(struct pst_guard *guard, const char *path);
/* Whether it holds from here on. Ends the guard. */
bool pst_guard_enforce(struct pst_guard *guard);

#endif
