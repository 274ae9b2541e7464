// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_JOB_H
#define PENSTOCK_TESTS_RUN_JOB_H
/* Runs of the small model (net.h) on transport self. */
#include "tests/run/net.h"
#include "tests/run/proof/proof.h"

#include <math.h>

#define STEPS 3

/* An engine with a net of its own. */
struct job {
    struct net net;
    struct net_data data;
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_step_result last;
};

static inline void job_init_as(struct job *job, unsigned stages, unsigned flags,
                               const struct pst_exec_options *options)
{
    struct pst_diag *diag = &job->net.diag;
    char ranks[16];

    net_init_as(&job->net, stages, flags);
    job->data = net_data(&job->net);
    snprintf(ranks, sizeof(ranks), "%u",
             options->ranks * PST_MAX(options->replicas, 1));
    assert_ok(pst_transport_self.open(ranks, &job->transport, diag), diag);
    assert_ok(pst_engine_new(job->net.plan, job->transport, options,
                             &job->engine, diag),
              diag);
    assert_ok(prove_layouts(job->engine, diag), diag);
}

static inline void job_init(struct job *job, unsigned stages,
                            const struct pst_exec_options *options)
{
    job_init_as(job, stages, 0, options);
}

static inline void job_fini(struct job *job)
{
    pst_engine_free(job->engine);
    pst_transport_self.close(job->transport);
    net_fini(&job->net);
}

static inline enum pst_status job_step(struct job *job, uint64_t step)
{
    return pst_engine_step(job->engine, step, net_fill, &job->data, 0,
                           &job->last, &job->net.diag);
}

static inline struct pst_dump *job_first(struct job *job)
{
    struct pst_dump *dump;

    assert_ok(pst_engine_dump_first(job->engine, &dump, &job->net.diag),
              &job->net.diag);
    return dump;
}

static inline void job_state(struct job *job, struct pst_dump *dump)
{
    assert_ok(pst_engine_dump_state(job->engine, dump, &job->net.diag),
              &job->net.diag);
}

/* Returns a dump of the last step's results and of the state after it. */
static inline struct pst_dump *job_dump(struct job *job)
{
    struct pst_dump *dump = job_first(job);

    job_state(job, dump);
    return dump;
}

/* Runs steps, which must use exactly the planned peak and allocate nothing. */
static inline void run_steps(struct job *job, unsigned from, unsigned to)
{
    uint64_t calls;

    for (unsigned s = from; s < to; s++) {
        calls = pst_alloc_calls();
        assert_ok(job_step(job, s), &job->net.diag);
        assert_true(job->last.applied);
        assert_int_equal(pst_alloc_calls(), calls);
    }
    for (unsigned k = 0; k < pst_engine_n_local(job->engine); k++)
        assert_int_equal(pst_engine_high_water(job->engine, k),
                         pst_engine_memory(job->engine, k).arena);
}

struct run {
    struct pst_dump *dump;
    double norm, loss;
};

/* Runs some steps; returns the dump of the first one with the state after the
 * last. */
static inline struct run run_as(unsigned stages, unsigned flags,
                                const struct pst_exec_options *options)
{
    struct run ret;
    struct job job;

    job_init_as(&job, stages, flags, options);
    run_steps(&job, 0, 1);
    ret.dump = job_first(&job);
    run_steps(&job, 1, STEPS);
    job_state(&job, ret.dump);
    ret.norm = job.last.grad_norm;
    ret.loss = job.last.loss;
    job_fini(&job);
    return ret;
}

static inline struct run run(unsigned stages,
                             const struct pst_exec_options *options)
{
    return run_as(stages, 0, options);
}

/* Returns the largest difference of two floating-point tensors, relative to the
 * largest value of the first. */
static inline double distance(const struct pst_dump_item *a,
                              const struct pst_dump_item *b)
{
    double most = 1e-30, off = 0;

    for (int64_t i = 0; i < pst_meta_numel(&a->meta); i++) {
        double u = ((const float *)a->data)[i];
        double v = ((const float *)b->data)[i];

        most = fmax(most, fabs(u));
        off = fmax(off, fabs(u - v));
        if (isnan(u) || isnan(v))
            return NAN;
    }
    return off / most;
}

static inline void assert_near(const struct pst_dump *a,
                               const struct pst_dump *b, double tolerance)
{
    size_t n, n_b;
    const struct pst_dump_item *items = pst_dump_items(a, &n);

    (void)pst_dump_items(b, &n_b);
    assert_int_equal(n, n_b);
    for (size_t i = 0; i < n; i++) {
        const struct pst_dump_item *match = pst_dump_find(b, items[i].name);

        assert_non_null(match);
        assert_true(pst_meta_same(&match->meta, &items[i].meta));
        if (items[i].meta.dtype == PST_F32 &&
            !(distance(&items[i], match) <= tolerance))
            fail_msg("%s differs by %g", items[i].name,
                     distance(&items[i], match));
    }
}

#endif
