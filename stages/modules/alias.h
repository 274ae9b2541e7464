// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_ALIAS_H
#define PENSTOCK_STAGES_MODULES_ALIAS_H
/* Detects one module under two names. One thread. */
#include "stages/frontend/model.h"

/* True if the modules of both names have tensors, and the same ones. Non-strict
 * exports have no other sign that two names are one module; strict ones have
 * one, but only for names that are called. */
bool pst_have_same_state(const struct pst_model *model, const char *a,
                         const char *b);

#endif
