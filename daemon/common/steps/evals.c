// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/steps/evals.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/host/fs.h"
#include "stages/base/str.h"

#define HEAD      "penstock evaluations 1"
#define OF        " of "
#define MAX_BYTES ((size_t)64 << 20)

enum pst_status pstd_evals_put(struct pstd_evals *evals, uint64_t step,
                               double loss, struct pst_diag *diag)
{
    const struct pstd_eval eval = {.step = step, .loss = loss};
    size_t at = evals->n;

    while (at > 0 && evals->at[at - 1].step >= step)
        at--;
    if (at < evals->n && evals->at[at].step == step) {
        evals->at[at] = eval;
        return PST_OK;
    }
    if (!pst_vec_push(PST_TAG_DAEMON, evals, eval))
        return pst_diag_nomem(diag, sizeof(eval));
    memmove(&evals->at[at + 1], &evals->at[at],
            (evals->n - 1 - at) * sizeof(eval));
    evals->at[at] = eval;
    return PST_OK;
}

bool pstd_evals_is_better(const struct pstd_eval *a, const struct pstd_eval *b,
                          bool largest)
{
    return isfinite(a->loss) &&
           (b == NULL || (largest ? a->loss > b->loss : a->loss < b->loss));
}

const struct pstd_eval *pstd_evals_best(const struct pstd_evals *evals,
                                        bool largest)
{
    const struct pstd_eval *best = NULL;

    for (size_t i = 0; i < evals->n; i++)
        if (!evals->at[i].lost &&
            pstd_evals_is_better(&evals->at[i], best, largest))
            best = &evals->at[i];
    return best;
}

enum pstd_evals_order pstd_evals_order(const char *of)
{
    static const struct {
        const char *end;
        enum pstd_evals_order order;
    } ends[] = {{":max", PSTD_EVALS_LARGEST},
                {":min", PSTD_EVALS_SMALLEST},
                {"=not given", PSTD_EVALS_SMALLEST}};
    const char *const metric = strstr(of, "--eval-metric=");
    const char *const next =
        metric != NULL ? strstr(metric + 1, " --eval-") : NULL;
    const size_t n = next != NULL     ? (size_t)(next - metric)
                     : metric != NULL ? strlen(metric)
                                      : 0;

    for (size_t i = 0; i < PST_COUNT(ends); i++) {
        const size_t end = strlen(ends[i].end);

        if (n > end && strncmp(metric + n - end, ends[i].end, end) == 0)
            return ends[i].order;
    }
    return PSTD_EVALS_UNKNOWN;
}

uint64_t pstd_evals_since_best(const struct pstd_evals *evals, bool largest,
                               uint64_t step)
{
    const struct pstd_eval *best = pstd_evals_best(evals, largest);
    uint64_t n = 0;

    for (size_t i = 0; i < evals->n; i++)
        n += !evals->at[i].lost && evals->at[i].step <= step &&
             (best == NULL || evals->at[i].step > best->step);
    return n;
}

void pstd_evals_forget(struct pstd_evals *evals, uint64_t step)
{
    while (evals->n > 0 && evals->at[evals->n - 1].step > step)
        evals->n--;
}

static enum pst_status damaged(const char *path, const char *at,
                               const char *text, struct pst_diag *diag)
{
    size_t line = 1;

    for (; text < at; text++)
        line += *text == '\n';
    return pst_diag_set(
        diag, PST_E_EVAL_HISTORY,
        "%s: line %zu is not an evaluation of a run; without the "
        "file the run goes on, and its next evaluation counts "
        "as the first",
        path, line);
}

/* Reads the first line; *at becomes the next one. False: it is not the first
 * line of such a file. */
static bool parse_head(const char **at, struct pst_str *ret_of)
{
    size_t n;

    if (!pst_has_prefix(*at, HEAD))
        return false;
    *at += strlen(HEAD);
    if (pst_has_prefix(*at, OF)) {
        *at += strlen(OF);
        n = strcspn(*at, "\n");
        if (ret_of != NULL)
            pst_str_addn(ret_of, *at, n);
        *at += n;
    }
    return *(*at)++ == '\n';
}

static enum pst_status parse(const char *path, const char *text, size_t size,
                             struct pstd_evals *evals, struct pst_str *ret_of,
                             struct pst_diag *diag)
{
    const char *at = text, *const end = text + size;
    enum pst_status status = PST_OK;

    if (!parse_head(&at, ret_of))
        return damaged(path, text, text, diag);
    if (ret_of != NULL && ret_of->failed)
        return pst_diag_nomem(diag, size);
    while (at < end && status == PST_OK) {
        const char *const line = at;
        char *next;
        unsigned long long step;
        double loss;

        if (*at < '0' || *at > '9')
            return damaged(path, line, text, diag);
        errno = 0;
        step = strtoull(at, &next, 10);
        if (errno != 0 || *next != ' ')
            return damaged(path, line, text, diag);
        at = next + 1;
        loss = strtod(at, &next);
        if (next == at || *next != '\n')
            return damaged(path, line, text, diag);
        at = next + 1;
        status = pstd_evals_put(evals, step, loss, diag);
    }
    return status;
}

enum pst_status pstd_evals_read(const char *path, struct pstd_evals *evals,
                                struct pst_str *ret_of, struct pst_diag *diag)
{
    char *text = NULL;
    size_t size;
    enum pst_status status;

    evals->n = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return PST_OK;
    status = pst_file_read(path, MAX_BYTES, &text, &size, diag);
    if (status == PST_OK)
        status = parse(path, text, size, evals, ret_of, diag);
    pst_free(text);
    return status;
}

enum pst_status pstd_evals_write(const char *path,
                                 const struct pstd_evals *evals, const char *of,
                                 struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status;

    pst_str_addf(&text, HEAD "%s%s\n", *of != '\0' ? OF : "", of);
    for (size_t i = 0; i < evals->n; i++)
        pst_str_addf(&text, "%" PRIu64 " %.17g\n", evals->at[i].step,
                     evals->at[i].loss);
    status = text.failed ? pst_diag_nomem(diag, text.len)
                         : pst_file_write(path, text.text, text.len, diag);
    pst_str_fini(&text);
    return status;
}

void pstd_evals_fini(struct pstd_evals *evals)
{
    pst_vec_fini(evals);
}
