// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CRASH_H
#define PENSTOCK_DAEMON_EXEC_CRASH_H
/*
 * A fault of the process's own (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) is
 * told on standard error before it ends the process, in one line:
 *
 *   penstockd: crash of rank 1 in step 12, action 1F0 (stage 1, microbatch 0),
 *   operator aten.mm.default of fc1 at net.py:12
 *
 * as far as the thread that has it knows. The supervisor looks for it.
 */
#define PSTD_CRASH_TEXT "crash of rank "

/* From here on. What is there already (MPI's backtrace) comes behind it. Any
 * thread; again only changes the rank. */
void pstd_crash_watch(unsigned rank);

#endif
