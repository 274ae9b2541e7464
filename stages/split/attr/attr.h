// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ATTR_ATTR_H
#define PENSTOCK_STAGES_SPLIT_ATTR_ATTR_H
/*
 * Tensors of a plan's state by the names that the model has for them, and what
 * is changed about them in the model that a plan was made again into
 * (split/again.h): values and dtypes. There is one entry per tensor, so that
 * whoever reads it, under whatever name, sees the change. One thread.
 */
#include "stages/base/vec.h"
#include "stages/files/safetensors.h"
#include "stages/split/again.h"

/* A name and what it means. */
struct pst_attr {
    const char *name; /* the plan's; of all of the tensor or of a window */
    unsigned param;   /* index in plan->params */
    const struct pst_named_window *window; /* NULL: all of it */
};

struct pst_attrs {
    struct PST_VEC(struct pst_attr) at; /* in the order of plan->params */
    unsigned tensors;                   /* how many different ones */
};

/* The tensor of that name, else all parameters and buffers below the module of
 * that name ("": the model), under each of their names there. PST_ERR_INPUT
 * with the nearest name if there is none. Borrows plan. */
enum pst_status pst_attrs_find(const struct pst_plan *plan, const char *name,
                               struct pst_attrs *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_attrs_fini(struct pst_attrs *attrs);
/* Of all of the tensor, or of the window, contiguous. */
struct pst_meta pst_attr_meta(const struct pst_plan *plan,
                              const struct pst_attr *attr);
/* What the name means, contiguous, out of all of the tensor. */
void pst_attr_take(const struct pst_plan *plan, const struct pst_attr *attr,
                   const void *all, void *dst);

/* --- values --------------------------------------------------------------- */

struct pst_setting;

/*
 * From now on the model reads these tensors' values from the file, where they
 * stand under the same names, or all their elements are the number. `model` is
 * `plan` made again; all are borrowed until the setting is freed, the model
 * first. PST_ERR_SHAPE prints what the model has and what is given. nans: names
 * that are given a NaN or an infinity are added, separated by blanks.
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
/* NULL is accepted. */
void pst_setting_free(struct pst_setting *setting);

/* --- dtypes --------------------------------------------------------------- */

struct pst_casting;

struct pst_cast_told {
    unsigned cast, skipped; /* tensors */
    unsigned converted;     /* operands that got their old dtype back */
};

/*
 * From now on the floating ones of these tensors are of that dtype; of several,
 * those that are not (complex ones too) or that steps write are skipped. What
 * reads them is inferred anew: operands of several dtypes are promoted where
 * PyTorch does so, else the operand is converted to the dtype that it had. What
 * is trained is kept in f32 and rounded where it is read. PST_ERR_UNSUPPORTED
 * names the calls that a tensor's dtype cannot change for. model, plan and ret
 * as in pst_model_set_file; after an error the model is of no use any more.
 */
enum pst_status pst_model_cast(struct pst_model *model,
                               const struct pst_plan *plan,
                               const struct pst_attrs *attrs,
                               enum pst_dtype dtype,
                               struct pst_cast_told *ret_told,
                               struct pst_casting **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Elements of a tensor of the plan that is kept in f32, on their way from one
 * engine to another: what the model reads of them. Nothing, if it is not cast.
 */
void pst_casting_convert(const struct pst_casting *casting, unsigned param,
                         float *data, int64_t n);
/* NULL is accepted. */
void pst_casting_free(struct pst_casting *casting);

#endif
