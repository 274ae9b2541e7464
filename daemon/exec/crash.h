// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_CRASH_H
#define PENSTOCK_DAEMON_EXEC_CRASH_H
/*
 * Crash handler: a signal raised by the process itself (SIGSEGV, SIGBUS,
 * SIGFPE, SIGILL, SIGABRT) is reported on standard error before it ends the
 * process, in one line:
 *
 *   penstockd: crash of rank 1 in step 12, action 1F0 (stage 1, microbatch 0),
 *   operator aten.mm.default of fc1 at net.py:12
 *
 * with the parts that the crashing thread knows. The supervisor parses it.
 */
#define PSTD_CRASH_TEXT "crash of rank "

/* Installs the handlers; those that exist already (MPI's backtrace) run after
 * ours. Any thread; a second call only changes the rank. */
void pstd_crash_watch(unsigned rank);

#endif
