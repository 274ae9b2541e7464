// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_STORY_H
#define PENSTOCK_DAEMON_CTL_REPORT_STORY_H
/* The history of a job over all its starts, read from its logs. Its name and
 * number of ranks are those of the newest start. One thread. */
#include "daemon/common/options/sets.h"
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"
#include "stages/sched/timeline.h"

struct pstctl_point {
    double x, y;
};

struct pstctl_points PST_VEC(struct pstctl_point);

/* X(field of the event "memory", label in the page) */
#define PSTCTL_MEMORY_LIST(X)                                                  \
    X(params, "parameters")                                                    \
    X(grads, "gradients")                                                      \
    X(optim, "optimizer")                                                      \
    X(buffers, "buffers")                                                      \
    X(prepared, "prepared")                                                    \
    X(stash, "kept for backward")                                              \
    X(messages, "messages")                                                    \
    X(workspace, "workspace")                                                  \
    X(outputs, "outputs")
#define PSTCTL_TIMES_LIST(X)                                                   \
    X(forward_s, "forward")                                                    \
    X(backward_s, "backward")                                                  \
    X(optim_s, "optimizer")                                                    \
    X(wait_recv_s, "waits for a message")                                      \
    X(wait_other_s, "other waiting")
#define PSTCTL_SHARES_LIST(X)                                                  \
    X(work, "work")                                                            \
    X(move, "moving values")                                                   \
    X(warm_up, "warm-up")                                                      \
    X(drain, "drain")                                                          \
    X(imbalance, "imbalance")                                                  \
    X(message, "message on its way")                                           \
    X(other, "other")

enum pstctl_parts {
#define PSTCTL_COUNT(field, text) +1
    PSTCTL_N_MEMORY = 0 PSTCTL_MEMORY_LIST(PSTCTL_COUNT),
    PSTCTL_N_TIMES = 0 PSTCTL_TIMES_LIST(PSTCTL_COUNT),
    PSTCTL_N_SHARES = 0 PSTCTL_SHARES_LIST(PSTCTL_COUNT),
#undef PSTCTL_COUNT
};

struct pstctl_rank_story {
    bool seen;
    const char *stages, *host;
    double memory[PSTCTL_N_MEMORY]; /* bytes by purpose */
    double times[PSTCTL_N_TIMES];   /* sums over reported steps, in seconds */
    /* Shares of the measured step, by cause; all 0: unknown. */
    double shares[PSTCTL_N_SHARES];
    double rss; /* newest resident bytes; 0: unknown */
};

struct pstctl_shown_event {
    double time;
    int rank;
    const char *level, *event, *text;
};

#define PSTCTL_STORY_RANKS 256

struct pstctl_story {
    struct pst_arena arena; /* owns all texts */
    const char *job, *plan, *version, *schedule, *dtype, *optimizer, *transport,
        *placement, *options, *status, *end_text;
    bool stopped; /* the run was stopped by request before its last step */
    const char *stop_by; /* field `by` of the event stop; "": none */
    /* Fields patience and best_step of the event early_stop; NaN: there was no
     * such event. */
    double patience, better;
    double median;     /* seconds of the run's median step; NaN: unknown */
    double begin, end; /* times of the first and newest line */
    double steps;      /* last step of the run, as planned */
    bool metric;       /* the newest evaluation has a metric besides its loss */
    unsigned starts, restarts, ranks;
    unsigned newest_ranks; /* number of ranks of the newest start; 0: unknown */
    bool tokens;           /* rates count tokens, else samples */
    struct pstctl_points loss, lr, rate, step_s, eval;
    /* Evaluations of named sets. */
    struct pstctl_set_story {
        const char *name;
        struct pstctl_points eval;
    } sets[PSTD_MAX_SETS];
    unsigned n_sets;
    /* number of steps in the history; 0: there is none, and points are from
     * logs */
    uint64_t recorded;
    struct pstctl_rank_story rank[PSTCTL_STORY_RANKS];
    /* events that the page shows */
    struct PST_VEC(struct pstctl_shown_event) events;
    uint64_t lines, bad; /* lines read; lines that could not be parsed */
    size_t left_out;     /* dropped events: only the newest are kept */
    /* The newest complete step of the flight records. */
    struct pst_timeline timeline;
    uint64_t timeline_step;
};

/* Reads a --log-dir folder. PST_ERR_NOT_FOUND: it has no log. The caller
 * releases *ret, also after an error. */
enum pst_status pstctl_story_read(const char *dir, struct pstctl_story *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_story_fini(struct pstctl_story *story);

#endif
