// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/thread.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>

#include "stages/base/macros.h"

_Thread_local const struct pst_node *const *pst_thread_node;

/* The processors of this process before a thread was bound; NULL: none has been
 * bound yet. Stays until the process ends. */
static cpu_set_t *_Atomic process_mask;

static void keep_mask(void)
{
    const size_t size = CPU_ALLOC_SIZE(PST_MAX_PROCESSORS);
    cpu_set_t *set = CPU_ALLOC(PST_MAX_PROCESSORS);

    if (set != NULL && sched_getaffinity(0, size, set) == 0)
        process_mask = set;
    else
        CPU_FREE(set);
}

enum pst_status pst_thread_bind(pthread_t thread, unsigned processor,
                                struct pst_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const size_t size = CPU_ALLOC_SIZE(PST_MAX_PROCESSORS);
    cpu_set_t *set = CPU_ALLOC(PST_MAX_PROCESSORS);
    int err;

    if (set == NULL)
        return pst_diag_nomem(diag, size);
    (void)pthread_once(&once, keep_mask);
    CPU_ZERO_S(size, set);
    CPU_SET_S(processor, size, set);
    err = pthread_setaffinity_np(thread, size, set);
    CPU_FREE(set);
    return err == 0
               ? PST_OK
               : pst_diag_errno(diag, err, "a thread bound to processor %u",
                                processor);
}

int pst_thread_start(pthread_t *ret, void *(*fn)(void *), void *ctx)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    const size_t size = CPU_ALLOC_SIZE(PST_MAX_PROCESSORS);
    sigset_t others, before;
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);

    if (err != 0)
        return err;
    if (process_mask != NULL)
        err = pthread_attr_setaffinity_np(&attr, size, process_mask);

    (void)sigfillset(&others);
    for (size_t i = 0; i < PST_COUNT(faults); i++)
        (void)sigdelset(&others, faults[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, &before);
    if (err == 0)
        err = pthread_create(ret, &attr, fn, ctx);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return err;
}
