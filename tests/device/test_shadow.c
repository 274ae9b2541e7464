// SPDX-License-Identifier: Apache-2.0
/* Tests a device whose memory the host cannot access: the bits are the same,
 * and an access by the host is detected. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "stages/base/host/fs.h"
#include "stages/ops/cpu/shadow.h"
#include "stages/run/rank/whole.h"
#include "tests/run/job.h"

static struct run run_on(const struct pst_device *device, unsigned stages,
                         unsigned flags, struct pst_exec_options options)
{
    options.device = device;
    return run_as(stages, flags, &options);
}

/* Asserts the same bits as on the CPU, and that kernels and tasks ran on the
 * device and bytes were copied both ways. */
static void same_bits(unsigned stages, unsigned flags,
                      const struct pst_exec_options *options)
{
    struct run cpu = run_on(&pst_device_cpu, stages, flags, *options);
    const struct pst_shadow_counts before = pst_shadow_counts();
    struct run shadow = run_on(&pst_device_shadow, stages, flags, *options);
    const struct pst_shadow_counts after = pst_shadow_counts();

    assert_same_dump(cpu.dump, shadow.dump);
    assert_true(cpu.norm == shadow.norm && cpu.loss == shadow.loss);
    assert_true(after.launches > before.launches);
    assert_true(after.tasks > before.tasks);
    assert_true(after.copies_in > before.copies_in);
    assert_true(after.copies_out > before.copies_out);
    pst_dump_free(cpu.dump);
    pst_dump_free(shadow.dump);
}

/* The bits are those of the CPU, for several cuts, schedules and two
 * optimizers, also with a transmitted parameter (split --transmit) and with two
 * replicas. */
static void keeps_the_bits(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1",
                                            "interleaved-1f1b"};

    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++)
        for (size_t k = 0; k < PST_COUNT(schedules); k++) {
            const bool loops = k >= 2;
            const unsigned ranks =
                loops && stages == 4 ? 2 : PST_MAX(1, stages - stages / 4);
            struct pst_exec_options options =
                net_options(schedules[k], ranks, 4, k % 2 ? "adamw" : "sgd");

            if (loops && stages != 4)
                continue;
            same_bits(stages, 0, &options);
            same_bits(stages, NET_TRANSMIT, &options);
            options.replicas = 2;
            same_bits(stages, NET_STILL, &options);
        }
}

/* The bits are the same for other orders of the delayed work of the device. */
static void keeps_the_bits_in_any_order(void **state)
{
    static const char *const orders[] = {"2", "3", "4", "5"};
    struct pst_exec_options options = net_options("zb-h1", 3, 4, "adamw");

    (void)state;
    for (size_t i = 0; i < PST_COUNT(orders); i++) {
        assert_int_equal(setenv("PENSTOCK_SHADOW_LAG", orders[i], 1), 0);
        same_bits(3, NET_TRANSMIT, &options);
    }
    assert_int_equal(unsetenv("PENSTOCK_SHADOW_LAG"), 0);
}

/* The device fails at some piece of work: the step ends and reports it. */
static void names_a_device_that_fails(void **state)
{
    static const char *const orders[] = {"1:1", "2:40", "3:200", "4:700"};
    struct pst_exec_options options = net_options("1f1b", 3, 4, "adamw");

    (void)state;
    options.device = &pst_device_shadow;
    for (size_t i = 0; i < PST_COUNT(orders); i++) {
        enum pst_status status = PST_OK;
        struct job job;

        assert_int_equal(setenv("PENSTOCK_SHADOW_LAG", orders[i], 1), 0);
        job_init(&job, 3, &options);
        for (unsigned s = 0; s < 50 && status == PST_OK; s++)
            status = job_step(&job, s);
        assert_int_equal(status, PST_ERR_DEVICE);
        assert_non_null(strstr(job.net.diag.text, "device shadow has failed"));
        job_fini(&job);
    }
    assert_int_equal(unsetenv("PENSTOCK_SHADOW_LAG"), 0);
}

static void names_what_a_device_lacks(void **state)
{
    struct pst_diag diag;
    pst_task_fn run;

    (void)state;
    pst_diag_init(&diag);
    assert_int_equal(
        pst_device_task(&pst_device_shadow, "update.none", &run, &diag),
        PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "shadow"));
    assert_non_null(strstr(diag.text, "update.none"));
}

