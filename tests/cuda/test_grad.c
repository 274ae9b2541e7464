// SPDX-License-Identifier: Apache-2.0
/* Tests accumulate_grad on the device "cuda", on the emulated CUDA driver
 * (driver.cpp). test_kernels.c has no sample of this operator, since it has no
 * result. */
#include "tests/ops/on_device.h"

#include <string.h>

#include "stages/ops/core/rows.h"
#include "stages/ops/cuda/cuda.h"
#include "tests/test.h"

#define ROWS 33
#define COLS 31

static struct pst_device_memory device;

/* Accumulates a tensor with these strides, whose element (i, j) is 1000 i + j,
 * to a contiguous tensor of 0.5, and checks the sums. */
static void check_sum(enum pst_dtype dtype, int64_t row, int64_t col)
{
    const int64_t sizes[] = {ROWS, COLS};
    const struct pst_meta to = pst_meta_make(dtype, 2, sizes);
    struct pst_meta from = to;
    PST_ALIGNED(16) char x[sizeof(double) * ROWS * COLS];
    PST_ALIGNED(16) char y[sizeof(double) * ROWS * COLS];
    struct pst_operand in[] = {{y, &to}, {x, &from}};
    struct pst_call call = {.in = in, .n_in = 2};
    const struct on_device_block blocks[] = {{y, sizeof(y)}, {x, sizeof(x)}};
    const struct pst_kernel *kernel;

    from.stride[0] = row;
    from.stride[1] = col;
    for (int64_t k = 0; k < (int64_t)ROWS * COLS; k++) {
        pst_store_f64(dtype, y, k, 0.5);
        pst_store_f64(dtype, x, k / COLS * row + k % COLS * col,
                      1000.0 * (double)(k / COLS) + (double)(k % COLS));
    }
    kernel = pst_kernel_find(&pst_device_cuda, &pst_op_accumulate_grad, &call,
                             PST_ISA_ANY, NULL);
    assert_non_null(kernel);
    assert_true((kernel->flags & PST_K_QUEUED) != 0);
    on_device_run(&device, kernel, &call, blocks, PST_COUNT(blocks));
    for (int64_t k = 0; k < (int64_t)ROWS * COLS; k++)
        assert_true(pst_load_f64(dtype, y, k) ==
                    1000.0 * (double)(k / COLS) + (double)(k % COLS) + 0.5);
}

static void adds(void **state)
{
    (void)state;
    check_sum(PST_F32, COLS, 1); /* 1023 elements, not a multiple of four */
    check_sum(PST_F32, 1, ROWS);
    check_sum(PST_F64, COLS, 1);
    check_sum(PST_F64, 1, ROWS);
}

static int setup(void **state)
{
    (void)state;
    return on_device_open(&device, 1 << 20);
}

static int teardown(void **state)
{
    (void)state;
    pst_device_close(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(adds)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
