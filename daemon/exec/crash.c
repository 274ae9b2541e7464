// SPDX-License-Identifier: Apache-2.0
/* Everything here is signal-safe: the handler may interrupt anything, even
 * malloc, so it formats numbers itself. */
#include "daemon/exec/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "stages/base/host/alive.h"
#include "stages/base/host/thread.h"
#include "stages/base/macros.h"
#include "stages/graph/graph.h"
#include "stages/run/watch/flight.h"
#include "stages/sched/sched.h"

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
static struct sigaction before[PST_COUNT(faults)];
static unsigned crashed_rank;
static atomic_flag watches = ATOMIC_FLAG_INIT;

struct line {
    char text[512];
    size_t n;
};

/* Appends text to the line; control bytes become '?', since names come from
 * files. */
static void put_text(struct line *l, const char *text)
{
    for (; *text != '\0' && l->n + 1 < sizeof(l->text); text++)
        l->text[l->n++] =
            (unsigned char)*text < ' ' || *text == '\x7f' ? '?' : *text;
}

static void put_number(struct line *l, uint64_t x)
{
    char digits[21];
    size_t at = sizeof(digits) - 1;

    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + x % 10);
    while ((x /= 10) > 0);
    put_text(l, digits + at);
}

static void put_action(struct line *l, const struct pst_alive_place *place)
{
    put_text(l, ", action ");
    put_number(l, (uint64_t)place->stage);
    put_text(l, pst_action_word((enum pst_action_kind)place->kind));
    if (place->microbatch >= 0)
        put_number(l, (uint64_t)place->microbatch);
    put_text(l, " (stage ");
    put_number(l, (uint64_t)place->stage);
    if (place->microbatch >= 0) {
        put_text(l, ", microbatch ");
        put_number(l, (uint64_t)place->microbatch);
    }
    put_text(l, ")");
}

static void put_place(struct line *l)
{
    const struct pst_alive_state state = pst_alive_state();
    const struct pst_node *const *at = pst_thread_node;
    const struct pst_node *node = at != NULL ? *at : NULL;

    put_text(l, pst_alive_name(state.phase));
    if (state.phase == PST_ALIVE_STEP) {
        put_text(l, " ");
        put_number(l, state.place.step + 1);
        if (pst_alive_is_watched() && state.place.stage >= 0)
            put_action(l, &state.place);
    }
    if (node == NULL)
        return;
    put_text(l, ", operator ");
    put_text(l, pst_node_origin(node));
    if (node->call->name[0] != '\0') {
        put_text(l, " of ");
        put_text(l, node->call->name);
    }
    if (node->source[0] != '\0') {
        put_text(l, " at ");
        put_text(l, node->source);
    }
}

static void report_crash(void)
{
    struct line l = {.n = 0};

    put_text(&l, "penstockd: " PSTD_CRASH_TEXT);
    put_number(&l, crashed_rank);
    put_text(&l, " in ");
    put_place(&l);
    l.text[l.n++] = '\n';
    (void)!write(STDERR_FILENO, l.text, l.n);
}

/* Reports the crash, restores the previous handler and returns. A faulting
 * instruction then raises the signal again; a signal that another process sent
 * is raised here. */
static void on_fault(int number, siginfo_t *info, void *context PST_UNUSED)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;

    if (number == SIGBUS && info->si_code > 0 &&
        pst_flight_repair(info->si_addr))
        return;
    for (size_t i = 0; i < PST_COUNT(faults); i++)
        if (faults[i] == number)
            (void)sigaction(number, &before[i], NULL);
    if (!atomic_flag_test_and_set(&reported))
        report_crash();
    if (info->si_code <= 0)
        (void)raise(number);
}

void pstd_crash_watch(unsigned rank)
{
    struct sigaction ours = {.sa_sigaction = on_fault,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK};

    crashed_rank = rank;
    if (atomic_flag_test_and_set(&watches))
        return;
    (void)sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < PST_COUNT(faults); i++)
        if (sigaction(faults[i], NULL, &before[i]) == 0)
            (void)sigaction(faults[i], &ours, NULL);
}
