// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CASES_CASE_H
#define PENSTOCK_TESTS_CASES_CASE_H
/*
 * One numeric case of an operator, made by PyTorch: an exported program with
 * one operator, its inputs, and the expected results and gradients. One thread.
 */
#include "stages/files/safetensors.h"
#include "stages/ops/core/call.h"
#include "tests/cases/excuse.h"

#include <jansson.h>

enum verdict {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_REFUSED, /* known.txt says that the program is not imported */
    N_VERDICTS
};

/* A case that is being checked. */
struct trial {
    const json_t *spec; /* its line of cases.json; borrowed */
    struct pst_safetensors *given;
    struct pst_eval *eval;
    struct excuses *excuses; /* borrowed; NULL: none */
    char *text;              /* what is wrong; buffer of `size` bytes */
    size_t size;
};

/* Runs the case of folder `dir` with reference kernels or the best ones. Unless
 * it passes, `text` (of size bytes) says why. Wrong tensors that are excused do
 * not count; excuses may be NULL. */
enum verdict case_run(const json_t *spec, const char *dir, bool reference,
                      struct excuses *excuses, char *text, size_t size);

/* --- judge.c ------------------------------------------------------------ */

/* A computed tensor, with its own strides. data NULL: absent. */
struct got {
    struct pst_meta meta;
    const void *data;
};

/* Returns false, with trial->text set, if got differs from the entry `name` and
 * that is not excused. */
bool compare_tensor(const struct trial *t, const char *name,
                    const struct got *got, bool gradient);
/* Does the same for the properties that a random operator guarantees. */
bool apply_checks(const struct trial *t, const struct got *out, size_t n,
                  const struct got *grad_x);
/* Sets trial->text and returns false. */
bool compare_fail(const struct trial *t, const char *fmt, ...) PST_PRINTF(2, 3);

#endif
