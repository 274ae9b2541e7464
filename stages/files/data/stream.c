// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data/stream.h"

#include "stages/base/rng.h"

/* maximum position: pass numbers stay far below overflow */
#define MAX_DRAWN ((uint64_t)1 << 62)

/*
 * Permutes with a Feistel network on 0..4^half-1, where 4^half is the smallest
 * power that is at least n. A result outside of 0..n-1 is permuted again until
 * it is inside (at most 4 times on average), which leaves a permutation of
 * 0..n-1.
 */
uint64_t pst_data_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    unsigned half = 1;
    uint64_t mask;

    while (half < 32 && ((uint64_t)1 << (2 * half)) < n)
        half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;

        for (uint32_t round = 0; round < 6; round++) {
            const uint32_t counter[4] = {(uint32_t)right, round,
                                         (uint32_t)epoch,
                                         (uint32_t)(epoch >> 32)};
            uint32_t out[4];
            uint64_t next;

            pst_rng_philox(counter, key, out);
            next = (left ^ out[0]) & mask;
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

static uint64_t samples_of(const struct pst_stream *s)
{
    return s->size / s->window;
}

/* Returns the samples of the first pass that count as drawn before the position
 * at which a shuffled stream begins; a sample drawn in part counts. */
static uint64_t samples_drawn(const struct pst_stream *s)
{
    return (s->at + s->window - 1) / s->window;
}

/* Returns the samples left in the first pass of an unshuffled stream. They
 * begin at its position, which need not be a multiple of their length. */
static uint64_t samples_left(const struct pst_stream *s)
{
    return (s->size - s->at) / s->window;
}

uint64_t pst_stream_at(const struct pst_stream *s, uint64_t n)
{
    const uint64_t all = samples_of(s), left = samples_left(s);
    uint64_t drawn, unit;

    if (!s->shuffle)
        return n < left ? s->at + n * s->window : (n - left) % all * s->window;
    drawn = s->pass * all + samples_drawn(s) + n;
    unit = pst_data_permute(s->seed, drawn / all, all / s->unit,
                            drawn % all / s->unit);
    return (unit * s->unit + drawn % s->unit) * s->window;
}

/* At the end of a pass the position stays in that pass instead of moving to the
 * next: the rest of the pass may be enough for a shorter sample. */
void pst_stream_place(const struct pst_stream *s, uint64_t n,
                      uint64_t *ret_pass, uint64_t *ret_at)
{
    const uint64_t all = samples_of(s), left = samples_left(s);
    uint64_t drawn;

    *ret_pass = s->pass;
    *ret_at = s->at + n * s->window;
    if (!s->shuffle && n <= left)
        return;
    drawn = s->shuffle ? samples_drawn(s) + n : n - left;
    if (s->shuffle && drawn == 0)
        return;
    *ret_pass += (drawn - 1) / all + (s->shuffle ? 0 : 1);
    *ret_at = ((drawn - 1) % all + 1) * s->window;
}

uint64_t pst_stream_count(const struct pst_stream *s, uint64_t pass,
                          uint64_t at)
{
    const uint64_t all = samples_of(s);
    uint64_t before, after;

    if (s->shuffle) {
        before = s->pass * all + samples_drawn(s);
        after = pass * all + (at + s->window - 1) / s->window;
        return after > before ? after - before : 0;
    }
    if (pass > s->pass)
        return samples_left(s) + (pass - s->pass - 1) * all + at / s->window;
    return pass == s->pass && at > s->at ? (at - s->at) / s->window : 0;
}

bool pst_stream_begin(struct pst_stream *s, uint64_t pass, uint64_t at)
{
    if (pass > MAX_DRAWN / (s->size + 1))
        return false;
    s->pass = pass;
    s->at = at < s->size ? at : s->size;
    if (s->shuffle && samples_drawn(s) > samples_of(s))
        s->at = samples_of(s) * s->window;
    return true;
}
