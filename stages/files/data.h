// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_H
#define PENSTOCK_STAGES_FILES_DATA_H
/*
 * Training data. The content of a microbatch is a pure function of (files,
 * options, step, microbatch), and of the position at which a resumed run
 * started.
 *
 * The data are one file, or several as stages/files/data/list.h describes:
 * files of a source are read one after the other, like one file; samples of
 * several sources are drawn in proportion to their weights
 * (stages/files/data/blend.h).
 *
 * - FILE.safetensors: tensors named like the model's inputs, with samples along
 *   the dimension that is divided into microbatches. An input that is not
 *   divided has exactly its shape in the file and is the same for every
 *   microbatch; for a scalar input the file may instead hold a vector, one
 *   value per microbatch. An input that the model does not read may be missing.
 * - Any other file: little-endian tokens, after an llm.c header if there is
 *   one. Sample k of a source is the window of seq_len tokens starting at
 *   k * seq_len; targets are shifted by one token. A window may begin in one
 *   file and end in the next.
 *
 *   The name of an input, or an option, decides what the input gets
 *   (stages/files/data/roles.h): tokens, targets, or, for each token of a
 *   window, its position within its document ("position_ids"), the number of
 *   its document within the window ("document_ids"), or the tokens that it may
 *   attend to: those of its document up to itself ("attention_mask"; (..., T,
 *   T), bool, or float with 0 and -inf). A mask of the tokens' shape is 1 for
 *   each token.
 *
 *   Without `pack` a window is one document. With it, a window is a sequence of
 *   documents, each of which ends with the token `pack`. The last token of a
 *   document has the first token of the next document as target only if the
 *   model's loss ignores no index; otherwise its target is the ignored index. A
 *   document that does not fit in its window is divided: its rest is a document
 *   of the next window, with positions from 0.
 *
 * A step takes as many samples as its microbatches have rows, and starts where
 * the step before ended, modulo the number of samples; within a step
 * microbatches are consecutive. With shuffling, each epoch has its own order.
 * Concurrent reads from several threads are allowed.
 */
#include "stages/files/data/position.h"
#include "stages/files/data_look.h"
#include "stages/graph/tensor.h"

struct pst_data;
struct pst_data_list;
struct pst_str;

struct pst_data_options {
    const char *path; /* a list of files (pst_data_list_read) */
    /* "uint8", "uint16", "uint32"; NULL: by the files' indices (NAME.idx beside
     * NAME.bin), else "uint8" */
    const char *token_dtype;
    /* 0: the size of the last dimension of the tokens' input */
    int64_t seq_len;
    /* token that ends a document, such as "50256"; NULL: tokens are not packed
     */
    const char *pack;
    /* names of the inputs that get tokens, the next tokens, positions, numbers
     * of documents, and masks; NULL: by stages/files/data/roles.h */
    const char *tokens, *targets, *positions, *documents, *mask;
    bool shuffle;
    uint64_t seed;
    /* If inputs have different numbers of rows in a microbatch: drops rows of
     * the file that do not fill a microbatch, instead of refusing the file. */
    bool leave_rest;
    /* compare integers of the files with the bounds of the inputs */
    bool compare;
    /* Rows will be read by number (pst_data_read): refuses weights. */
    bool in_order;
};

struct pst_data_input {
    const char *name;
    struct pst_meta meta; /* meta of one microbatch */
    /* dimension of the samples; -1: the input is not divided */
    int chunk;
    int64_t tail; /* size of that dimension in the last n_tail microbatches */
    const char *const
        *dims;   /* per dimension: not NULL if its size is symbolic; or NULL */
    bool unread; /* the model does not read this input */
    struct pst_data_bound bound;
};

/* Opens training data. Borrows dims of the inputs until close, copies the rest.
 * Returns owned. */
