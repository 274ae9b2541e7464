// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/steps/steps.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "stages/base/crc32c.h"
#include "stages/base/macros.h"
#include "stages/base/str.h"

#define MAGIC   "PSTSTEPS"
#define VERSION 1
#define TOKENS  1u /* flag: the records count tokens */
/* Number of records that a file gains when its number of steps grows
 * tenfold. */
#define LATER (PSTD_STEPS_ALL / 10 * 9)

/* --- numbers -------------------------------------------------------------- */

/* Returns 1, 10, 100, ...: the distance of recorded steps near the step number
 * `after` of a file. */
static uint64_t stride_of(uint64_t after)
{
    uint64_t stride = 1;

    while (after / stride > PSTD_STEPS_ALL ||
           (after / stride == PSTD_STEPS_ALL && after % stride > 0))
        stride *= 10;
    return stride;
}

uint64_t pstd_steps_slots(uint64_t after)
{
    const uint64_t stride = stride_of(after);
    uint64_t before = PSTD_STEPS_ALL;

    if (stride == 1)
        return after;
    for (uint64_t s = 10; s < stride; s *= 10)
        before += LATER;
    return before + after / stride - PSTD_STEPS_ALL / 10;
}

bool pstd_steps_slot(uint64_t after, uint64_t *ret)
{
    if (after == 0 || after > PSTD_STEPS_MOST || after % stride_of(after) != 0)
        return false;
    *ret = pstd_steps_slots(after) - 1;
    return true;
}

uint64_t pstd_steps_after(uint64_t slot)
{
    uint64_t stride = 10;

    if (slot < PSTD_STEPS_ALL)
        return slot + 1;
    for (slot -= PSTD_STEPS_ALL; slot >= LATER; slot -= LATER)
        stride *= 10;
    return (PSTD_STEPS_ALL / 10 + slot + 1) * stride;
}

/* --- bytes ---------------------------------------------------------------- */

