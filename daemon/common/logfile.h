// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_LOGFILE_H
#define PENSTOCK_DAEMON_COMMON_LOGFILE_H
/*
 * Events and the log file. An event is a row of a closed table; a note is one
 * occurrence of it with its fields, in a struct of fixed size, so that the exec
 * thread makes notes without allocating. Log lines are an interface for other
 * programs: each note is one line of logfmt, written by one call.
 *
 * Notes: any thread. Files: loop thread only.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * X(id, name, level, own fields and meaning). Ranks other than 0 write the same
 * events about themselves. docs/log.md describes all fields.
 */
#define PSTD_EVENT_LIST(X)                                                     \
    X(START, "start", "info",                                                  \
      "version= pid= host= transport= this_rank= ranks= processes= isa= "      \
      "products=; libraries of matrix products")                               \
    X(LISTENING, "listening", "info", "socket=")                               \
    X(STATE, "state", "info", "from= to=")                                     \
    X(PLAN_LOADED, "plan_loaded", "info",                                      \
      "plan= digest= stages= params= device= products=; of this process")      \
    X(MEASURED, "measured", "info",                                            \
      "f32_gflops= bf16_gflops= seconds= path= text=; the rates of a core, "   \
      "measured once for --dtype bf16 and kept in path, or why not: text")     \
    X(READY, "ready", "info", "rank0_pid=")                                    \
    X(REQUEST, "request", "info", "command= key= uid= pid= status=")           \
    X(TRAIN_BEGIN, "train_begin", "info",                                      \
      "run= first_step= steps= schedule= microbatches= ramp= recompute= "      \
      "shard= stash= dtype= optimizer= placement= planned_bytes= checkpoint= " \
      "epochs= epoch_rows= options=; options: those that were given")          \
    X(MICROBATCHES, "microbatches", "info",                                    \
      "run= step= microbatches= before= rows= schedule=; of each step from "   \
      "the next one on, by --microbatches")                                    \
    X(RESUME, "resume", "info", "step= dir=")                                  \
    X(CHECKPOINT_FOUND, "checkpoint_found", "warn",                            \
      "step= dir= to=; newest of those that were moved there, by --adopt "     \
      "or --resume=STEP")                                                      \
    X(CHECKPOINT_SKIPPED, "checkpoint_skipped", "warn",                        \
      "step= dir= text=; damaged or bad, an older one is taken")               \
    X(CHECKPOINT_KEPT, "checkpoint_kept", "warn",                              \
      "step= dir= text=; cannot be read or removed, so it stays; once for "    \
      "each cause")                                                            \
    X(CHECKPOINT_DOUBT, "checkpoint_doubt", "warn",                            \
      "dir= host= pid= text=; who wrote there last has not said that it "      \
      "ended")                                                                 \
    X(CHECKPOINT_REPLACED, "checkpoint_replaced", "warn",                      \
      "dir= text=; not the folder that the run had there when it saved last")  \
    X(RESUME_DOUBT, "resume_doubt", "warn",                                    \
      "step= text=; why the run that saved this could not go on")              \
    X(RESUME_CHANGED, "resume_changed", "warn",                                \
      "step= name= before= now= text=; an option, or what is in a file")       \
    X(RUN_AGAIN, "run_again", "warn",                                          \
      "step= tries=; the run that was interrupted when the job ended goes on") \
    X(RUN_DELAYED, "run_delayed", "warn",                                      \
      "step= tries= delay_s= id= text=; that run cannot go on now, and is "    \
      "tried again")                                                           \
    X(RUN_GIVEN_UP, "run_given_up", "error",                                   \
      "step= id= text=; that run does not go on, and the job waits for "       \
      "another one")                                                           \
    X(BOUND, "bound", "info",                                                  \
      "of_rank= processors=; of its kernel threads (--bind cores)")            \
    X(MEMORY, "memory", "info",                                                \
      "of_rank= stages= arena= params= grads= optim= buffers= gathered= "      \
      "prepared= stash= messages= workspace= outputs=; bytes that are "        \
      "reserved")                                                              \
    X(PEERS, "peers", "info",                                                  \
      "of_rank= direct= of= why=; ranks with which a rank exchanges messages " \
      "from device to device, of all others; why: reason why the memory of a " \
      "rank of another process could not be opened")                           \
    X(HOSTED, "hosted", "warn",                                                \
      "of_rank= device= calls= bytes= text=; calls of a microbatch that run "  \
      "on the host, since the device has no kernel for them, and bytes that "  \
      "they copy")                                                             \
    X(WAITS, "waits", "info",                                                  \
      "of_rank= stages= step_s= work= move= warm_up= drain= imbalance= "       \
      "message= other=; shares of a measured step, by cause")                  \
    X(STASH, "stash", "info",                                                  \
      "run= of_rank= outside= bytes_out= bytes_in= waited_s=; what --stash "   \
      "has "                                                                   \
      "moved in the run, and how long work waited for it")                     \
    X(STEP, "step", "info",                                                    \
      "run= step= steps= loss= lr= grad_norm= loss_scale= step_s= samples_s= " \
      "tok_s= mfu= "                                                           \
      "bubble= forward_s= backward_s= optim_s= wait_recv_s= wait_other_s= "    \
      "wait_data_s= samples_total= tokens_total=; means since the last one")   \
    X(DOUBT, "doubt", "warn",                                                  \
      "run= text=; data or model are probably not as intended; the run goes "  \
      "on")                                                                    \
    X(TOTALS, "totals", "info",                                                \
      "every 15 s: uptime_s= steps_total= samples_total= tokens_total= "       \
      "rss_bytes= events_dropped= clients= clients_dropped= log_lost=; and "   \
      "what other events reported, by the names of --prom")                    \
    X(EVAL_SET, "eval_set", "info",                                            \
      "run= step= set= loss= metric= bits_per_byte= batches= seconds= rows=; " \
      "on a named set of --eval-data")                                         \
    X(EVALUATED, "evaluated", "info",                                          \
      "run= step= loss= metric= batches= best= best_step= best_loss= "         \
      "best_metric= seconds= rows= bits_per_byte= set=; on --eval-data")       \
    X(EVAL_FAILED, "eval_failed", "error",                                     \
      "run= step= id= text=; the training goes on")                            \
    X(EVAL_MEMORY, "eval_memory", "info",                                      \
      "of_rank= arena=; bytes that are reserved for --eval-data, besides")     \
    X(EARLY_STOP, "early_stop", "info",                                        \
      "run= step= best_step= best_loss= best_metric= patience=; evaluations "  \
      "do not get better")                                                     \
    X(BEST_SAVED, "best_saved", "info", "step= dir= loss= metric=")            \
    X(BEST_GONE, "best_gone", "warn",                                          \
      "step= dir= loss= metric= left=; the best evaluation whose checkpoint "  \
      "is left, or 0")                                                         \
    X(CHECKPOINT_SAVED, "checkpoint_saved", "info",                            \
      "step= dir= seconds= stall_s= cost_s= asked=; since that step, without " \
      "steps, and lost by it")                                                 \
    X(CHECKPOINT_BAD, "checkpoint_bad", "error",                               \
      "step= dir= seconds= stall_s= cost_s= id= text= asked=; saved, but "     \
      "--resume passes over it")                                               \
    X(CHECKPOINT_DIRECT, "checkpoint_direct", "warn",                          \
      "step= dir= id= text=; no memory for a copy: steps wait for each save")  \
    X(CHECKPOINT_FAILED, "checkpoint_failed", "error",                         \
      "step= dir= id= text= asked=")                                           \
    X(DUMP, "dump", "info", "path=")                                           \
    X(TRACE, "trace", "info", "step=; of the step before, on request")         \
    X(FAULT, "fault", "error", "step= id= text=; the run ends")                \
    X(STEP_SKIPPED, "step_skipped", "warn",                                    \
      "run= step= skipped= in_a_row= text=; applied on no rank, the run goes " \
      "on after it")                                                           \
    X(STEP_OVERFLOW, "step_overflow", "info",                                  \
      "run= step= loss_scale= overflows= text=; left out on all ranks, and "   \
      "the loss scale is halved")                                              \
    X(UPDATE_PARTIAL, "update_partial", "warn",                                \
      "run= step= text=; elements stay as they were, which would not be "      \
      "finite")                                                                \
    X(ROLLED_BACK, "rolled_back", "warn",                                      \
      "run= step= to= text=; the run goes on from that checkpoint")            \
    X(REPLICAS_COMPARED, "replicas_compared", "info",                          \
      "run= step= tensors= in_parts= bytes= seconds= text=; all copies were "  \
      "alike; at most every 15 s")                                             \
    X(REPLICAS_DIFFER, "replicas_differ", "error",                             \
      "run= step= id= text=; the run ends")                                    \
    X(STRAGGLER, "straggler", "warn",                                          \
      "run= step= of_rank= kind= ratio= slow= stragglers=; a rank holds the "  \
      "others up; with slow=0 no more")                                        \
    X(RANK_SILENT, "rank_silent", "warn",                                      \
      "run= step= of_rank= seconds= step_s=; this rank heard nothing from it " \
      "for so long in that step, and then did")                                \
    X(DATA_WRITTEN, "data_written", "warn",                                    \
      "run= step= text=; a program has written to a data file since this "     \
      "rank opened it")                                                        \
    X(LOSS_SPIKE, "loss_spike", "warn",                                        \
      "run= step= loss= mean= deviations=; far above the losses before")       \
    X(ATTR, "attr", "info",                                                    \
      "run= step= name= names= kind= dtype= kept= shape= stages= ranks= "      \
      "requires_grad= min= max= mean= nans= values=; a tensor, as asked")      \
    X(SWAPPED, "swapped", "info",                                              \
      "run= step= module= calls= frozen= renewed= no_eval= seconds= digest=; " \
      "another module from the next step on")                                  \
    X(SWAP_REFUSED, "swap_refused", "error",                                   \
      "run= step= module= status= id= text=; nothing was changed on any rank") \
    X(FROZEN, "frozen", "info",                                                \
      "run= step= pattern= params= renewed= no_eval= seconds= digest=; not "   \
      "trained from the next step on")                                         \
    X(UNFROZEN, "unfrozen", "info",                                            \
      "run= step= pattern= params= renewed= no_eval= seconds= digest=; "       \
      "trained from the next step on")                                         \
    X(FREEZE_REFUSED, "freeze_refused", "error",                               \
      "run= step= pattern= status= id= text=; nothing was changed on any "     \
      "rank")                                                                  \
    X(ATTR_SET, "attr_set", "info",                                            \
      "run= step= name= tensors= nans= renewed= no_eval= seconds= digest=; "   \
      "other values from the next step on")                                    \
    X(ATTR_CAST, "attr_cast", "info",                                          \
      "run= step= name= tensors= dtype= skipped= converted= renewed= "         \
      "no_eval= seconds= digest=; another dtype from the next step on")        \
    X(ATTR_GOT, "attr_got", "info",                                            \
      "run= step= name= tensors= path= seconds=; after the tensors' attr")     \
    X(ATTR_REFUSED, "attr_refused", "error",                                   \
      "run= step= name= status= id= text=; nothing was changed on any rank")   \
    X(SET, "set", "info", "run= step= steps= options=; from the next step on") \
    X(SET_REFUSED, "set_refused", "error",                                     \
      "run= step= options= status= id= text=; nothing was changed on any "     \
      "rank")                                                                  \
    X(SET_RESTORED, "set_restored", "info",                                    \
      "run= step= steps= options=; at a resume from that step, as its "        \
      "checkpoint records; answers no request")                                \
    X(PAUSED, "paused", "info", "step=")                                       \
    X(CONTINUED, "continued", "info", "step= asked=")                          \
    X(TRAIN_END, "train_end", "info",                                          \
      "run= run_id= status= stopped= step= loss= step_s= step_p99_s= tok_s= "  \
      "bubble= id= text= again=")                                              \
    X(SERVE_BEGIN, "serve_begin", "info",                                      \
      "step= microbatches= rows= most= queue= batch_wait_ms= placement= "      \
      "planned_bytes= checkpoint=; from now on there are answers")             \
    X(SERVING, "serving", "info",                                              \
      "at the begin, every 15 s, and at the end: answered= failed= refused= "  \
      "gone= waiting= "                                                        \
      "samples= steps= mean_s= longest_s=; requests since the start, "         \
      "longest_s since the last one")                                          \
    X(STOP, "stop", "info", "by=")                                             \
    X(EARLY_WARNING, "early_warning", "warn",                                  \
      "signal= by= pid= text=; the job may end soon; nothing ends by it")      \
    X(FAILED, "failed", "error", "status= id= text=")                          \
    X(STOPPED, "stopped", "info", "exit_code=")                                \
    X(CLIENT_DROPPED, "client_dropped", "warn",                                \
      "uid= pid= reason= dropped=; clients since the last one of these")       \
    X(PROM_FAILED, "prom_failed", "warn",                                      \
      "id= text=; once for failures in a row")                                 \
    X(TENSORBOARD_FAILED, "tensorboard_failed", "warn",                        \
      "id= text=; numbers are missing there; once for failures in a row")      \
    X(HISTORY_FAILED, "history_failed", "warn",                                \
      "dir= id= text=; steps may be missing in the history of the run there; " \
      "once for failures in a row")                                            \
    X(FLIGHT_MISSING, "flight_missing", "warn",                                \
      "of_rank= id= text=; no rank-N.flight of this start; the run goes on")   \
    X(LOG_LOST, "log_lost", "warn", "lines= id= text=; not written, and why")  \
    X(SUPPRESSED, "suppressed", "warn",                                        \
      "of= suppressed=; events of that kind that a second had too many of")    \
    X(REOPENED, "reopened", "info", "after SIGHUP")                            \
    X(JOB_ENDED, "job_ended", "warn",                                          \
      "cause= of_rank= stages= signal= exit_code= step= checkpoint_step= "     \
      "restarts= ranks= id= text=; of all ranks, by who started them")         \
    X(FEWER_RANKS, "fewer_ranks", "warn",                                      \
      "ranks= before= of_rank= cause=; a rank was lost twice: --min-ranks "    \
      "lets the job go on with fewer")                                         \
    X(JOB_RESTART, "job_restart", "warn",                                      \
      "restarts= checkpoint_step= delay_s= ranks= paused= undone= replaced=; " \
      "the job is started again, paused or not, without these changes of "     \
      "the model, by a replaced penstockd or not")                             \
    X(GRAPHS, "graphs", "info",                                                \
      "of_rank= actions= replayed= partly= kernels= record_s= why=; what of "  \
      "a "                                                                     \
      "step is replayed as CUDA graphs")                                       \
    X(LIBRARY, "library", "debug", "topic= text=")

