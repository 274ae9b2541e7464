// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/options/ramp.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/macros.h"
#include "stages/base/str.h"

/* --- text ----------------------------------------------------------------- */

/* Reads a whole number of n characters. */
static bool read_number(const char *text, size_t n, uint64_t *ret)
{
    char number[24];
    int64_t i;

    if (n == 0 || n >= sizeof(number) || strspn(text, "0123456789") < n)
        return false;
    memcpy(number, text, n);
    number[n] = '\0';
    if (!pst_parse_i64(number, &i))
        return false;
    *ret = (uint64_t)i;
    return true;
}

static enum pst_status read_row(const char *who, const char *text, size_t n,
                                struct pstd_ramp_row *ret,
                                struct pst_diag *diag)
{
    const char *colon = memchr(text, ':', n);
    const size_t before = colon != NULL ? (size_t)(colon - text) : n;

    if (colon == NULL || !read_number(text, before, &ret->count) ||
        !read_number(colon + 1, n - before - 1, &ret->step))
        return pst_diag_set(diag, PST_E_RUN_RAMP,
                            "%s: \"%.*s\" is not COUNT:STEP, a number of "
                            "microbatches and the step that begins with it",
                            who, (int)PST_MIN(n, (size_t)80), text);
    if (ret->count < 1 || ret->count > PSTD_RAMP_COUNT)
        return pst_diag_set(diag, PST_E_RUN_RAMP,
                            "%s: \"%.*s\": a step has 1 to %d microbatches",
                            who, (int)PST_MIN(n, (size_t)80), text,
                            PSTD_RAMP_COUNT);
    return PST_OK;
}

/* Checks that the ramp begins with step 0, and that steps rise. */
static enum pst_status check_steps(const char *who,
                                   const struct pstd_ramp *ramp,
                                   struct pst_diag *diag)
{
    if (ramp->at[0].step != 0)
        return pst_diag_set(diag, PST_E_RUN_RAMP,
                            "%s: the first number of microbatches is that from "
                            "step 0 on, not from step %" PRIu64,
                            who, ramp->at[0].step);
    for (unsigned i = 1; i < ramp->n; i++)
        if (ramp->at[i].step <= ramp->at[i - 1].step)
            return pst_diag_set(diag, PST_E_RUN_RAMP,
                                "%s: step %" PRIu64 " comes after step %" PRIu64
                                ": each step must be later than the one before",
                                who, ramp->at[i].step, ramp->at[i - 1].step);
    return PST_OK;
}

enum pst_status pstd_ramp_parse(const char *who, const char *text,
                                struct pstd_ramp *ret, struct pst_diag *diag)
{
    struct pstd_ramp ramp = {.n = 1};
    enum pst_status status = PST_OK;

    if (strpbrk(text, ":,") == NULL) {
        if (!read_number(text, strlen(text), &ramp.at[0].count))
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "%s: \"%s\" is not a whole number from 1 to "
                                "%d, or a ramp COUNT:STEP,...",
                                who, text, PSTD_RAMP_COUNT);
        if (ramp.at[0].count < 1 || ramp.at[0].count > PSTD_RAMP_COUNT)
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "%s: %s is not between 1 and %d", who, text,
                                PSTD_RAMP_COUNT);
        *ret = ramp;
        return PST_OK;
    }
    for (ramp.n = 0; status == PST_OK; ramp.n++) {
        const size_t n = strcspn(text, ",");

        if (ramp.n == PSTD_RAMP_ROWS)
            return pst_diag_set(diag, PST_E_RUN_RAMP,
                                "%s: a ramp has at most %d numbers of "
                                "microbatches",
                                who, PSTD_RAMP_ROWS);
        status = read_row(who, text, n, &ramp.at[ramp.n], diag);
        text += n;
        if (*text++ == '\0') {
            ramp.n++;
            break;
        }
    }
    if (status == PST_OK)
        status = check_steps(who, &ramp, diag);
    if (status == PST_OK)
        *ret = ramp;
    return status;
}

void pstd_ramp_print(const struct pstd_ramp *ramp, struct pst_str *out)
{
    for (unsigned i = 0; i < ramp->n; i++) {
        pst_str_addf(out, "%s%" PRIu64, i > 0 ? "," : "", ramp->at[i].count);
        if (ramp->n > 1)
            pst_str_addf(out, ":%" PRIu64, ramp->at[i].step);
    }
}

/* --- numbers -------------------------------------------------------------- */

unsigned pstd_ramp_at(const struct pstd_ramp *ramp, uint64_t step,
                      uint64_t *ret_end)
{
    unsigned i = 0;

    while (i + 1 < ramp->n && ramp->at[i + 1].step <= step)
        i++;
    if (ret_end != NULL)
        *ret_end = i + 1 < ramp->n ? ramp->at[i + 1].step : UINT64_MAX;
    return (unsigned)ramp->at[i].count;
}

unsigned pstd_ramp_counts(const struct pstd_ramp *ramp,
                          unsigned ret[PSTD_RAMP_ROWS])
{
    unsigned n = 0;

    for (unsigned i = 0; i < ramp->n; i++) {
        unsigned k = 0;

        while (k < n && ret[k] != ramp->at[i].count)
            k++;
        if (k == n)
            ret[n++] = (unsigned)ramp->at[i].count;
    }
    return n;
}

double pstd_ramp_sum(const struct pstd_ramp *ramp, uint64_t from, uint64_t to)
{
    double sum = 0;

    while (from < to) {
        uint64_t end;
        const unsigned count = pstd_ramp_at(ramp, from, &end);

        end = PST_MIN(end, to);
        sum += (double)count * (double)(end - from);
        from = end;
    }
    return sum;
}

double pstd_ramp_steps(const struct pstd_ramp *ramp, uint64_t from,
                       double microbatches)
{
    double steps = 0;

    for (;;) {
        uint64_t end;
        const double count = pstd_ramp_at(ramp, from, &end);
        const double left = fmax(ceil(microbatches / count), 0);

        if (end == UINT64_MAX || left <= (double)(end - from))
            return steps + left;
        steps += (double)(end - from);
        microbatches -= count * (double)(end - from);
        from = end;
    }
}
