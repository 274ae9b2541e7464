// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/serve/batch.h"

#include "stages/base/alloc.h"

#include <string.h>

static int64_t step_samples(const struct pstd_signature *s)
{
    return s->samples * s->microbatches;
}

enum pst_status pstd_requests_init(struct pstd_requests *r,
                                   const struct pstd_signature *signature,
                                   struct pst_diag *diag)
{
    /* Maximum number of runs: one per sample. */
    const size_t n = (size_t)step_samples(signature);

    *r = (struct pstd_requests){.signature = signature, .max_runs = n};
    r->runs = pst_calloc(PST_TAG_DAEMON, n, sizeof(*r->runs));
    return r->runs != NULL ? PST_OK
                           : pst_diag_nomem(diag, n * sizeof(*r->runs));
}

void pstd_requests_fini(struct pstd_requests *r)
{
    pst_free(r->runs);
    *r = (struct pstd_requests){0};
}

static void add_run(struct pstd_requests *r, const struct pstd_ask *ask,
                    int64_t at, int64_t from, int64_t n)
{
    if (r->n_runs < r->max_runs)
        r->runs[r->n_runs++] = (struct pstd_run_of){ask, at, from, n};
}

/* Fills positions `at` to end - 1 with the last sample of the request `last`.
 */
static void pad_positions(struct pstd_requests *r, const struct pstd_ask *last,
                          int64_t at, int64_t end)
{
    for (; at < end; at++)
        add_run(r, last, at, last->samples - 1, 1);
}

void pstd_requests_set(struct pstd_requests *r, struct pstd_ask *list)
{
    const struct pstd_ask *last = NULL;
    int64_t at = 0;

    r->list = list;
    r->n_runs = 0;
    for (struct pstd_ask *a = list; a != NULL; a = a->next) {
        const int64_t end = at;
        int64_t begin = 0;

        if (!pstd_signature_place(r->signature, a->samples, &at, &begin))
            /* does not happen: the caller's requests fit into one step */
            break;
        if (last != NULL)
            pad_positions(r, last, end, begin);
        add_run(r, a, begin, 0, a->samples);
        last = a;
    }
    if (last != NULL)
        pad_positions(r, last, at, step_samples(r->signature));
}

/* Copies samples `from` to from + n - 1 of the `of` samples in src to position
 * `to` of dst, which has `in` positions. */
static void copy_samples(const struct pstd_port *port, unsigned char *dst,
                         int64_t in, int64_t to, const unsigned char *src,
                         int64_t of, int64_t from, int64_t n)
{
    const size_t inner = port->inner;

    for (size_t o = 0; o < port->outer; o++)
        memcpy(dst + (o * (size_t)in + (size_t)to) * inner,
               src + (o * (size_t)of + (size_t)from) * inner,
               (size_t)n * inner);
}

enum pst_status pstd_requests_fill(void *ctx, uint64_t step,
                                   unsigned microbatch, unsigned input,
                                   void *dst, struct pst_diag *diag)
{
    const struct pstd_requests *r = ctx;
    const struct pstd_port *port = &r->signature->inputs[input];
    const int64_t each = r->signature->samples;
    const int64_t begin = (int64_t)microbatch * each, end = begin + each;

    (void)step;
    (void)diag;
    if (port->optional) /* a request may leave out such an input */
        memset(dst, 0, pst_meta_bytes(&port->meta));
    for (size_t i = 0; i < r->n_runs; i++) {
        const struct pstd_run_of *run = &r->runs[i];
        const int64_t first = PST_MAX(run->at, begin);
        const int64_t n = PST_MIN(run->at + run->n, end) - first;
        const unsigned char *src = run->ask->inputs[input];

        if (n <= 0 || src == NULL)
            continue;
        if (port->dim < 0) {
            memcpy(dst, src, pst_meta_bytes(&port->meta));
            break;
        }
        copy_samples(port, dst, each, first - begin, src, run->ask->samples,
                     run->from + first - run->at, n);
    }
    return PST_OK;
}

enum pst_status pstd_requests_reserve(struct pstd_requests *r,
                                      struct pst_diag *diag)
{
    const struct pstd_signature *s = r->signature;

    for (struct pstd_ask *a = r->list; a != NULL; a = a->next) {
        size_t bytes = 0;

        for (size_t k = 0; k < s->n_outputs; k++)
            bytes += pstd_port_bytes(&s->outputs[k], a->samples);
        pst_free(a->result);
        a->result = pst_alloc(PST_TAG_DAEMON, bytes + 1);
        if (a->result == NULL)
            return pst_diag_nomem(diag, bytes);
        a->result_bytes = bytes;
    }
    return PST_OK;
}

void pstd_requests_copy_output(struct pstd_requests *r, size_t k,
                               const void *src)
{
    const struct pstd_signature *s = r->signature;
    int64_t at = 0;

    for (struct pstd_ask *a = r->list; a != NULL; a = a->next) {
        unsigned char *dst = a->result;
        int64_t begin = 0;

        if (!pstd_signature_place(s, a->samples, &at, &begin))
            return;
        for (size_t i = 0; i < k; i++)
            dst += pstd_port_bytes(&s->outputs[i], a->samples);
        copy_samples(&s->outputs[k], dst, a->samples, 0, src, step_samples(s),
                     begin, a->samples);
    }
}