enum pstd_event {
#define PSTD_EVENT_ROW(id, name, level, help) PSTD_EVENT_##id,
    PSTD_EVENT_LIST(PSTD_EVENT_ROW)
#undef PSTD_EVENT_ROW
        PSTD_N_EVENTS
};

const char *pstd_event_name(enum pstd_event event);
const char *pstd_event_level(enum pstd_event event);

#define PSTD_NOTE_FIELDS 64
#define PSTD_NOTE_TEXT   2560

enum pstd_field_type { PSTD_FIELD_TEXT, PSTD_FIELD_INT, PSTD_FIELD_REAL };

struct pstd_note_field {
    const char *key; /* text that is not copied */
    enum pstd_field_type type;
    union {
        size_t text; /* offset in note->text */
        int64_t i;
        double f;
    };
};

struct pstd_note {
    enum pstd_event event;
    unsigned n;
    struct pstd_note_field fields[PSTD_NOTE_FIELDS];
    size_t used;
    char text[PSTD_NOTE_TEXT];
    void *payload; /* rank 0 only, owned: struct pstd_result for TRAIN_END,
                      struct pstd_trace for TRACE */
};

void pstd_note_init(struct pstd_note *note, enum pstd_event event);
/* Adds a field. Fields beyond the capacity are dropped, texts are truncated. */
void pstd_note_text(struct pstd_note *note, const char *key, const char *text);
/* Adds id= and text= of an error. */
void pstd_note_error(struct pstd_note *note, const struct pst_diag *diag);
void pstd_note_int(struct pstd_note *note, const char *key, int64_t i);
void pstd_note_real(struct pstd_note *note, const char *key, double f);
/* Return the field, or NULL / 0 / NaN if there is none of that key and type. */
const char *pstd_note_get_text(const struct pstd_note *note, const char *key);
int64_t pstd_note_get_int(const struct pstd_note *note, const char *key);
double pstd_note_get_real(const struct pstd_note *note, const char *key);

