// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_CARRY_H
#define PENSTOCK_STAGES_SPLIT_CARRY_H
/*
 * Buffers that several stages read and write. Within a microbatch a new value
 * goes to later stages as any other does; from the last of the stages it is
 * carried to the next microbatch, to those that begin with the buffer's value.
 * The user has to ask for that (--owner), since the forwards of one microbatch
 * wait for those of the one before then. Private to this folder and to assign/.
 */
#include "stages/split/split.h"

struct pst_carried {
    const struct pst_output *update; /* of the uncut graph */
    unsigned last;   /* of the stages that read or make the buffer's values;
                        this one has the update */
    unsigned output; /* of that stage's graph; for cut.c */
};

/* True if the user has said which stage owns the buffer. */
bool pst_split_is_owned(const struct pst_splitter *s,
                        const struct pst_value *buffer);

/* Those of the graph whose nodes have stages; one that nobody owns is refused
 * (E_SHARED_MUT). In the plan's arena. */
enum pst_status pst_split_find_carried(struct pst_splitter *s,
                                       struct pst_carried **ret,
                                       size_t *ret_n) PST_MUST_CHECK;

/* When the parameters are known: who has those buffers. */
enum pst_status pst_split_owners(struct pst_splitter *s) PST_MUST_CHECK;

#endif
