// SPDX-License-Identifier: Apache-2.0
/* The fuzzer's program for all targets; PST_FUZZ_TARGET chooses one.
 * scripts/fuzz.sh builds it with clang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fuzz/targets/target.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                               unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* its own */

static const struct fuzz_target *target;
static unsigned long long n_runs, n_accepted;

/* Some of the inputs that were accepted. The fuzzer keeps what reaches new
 * lines, which is mostly refused, and whatever is derived from it is refused
 * for the same reason; so half of the changes begin at an accepted input. */
#define MAX_GOOD 64
static struct {
    uint8_t *data;
    size_t size;
} good[MAX_GOOD];

static void keep_good(const uint8_t *data, size_t size)
{
    const size_t at = (size_t)n_accepted < MAX_GOOD
                          ? (size_t)n_accepted
                          : (size_t)(n_runs * 0x9e3779b97f4a7c15u >> 58);
    uint8_t *copy = fuzz_alloc(size);

    if (size > 0)
        memcpy(copy, data, size);
    free(good[at].data);
    good[at].data = copy;
    good[at].size = size;
}

/* Says how many inputs were accepted: if nearly none is, only the first checks
 * of a reader are tested. */
static void print_accepted(void)
{
    (void)fprintf(stderr, "stat::accepted: %llu of %llu\n", n_accepted, n_runs);
}

/* Adds a flag in front of those of the command line, which override it. */
static void add_flag(int *argc, char ***argv, char *flag)
{
    static char *args[64];

    if (*argc + 2 > (int)PST_COUNT(args))
        return;
    args[0] = (*argv)[0];
    args[1] = flag;
    for (int i = 1; i < *argc; i++)
        args[i + 1] = (*argv)[i];
    ++*argc;
    *argv = args;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("PST_FUZZ_TARGET");
    static char most[32];

    target = name != NULL ? fuzz_find(name) : NULL;
    if (target != NULL) {
        (void)snprintf(most, sizeof(most), "-max_len=%zu", target->most);
        add_flag(argc, argv, most);
        return atexit(print_accepted);
    }
    (void)fprintf(stderr, "PST_FUZZ_TARGET has to be one of:");
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++)
        (void)fprintf(stderr, " %s", t->name);
    (void)fprintf(stderr, "\n");
    exit(64);
}

/* A slow input is a finding. libFuzzer measures the time of day, which a busy
 * machine prolongs. */
#define MAX_SECONDS 20

static double cpu_seconds(void)
{
    struct timespec now;

    fuzz_check(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0, "no clock");
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const double begin = cpu_seconds();

    if (target->run(data, size)) {
        keep_good(data, size);
        n_accepted++;
    }
    n_runs++;
    fuzz_check(cpu_seconds() - begin < MAX_SECONDS,
               "an input takes too much CPU time");
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most,
                               unsigned seed)
{
    struct fuzz_chance chance = {
        .random.state = (seed + 1) * 0x9e3779b97f4a7c15u,
        .bytes = LLVMFuzzerMutate,
    };

    const size_t from = mutator_pick(&chance.random, 2 * MAX_GOOD);

    if (from < MAX_GOOD && good[from].data != NULL && good[from].size <= most &&
        good[from].size > 0) {
        size = good[from].size;
        memcpy(data, good[from].data, size);
    }
    return target->change(&chance, data, size, most);
}
