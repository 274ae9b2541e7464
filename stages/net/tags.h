// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_NET_TAGS_H
#define PENSTOCK_STAGES_NET_TAGS_H
/*
 * Who uses which tags: the only table of them. Each range begins where the one
 * before ends, PST_MSG_name .. PST_MSG_name_LAST. A step reuses the tags of the
 * one before.
 *
 *   name      tags         what
 */
#define PST_MSG_LIST(X)                                                        \
    X(EDGES, 1 << 28)  /* values and gradients between stages */               \
    X(REPORT, 1)       /* of a step, to rank 0 */                              \
    X(DECISION, 1)     /* on it, to all */                                     \
    X(BROADCAST, 1)    /* outside of steps, as the next seven */               \
    X(FETCH, 1)        /* bytes of a rank, to rank 0 */                        \
    X(GATHER, 1)       /* how something went, to rank 0 */                     \
    X(PAIR, 1)         /* bytes between two ranks */                           \
    X(BEAT, 1)         /* signs of life; also in steps */                      \
    X(FACTS, 1)        /* what ranks must have alike, to rank 0 */             \
    X(ALIKE, 1)        /* whether they do, to all */                           \
    X(COLLECTIVE, 1)   /* of the daemon */                                     \
    X(PARTS, 1 << 27)  /* sums of parameters that several stages use */        \
    X(PIECES, 1 << 25) /* sums of gradients over replicas */                   \
    X(VALUES, 1 << 25) /* parameters and buffers at the end of a step */

enum pst_msg {
#define PST_MSG_ROW(name, n)                                                   \
    PST_MSG_##name, PST_MSG_##name##_LAST = PST_MSG_##name + (n)-1,
    PST_MSG_LIST(PST_MSG_ROW)
#undef PST_MSG_ROW
        PST_N_MSGS
};

/* Edges have all tags that MPI has at least to itself, all others the same. */
#define PST_MSG_OTHERS PST_MSG_REPORT
_Static_assert(PST_MSG_EDGES == 0 && PST_MSG_OTHERS == 1 << 28 &&
                   PST_N_MSGS - PST_MSG_OTHERS <= PST_MSG_OTHERS,
               "tags do not fit");

#endif
