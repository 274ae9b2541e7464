// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_STEPS_STEPS_H
#define PENSTOCK_DAEMON_COMMON_STEPS_STEPS_H
/*
 * The history of a run: the numbers of each step, in a file of fixed-size
 * records (docs/files.md). Writers are in writer.h; a reader takes the file as
 * untrusted. Any thread, one at a time.
 */
#include "stages/base/host/fs.h"

#include <stdbool.h>
#include <stdint.h>

#define PSTD_STEPS_FILE   "steps.history"
#define PSTD_STEPS_FORMER "steps.history.former"
#define PSTD_STEPS_HEAD   64 /* bytes before the records */
#define PSTD_STEPS_RECORD 32 /* bytes of a record */
#define PSTD_STEPS_MOST   (UINT64_C(1) << 53)
/* Number of steps that are all recorded. Of the steps after them each 10th is
 * recorded up to 10 times as many steps, then each 100th, and so on, so that a
 * file for 10 times as many steps has 9 / 10 as many records more. */
#define PSTD_STEPS_ALL UINT64_C(10000000)

struct pstd_steps_head {
    char run[33];  /* name of the run: 32 hexadecimal digits */
    uint64_t base; /* steps of the run before the first record */
    bool tokens;   /* `count` counts tokens, else rows */
};

struct pstd_steps_record {
    uint64_t step; /* counts from 1 */
    double loss, lr;
    float grad_norm; /* NaN: not computed, since no option needs it */
    float seconds;
    uint32_t count; /* tokens or rows of the step */
};

/* Sets *ret to the index of the record of the `after`-th step after `base`
 * (from 1); false: that step is not recorded. */
bool pstd_steps_slot(uint64_t after, uint64_t *ret);
/* Returns the step after `base` that a record belongs to: the inverse of
 * pstd_steps_slot(). */
uint64_t pstd_steps_after(uint64_t slot);
/* Returns the number of records for the first `after` steps after `base`. */
uint64_t pstd_steps_slots(uint64_t after);

void pstd_steps_pack_head(const struct pstd_steps_head *head,
                          unsigned char out[PSTD_STEPS_HEAD]);
/* False: these bytes are no head of this version. */
bool pstd_steps_parse_head(const unsigned char in[PSTD_STEPS_HEAD],
                           struct pstd_steps_head *ret);
void pstd_steps_pack(const struct pstd_steps_record *record,
                     unsigned char out[PSTD_STEPS_RECORD]);
enum pstd_steps_kind {
    PSTD_STEPS_GOOD,
    PSTD_STEPS_MISSING, /* zeros: the step was skipped or could not be
                             written */
    PSTD_STEPS_DAMAGED
};
/* Parses the record of a step; its checksum covers the step. */
enum pstd_steps_kind pstd_steps_parse(const unsigned char in[PSTD_STEPS_RECORD],
                                      uint64_t step,
                                      struct pstd_steps_record *ret);

struct pstd_steps {
    struct pst_file file;
    struct pstd_steps_head head;
    uint64_t slots; /* whole records; an incomplete last one is ignored */
};

/* Opens a file, or the one in a folder. PST_ERR_NOT_FOUND: the folder has none;
 * PST_ERR_INPUT: it is not a history. */
enum pst_status pstd_steps_open(const char *path, struct pstd_steps *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pstd_steps_close(struct pstd_steps *history);

/* Function that gets a record; returns false to stop. */
typedef bool (*pstd_steps_fn)(void *ctx,
                              const struct pstd_steps_record *record);

/* Counts of records by kind. */
struct pstd_steps_counts {
    uint64_t good, missing, damaged;
};

/* Calls fn for each good record, in order of steps. */
enum pst_status pstd_steps_each(const struct pstd_steps *history,
                                pstd_steps_fn fn, void *ctx,
                                struct pstd_steps_counts *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Finds the record of a step without reading others. *ret_kind: MISSING also
 * for a step outside the file. */
enum pst_status pstd_steps_find(const struct pstd_steps *history, uint64_t step,
                                struct pstd_steps_record *ret,
                                enum pstd_steps_kind *ret_kind,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
