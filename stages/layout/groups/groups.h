// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_GROUPS_GROUPS_H
#define PENSTOCK_STAGES_LAYOUT_GROUPS_GROUPS_H
/*
 * Groups of parameters with optimizer options of their own (--group). Groups
 * depend on the plan and the options alone, so they are the same on all ranks.
 *
 * A text has rules, separated by ';', at most 64:
 *
 *   TERM[,TERM...]:OPTION=VALUE[,OPTION=VALUE...]
 *
 * All terms of a rule must hold for a parameter. TERM|TERM holds if one of them
 * does.
 *
 *   PATTERN      glob for a name of the parameter or of a module around it
 *   ndim<2       its number of dimensions, with <, <=, =, !=, >= or >
 *   type=GLOB    the class of its module, without the Python package
 *   norms        the class of its module contains "Norm"
 *   biases       the last part of its name contains "bias"
 *   embeddings   an embedding reads it, or the class of its module contains
 *                "Embedding"
 *   last-matrix  of all parameters with two dimensions the one that the model
 *                reads last: its output head; also the matrices of its adapter
 *   others       its number of dimensions is not 2, or embeddings or
 *                last-matrix holds: an optimizer of matrices is not meant for
 *                it
 *
 * A parameter is read where an operator uses its value, not where a view or a
 * copy of it, in whatever dtype, is made.
 *
 * An optimizer of matrices comes with a rule "others:optimizer=adamw" before
 * all others.
 *
 * A parameter takes the options of all rules that hold for it, in their order:
 * of two values of one option the last counts. Parameters for which the same
 * rules hold are a group.
 */
#include "stages/base/arena.h"
#include "stages/base/vec.h"
#include "stages/layout/options.h"

struct pst_group {
    struct pst_optim_options options;
    const char *rules; /* texts of its rules, joined by "; "; "": none */
    uint64_t mask;     /* bit k: rule k holds */
    unsigned n_params; /* number of trained parameters, and of their elements */
    int64_t n_elements;
};

struct pst_groups {
    struct pst_arena arena;
    struct PST_VEC(struct pst_group) all; /* at least one */
    unsigned char *group_of; /* index in `all`, per parameter of the plan */
};

/* Makes the groups of options->groups, with options->no_decay ("A,B") as a
 * first rule "A|B:weight-decay=0". Without both there is one group, which has
 * options->optim. PST_ERR_USAGE for a text that cannot be read, options that
 * are out of range or belong to another optimizer, a parameter that its
 * optimizer does not fit; PST_ERR_INPUT for a rule that holds for no parameter.
 * Release with pst_groups_fini also on failure. */
enum pst_status pst_groups_make(struct pst_groups *ret,
                                const struct pst_plan *plan,
                                const struct pst_exec_options *options,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Accepts {0}. */
void pst_groups_fini(struct pst_groups *groups);

#endif
