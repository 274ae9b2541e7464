// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PRINT_H
#define PENSTOCK_DAEMON_CTL_PRINT_H
/* Prints events, results and progress, for people and for programs. One thread.
 */
#include "daemon/ctl/job/conn.h"
#include "daemon/ctl/out.h"

/* Appends a time in microseconds since 1970: "2026-01-31T10:11:12.123Z" */
void pstctl_time(uint64_t time_us, struct pst_str *out);
/* Formats an event: "2026-01-31T10:11:12.123Z step step=3 loss=1.5 ..." */
void pstctl_event_line(const pstctl_event *event, struct pst_str *out);
json_t *pstctl_event_json(const pstctl_event *event);

/* Formats seconds for people: "812 us", "12.3 ms", "4.21 s", "3:05",
 * "2:03:04". */
void pstctl_duration(double seconds, struct pst_str *out);
/* Formats a loss with four decimals: "1.5000"; a very small or large one in
 * exponent form: "1.9e-05". */
void pstctl_loss(double x, struct pst_str *out);
void pstctl_loss_digits(double x, int decimals, struct pst_str *out);
/* Formats a count: "950", "12.3k", "4.5M". */
void pstctl_count(double x, struct pst_str *out);

/* True for a terminal that can return to the beginning of its line and clear
 * it. */
bool pstctl_is_live(FILE *out);

/* Progress of a run: one live line on a terminal, at most two lines a second
 * elsewhere. Zero-initialise all but out and quiet. */
struct pstctl_progress {
    FILE *out;
    bool quiet;
    bool live, begun, printed_step;
    bool came_later; /* the run had begun before this client watched it */
    /* Steps that the run had when it began; last step of the run; newest step.
     */
    uint64_t first_step, steps, step;
    /* Time at which the run began, shifted by its pauses; time of the last
     * print. */
    double first_s, last_s;
    /* Number of step events so far; step of the first one. */
    uint64_t n_step_events, first_event_step;
    /* Time of the first step event, shifted by pauses since then; time at which
     * the current pause began, 0: no pause. */
    double first_event_s, paused_s;
    char *placement, *checkpoint; /* owned */
    uint64_t saved_step;          /* step of the newest checkpoint */
    bool saved;                   /* a checkpoint has been reported */
    struct pst_str pending; /* line not printed yet because of the rate limit */
    struct pst_str shown;   /* current live line */
};
void pstctl_progress_event(struct pstctl_progress *p,
                           const pstctl_event *event);
/* Ends the live line. */
void pstctl_progress_end(struct pstctl_progress *p);
void pstctl_progress_fini(struct pstctl_progress *p);

/* Make JSON: an array of evaluations, and the object of a result. start_us:
 * time at which this process began, from which the member first_step_at_s
 * counts. config: has the options that the command was given. */
json_t *pstctl_evaluations_json(Pst__Control__Evaluation *const *at, size_t n);
json_t *pstctl_result_json(const Pst__Control__Result *result,
                           uint64_t start_us, const struct pstd_config *config);
/* Formats a result: "300 steps, loss 1.7923, 80.1 ms a step ..." */
void pstctl_result_line(const Pst__Control__Result *result,
                        struct pst_str *out);
/* Returns the status of the run in a result, with its text in diag. */
enum pst_status pstctl_result_status(const Pst__Control__Result *result,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
