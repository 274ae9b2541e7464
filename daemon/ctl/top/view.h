// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_TOP_VIEW_H
#define PENSTOCK_DAEMON_CTL_TOP_VIEW_H
/* The state of a job shown by `penstock top`, and the page made of it. One
 * thread. */
#include "daemon/common/options/sets.h"
#include "stages/base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define PSTCTL_TOP_RANKS  256
#define PSTCTL_TOP_LOSSES 2048
#define PSTCTL_TOP_EVENTS 32

struct pstctl_top_rank {
    bool answers; /* the rank's socket answers */
    char stages[64];
    /* NaN: unknown. */
    double step, forward, backward, optim, recv, other; /* seconds per step */
    double rss;                                         /* resident bytes */
};

struct pstctl_top_event {
    char level; /* 'i' (info), 'w' (warning) or 'e' (error) */
    char text[256];
};

struct pstctl_top_view {
    bool answers;  /* the job answers */
    char why[256]; /* reason why the job does not answer */
    /* numbers of requests to a served model */
    uint64_t answered, refused, waiting;
    double answer_s;
    char job[64], state[32], error[256];
    bool paused;
    unsigned ranks, stages;
    uint64_t step, steps, checkpoint;
    double loss, lr, step_s, tok_s, bubble;
    double eta; /* seconds until the run ends; NaN: unknown */
    double eval_loss, eval_best;
    /* newest losses of named sets */
    struct {
        char name[PSTD_SET_NAME + 1];
        double loss;
    } sets[PSTD_MAX_SETS];
    unsigned n_sets;
    struct pstctl_top_rank rank[PSTCTL_TOP_RANKS];
    /* losses of the newest steps; the newest one is last */
    double losses[PSTCTL_TOP_LOSSES];
    size_t n_losses;
    /* the newest one is last */
    struct pstctl_top_event events[PSTCTL_TOP_EVENTS];
    size_t n_events;
};

struct pstctl_top_screen {
    unsigned columns, rows;
    bool utf8;
};

enum pstctl_top_colour {
    PSTCTL_TOP_PLAIN,
    PSTCTL_TOP_HEAD,
    PSTCTL_TOP_GOOD,
    PSTCTL_TOP_WARN,
    PSTCTL_TOP_BAD,
};

typedef void (*pstctl_top_fn)(enum pstctl_top_colour colour, const char *line);

/* Set the whole view, or all numbers of a rank, to unknown. */
void pstctl_top_init(struct pstctl_top_view *ret);
void pstctl_top_clear_rank(struct pstctl_top_rank *rank);
/* Calls fn for each line of the page, which fits the screen. */
void pstctl_top_draw(const struct pstctl_top_view *view,
                     const struct pstctl_top_screen *screen, pstctl_top_fn fn);
/* Draws a curve in so many columns and rows, one line per row. */
void pstctl_top_curve(const double *values, size_t n, unsigned columns,
                      unsigned rows, bool utf8, struct pst_str *out);

#endif
