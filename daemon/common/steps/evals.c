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

/* The second form has losses of named sets: "... 2 sets web,code of ...". */
#define HEAD      "penstock evaluations 1"
#define HEAD_SETS "penstock evaluations 2 sets "
#define OF        " of "
#define MAX_BYTES ((size_t)64 << 20)

enum pst_status pstd_evals_put(struct pstd_evals *evals,
                               const struct pstd_eval *eval,
                               struct pst_diag *diag)
{
    const struct pstd_eval copy = *eval;
    size_t at = evals->n;

    while (at > 0 && evals->at[at - 1].step >= copy.step)
        at--;
    if (at < evals->n && evals->at[at].step == copy.step) {
        evals->at[at] = copy;
        return PST_OK;
    }
    if (!pst_vec_push(PST_TAG_DAEMON, evals, copy))
        return pst_diag_nomem(diag, sizeof(copy));
    memmove(&evals->at[at + 1], &evals->at[at],
            (evals->n - 1 - at) * sizeof(copy));
    evals->at[at] = copy;
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
                {"/loss", PSTD_EVALS_SMALLEST},
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

void pstd_evals_drop_after(struct pstd_evals *evals, uint64_t step)
{
    while (evals->n > 0 && evals->at[evals->n - 1].step > step)
        evals->n--;
}

static enum pst_status refuse_damaged(const char *path, const char *at,
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

/* Reads "web,code"; *at becomes the text after it. */
static bool parse_names(const char **at, struct pstd_evals *evals)
{
    for (;; (*at)++) {
        const size_t n = strcspn(*at, ", \n");

        if (n == 0 || n > PSTD_SET_NAME || evals->n_sets == PSTD_MAX_SETS ||
            (*at)[n] == '\0')
            return false;
        memcpy(evals->names[evals->n_sets], *at, n);
        evals->names[evals->n_sets++][n] = '\0';
        *at += n;
        if (**at != ',')
            return true;
    }
}

/* Reads the first line; *at becomes the next one. False: it is not the first
 * line of such a file. */
static bool parse_head(const char **at, struct pstd_evals *evals,
                       struct pst_str *ret_of)
{
    size_t n;

    evals->n_sets = 0;
    if (pst_has_prefix(*at, HEAD_SETS)) {
        *at += strlen(HEAD_SETS);
        if (!parse_names(at, evals))
            return false;
    } else if (pst_has_prefix(*at, HEAD)) {
        *at += strlen(HEAD);
    } else {
        return false;
    }
    if (pst_has_prefix(*at, OF)) {
        *at += strlen(OF);
        n = strcspn(*at, "\n");
        if (ret_of != NULL)
            pst_str_addn(ret_of, *at, n);
        *at += n;
    }
    return *(*at)++ == '\n';
}

/* Reads a line; *at becomes the next one. False: it is no evaluation. */
static bool parse_line(const char **at, unsigned n_sets, struct pstd_eval *ret)
{
    char *next;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    ret->step = strtoull(*at, &next, 10);
    if (errno != 0)
        return false;
    for (unsigned i = 0; i <= n_sets; i++) {
        double *to = i == 0 ? &ret->loss : &ret->sets[i - 1];

        if (*next != ' ')
            return false;
        *at = next + 1;
        *to = strtod(*at, &next);
        if (next == *at)
            return false;
    }
    *at = next + 1;
    return *next == '\n';
}

static enum pst_status parse_file(const char *path, const char *text,
                                  size_t size, struct pstd_evals *evals,
                                  struct pst_str *ret_of, struct pst_diag *diag)
{
    const char *at = text, *const end = text + size;
    enum pst_status status = PST_OK;

    if (!parse_head(&at, evals, ret_of))
        return refuse_damaged(path, text, text, diag);
    if (ret_of != NULL && ret_of->failed)
        return pst_diag_nomem(diag, size);
    while (at < end && status == PST_OK) {
        const char *const line = at;
        struct pstd_eval eval = {0};

        if (!parse_line(&at, evals->n_sets, &eval))
            return refuse_damaged(path, line, text, diag);
        status = pstd_evals_put(evals, &eval, diag);
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
        status = parse_file(path, text, size, evals, ret_of, diag);
    pst_free(text);
    return status;
}

enum pst_status pstd_evals_write(const char *path,
                                 const struct pstd_evals *evals, const char *of,
                                 struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status;

    pst_str_add(&text, evals->n_sets > 0 ? HEAD_SETS : HEAD);
    for (unsigned k = 0; k < evals->n_sets; k++)
        pst_str_addf(&text, "%s%s", k > 0 ? "," : "", evals->names[k]);
    pst_str_addf(&text, "%s%s\n", *of != '\0' ? OF : "", of);
    for (size_t i = 0; i < evals->n; i++) {
        pst_str_addf(&text, "%" PRIu64 " %.17g", evals->at[i].step,
                     evals->at[i].loss);
        for (unsigned k = 0; k < evals->n_sets; k++)
            pst_str_addf(&text, " %.17g", evals->at[i].sets[k]);
        pst_str_add(&text, "\n");
    }
    status = text.failed ? pst_diag_nomem(diag, text.len)
                         : pst_file_write(path, text.text, text.len, diag);
    pst_str_fini(&text);
    return status;
}

void pstd_evals_fini(struct pstd_evals *evals)
{
    pst_vec_fini(evals);
}
