// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_FACTS_H
#define PENSTOCK_STAGES_RUN_FACTS_H
/*
 * Facts that must be the same on all ranks before they work together: options,
 * files, the program itself. Each fact has a readable name; ranks compare them
 * one by one, so that an error names the fact that differs. Exec thread only.
 */
#include "stages/base/vec.h"
#include "stages/net/transport.h"

#include <stdbool.h>
#include <stdint.h>

/* Sent as plain bytes, also between different versions of the program: never
 * change the size. */
struct pst_fact {
    char name[40];
    char value[104]; /* truncated if it is longer */
    uint64_t digest; /* digest of the whole value */
};

struct pst_facts {
    struct PST_VEC(struct pst_fact) list;
    bool failed; /* out of memory */
};

/* Adds a fact. name: as it appears in a message ("--seed", "the plan"). */
void pst_facts_add(struct pst_facts *facts, const char *name, const char *fmt,
                   ...) PST_PRINTF(3, 4);
void pst_facts_fini(struct pst_facts *facts);

/* COLLECTIVE. Compares the facts of all ranks, which must have the same names
 * in the same order. On a difference returns PST_ERR_MISMATCH on all ranks,
 * naming the first fact that differs, the ranks and both values. */
enum pst_status pst_facts_compare(struct pst_facts *facts,
                                  struct pst_transport *transport,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
