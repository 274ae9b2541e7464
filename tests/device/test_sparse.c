// SPDX-License-Identifier: Apache-2.0
/* Tests a device that has kernels for few operators, in a table of its own:
 * missing operators are refused by name, the others run. */
#include "stages/ops/core/order.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/cpu/shadow.h"
#include "stages/ops/cpu/tasks.h"
#include "tests/run/job.h"

static unsigned own_runs;

/* Runs as the device's own kernel; it gives the same bits as the CPU's. */
static void own_tanh(const struct pst_call *c)
{
    struct pst_call call = *c;

    own_runs++;
    pst_kernel_choose(&pst_op_tanh, &call, pst_cpu_isa(), NULL)->run(&call);
}

static const struct pst_kernel own_tanh_kernels[] = {
    {"own_tanh", PST_ISA_ANY, PST_D(F32), 0, NULL, NULL, own_tanh, 0.0},
};
static const struct pst_kernels own_tanh_row = {
    own_tanh_kernels, (unsigned)PST_COUNT(own_tanh_kernels)};

/* NULL: the device has no kernel. */
static const struct pst_kernels *const few[PST_N_KERNEL_OPS] = {
    [PST_AT_tanh] = &own_tanh_row,
};

static struct pst_device device_of(const struct pst_kernels *const *table)
{
    struct pst_device ret = pst_device_shadow;

    ret.name = "sparse";
    ret.kernels = table;
    ret.adapt = NULL;
    return ret;
}

static enum pst_status start(struct job *job, const struct pst_device *device)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "sgd");

    options.device = device;
    net_init(&job->net, 2);
    job->data = net_data(&job->net);
    assert_ok(pst_transport_self.open("2", &job->transport, &job->net.diag),
              &job->net.diag);
    job->engine = NULL;
    return pst_engine_new(job->net.plan, job->transport, &options, &job->engine,
                          &job->net.diag);
}

static void refuses_by_name(void **state)
{
    const struct pst_device device = device_of(few);
    struct job job;

    (void)state;
    assert_int_equal(start(&job, &device), PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(job.net.diag.text, "device sparse has no kernel of "
                                              "aten.linear.default"));
    assert_non_null(strstr(job.net.diag.text, "module 'a'"));
    job_fini(&job);
}

/* An optimizer whose task the device lacks is refused before the first step. */
static void refuses_optimizers(void **state)
{
    static const struct pst_task_row tasks[] = {
#define ROW(name, run) {(name), (run)},
        PST_CPU_TASKS(ROW)
#undef ROW
    };
    struct pst_exec_options options = net_options("1f1b", 2, 4, "lamb");
    struct pst_task_row some[PST_COUNT(tasks)];
    struct pst_device device = pst_device_shadow;
    struct job job;

    (void)state;
    device.name = "sparse";
    device.tasks = some;
    device.n_tasks = 0;
    for (size_t i = 0; i < PST_COUNT(tasks); i++)
        if (strcmp(tasks[i].name, "update.lamb") != 0)
            some[device.n_tasks++] = tasks[i];
    options.device = &device;
    net_init(&job.net, 2);
    job.data = net_data(&job.net);
    assert_ok(pst_transport_self.open("2", &job.transport, &job.net.diag),
              &job.net.diag);
    job.engine = NULL;
    assert_int_equal(pst_engine_new(job.net.plan, job.transport, &options,
                                    &job.engine, &job.net.diag),
                     PST_ERR_UNSUPPORTED);
    if (strstr(job.net.diag.text, "optimizer lamb (use --device cpu") == NULL)
        fail_msg("%s", job.net.diag.text);
    job_fini(&job);
}

/* Returns the operator that the text names as missing. */
static const struct pst_op *missing_op(const char *text)
{
    static const char before[] = "has no kernel of ";
    const char *at = strstr(text, before);
    char name[64];

    if (at == NULL)
        fail_msg("%s", text);
    at += strlen(before);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, " "), at);
    return pst_op_find(name);
}

static size_t place_of(const struct pst_op *op)
{
    static const struct pst_op *const ops[PST_N_KERNEL_OPS] = {
#define PST_OP(id) [PST_AT_##id] = &pst_op_##id,
#define PST_OP_NO_KERNEL(id)
#include "stages/ops/core/ops.def"
    };
    size_t i = 0;

    while (i < PST_N_KERNEL_OPS && ops[i] != op)
        i++;
    assert_true(i < PST_N_KERNEL_OPS);
    return i;
}

/* Each refusal names one operator. Once all of these are added, and no others,
 * the model runs, with the device's own kernel for tanh. */
static void runs_what_it_has(void **state)
{
    const struct pst_kernels *table[PST_N_KERNEL_OPS] = {NULL};
    const struct pst_device device = device_of(table);
    struct pst_exec_options options = net_options("1f1b", 2, 4, "sgd");
    enum pst_status status = PST_ERR_UNSUPPORTED;
    struct pst_dump *dump;
    struct run cpu;
    struct job job;
    unsigned n = 0;

    (void)state;
    table[PST_AT_tanh] = &own_tanh_row;
    while ((status = start(&job, &device)) == PST_ERR_UNSUPPORTED) {
        const struct pst_op *op = missing_op(job.net.diag.text);
        const size_t at = place_of(op);

        job_fini(&job);
        assert_null(table[at]);
        table[at] = pst_device_cpu.kernels[at];
        assert_true(++n < 40);
    }
    assert_ok(status, &job.net.diag);
    own_runs = 0;
    run_steps(&job, 0, 1);
    dump = job_first(&job);
    run_steps(&job, 1, STEPS);
    job_state(&job, dump);
    assert_int_equal(own_runs, STEPS * 4);
    cpu = run(2, &options);
    assert_same_dump(cpu.dump, dump);
    pst_dump_free(cpu.dump);
    pst_dump_free(dump);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(refuses_optimizers),
        cmocka_unit_test(runs_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
