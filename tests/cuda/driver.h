// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CUDA_DRIVER_H
#define PENSTOCK_TESTS_CUDA_DRIVER_H
/* Functions of the CUDA driver of the tests for a library over it. */
#include <functional>

/* Enqueues work in a stream. Device memory is accessible while it runs. Returns
 * false if the driver has failed (PENSTOCK_TEST_CUDA). */
bool driver_enqueue(void *stream, std::function<void()> run);

#endif
