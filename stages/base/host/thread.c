// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/thread.h"

#include <signal.h>
#include <stddef.h>

#include "stages/base/macros.h"

_Thread_local const struct pst_node *const *pst_thread_node;

int pst_thread_start(pthread_t *ret, void *(*fn)(void *), void *ctx)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t others, before;
    int err;

    (void)sigfillset(&others);
    for (size_t i = 0; i < PST_COUNT(faults); i++)
        (void)sigdelset(&others, faults[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, &before);
    err = pthread_create(ret, NULL, fn, ctx);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}
