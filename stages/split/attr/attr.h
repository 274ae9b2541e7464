// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ATTR_ATTR_H
#define PENSTOCK_STAGES_SPLIT_ATTR_ATTR_H
/*
 * Finds tensors of a plan's state by name, and changes their values and dtypes
 * in the model that was rebuilt from the plan (split/convert/again.h). Every
 * name of a tensor leads to the same entry, so every reader sees a change. One
 * thread.
 */
#include "stages/base/vec.h"
#include "stages/files/safetensors.h"
#include "stages/split/convert/again.h"

/* A name, and the tensor or part of a tensor that has it. */
struct pst_attr {
    /* name of the tensor, or of a part of it; owned by the plan */
    const char *name;
    unsigned param; /* index in plan->params */
    /* part of the tensor; NULL: all of it */
    const struct pst_named_window *window;
};

struct pst_attrs {
    struct PST_VEC(struct pst_attr) at; /* in the order of plan->params */
    unsigned tensors;                   /* number of different tensors */
};

/* Finds the tensor with that name. If there is none, finds all parameters and
 * buffers of the module with that name ("": the model), under each of their
 * names in the module. PST_ERR_INPUT with the nearest name if nothing is found.
 * Borrows plan. */
enum pst_status pst_attrs_find(const struct pst_plan *plan, const char *name,
                               struct pst_attrs *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_attrs_fini(struct pst_attrs *attrs);
/* Returns the contiguous meta of the tensor or of its part. */
struct pst_meta pst_attr_meta(const struct pst_plan *plan,
                              const struct pst_attr *attr);
/* Returns the bytes of the tensor or of the largest of its parts in attrs. A
 * part can be larger than the tensor, since its elements may overlap. */
size_t pst_attrs_capacity(const struct pst_plan *plan,
                          const struct pst_attrs *attrs, unsigned param);
/* Copies the named part out of the whole tensor `all`; dst is contiguous. */
void pst_attr_copy_part(const struct pst_plan *plan,
                        const struct pst_attr *attr, const void *all,
                        void *dst);

/* --- values --------------------------------------------------------------- */

struct pst_setting;

/*
 * Replaces the values of the tensors of attrs by those of the same names in a
 * file, or by one number. `model` is rebuilt from `plan`; all are borrowed
 * until the setting is freed, which must be after the model. PST_ERR_SHAPE
 * reports the shapes of the model and of the file. nans: receives the names
 * whose new values have a NaN or an infinity, separated by blanks.
 */
enum pst_status pst_model_set_file(struct pst_model *model,
                                   const struct pst_plan *plan,
                                   const struct pst_attrs *attrs,
                                   const struct pst_safetensors *file,
                                   struct pst_str *nans,
                                   struct pst_setting **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_model_set_number(struct pst_model *model,
                                     const struct pst_plan *plan,
                                     const struct pst_attrs *attrs,
                                     const char *number, struct pst_str *nans,
                                     struct pst_setting **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Frees a setting; NULL is accepted. */
void pst_setting_free(struct pst_setting *setting);

/* --- dtypes --------------------------------------------------------------- */

struct pst_casting;

struct pst_cast_counts {
    unsigned cast, skipped; /* numbers of tensors: cast; skipped */
    /* number of operands converted back to their old dtype */
    unsigned converted;
};

/*
 * Casts the floating-point tensors of attrs to a dtype. If attrs has several
 * tensors, those of other kinds (also complex ones) and those that steps update
 * are skipped. Readers are inferred again: operands of several dtypes are
 * promoted where PyTorch does so, else the operand is converted back to its old
 * dtype. Trained tensors are kept in f32 and rounded where they are read.
 * PST_ERR_UNSUPPORTED lists the calls that prevent the cast. model, plan and
 * ret as in pst_model_set_file; after an error the model must not be used.
 */
enum pst_status pst_model_cast(struct pst_model *model,
                               const struct pst_plan *plan,
                               const struct pst_attrs *attrs,
                               enum pst_dtype dtype,
                               struct pst_cast_counts *ret_counts,
                               struct pst_casting **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Converts elements of a tensor that the plan keeps in f32 to the values that
 * the cast model reads, when the elements move from one engine to another. Does
 * nothing if the tensor is not cast. */
void pst_casting_convert(const struct pst_casting *casting, unsigned param,
                         float *data, int64_t n);
/* Frees a casting; NULL is accepted. */
void pst_casting_free(struct pst_casting *casting);

#endif
