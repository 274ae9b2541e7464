// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_TEST_H
#define PENSTOCK_TESTS_TEST_H
/* cmocka with the headers that it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stages/base/diag.h"

/* Fails the test with the diagnosis if status is not PST_OK. */
#define assert_ok(status, diag)                                                \
    do {                                                                       \
        enum pst_status s_ = (status);                                         \
        if (s_ != PST_OK)                                                      \
            fail_msg("%s: %s", pst_status_name(s_), (diag)->text);             \
    } while (0)

#endif