/* --- planted touches ------------------------------------------------------ */

static sigjmp_buf back;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

typedef void (*touch_fn)(struct job *job);

/* Returns true if `touch` ends with a fault. The job's memory is then not
 * freed. */
static bool does_fault(touch_fn touch, struct job *job)
{
    const struct sigaction action = {.sa_handler = on_fault};
    struct sigaction old;
    volatile bool ret = false;

    assert_int_equal(sigaction(SIGSEGV, &action, &old), 0);
    if (sigsetjmp(back, 1) == 0)
        touch(job);
    else
        ret = true;
    assert_int_equal(sigaction(SIGSEGV, &old, NULL), 0);
    return ret;
}

static void do_step(struct job *job)
{
    (void)job_step(job, 1);
}

static void read_gradient(struct job *job)
{
    struct pst_rank *r = job->engine->ranks[0];
    volatile unsigned char byte =
        *pst_rank_at(r->device, r->plan.layout.grads.at[0].offset);

    (void)byte;
}

static void write_parameter(struct job *job)
{
    struct pst_rank *r = job->engine->ranks[1];

    *(volatile float *)pst_rank_at(r->device,
                                   r->plan.layout.params.at[0].data) = 1;
}

static void expect_fault(const struct pst_transport_ops *ops, touch_fn touch,
                         bool want)
{
    struct pst_exec_options options = net_options("1f1b", 3, 4, "adamw");
    struct job job;

    options.device = &pst_device_shadow;
    job_init(&job, 3, &options);
    run_steps(&job, 0, 1);
    for (unsigned i = 0; ops != NULL && i < job.engine->n_local; i++)
        job.engine->ranks[i]->traffic.staged =
            (options.device->space & ops->spaces) == 0;
    assert_int_equal(does_fault(touch, &job), want);
    job_fini(&job);
}

static void catches_a_touch(void **state)
{
    struct pst_transport_ops liar = pst_transport_self;

    (void)state;
    expect_fault(NULL, do_step, false);
    expect_fault(NULL, read_gradient, true);
    expect_fault(NULL, write_parameter, true);
    /* A transport that claims to send from device memory. */
    liar.spaces |= PST_SPACE_DEVICE;
    expect_fault(&pst_transport_self, do_step, false);
    expect_fault(&liar, do_step, true);
}

/* --- files ---------------------------------------------------------------- */

static struct pst_dump *load_on(const struct pst_device *device,
                                const char *dir)
{
    struct pst_exec_options options = net_options("1f1b", 3, 4, "adamw");
    struct pst_dump *ret;
    struct job job;
    uint64_t step;

    options.device = device;
    job_init(&job, 3, &options);
    assert_ok(net_load(job.engine, dir, &step, &job.net.diag), &job.net.diag);
    assert_int_equal(step, 2);
    run_steps(&job, 2, 3);
    ret = job_dump(&job);
    job_fini(&job);
    return ret;
}

/* Checkpoints saved on one device are loaded on the other, and back. */
static void checkpoints_go_between_devices(void **state)
{
    const struct pst_device *const devices[] = {&pst_device_cpu,
                                                &pst_device_shadow};
    struct pst_dump *dumps[4];
    unsigned n = 0;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct pst_exec_options options = net_options("1f1b", 3, 4, "adamw");
        char dir[] = "/tmp/penstock-shadow-XXXXXX";
        struct job job;

        assert_non_null(mkdtemp(dir));
        options.device = devices[i];
        job_init(&job, 3, &options);
        run_steps(&job, 0, 2);
        assert_ok(pst_engine_save(job.engine, dir, 2, 1, NULL, &job.net.diag),
                  &job.net.diag);
        job_fini(&job);
        for (unsigned k = 0; k < 2; k++)
            dumps[n++] = load_on(devices[k], dir);
        assert_ok(pst_remove_tree(dir, NULL), &job.net.diag);
    }
    for (unsigned i = 1; i < n; i++)
        assert_same_dump(dumps[0], dumps[i]);
    for (unsigned i = 0; i < n; i++)
        pst_dump_free(dumps[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(keeps_the_bits_in_any_order),
        cmocka_unit_test(names_a_device_that_fails),
        cmocka_unit_test(names_what_a_device_lacks),
        cmocka_unit_test(catches_a_touch),
        cmocka_unit_test(checkpoints_go_between_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