static void put_le(unsigned char *at, uint64_t x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get_le(const unsigned char *at, size_t bytes)
{
    uint64_t x = 0;

    for (size_t i = 0; i < bytes; i++)
        x |= (uint64_t)at[i] << 8 * i;
    return x;
}

static void put_f64(unsigned char *at, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    put_le(at, bits, 8);
}

static double get_f64(const unsigned char *at)
{
    const uint64_t bits = get_le(at, 8);
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void put_f32(unsigned char *at, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    put_le(at, bits, 4);
}

static float get_f32(const unsigned char *at)
{
    const uint32_t bits = (uint32_t)get_le(at, 4);
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

void pstd_steps_pack_head(const struct pstd_steps_head *head,
                          unsigned char out[PSTD_STEPS_HEAD])
{
    memcpy(out, MAGIC, 8);
    put_le(out + 8, VERSION, 4);
    put_le(out + 12, PSTD_STEPS_RECORD, 4);
    put_le(out + 16, head->base, 8);
    memcpy(out + 24, head->run, 32);
    put_le(out + 56, head->tokens ? TOKENS : 0, 4);
    put_le(out + 60, pst_crc32c(0, out, 60), 4);
}

bool pstd_steps_parse_head(const unsigned char in[PSTD_STEPS_HEAD],
                           struct pstd_steps_head *ret)
{
    struct pstd_steps_head head = {.base = get_le(in + 16, 8),
                                   .tokens = get_le(in + 56, 4) == TOKENS};

    memcpy(head.run, in + 24, 32);
    if (memcmp(in, MAGIC, 8) != 0 || get_le(in + 8, 4) != VERSION ||
        get_le(in + 12, 4) != PSTD_STEPS_RECORD ||
        get_le(in + 56, 4) > TOKENS || head.base > PSTD_STEPS_MOST ||
        get_le(in + 60, 4) != pst_crc32c(0, in, 60) ||
        strspn(head.run, "0123456789abcdef") != 32)
        return false;
    *ret = head;
    return true;
}

/* Computes the checksum of a record. It covers the step, so that a record at
 * the wrong offset is detected. */
static uint32_t checksum_of(const unsigned char *record, uint64_t step)
{
    unsigned char number[8];

    put_le(number, step, 8);
    return pst_crc32c(pst_crc32c(0, number, 8), record, 28);
}

void pstd_steps_pack(const struct pstd_steps_record *record,
                     unsigned char out[PSTD_STEPS_RECORD])
{
    put_f64(out, record->loss);
    put_f64(out + 8, record->lr);
    put_f32(out + 16, record->grad_norm);
    put_f32(out + 20, record->seconds);
    put_le(out + 24, record->count, 4);
    put_le(out + 28, checksum_of(out, record->step), 4);
}

enum pstd_steps_kind pstd_steps_parse(const unsigned char in[PSTD_STEPS_RECORD],
                                      uint64_t step,
                                      struct pstd_steps_record *ret)
{
    static const unsigned char zeros[PSTD_STEPS_RECORD];
    const struct pstd_steps_record r = {.step = step,
                                        .loss = get_f64(in),
                                        .lr = get_f64(in + 8),
                                        .grad_norm = get_f32(in + 16),
                                        .seconds = get_f32(in + 20),
                                        .count = (uint32_t)get_le(in + 24, 4)};

    if (memcmp(in, zeros, sizeof(zeros)) == 0)
        return PSTD_STEPS_MISSING;
    if (get_le(in + 28, 4) != checksum_of(in, step) || !isfinite(r.lr) ||
        !isfinite(r.seconds) || r.seconds < 0)
        return PSTD_STEPS_DAMAGED;
    *ret = r;
    return PSTD_STEPS_GOOD;
}

/* --- files ---------------------------------------------------------------- */

static enum pst_status read_head(const char *path, struct pstd_steps *h,
                                 struct pst_diag *diag)
{
    unsigned char bytes[PSTD_STEPS_HEAD];
    enum pst_status status = PST_OK;

    if (h->file.size >= sizeof(bytes))
        status = pst_file_read_at(&h->file, 0, bytes, sizeof(bytes), diag);
    if (status != PST_OK)
        return status;
    if (h->file.size < sizeof(bytes) || !pstd_steps_parse_head(bytes, &h->head))
        return pst_diag_set(diag, PST_E_HISTORY_DAMAGED,
                            "%s is no history of a run, or its first %d bytes "
                            "are damaged",
                            path, PSTD_STEPS_HEAD);
    h->slots = (h->file.size - sizeof(bytes)) / PSTD_STEPS_RECORD;
    if (h->slots > pstd_steps_slots(PSTD_STEPS_MOST - h->head.base))
        return pst_diag_set(diag, PST_E_HISTORY_DAMAGED,
                            "%s is longer than the history of any run", path);
    return PST_OK;
}

enum pst_status pstd_steps_open(const char *path, struct pstd_steps *ret,
                                struct pst_diag *diag)
{
    struct pstd_steps h = {0};
    struct pst_str file = {0};
    struct stat info;
    enum pst_status status;

    pst_str_add(&file, path);
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        pst_str_add(&file, "/" PSTD_STEPS_FILE);
        if (!file.failed && stat(file.text, &info) != 0) {
            pst_str_fini(&file);
            return pst_diag_set(diag, PST_E_HISTORY_NONE,
                                "%s has no " PSTD_STEPS_FILE, path);
        }
    }
    status = file.failed ? pst_diag_nomem(diag, file.len)
                         : pst_file_open(file.text, &h.file, diag);
    if (status == PST_OK)
        status = read_head(file.text, &h, diag);
    pst_str_fini(&file);
    if (status == PST_OK)
        *ret = h;
    else
        pst_file_close(&h.file);
    return status;
}

void pstd_steps_close(struct pstd_steps *history)
{
    pst_file_close(&history->file);
}

static uint64_t offset_of(uint64_t slot)
{
    return PSTD_STEPS_HEAD + slot * PSTD_STEPS_RECORD;
}

enum pst_status pstd_steps_each(const struct pstd_steps *h, pstd_steps_fn fn,
                                void *ctx, struct pstd_steps_counts *ret,
                                struct pst_diag *diag)
{
    enum { PIECE = 2048 };
    unsigned char bytes[PIECE * PSTD_STEPS_RECORD];
    struct pstd_steps_counts counts = {0};
    bool on = true;

    for (uint64_t slot = 0; slot < h->slots && on; slot += PIECE) {
        const size_t n = (size_t)PST_MIN(h->slots - slot, (uint64_t)PIECE);
        const enum pst_status status = pst_file_read_at(
            &h->file, offset_of(slot), bytes, n * PSTD_STEPS_RECORD, diag);

        if (status != PST_OK)
            return status;
        for (size_t i = 0; i < n && on; i++) {
            struct pstd_steps_record record;
            const enum pstd_steps_kind kind = pstd_steps_parse(
                bytes + i * PSTD_STEPS_RECORD,
                h->head.base + pstd_steps_after(slot + i), &record);

            counts.good += kind == PSTD_STEPS_GOOD;
            counts.missing += kind == PSTD_STEPS_MISSING;
            counts.damaged += kind == PSTD_STEPS_DAMAGED;
            on = kind != PSTD_STEPS_GOOD || fn(ctx, &record);
        }
    }
    *ret = counts;
    return PST_OK;
}

enum pst_status pstd_steps_find(const struct pstd_steps *h, uint64_t step,
                                struct pstd_steps_record *ret,
                                enum pstd_steps_kind *ret_kind,
                                struct pst_diag *diag)
{
    unsigned char bytes[PSTD_STEPS_RECORD];
    uint64_t slot;
    enum pst_status status;

    *ret_kind = PSTD_STEPS_MISSING;
    if (step <= h->head.base || !pstd_steps_slot(step - h->head.base, &slot) ||
        slot >= h->slots)
        return PST_OK;
    status =
        pst_file_read_at(&h->file, offset_of(slot), bytes, sizeof(bytes), diag);
    if (status == PST_OK)
        *ret_kind = pstd_steps_parse(bytes, step, ret);
    return status;
}
