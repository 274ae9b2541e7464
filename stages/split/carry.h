// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_CARRY_H
#define PENSTOCK_STAGES_SPLIT_CARRY_H
/*
 * Buffers that several stages read and write.
 *
 * Within a microbatch, a new value of the buffer is sent to later stages like
 * any other value. The last stage that uses the buffer sends its final value to
 * the stages that start the next microbatch with it. This is done only on
 * request (--owner), since the forward of a microbatch then waits for that of
 * the previous one. Private to this folder and to assign/.
 */
#include "stages/split/split.h"

struct pst_carried_buffer {
    const struct pst_output *update; /* output of the uncut graph */
    /* last stage that reads the buffer or computes a value of it; it has the
     * update */
    unsigned last;
    /* index of the update in that stage's outputs; set by cut.c */
    unsigned output;
};

/* True if the user gave the buffer an owner. */
bool pst_split_is_owned(const struct pst_splitter *s,
                        const struct pst_value *buffer);

/* Finds the carried buffers of a graph whose nodes have stages; *ret is in the
 * plan's arena. A buffer that has to be carried but has no owner is an error
 * (E_SHARED_MUT). */
enum pst_status pst_split_find_carried(struct pst_splitter *s,
                                       struct pst_carried_buffer **ret,
                                       size_t *ret_n) PST_MUST_CHECK;

/* Sets the owners of carried buffers, once the parameters are known. */
enum pst_status pst_split_owners(struct pst_splitter *s) PST_MUST_CHECK;

#endif
