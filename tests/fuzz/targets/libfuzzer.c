// SPDX-License-Identifier: Apache-2.0
/* The fuzzer's program for all targets; PST_FUZZ_TARGET chooses one.
 * scripts/fuzz.sh builds it with clang. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/targets/target.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("PST_FUZZ_TARGET");

    (void)argc;
    (void)argv;
    target = name != NULL ? fuzz_find(name) : NULL;
    if (target != NULL)
        return 0;
    (void)fprintf(stderr, "PST_FUZZ_TARGET has to be one of:");
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++)
        (void)fprintf(stderr, " %s", t->name);
    (void)fprintf(stderr, "\n");
    exit(64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)target->run(data, size);
    return 0;
}
