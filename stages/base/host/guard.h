// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_GUARD_H
#define PENSTOCK_STAGES_BASE_HOST_GUARD_H
/*
 * Sandbox: a process drops rights, in case its input is malicious. Call while
 * the process has one thread: threads that exist already keep their rights.
 */
#include <stdbool.h>
#include <stdint.h>

/*
 * Resets what the process inherits from its parent; call it first.
 * Replaces closed descriptors 0 to 2 by ones at which every read or write
 * fails: files opened later would get these numbers, and output would be
 * written into them. Restores the default action of SIGCHLD, since nobody can
 * wait for a child while it is ignored. Unblocks all signals. Removes the owner's
 * rights from the umask: it would make folders that the process cannot use.
 */
void pst_guard_inherited(void);

/*
 * Disables core files (unless core_files), which contain parameters, data and
 * the environment, and gives other users no access to files made from here on
 * (a stricter umask is kept). The process stays dumpable, which MPI needs for
 * messages through shared memory.
 */
void pst_guard_process(bool core_files);

/*
 * Landlock: begin, add allowed paths, enforce. Afterwards no other file can be
 * opened, made or run, and no TCP connection made; children inherit this. If
 * the kernel lacks Landlock or refuses, these functions only log a line at
 * debug level.
 */
struct pst_guard {
    int fd;          /* descriptor of the ruleset; -1: there is no Landlock */
    unsigned abi;    /* ABI version of the kernel */
    uint64_t rights; /* rights that need a rule */
    int err;         /* errno if memory or descriptors were lacking; 0 */
};

void pst_guard_begin(struct pst_guard *guard);
/* Allows reading a file, or everything below a folder. A missing path is
 * skipped; a path that cannot be opened for lack of descriptors or memory sets
 * guard->err. */
void pst_guard_allow_read(struct pst_guard *guard, const char *path);
/* Allows the same reading as pst_guard_allow_read for a path given by the user,
 * and also the targets of links in that folder (caches of model hubs have
 * these).
 */
void pst_guard_allow_links(struct pst_guard *guard, const char *path);
/* Allows writing a file or folder and its siblings, since a file is written
 * under a temporary name beside it. For a device, allows only the device. */
void pst_guard_allow_write(struct pst_guard *guard, const char *path);
/* Enforces the rules and ends the guard; returns true if they are in force. */
bool pst_guard_enforce(struct pst_guard *guard);

#endif
