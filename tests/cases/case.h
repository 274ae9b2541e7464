// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_CASES_CASE_H
#define PENSTOCK_TESTS_CASES_CASE_H
/*
 * One numeric case of an operator, written by PyTorch: an exported program of
 * one operator, its inputs, what must come out, and the gradients. One thread.
 */
#include "stages/files/safetensors.h"
#include "stages/ops/core/call.h"
#include "tests/cases/excuse.h"

#include <jansson.h>

enum verdict {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_REFUSED, /* the program is not imported, as known.txt says */
    N_VERDICTS
};

/* A case at work. */
struct trial {
    const json_t *spec; /* its line of cases.json; borrowed */
    struct pst_safetensors *given;
    struct pst_eval *eval;
    struct excuses *excuses; /* borrowed; NULL: none */
    char *text;              /* what is wrong, of size bytes */
    size_t size;
};

/* Runs the case in DIR with reference kernels or the best ones. On anything but
 * a pass `text` (of size bytes) says why. Tensors that are wrong with an excuse
 * (NULL: there are none) do not count. */
enum verdict case_run(const json_t *spec, const char *dir, bool reference,
                      struct excuses *excuses, char *text, size_t size);

/* --- judge.c ------------------------------------------------------------ */

/* A tensor as computed: strides of its own. data NULL: absent. */
struct got {
    struct pst_meta meta;
    const void *data;
};

/* false with trial->text set if got is not the entry called `name`, unless that
 * is excused. */
bool judge_tensor(const struct trial *t, const char *name,
                  const struct got *got, bool gradient);
/* The same for what a random operator promises. */
bool judge_checks(const struct trial *t, const struct got *out, size_t n,
                  const struct got *grad_x);
/* Writes trial->text, returns false. */
bool judge_fail(const struct trial *t, const char *fmt, ...) PST_PRINTF(2, 3);

#endif
