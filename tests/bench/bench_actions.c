// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the executor's overhead: kernels of the small model do nothing, so
 * that slots, messages, local copies, marks and agreement remain. Prints the
 * microseconds per action of the rank with the most actions; judges nothing.
 *
 *   bench-actions [MICROBATCHES]              four stages in one process
 *   mpiexec -n 2 bench-actions MICROBATCHES mpi
 */
#include "tests/run/net.h"

#include <stdlib.h>

#include "stages/layout/layout.h"

#define STEPS 200

static void run_nothing(const struct pst_call *call)
{
    (void)call;
}

static void empty_kernels(struct pst_engine *engine)
{
    for (unsigned i = 0; i < engine->n_local; i++) {
        for (unsigned s = 0; s < engine->grid->sched->n_stages; s++) {
            const struct pst_layout *layout = pst_rank_layout(engine->ranks[i]);
            struct pst_program *p = layout->stages[s].program;

            for (int l = 0; p != NULL && l < PST_N_LISTS; l++)
                for (unsigned k = 0; k < p->lists[l].n; k++) {
                    struct pst_kernel *kernel = pst_arena_memdup(
                        &p->arena, p->lists[l].at[k].kernel, sizeof(*kernel));

                    assert_non_null(kernel);
                    kernel->run = run_nothing;
                    p->lists[l].at[k].kernel = kernel;
                }
        }
    }
}

static enum pst_status no_data(void *ctx, uint64_t step, unsigned microbatch,
                               unsigned input, void *dst, struct pst_diag *diag)
{
    (void)ctx, (void)step, (void)microbatch, (void)input;
    (void)dst, (void)diag;
    return PST_OK;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void measure(struct pst_transport *t, unsigned ranks,
                    unsigned microbatches, const char *schedule)
{
    struct pst_exec_options options =
        net_options(schedule, ranks, microbatches, "none");
    double took[STEPS];
    size_t actions = 0;
    struct pst_engine *engine;
    struct pst_diag diag;
    struct net net;

    pst_diag_init(&diag);
    options.keep_outputs = options.grad_norm = false;
    net_init(&net, 4);
    assert_ok(pst_engine_new(net.plan, t, &options, &engine, &diag), &diag);
    empty_kernels(engine);
    for (unsigned i = 0; i < engine->n_local; i++)
        actions += pst_rank_actions(engine->ranks[i])->n;
    for (unsigned s = 0; s < STEPS; s++) {
        struct pst_step_result result;
        double begin = pst_now();

        assert_ok(pst_engine_step(engine, s, no_data, NULL, 0, &result, &diag),
                  &diag);
        took[s] = (pst_now() - begin) * 1e6 / (double)actions;
    }
    qsort(took, STEPS, sizeof(*took), compare);
    if (t->ops->rank(t) == 0)
        printf("%-5s %u rank%s %4u microbatches: %5zu actions, best %.3f, "
               "median %.3f us "
               "each\n",
               t->ops->name, ranks, ranks == 1 ? ", " : "s,", microbatches,
               actions, took[0], took[STEPS / 2]);
    pst_engine_free(engine);
    net_fini(&net);
}

int main(int argc, char **argv)
{
    struct pst_transport *t;
    struct pst_diag diag;
    int64_t m = 64;

    if (argc > 1 && (!pst_parse_i64(argv[1], &m) || m < 1 || m > 4096))
        return 64;
    pst_diag_init(&diag);
    if (argc > 2) {
        assert_ok(pst_transport_mpi.open("", &t, &diag), &diag);
        measure(t, t->ops->size(t), (unsigned)m, "1f1b");
        t->ops->close(t);
        return 0;
    }
    for (unsigned ranks = 1; ranks <= 4; ranks *= 2) {
        char spec[8];

        snprintf(spec, sizeof(spec), "%u", ranks);
        assert_ok(pst_transport_self.open(spec, &t, &diag), &diag);
        measure(t, ranks, (unsigned)m, "1f1b");
        t->ops->close(t);
    }
    return 0;
}
