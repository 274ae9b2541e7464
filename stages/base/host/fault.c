// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    atomic_long left; /* times the point is passed until the fault */
    bool again;       /* the fault also happens at each later pass */
    /* step at whose beginning the fault happens, counted from 1; 0: at
     * `point` */
    uint64_t step;
    char point[24], action[16];
    /* file that is removed when the fault happens; NULL: none */
    const char *once;
    bool has_bit;
    uint64_t bit; /* bit that "flip" inverts, modulo the size; by default one in
                     the middle */
} fault;

/* file of PENSTOCK_GATE; NULL: none, or this is not rank 0 */
static const char *gate;

// NOLINTBEGIN(concurrency-mt-unsafe): nobody changes the environment
static bool is_rank(const char *wanted)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    return wanted == NULL || rank == NULL || strcmp(wanted, rank) == 0;
}

void pst_fault_read(void)
{
    const char *text = getenv("PENSTOCK_FAULT");
    const char *action = text != NULL ? strrchr(text, ':') : NULL;
    const char *bit = getenv("PENSTOCK_FAULT_BIT");
    const char *at;
    char *end = NULL;
    size_t n;
    long nth;

    atomic_store(&fault.left, 0);
    gate = is_rank("0") ? getenv("PENSTOCK_GATE") : NULL;
    if (action == NULL || !is_rank(getenv("PENSTOCK_FAULT_RANK")))
        return;
    n = strcspn(text, ":");
    nth = text + n < action ? strtol(text + n + 1, &end, 10) : 1;
    if (n >= sizeof(fault.point))
        return;
    (void)snprintf(fault.point, sizeof(fault.point), "%.*s", (int)n, text);
    (void)snprintf(fault.action, sizeof(fault.action), "%s", action + 1);
    fault.once = getenv("PENSTOCK_FAULT_ONCE");
    fault.has_bit = bit != NULL;
    fault.bit = bit != NULL ? strtoull(bit, NULL, 10) : 0;
    fault.again = end != NULL && *end == '+';
    at = strchr(fault.point, '@');
    fault.step = at != NULL ? strtoull(at + 1, NULL, 10) : 0;
    atomic_store(&fault.left, nth);
}
// NOLINTEND(concurrency-mt-unsafe)

bool pst_fault_is_set(void)
{
    return atomic_load_explicit(&fault.left, memory_order_relaxed) > 0;
}

/* Actions: "hang": this thread sleeps for ever; "stop": the whole process is
 * stopped; "spin": the thread computes for ever; "kill", "crash", "exit": the
 * process ends; a number: the thread sleeps so many ms. */
static void run_action(void)
{
    const long ms = strtol(fault.action, NULL, 10);

    if (fault.once != NULL && unlink(fault.once) != 0)
        return; /* the fault has happened before */
    if (!fault.again)
        (void)dprintf(STDERR_FILENO, "PENSTOCK_FAULT: %s: %s\n", fault.point,
                      fault.action);
    if (ms > 0)
        (void)usleep((useconds_t)(ms * 1000));
    if (strcmp(fault.action, "kill") == 0)
        (void)raise(SIGKILL);
    if (strcmp(fault.action, "crash") == 0)
        (void)raise(SIGSEGV);
    if (strcmp(fault.action, "exit") == 0)
        _exit(3);
    if (strcmp(fault.action, "stop") == 0)
        (void)raise(SIGSTOP);
    while (strcmp(fault.action, "hang") == 0)
        (void)pause();
    while (strcmp(fault.action, "spin") == 0)
        atomic_signal_fence(memory_order_seq_cst);
}

static bool is_due(const char *name)
{
    if (!pst_fault_is_set() || strcmp(fault.point, name) != 0)
        return false;
    if (fault.again && atomic_load(&fault.left) == 1)
        return true;
    return atomic_fetch_sub(&fault.left, 1) == 1;
}

/* Returns the number in the file of PENSTOCK_GATE; without a number in it, the
 * maximum, so that no step waits. */
static uint64_t gate_number(void)
{
    char text[24] = "";
    const int fd = open(gate, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return UINT64_MAX;
    n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    return n > 0 ? strtoull(text, NULL, 10) : UINT64_MAX;
}

/* Writes to a file beside the gate that this process waits before step nth. */
static void record_place(uint64_t nth)
{
    char path[4096];
    int fd;

    (void)snprintf(path, sizeof(path), "%s.at", gate);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    (void)dprintf(fd, "%llu\n", (unsigned long long)nth);
    (void)close(fd);
}

void pst_fault_gate(uint64_t step)
{
    const uint64_t nth = step + 1;

    if (gate == NULL || gate_number() >= nth)
        return;
    record_place(nth);
    while (gate_number() < nth)
        (void)usleep(1000);
}

void pst_fault_step(uint64_t step)
{
    if (pst_fault_is_set() && fault.step == step + 1 &&
        atomic_fetch_sub(&fault.left, 1) == 1)
        run_action();
}

void pst_fault_point(const char *name)
{
    if (is_due(name))
        run_action();
}

static void flip_bit(unsigned char *data, size_t size)
{
    const uint64_t bit =
        fault.has_bit ? fault.bit % (8 * (uint64_t)size) : 8 * (size / 2) + 4;

    data[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

void pst_fault_data(const char *name, void *data, size_t size)
{
    if (size == 0 || !is_due(name))
        return;
    if (strcmp(fault.action, "flip") == 0 &&
        (fault.once == NULL || unlink(fault.once) == 0))
        flip_bit(data, size);
    else
        run_action();
}
