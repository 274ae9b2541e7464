// SPDX-License-Identifier: Apache-2.0
/* Which of the model's outputs is trained on. */
#include "stages/split/split.h"

#include <string.h>

static bool is_loss(const struct pst_plan_output *output)
{
    return output->is_tensor && output->stage >= 0 && output->meta.rank == 0 &&
           pst_dtype_kind(output->meta.dtype) == PST_KIND_FLOAT;
}

static int find_output(const struct pst_plan *plan, const char *spec)
{
    int64_t index;

    for (size_t i = 0; i < plan->outputs.n; i++)
        if (strcmp(plan->outputs.at[i].path, spec) == 0)
            return (int)i;
    if (pst_parse_i64(spec, &index) && index >= 0 &&
        index < (int64_t)plan->outputs.n)
        return (int)index;
    return -1;
}

static enum pst_status unknown_output(struct pst_splitter *s, const char *spec)
{
    struct pst_str names = {0};

    for (size_t i = 0; i < s->plan->outputs.n; i++) {
        pst_str_add(&names, i ? ", " : "");
        pst_str_add(&names, s->plan->outputs.at[i].path);
    }
    pst_diag_set(s->diag, PST_ERR_INPUT,
                 "the model has no output \"%.200s\" to be the loss; it has "
                 "%.1000s",
                 spec, names.len > 0 ? pst_str_text(&names) : "none");
    pst_str_fini(&names);
    return PST_ERR_INPUT;
}

enum pst_status pst_split_loss(struct pst_splitter *s)
{
    const char *spec = s->options->loss;
    struct pst_plan *plan = s->plan;
    char text[PST_META_TEXT];
    int i;

    plan->loss = -1;
    if (spec == NULL) {
        if (plan->outputs.n > 0 && is_loss(&plan->outputs.at[0]))
            plan->loss = 0;
        return PST_OK;
    }
    if (strcmp(spec, "none") == 0)
        return PST_OK;
    i = find_output(plan, spec);
    if (i < 0)
        return unknown_output(s, spec);
    if (!is_loss(&plan->outputs.at[i]))
        return pst_diag_set(s->diag, PST_ERR_INPUT,
                            "output \"%s\" cannot be the loss: it is %s, not a "
                            "floating scalar that the model computes",
                            plan->outputs.at[i].path,
                            plan->outputs.at[i].is_tensor
                                ? pst_meta_text(&plan->outputs.at[i].meta, text)
                                : "no tensor");
    plan->loss = i;
    return PST_OK;
}
