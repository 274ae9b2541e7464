// SPDX-License-Identifier: Apache-2.0
/* SANITIZED: true if the tests are built with a sanitizer, which takes time and
 * memory itself: limits of either do not hold then, and a test with many cases
 * of one kind runs fewer. */
#ifndef PENSTOCK_TESTS_SANITIZED_H
#define PENSTOCK_TESTS_SANITIZED_H

#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

#endif
