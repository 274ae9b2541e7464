// SPDX-License-Identifier: Apache-2.0
/* Every schedule on the small model: the bits of one stage in one process. */
#include <unistd.h>

#include "tests/exec/job.h"

/* On 4 stages: ranks that the schedule can use, and microbatches. */
struct row {
    const char *name;
    unsigned ranks, microbatches;
};

static const struct row rows[] = {
    {"gpipe", 4, 5},
    {"1f1b", 4, 1},
    {"1f1b", 3, 5},
    {"interleaved-1f1b", 1, 4},
    {"interleaved-1f1b", 2, 4},
    {"interleaved-1f1b", 2, 5},
    {"interleaved-1f1b", 4, 7},
    {"looped-bfs", 1, 3},
    {"looped-bfs", 2, 4},
    {"looped-bfs", 4, 5},
    {"zb-h1", 1, 4},
    {"zb-h1", 2, 1},
    {"zb-h1", 2, 5},
    {"zb-h1", 4, 8},
    {"zb-v", 2, 1},
    {"zb-v", 2, 4},
    {"zb-v", 2, 9},
    {"dualpipe-v", 2, 4},
    {"dualpipe-v", 2, 7},
};

static void keeps_the_bits(const char *name, unsigned ranks, unsigned m)
{
    struct pst_exec_options options = net_options("gpipe", 1, m, "adamw");
    struct run whole = run(1, &options), cut;

    options = net_options(name, ranks, m, "adamw");
    cut = run(4, &options);
    assert_same_dump(whole.dump, cut.dump);
    assert_true(whole.norm == cut.norm && whole.loss == cut.loss);
    pst_dump_free(whole.dump);
    pst_dump_free(cut.dump);
}

static void generated_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        print_message("%s on %u ranks, %u microbatches\n", rows[i].name,
                      rows[i].ranks, rows[i].microbatches);
        keeps_the_bits(rows[i].name, rows[i].ranks, rows[i].microbatches);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