enum pst_status pst_data_open(const struct pst_data_options *options,
                              const struct pst_data_input *inputs, size_t n,
                              struct pst_data_step step, struct pst_data **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_data_close(struct pst_data *data);
/* Returns the names of the files; valid until close. */
const struct pst_data_list *pst_data_files(const struct pst_data *data);
/* Returns the bytes of a token in one of these files; 0: it has tensors. */
unsigned pst_data_width(const struct pst_data *data, size_t file);
/* True for each kind of numbers about documents that an input of the model
 * receives. */
struct pst_data_packing {
    bool packed;
    bool positions, documents, mask;
    bool ones; /* a mask that does not separate documents */
    /* the loss ignores targets that belong to the next document */
    bool ignores;
};
struct pst_data_packing pst_data_packing(const struct pst_data *data);
/* Returns the number of samples in all files, counted in rows (or windows of
 * tokens) of an input that has `rows` of them in a step, since inputs may have
 * different numbers of rows. */
uint64_t pst_data_samples(const struct pst_data *data, uint64_t rows);

/* Returns the index of the input that receives the next tokens of a token file;
 * -1 if there is none. */
int pst_data_targets(const struct pst_data *data);

/* Computes the position at which a step begins; the step must not precede that
 * of pst_data_begin. False: no input draws samples from the files. */
bool pst_data_place(const struct pst_data *data, uint64_t step,
                    struct pst_data_place *ret) PST_MUST_CHECK;
/* Makes this step begin at the position, regardless of what earlier steps drew;
 * later steps continue from there. If the position is unknown, or belongs to
 * another kind of file, the step begins as if all earlier steps had drawn what
 * a step draws now. Each source continues after its last sample, also with
 * other weights; a source that is new begins with its first one. Not thread
 * safe with pst_data_fill. */
enum pst_status pst_data_begin(struct pst_data *data, uint64_t step,
                               const struct pst_data_place *place,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Makes this step, which would begin at the position `from`, begin at the later
 * position `to` of this run. The samples between these are left out, and are
 * added to the position's `left_out`. If `to` is unknown, the step begins at
 * `from`. Not thread safe with pst_data_fill. */
enum pst_status pst_data_skip(struct pst_data *data, uint64_t step,
                              const struct pst_data_place *from,
                              const struct pst_data_place *to,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Sets the number of microbatches of all later steps, without tail
 * microbatches. Afterwards the caller passes the position of the next step to
 * pst_data_begin; pst_data_place must compute it before this call. Not thread
 * safe with pst_data_fill. */
void pst_data_set_microbatches(struct pst_data *data, unsigned microbatches);

#define PST_DATA_STEP UINT32_MAX /* all microbatches of the step */

/* Appends the rows that a microbatch draws: "rows 4 to 7 of FILE, 0 to 3 of
 * ANOTHER (counted from 0)"; only the name if no samples are drawn from it. */
void pst_data_rows(const struct pst_data *data, uint64_t step,
                   unsigned microbatch, struct pst_str *out);

/* Reads input number `input` of one microbatch into dst, contiguous; data is a
 * struct pst_data (so that this is a pst_fill_fn of exec.h). If that is slow,
 * the kernel is asked to load the same microbatch of the next step meanwhile.
 */
enum pst_status pst_data_fill(void *data, uint64_t step, unsigned microbatch,
                              unsigned input, void *dst,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the seconds that all calls of pst_data_fill have taken. */
double pst_data_seconds(const struct pst_data *data);

/* Returns the path of the first file that a program has written to after it was
 * opened, if a read has noticed that: what was read may be other data than
 * before. Each call after that, and any call if there is no such file, returns
 * NULL. */
const char *pst_data_take_written(struct pst_data *data);

/* Row counts for pst_data_read. */
struct pst_data_extent {
    uint64_t rows; /* rows of the file, in its first tensor that has rows */
    uint64_t each; /* rows of that tensor in a microbatch */
    bool whole;    /* only whole microbatches can be read */
};
struct pst_data_extent pst_data_extent(const struct pst_data *data);
/*
 * Reads rows chosen by the caller, of data that have one source: n rows from
 * number `first` on, repeated to fill the microbatch. n divides `each` of the
 * extent; if `whole` is set, n equals `each`, and first is a multiple of it.
 * The tail microbatches of a step must have as many rows as the others.
 */
enum pst_status pst_data_read(struct pst_data *data, uint64_t first, uint64_t n,
                              unsigned input, void *dst,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
