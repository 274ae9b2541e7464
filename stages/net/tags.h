// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_NET_TAGS_H
#define PENSTOCK_STAGES_NET_TAGS_H
/*
 * Table of message tags. The ranges are consecutive: PST_MSG_name ..
 * PST_MSG_name_LAST. A step reuses the tags of the previous one. BROADCAST ..
 * COLLECTIVE and CLOSED are used outside of steps, BEAT, CALL and CALLED also
 * in steps.
 *
 *   name      tags         use
 */
#define PST_MSG_LIST(X)                                                        \
    X(EDGES, 1 << 28)  /* values and gradients between stages */               \
    X(REPORT, 1)       /* end-of-step report, to rank 0 */                     \
    X(DECISION, 1)     /* decision on the step, to all */                      \
    X(BROADCAST, 1)    /* bytes of one rank, to all others */                  \
    X(FETCH, 1)        /* bytes of a rank, to rank 0 */                        \
    X(GATHER, 1)       /* status of each rank, to rank 0 */                    \
    X(PAIR, 1)         /* bytes between two ranks */                           \
    X(BEAT, 1)         /* heartbeats */                                        \
    X(FACTS, 1)        /* facts that must be equal on all ranks, to rank 0 */  \
    X(ALIKE, 1)        /* result of their comparison, to all */                \
    X(COLLECTIVE, 1)   /* used by the daemon */                                \
    X(CALL, 1)         /* which call of the library a rank makes, to rank 0 */ \
    X(CALLED, 1)       /* the answer of rank 0, to all */                      \
    X(PARTS, 1 << 27)  /* reductions of parameters that several stages use */  \
    X(PIECES, 1 << 25) /* reductions of gradients over replicas */             \
    X(VALUES, 1 << 25) /* parameters and buffers at the end of a step */       \
    X(ANSWERS, 1 << 25) /* the receiver has copied a message's bytes itself */ \
    X(CLOSED, 1)        /* a rank no longer reads another one's memory */

enum pst_msg {
#define PST_MSG_ROW(name, n)                                                   \
    PST_MSG_##name, PST_MSG_##name##_LAST = PST_MSG_##name + (n)-1,
    PST_MSG_LIST(PST_MSG_ROW)
#undef PST_MSG_ROW
        PST_N_MSGS
};

/* True for a tag of messages whose length the ranks have not compared before. A
 * rank posts only one receive with such a tag from a peer at a time. */
#define PST_MSG_IS_ALONE(tag)                                                  \
    ((tag) >= PST_MSG_BROADCAST && (tag) <= PST_MSG_CALLED)

/* MPI implementations support at least 2^28 tags. These are used twice: for
 * edges on one communicator, and for all other messages on a second one. */
#define PST_MSG_OTHERS PST_MSG_REPORT
_Static_assert(PST_MSG_EDGES == 0 && PST_MSG_OTHERS == 1 << 28 &&
                   PST_N_MSGS - PST_MSG_OTHERS <= PST_MSG_OTHERS,
               "tags do not fit");

#endif
