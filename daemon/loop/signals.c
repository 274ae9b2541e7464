// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/loop/launcher.h"
#include "daemon/loop/serve/serving.h"
#include "stages/base/host/alive.h"

#define AGAIN_MS 1000 /* time after which a second signal ends the process */
/* If no timer has run for so long before SIGCONT, the process was stopped. */
#define STOPPED_S 0.5

static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCONT};

_Static_assert(PST_COUNT(numbers) ==
                   PST_COUNT(((struct pstd_daemon *)0)->signals),
               "one handle per signal");

/*
 * For each signal, libuv's handler and the sender of the newest signal. A
 * launcher forwards its own signals seconds later, so SIGTERM from it is never
 * the second signal that ends the process at once, even during a save.
 */
static struct {
    struct sigaction of_libuv;
    volatile sig_atomic_t pid;
} senders[PST_COUNT(numbers)];
static const struct pstd_watch *watch;
/* The process was stopped before the newest SIGCONT. */
static volatile sig_atomic_t was_stopped;

static size_t index_of(int number)
{
    size_t i = 0;

    while (i + 1 < PST_COUNT(numbers) && numbers[i] != number)
        i++;
    return i;
}

/* Records the sender. At SIGCONT also records whether the process was stopped:
 * then no timer has run for a while. */
static void record_sender(int number, siginfo_t *info, void *context)
{
    const size_t i = index_of(number);

    (void)context;
    senders[i].pid = (sig_atomic_t)info->si_pid;
    if (number == SIGCONT)
        was_stopped = pst_now() - atomic_load(&watch->last_tick) > STOPPED_S;
    senders[i].of_libuv.sa_handler(number);
}

/* Installs record_sender, which calls libuv's handler: libuv does not report
 * the sender. */
static void watch_senders(void)
{
    for (size_t i = 0; i < PST_COUNT(numbers); i++) {
        struct sigaction ours;

        if (sigaction(numbers[i], NULL, &senders[i].of_libuv) != 0 ||
            (senders[i].of_libuv.sa_flags & SA_SIGINFO) != 0)
            continue;
        ours = senders[i].of_libuv;
        ours.sa_flags |= SA_SIGINFO;
        ours.sa_sigaction = record_sender;
        (void)sigaction(numbers[i], &ours, NULL);
    }
}

/* Reports the signal at once and syncs the log: the process may end within a
 * second. */
static void report_signal(struct pstd_daemon *d, const char *name, int number,
                          const char *text)
{
    const int pid = (int)senders[index_of(number)].pid;
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_EARLY_WARNING);
    pstd_note_text(&note, "signal", name);
    pstd_note_text(&note, "by", pid == getppid() ? "launcher" : "process");
    pstd_note_int(&note, "pid", pid);
    pstd_note_text(&note, "text", text);
    pstd_daemon_publish(d, &note);
    pstd_daemon_write_prom(d);
    if (d->log.path != NULL)
        (void)fdatasync(d->log.fd);
}

/* Warns at SIGCONT, unless the process was stopped: Open MPI sends all ranks
 * SIGCONT as soon as one rank has ended, SIGTERM a second later, and then
 * SIGKILL. */
static void on_cont(struct pstd_daemon *d)
{
    if (was_stopped)
        return;
    if (senders[index_of(SIGCONT)].pid == getppid())
        pstd_serving_drop_all(d);
    report_signal(
        d, "SIGCONT", SIGCONT,
        senders[index_of(SIGCONT)].pid == getppid()
            ? "the launcher ends the job: a rank was lost, or it was asked to"
            : "nothing had stopped this process");
}

/* Warns at SIGUSR1, which batch systems send some time before they end a job,
 * and saves a checkpoint. */
static void on_usr1(struct pstd_daemon *d)
{
    const bool saves = d->rank == 0 && d->job.state == PSTD_JOB_TRAINING &&
                       d->known.checkpoint_dir != NULL;

    report_signal(d, "SIGUSR1", SIGUSR1,
                  saves ? "a checkpoint at the end of this step"
                  : d->rank == 0
                      ? "there is no run that saves checkpoints"
                      : "rank 0 saves a checkpoint if it gets it, too");
    if (saves)
        pstd_mailbox_set_control(d->mailbox, PSTD_CTL_CHECKPOINT);
}

static void on_hangup(struct pstd_daemon *d)
{
    struct pstd_note note;

    if (pstd_logfile_reopen(&d->log, NULL) != PST_OK)
        return;
    pstd_note_init(&note, PSTD_EVENT_REOPENED);
    pstd_daemon_publish(d, &note);
}

/* Stops the job. SIGTERM from the launcher itself is not reported as a request:
 * the launcher has lost a rank. */
static void on_stop(struct pstd_daemon *d, int number)
{
    if (senders[index_of(number)].pid != getppid())
        pstd_launcher_print_request(d);
    if (d->stop_signal_ms > 0 && senders[index_of(number)].pid != getppid() &&
        uv_now(&d->loop) - d->stop_signal_ms > AGAIN_MS)
        _exit(128 + number);
    if (d->stop_signal_ms > 0)
        return;
    d->stop_signal_ms = uv_now(&d->loop);
    pstd_daemon_stop(d, "signal", false);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct pstd_daemon *d = handle->data;

    switch (number) {
    case SIGCONT:
        on_cont(d);
        return;
    case SIGUSR1:
        on_usr1(d);
        return;
    case SIGHUP:
        on_hangup(d);
        return;
    default:
        on_stop(d, number);
    }
}

void pstd_signals_start(struct pstd_daemon *d)
{
    watch = &d->watch;
    for (size_t i = 0; i < PST_COUNT(numbers); i++) {
        (void)uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        (void)uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
    watch_senders();
}

void pstd_signals_ignore(void)
{
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN);
}

/* Closes the signal handles, and ignores SIGHUP and SIGUSR1 from then on: libuv
 * restores the default actions, by which they would end the process. */
void pstd_signals_close(struct pstd_daemon *d)
{
    for (size_t i = 0; i < PST_COUNT(d->signals); i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    pstd_signals_ignore();
}
