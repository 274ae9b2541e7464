// SPDX-License-Identifier: Apache-2.0
/* Tests whole steps on the device "cuda", on the emulated CUDA driver
 * (driver.cpp). Every cut and schedule gives the same bits, and the numbers are
 * those of the CPU. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include "stages/ops/cuda/cuda.h"
#include "stages/ops/devices.h"
#include "tests/run/job.h"

static struct run run_on(const struct pst_device *device, unsigned stages,
                         unsigned flags, struct pst_exec_options options)
{
    options.device = device;
    return run_as(stages, flags, &options);
}

/* Asserts that loss, norm and every f32 tensor of the dump agree within
 * rounding. */
static void assert_close(const struct run *a, const struct run *b)
{
    size_t n;
    const struct pst_dump_item *items = pst_dump_items(b->dump, &n);

    for (size_t i = 0; i < n; i++) {
        const struct pst_dump_item *other =
            pst_dump_find(a->dump, items[i].name);
        const int64_t numel = pst_meta_numel(&items[i].meta);
        const float *x = items[i].data, *y;
        double largest = 0.0;

        assert_non_null(other);
        y = other->data;
        if (items[i].meta.dtype != PST_F32)
            continue;
        for (int64_t k = 0; k < numel; k++)
            largest = fmax(largest, fabs((double)x[k]));
        for (int64_t k = 0; k < numel; k++)
            if (!(fabs((double)x[k] - (double)y[k]) <= 1e-4 * largest))
                fail_msg("%s: element %lld is %.9g, not %.9g", items[i].name,
                         (long long)k, (double)y[k], (double)x[k]);
    }
    assert_true(fabs(a->loss - b->loss) <= 1e-5 * fabs(b->loss));
    assert_true(fabs(a->norm - b->norm) <= 1e-4 * fabs(b->norm));
}

/* All cuts and schedules give the same bits as one stage. */
static void keeps_the_bits(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    struct pst_exec_options options = net_options("gpipe", 1, 4, "adamw");
    struct run cpu = run_on(&pst_device_cpu, 1, 0, options);
    struct run whole = run_on(&pst_device_cuda, 1, 0, options);

    (void)state;
    assert_close(&whole, &cpu);
    for (unsigned stages = 2; stages <= 3; stages++)
        for (size_t k = 0; k < PST_COUNT(schedules); k++) {
            struct run cut;

            options = net_options(schedules[k], stages, 4, "adamw");
            cut = run_on(&pst_device_cuda, stages, NET_TRANSMIT, options);
            assert_same_dump(whole.dump, cut.dump);
            assert_true(whole.loss == cut.loss && whole.norm == cut.norm);
            pst_dump_free(cut.dump);
        }
    pst_dump_free(cpu.dump);
    pst_dump_free(whole.dump);
}

static void sums_replicas(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "sgd");
    struct run cpu, cuda;

    (void)state;
    options.replicas = 2;
    cpu = run_on(&pst_device_cpu, 2, NET_STILL, options);
    cuda = run_on(&pst_device_cuda, 2, NET_STILL, options);
    assert_close(&cuda, &cpu);
    pst_dump_free(cpu.dump);
    pst_dump_free(cuda.dump);
}

/* Returns how many copies the emulated driver has made between devices. */
static unsigned long count_peer_copies(void)
{
    void *driver = dlopen(getenv("PENSTOCK_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
    const unsigned long *n =
        driver != NULL ? dlsym(driver, "driver_peer_copies") : NULL;

    assert_non_null(n);
    return *n;
}

/* Ranks of one process on several GPUs give the bits of one rank, whether their
 * messages are copied from GPU to GPU or pass through the host. */
static void uses_several(void **state)
{
    static const struct {
        unsigned stages;
        const char *schedule, *devices;
        unsigned replicas;
    } cases[] = {{2, "1f1b", "cuda", 1},
                 {3, "zb-h1", "cuda:1,cuda:0", 1},
                 {2, "gpipe", "cuda:0,cuda:0,cuda:1", 2}};
    const bool reaches = getenv("PENSTOCK_TEST_CUDA_PEERS") == NULL;

    (void)state;
    if (getenv("PENSTOCK_LIBCUDA") == NULL)
        skip();
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_exec_options options =
            net_options(cases[i].schedule, cases[i].stages, 4, "adamw");
        const unsigned long before = count_peer_copies();
        struct run one, several;

        options.replicas = cases[i].replicas;
        one = run_on(&pst_device_cuda, cases[i].stages, NET_STILL, options);
        assert_int_equal(count_peer_copies(), before);
        options.devices = cases[i].devices;
        several = run_on(&pst_device_cuda, cases[i].stages, NET_STILL, options);
        assert_same_dump(one.dump, several.dump);
        assert_true(one.loss == several.loss && one.norm == several.norm);
        assert_int_equal(count_peer_copies() > before, reaches);
        pst_dump_free(one.dump);
        pst_dump_free(several.dump);
    }
}

/* One process has devices of one kind. */
static void refuses_kinds(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "adamw");
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct net net;

    (void)state;
    options.device = &pst_device_cuda;
    options.devices = "cuda,cpu";
    net_init_as(&net, 2, 0);
    assert_ok(pst_transport_self.open("2", &transport, &net.diag), &net.diag);
    assert_int_equal(
        pst_engine_new(net.plan, transport, &options, &engine, &net.diag),
        PST_ERR_USAGE);
    assert_non_null(strstr(net.diag.text, "ranks 0 and 1 are in one process"));
    pst_transport_self.close(transport);
    net_fini(&net);
}

static void finds_devices(void **state)
{
    const struct pst_device *device;
    struct pst_diag diag;
    unsigned ordinal;

    (void)state;
    if (getenv("PENSTOCK_LIBCUDA") == NULL)
        skip(); /* a machine may have one GPU; the emulated driver has two */
    pst_diag_init(&diag);
    assert_ok(pst_device_find("cuda:1,cpu", 0, 0, &device, &ordinal, &diag),
              &diag);
    assert_ptr_equal(device, &pst_device_cuda);
    assert_int_equal(ordinal, 1);
    assert_ok(pst_device_find("cuda:1,cpu", 1, 1, &device, &ordinal, &diag),
              &diag);
    assert_ptr_equal(device, &pst_device_cpu);
    assert_ok(pst_device_find("cuda:1,cpu", 7, 0, &device, &ordinal, &diag),
              &diag);
    assert_ptr_equal(device, &pst_device_cpu);
    assert_ok(pst_device_find("cuda", 5, 3, &device, &ordinal, &diag), &diag);
    assert_int_equal(ordinal, 1); /* the emulated driver has two */
    assert_int_equal(pst_device_find("cuda:2", 0, 0, &device, &ordinal, &diag),
                     PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "no GPU number 2"));
    assert_int_equal(pst_device_find("cuda:x", 0, 0, &device, &ordinal, &diag),
                     PST_ERR_USAGE);
    assert_int_equal(pst_device_find("gpu", 0, 0, &device, &ordinal, &diag),
                     PST_ERR_USAGE);
    assert_int_equal(pst_device_find("", 0, 0, &device, &ordinal, &diag),
                     PST_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_devices), cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(sums_replicas), cmocka_unit_test(uses_several),
        cmocka_unit_test(refuses_kinds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
