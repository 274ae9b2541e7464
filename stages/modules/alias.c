// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/alias.h"

#include <string.h>

/* Returns the canonical name of the tensor. */
static const char *canonical_name(const struct pst_model *model,
                                  const char *name)
{
    for (size_t i = 0; i < model->ties.n; i++)
        for (unsigned k = 0; k < model->ties.at[i].n_aliases; k++)
            if (strcmp(model->ties.at[i].aliases[k], name) == 0)
                return model->ties.at[i].fqn;
    return name;
}

static unsigned count_below(const struct pst_model *model, const char *path)
{
    const size_t n = strlen(path);
    unsigned ret = 0;

    for (size_t i = 0; i < model->weights.n; i++)
        ret += strncmp(model->weights.at[i].fqn, path, n) == 0 &&
               model->weights.at[i].fqn[n] == '.';
    return ret;
}

bool pst_have_same_state(const struct pst_model *model, const char *a,
                         const char *b)
{
    const size_t n = strlen(a);
    const unsigned all = count_below(model, a);

    if (all == 0 || all != count_below(model, b))
        return false;
    for (size_t i = 0; i < model->weights.n; i++) {
        const char *name = model->weights.at[i].fqn;
        struct pst_str other = {0};
        bool same;

        if (strncmp(name, a, n) != 0 || name[n] != '.')
            continue;
        pst_str_addf(&other, "%s%s", b, name + n);
        same = !other.failed && pst_model_weight(model, other.text) != NULL &&
               strcmp(canonical_name(model, name),
                      canonical_name(model, other.text)) == 0;
        pst_str_fini(&other);
        if (!same)
            return false;
    }
    return true;
}
