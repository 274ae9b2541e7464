// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_ALIAS_H
#define PENSTOCK_STAGES_MODULES_ALIAS_H
/* One module under two names. One thread. */
#include "stages/frontend/model.h"

/* Do modules of both names have the same tensors, and any? Exports keep no
 * other sign of that they are one: not strict ones of any call, strict ones of
 * the names that no call has. */
bool pst_have_same_state(const struct pst_model *model, const char *a,
                         const char *b);

#endif
