// SPDX-License-Identifier: Apache-2.0
/*
 * Encodes runs as bytes; all numbers are varints. A run has: lines since the
 * end of the previous run, period, count, the number of deltas that are not 0,
 * and these deltas. Most deltas are 0 or small, so each is encoded as the
 * number of zeros before it and its zigzag value:
 *
 *     16 zeros + delta      1 to 15
 *     16 zeros, delta       any
 */
#include "stages/base/fold/fold.h"

#include "stages/base/checked.h"

#define TAG   PST_TAG_PLAN
#define SMALL 16

static uint64_t zigzag_of(int64_t x)
{
    return (uint64_t)x << 1 ^ (x < 0 ? UINT64_MAX : 0);
}

static void put_deltas(struct pst_str *out, const int64_t *at, size_t n)
{
    uint64_t zeros = 0, others = 0;

    for (size_t i = 0; i < n; i++)
        others += at[i] != 0;
    pst_put_varint(out, others);
    for (size_t i = 0; i < n; i++) {
        const uint64_t code = zigzag_of(at[i]);

        if (code == 0) {
            zeros++;
            continue;
        }
        pst_put_varint(out, zeros * SMALL + (code < SMALL ? code : 0));
        if (code >= SMALL)
            pst_put_varint(out, code);
        zeros = 0;
    }
}

enum pst_status pst_fold_pack_runs(const struct pst_folded *folded,
                                   struct pst_str *ret, struct pst_diag *diag)
{
    uint32_t end = 0;

    for (size_t i = 0; i < folded->runs.n; i++) {
        const struct pst_fold_run *run = &folded->runs.at[i];

        pst_put_varint(ret, run->line - end);
        pst_put_varint(ret, run->period);
        pst_put_varint(ret, run->count);
        put_deltas(ret, folded->deltas.at + run->first, run->n_deltas);
        end = run->line + run->count;
    }
    return ret->failed ? pst_diag_nomem(diag, ret->len) : PST_OK;
}

/* --- unpacking untrusted runs ----------------------------------------------
 */

struct bytes {
    const unsigned char *at, *end;
};

static bool read_varint(struct bytes *b, uint64_t max, uint64_t *ret)
{
    *ret = 0;
    for (unsigned shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        const unsigned char byte = *b->at++;

        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return *ret <= max;
    }
    return false;
}

/* Reads one delta and the zeros before it. False if the data is malformed or
 * has more than `max` deltas, or if memory runs out (*ret_failed). */
static bool read_delta(struct bytes *b, struct pst_folded *ret, size_t max,
                       bool *ret_failed)
{
    uint64_t code, zeros;

    if (!read_varint(b, UINT64_MAX, &code))
        return false;
    zeros = code / SMALL;
    code %= SMALL;
    if ((code == 0 && !read_varint(b, UINT64_MAX, &code)) ||
        ret->deltas.n >= max || zeros >= max - ret->deltas.n)
        return false;
    *ret_failed = !pst_vec_reserve(TAG, &ret->deltas, (size_t)zeros + 1);
    if (*ret_failed)
        return false;
    for (; zeros > 0; zeros--)
        ret->deltas.at[ret->deltas.n++] = 0;
    ret->deltas.at[ret->deltas.n++] =
        (int64_t)(code >> 1 ^ (code & 1 ? UINT64_MAX : 0));
    return true;
}

static bool read_run(struct bytes *b, struct pst_folded *ret, size_t max,
                     uint64_t *end, bool *ret_failed)
{
    struct pst_fold_run run = {.first = ret->deltas.n};
    uint64_t gap, period, count, n;

    if (!read_varint(b, UINT32_MAX, &gap) ||
        !read_varint(b, UINT32_MAX, &period) ||
        !read_varint(b, UINT32_MAX, &count) ||
        !read_varint(b, UINT32_MAX, &n) || *end + gap > UINT32_MAX)
        return false;
    for (; n > 0; n--)
        if (!read_delta(b, ret, max, ret_failed))
            return false;
    run.line = (uint32_t)(*end + gap);
    run.period = (uint32_t)period;
    run.count = (uint32_t)count;
    run.n_deltas = ret->deltas.n - run.first;
    *end += gap + count;
    *ret_failed = !pst_vec_push(TAG, &ret->runs, run);
    return !*ret_failed;
}

enum pst_status pst_fold_unpack_runs(const void *data, size_t size, size_t max,
                                     struct pst_folded *ret,
                                     struct pst_diag *diag)
{
    const unsigned char none = 0, *first = size > 0 ? data : &none;
    struct bytes b = {first, first + size};
    bool failed = false;
    uint64_t end = 0;

    while (b.at < b.end)
        if (!read_run(&b, ret, max, &end, &failed))
            return failed
                       ? pst_diag_nomem(diag, size)
                       : pst_diag_set(diag, PST_E_RECORD_DAMAGED,
                                      "folded lines: a repetition is damaged");
    return PST_OK;
}