/* Fields at the beginning of every line. */
struct pstd_log_head {
    uint64_t time_us; /* microseconds since 1970 UTC */
    unsigned rank;
    bool is_supervisor; /* the line is of the supervisor, not of a rank */
    const char *stage;  /* "0-1", "-" while unknown */
    const char *job;
    uint64_t seq;
};

/* Formats a line of at most 4096 bytes with the newline; a longer text is
 * truncated. */
void pstd_log_format(const struct pstd_log_head *head,
                     const struct pstd_note *note, struct pst_str *out);

/* DIR/NAME.log, opened for appending. Without a file, writes do nothing. */
struct pstd_logfile {
    char *path; /* path of the file; NULL: none */
    int fd;
    uint64_t lost; /* lines that could not be written */
    bool failing,
        partial_line;    /* the last write failed; it left a partial line */
    struct pst_diag why; /* error of the newest lost line */
};

/* Creates the folder, and opens the file in it. The file is locked until it is
 * closed, if the file system has locks and no other process holds it; waits up
 * to 2 s for another holder. */
enum pst_status pstd_logfile_open(struct pstd_logfile *file, const char *dir,
                                  const char *name,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Checks before a job is started that no running job uses the folder; changes
 * nothing. PST_ERR_CONFIG: a running job uses it. */
enum pst_status pstd_logfile_check(const char *dir,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Claim of a log folder by a job that is being started. */
struct pstd_log_claim {
    int fd;    /* locks DIR/job.lock; -1: no claim */
    bool made; /* the folder was created for the claim */
};
/* Does the same check, and locks DIR/job.lock, so that only one of two jobs
 * that are started at once gets the folder: neither finds a log in use. There
 * is no claim if the folder cannot be created or written here. */
enum pst_status pstd_logfile_claim(const char *dir, struct pstd_log_claim *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Ends the claim. begun: the job has begun, and its logs are locked; otherwise
 * removes the lock file, and the folder if it was created for the claim. */
void pstd_logfile_release(const char *dir, struct pstd_log_claim *claim,
                          bool begun);
/* Reopens the file after a rename by logrotate; keeps the old file on
 * failure. */
enum pst_status pstd_logfile_reopen(struct pstd_logfile *file,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pstd_logfile_write(struct pstd_logfile *file, const char *line,
                        size_t len);
void pstd_logfile_close(struct pstd_logfile *file);

uint64_t pstd_now_us(void); /* returns microseconds since 1970 UTC */

#endif
