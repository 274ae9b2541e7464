// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_STORE_VALUES_H
#define PENSTOCK_STAGES_SPLIT_STORE_VALUES_H
/*
 * Reads the start values of a plan's parameters (values.c): from its own files
 * if the plan was loaded; else the values that the user gave (give.c); else
 * from the model's file. Private to stages/split/. One thread at a time.
 */
#include "stages/base/str.h"
#include "stages/files/given.h"
#include "stages/split/plan.h"

/* The given values of one parameter: entries of files. */
struct pst_given_param {
    /* entry of the whole tensor; NULL: not given */
    const struct pst_safetensors_entry *whole;
    /* by index in windows: entry of the part; NULL: not given. NULL array: no
     * part is given */
    const struct pst_safetensors_entry **windows;
    bool nan; /* a note on NaNs in the values has been added */
};

/* Rule for start values of a tensor without values (stages/split/init.h). */
struct pst_init {
    enum {
        PST_INIT_NONE,
        PST_INIT_CONSTANT, /* scale */
        PST_INIT_NORMAL,   /* standard deviation scale */
        PST_INIT_UNIFORM   /* between -scale and scale */
    } kind;
    double scale;
};

/* Writes the start values of a parameter to dst, contiguous. */
void pst_init_fill(const struct pst_init *init, uint64_t seed,
                   const struct pst_plan_param *param, void *dst);

struct pst_plan_given {
    struct pst_given *files;        /* NULL: no files are given, only `inits` */
    struct pst_given_param *params; /* by index of the parameter */
    const struct pst_init *inits;   /* the same; NULL: none */
    uint64_t seed;                  /* seed of --init-seed */
};

/* A list of names for a message: how many there are, and the first ten. */
struct pst_name_list {
    size_t n;
    struct pst_str text;
};
void pst_name_list_add(struct pst_name_list *list, const char *name);

/* Adds a note for the user to the plan; takes ownership of text. */
enum pst_status pst_plan_note(struct pst_plan *plan, struct pst_str *text,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* True if the parameter has values: false only if the model was exported
 * without weights and none are given for it. */
bool pst_plan_has_values(const struct pst_plan *plan, unsigned i);
/* Returns PST_ERR_INPUT with the names of the parameters without values. */
enum pst_status pst_plan_check_values(const struct pst_plan *plan,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* True if pst_plan_read_part can read the parameter; otherwise it must be read
 * as a whole. */
bool pst_plan_reads_parts(const struct pst_plan *plan, unsigned i);
/* Reads `bytes` bytes of params[i] from byte `begin` on; both are multiples of
 * the element size. */
enum pst_status pst_plan_read_part(struct pst_plan *plan, unsigned i,
                                   size_t begin, size_t bytes, void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Reads params[i] of the plan by fn and ctx, and converts it to another
 * floating-point dtype. dst: contiguous. */
enum pst_status pst_param_read_as(const struct pst_plan *plan, unsigned i,
                                  pst_param_fn fn, void *ctx,
                                  enum pst_dtype dtype, void *dst,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
