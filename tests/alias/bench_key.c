// SPDX-License-Identifier: Apache-2.0
/*
 * usage: bench-alias-key
 *
 * Measures the time to find a bound plan: nanoseconds of pst_alias_key() per
 * operand, for calls with various numbers of operands. Every fourth operand
 * shares a storage with earlier ones.
 */
#include "stages/alias/operands.h"

#include <stdio.h>
#include <time.h>

#define MOST 256

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    static struct pst_alias_operand operands[MOST];
    static const int64_t sizes[] = {4, 128, 64};
    uint64_t sum = 0;

    for (unsigned i = 0; i < MOST; i++)
        operands[i] =
            (struct pst_alias_operand){.tensor = i,
                                       .storage = i / 4 * 4,
                                       .meta = pst_meta_make(PST_F32, 3, sizes),
                                       .offset = i % 4 * 1000};
    for (unsigned n = 1; n <= MOST; n *= 4) {
        const unsigned times = 400000 / n;
        double best = 1e9;

        for (unsigned round = 0; round < 5; round++) {
            const double begin = now();

            for (unsigned i = 0; i < times; i++) {
                operands[0].offset = i & 1;
                sum += pst_alias_key(operands, n);
            }
            best = PST_MIN(best, (now() - begin) / times);
        }
        (void)printf("%4u operands: %7.1f ns each\n", n, 1e9 * best / n);
    }
    return sum == 0;
}
