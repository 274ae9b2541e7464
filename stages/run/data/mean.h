// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DATA_MEAN_H
#define PENSTOCK_STAGES_RUN_DATA_MEAN_H
/*
 * The mean loss over rows, counting each row once, however microbatches,
 * steps and replicas divide it. All microbatches have the plan's number of
 * rows. The remaining rows are evaluated in groups: a group is repeated until
 * it fills a microbatch, whose mean is that of the group. The weight of a
 * microbatch is its number of rows, or of targets that the loss does not
 * ignore. Exec thread only.
 */
#include "stages/files/data.h"
#include "stages/run/exec.h"

struct pst_mean;

enum pst_mean_by {
    PST_MEAN_BY_ROWS,
    PST_MEAN_BY_TARGETS, /* refuses losses that cannot ignore targets */
    PST_MEAN_BY_EITHER,  /* by targets if the loss can ignore some */
};

/* Rows of a file, or of a caller's memory. */
struct pst_mean_source {
    struct pst_data_extent extent;
    /* Reads as pst_data_read does. */
    enum pst_status (*read)(void *ctx, uint64_t first, uint64_t n,
                            unsigned input, void *dst, struct pst_diag *diag);
    /* Returns where n rows of an input are, as a pst_lend_fn does, or NULL. The
     * member may be NULL: no rows are lent. */
    const void *(*lend)(void *ctx, uint64_t first, uint64_t n, unsigned input);
    void *ctx;
};
/* Returns a source that reads the rows of `data`, which it borrows. `data` must
 * have been opened for steps of the mean's number of microbatches, without tail
 * microbatches. */
struct pst_mean_source pst_mean_source_of(struct pst_data *data);

struct pst_mean_options {
    unsigned microbatches; /* microbatches of a step of the engine */
    uint64_t rows; /* maximum number of rows, from the first row on; 0: all */
    enum pst_mean_by by;
};

/* Sets *ret (owned), which borrows plan and the source's ctx. */
enum pst_status pst_mean_new(struct pst_plan *plan,
                             const struct pst_mean_source *source,
                             const struct pst_mean_options *options,
                             struct pst_mean **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_mean_free(struct pst_mean *mean);

/* Returns the number of steps to run, from step 0 on. */
uint64_t pst_mean_steps(const struct pst_mean *mean);
/* Returns the number of rows, or windows of tokens, that are evaluated;
 * *ret_left: rows that were requested but are left out. */
uint64_t pst_mean_rows(const struct pst_mean *mean, uint64_t *ret_left);

/* A pst_fill_fn and a pst_weigh_fn for the engine; ctx is the struct pst_mean.
 */
enum pst_status pst_mean_fill(void *ctx, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst,
                              struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_mean_weigh(void *ctx, uint64_t step, double *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Returns where the source has the bytes that pst_mean_fill copies, as a
 * pst_lend_fn does; NULL: the source does not have them in one piece. */
const void *pst_mean_lend(const struct pst_mean *mean, uint64_t step,
                          unsigned microbatch, unsigned input);

/* Compute the mean on rank 0; only this rank calls pst_mean_weigh. Call
 * pst_mean_begin before the first step, pst_mean_take after each step.
 * pst_mean_end sets *ret to the mean; it refuses a file in which nothing has a
 * weight. */
void pst_mean_begin(struct pst_mean *mean);
void pst_mean_take(struct pst_mean *mean, const struct pst_step_result *result);
/* Adds a second value of each microbatch of the newest step that was taken;
 * pst_mean_metric returns the mean of these values, by rows or with the weights
 * of the losses. */
void pst_mean_add_metric(struct pst_mean *mean, const double *values,
                         enum pst_mean_by by);
double pst_mean_metric(const struct pst_mean *mean);
/* Lets the mean count the bytes of text of its targets, as
 * pst_tokens_count_bytes does; sets *ret to false, and does nothing, if the
 * loss has no targets to count. Call before pst_mean_begin. */
enum pst_status pst_mean_count_bytes(struct pst_mean *mean,
                                     const unsigned char *bytes, size_t n,
                                     bool *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the bits per byte of the text, for a loss that is -log p in nats: the
 * sum over all targets / ln 2 / the sum of their bytes. NaN: bytes are not
 * counted, or there are none. */
double pst_mean_bits_per_byte(const struct pst_mean *mean);
enum pst_status pst_mean_end(const struct pst_mean *mean, double *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;

#endif
