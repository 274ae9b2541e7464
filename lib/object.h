// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_OBJECT_H
#define PENSTOCK_LIB_OBJECT_H
/*
 * Models and sessions (the handles of include/penstock.h), and functions that
 * all calls share. Between pstl_acquire and pstl_release only one thread uses
 * an object.
 */
#include "daemon/common/model/changed.h"
#include "daemon/common/model/open.h"
#include "include/penstock.h"
#include "lib/saves/folders.h"
#include "lib/tensor.h"
#include "stages/base/vec.h"
#include "stages/run/exec.h"
#include "stages/split/bind/bind.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Receiver of notes and warnings; fn NULL: they are dropped. */
struct pstl_messages {
    penstock_message_fn fn;
    void *ctx;
};

/* Memory of the library's. */
struct pstl_buffer {
    void *at; /* owned */
    size_t bytes;
};

/* Current device of the calling thread before the call. */
struct pstl_thread {
    const struct pst_guest *guest; /* NULL: calls do not change the device */
    void *current;
};

#define PSTL_N_KINDS 4 /* enum penstock_kind */
struct pstl_tensors PST_VEC(struct pstl_tensor);

struct pstl_modules;
struct pstl_calls;

struct penstock_model {
    atomic_bool has_session;
    struct pstd_config config;
    struct pstd_plan opened;
    struct pstl_messages messages;
    /* Indexed by enum penstock_kind. Like `modules`, read-only after the model
     * was opened. */
    struct pstl_tensors tensors[PSTL_N_KINDS];
    struct pstl_modules *modules;
};

struct pstl_forward;
struct pst_carried;
struct pst_checkpoint_owner;

/* Plan of a session whose model was changed: either `of`, if penstock_swap has
 * made it, or `carried`, if it is from a checkpoint. */
struct pstl_changed {
    /* of.plan is NULL if the plan is from a checkpoint */
    struct pstd_changed_plan of;
    struct pst_carried *carried;         /* that plan; or NULL */
    struct pstl_tensors params, buffers; /* in the changed plan */
};

/* Bytes that the last call of a session has moved. Ranks in one process add to
 * these numbers from several threads. */
struct pstl_copies {
    atomic_uint_fast64_t read, in_place; /* inputs, parameters, gradients */
    atomic_uint_fast64_t written;        /* to the caller's memory */
};

struct penstock_session {
    atomic_flag busy;
    pid_t process; /* its maker; a forked process may only free it */
    penstock_model *model;
    struct pstd_config config;
    struct pstl_messages messages;
    struct pst_exec_options options; /* borrows config */
    struct pst_transport *transport;
    struct pstl_calls *calls; /* NULL: all ranks are in one process */
    struct pst_batch batch;
    struct pstl_changed *changed; /* has the plan of `batch`; NULL: none */
    bool keeps_base; /* pstl_carried_keep has marked the model's plan */
    struct pst_engine *engine;
    bool trains;
    /* An error has left the state or messages undefined. */
    bool failed;
    bool has_grads;              /* the last step of training left gradients */
    bool is_half;                /* a step still lacks its penstock_update */
    struct pst_step_result half; /* if is_half: of penstock_forward_backward */
    uint64_t step, changes;      /* finished steps; calls of set and swap */
    uint64_t course;             /* number of the run's course (lineage.h) */
    /* Position in the data and number of steps of the loaded checkpoint. Later
     * checkpoints record the same position and the number of steps since. */
    struct pst_data_place place;
    uint64_t placed;
    /* Rank 0: options that the loaded checkpoint records. Later checkpoints
     * record them, too, if `penstock set` has set them in the run. */
    char run_options[PST_CHECKPOINT_OPTIONS];
    struct pstl_folders folders; /* rank 0: known checkpoint folders */
    /* Rank 0: second folders of the runs, as they were at the load. */
    struct pstl_folders seconds;
    size_t n_inputs, n_outputs;
    struct pstl_tensor *inputs, *outputs; /* tensors of a whole step */
    bool *reads;                          /* per input: this process reads it */
    struct pstl_view *views; /* per input: the caller's memory, during a step */
    /* Per input in memory of a GPU: view of a host copy for ranks that cannot
     * read it there (data NULL: none is needed), and the memory of that copy,
     * which later steps reuse. */
    struct pstl_view *hosts;
    struct pstl_buffer *copied;
    bool viewed;               /* penstock_view has returned memory of a GPU */
    struct pstl_thread caller; /* during a call */
    struct pstl_copies copies;
    struct pstl_forward *forward;
    /* Rank 0: the checkpoint folder in use, or NULL, and the name of the run
     * that its checkpoints belong to. */
    struct pst_checkpoint_owner *owner;
    char *folder;
    char run[33];
};

/* True on the rank to which results are copied. */
static inline bool pstl_is_first(const penstock_session *session)
{
    return session->transport->ops->rank(session->transport) == 0;
}

/* Copies the caller's struct, whose first member is its size, to dst, a struct
 * of `size` bytes. Members that the caller's struct does not have become zero;
 * src NULL: all do. PST_ERR_USAGE: the caller's size is invalid, or members
 * that this library does not know are not zero. */
enum pst_status pstl_read_struct(const char *what, const void *src, void *dst,
                                 size_t size,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Checks that the caller's struct for a result has a valid size. */
enum pst_status pstl_check_struct(const char *what, const void *dst,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Copies a result to the caller's struct, up to the size of that struct. */
void pstl_write_struct(const void *src, void *dst, size_t size);

/* Describes the failure to the caller (error may be NULL) and returns it as an
 * enum penstock_status; 0 if status is PST_OK. */
int pstl_return(enum pst_status status, const struct pst_diag *diag,
                struct penstock_error *error);

/* remedies.c: writes to ret one sentence about how the caller can correct the
 * error, in terms of the library's calls and options. */
void pstl_remedy(enum pst_error error, char *ret, size_t size);
/* Copies a text to ret and writes options as the library names them: --lr
 * becomes "lr", -m becomes "microbatches", and --lr X becomes {"lr", "X"}.
 * `COMMANDS` in backquotes are unchanged. Truncates the text to `size` bytes.
 */
void pstl_words_of_options(const char *text, char *ret, size_t size);

/* Sets the flag of an object for the duration of a call. PST_ERR_BUSY: another
 * call has set it. */
enum pst_status pstl_acquire(atomic_flag *busy, const char *what,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pstl_release(atomic_flag *busy);
/* PST_E_LIBRARY_FORKED: the session was made by another process. */
enum pst_status pstl_session_check_process(
    const penstock_session *session, struct pst_diag *diag) PST_MUST_CHECK;
/* Acquires a session. PST_ERR_PEER: the session has failed before, and can only
 * be freed. */
enum pst_status pstl_session_acquire(penstock_session *session,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Releases a session and returns the value of pstl_return. Marks the session as
 * failed if `status` leaves its state undefined. */
int pstl_session_release(penstock_session *session, enum pst_status status,
                         const struct pst_diag *diag,
                         struct penstock_error *error);

/* Sends a note to the caller. */
void pstl_send_note(const struct pstl_messages *messages, const char *text);
/* Sends log lines of this thread to the caller as notes; NULL: drops them. */
void pstl_receive_log(const struct pstl_messages *messages);
/* Sends the notes of a plan. */
void pstl_send_plan_notes(const struct pstl_messages *messages,
                          const struct pst_plan *plan);

/* Calls that take options. */
enum pstl_call { PSTL_OPEN, PSTL_SESSION, PSTL_PROGRAM, PSTL_SWAP };

/* True if the call takes an option of that name. */
bool pstl_option_is_of(enum pstl_call call, const char *name);
/* Sets the options that the caller has given to a call. */
enum pst_status pstl_options_set(struct pstd_config *config,
                                 enum pstl_call call,
                                 const struct penstock_option *options,
                                 size_t n,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Writes the description of a tensor to the caller's struct. */
int pstl_describe(const struct pstl_tensor *tensors, size_t n, size_t index,
                  struct penstock_info *ret, struct penstock_error *error);

/* COLLECTIVE. Compares the bytes at data with those of rank 0. what: their
 * name, for the error. PST_ERR_MISMATCH: they differ. */
enum pst_status pstl_check_same(const penstock_session *session,
                                const char *what, const void *data,
                                size_t bytes,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* model.c: lists the parameters and buffers of a plan. */
enum pst_status pstl_list_state(const struct pst_plan *plan,
                                struct pstl_tensors *params,
                                struct pstl_tensors *buffers,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* modules.c: lists the modules of a plan. NULL is accepted by free. */
enum pst_status pstl_modules_new(struct pst_plan *plan,
                                 struct pstl_modules **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstl_modules_free(struct pstl_modules *modules);

/* session.c: makes steps of the batch keep the gradients of the inputs that the
 * session's options name. */
enum pst_status pstl_session_keep_gradients(
    const penstock_session *session, const struct pst_batch *batch,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Sets (frees) the descriptions of the inputs and outputs of a step with the
 * session's batch and engine. */
enum pst_status pstl_session_describe_step(
    penstock_session *session, struct pst_diag *diag) PST_MUST_CHECK;
void pstl_session_free_step(penstock_session *session);

/* swap.c: return the plan of the session's model, and its parameters or
 * buffers: those of the changed model if there is one, else those of the opened
 * model. */
const struct pst_plan *pstl_plan(const penstock_session *session);
const struct pstl_tensors *pstl_state_of(const penstock_session *session,
                                         enum penstock_kind kind);
void pstl_changed_free(struct pstl_changed *changed);
/* Replaces the engine and plan of the session by next->engine and `changed`,
 * and frees the old ones. pstl_session_describe_step must have set the
 * descriptions in `next`. */
void pstl_changed_install(penstock_session *session,
                          const struct penstock_session *next,
                          struct pstl_changed *changed);
/* Checks that steps of the changed model have as many inputs and outputs as
 * before. */
enum pst_status pstl_changed_check(const penstock_session *session,
                                   const struct penstock_session *next,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* carried.c: COLLECTIVE. Call after pst_engine_load has refused the newest
 * checkpoint of the folder (lineage: as in that load). If that checkpoint
 * contains the plan of a run that has changed its model, makes an engine for
 * that plan, and sets *ret_next and *ret_changed for pstl_changed_install. If
 * it contains no plan, returns the error that was in diag. */
enum pst_status pstl_carried_open(penstock_session *session, const char *folder,
                                  const struct pst_checkpoint_lineage *lineage,
                                  struct penstock_session *ret_next,
                                  struct pstl_changed **ret_changed,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Call after the checkpoint of `step` was loaded. If the
 * checkpoint's run has changed its model, and the session was opened with the
 * changed model (for instance with {"freeze", ...}), later checkpoints of the
 * session will contain the plan, too. Otherwise a resume would undo the change.
 */
enum pst_status pstl_carried_keep(penstock_session *session, const char *folder,
                                  uint64_t step,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Undoes pstl_carried_keep. */
void pstl_carried_drop(penstock_session *session);

/* forward.c: COLLECTIVE. Copies the current state to the engine of
 * penstock_forward, and returns that engine, which is created if it does not
 * exist. Outputs of the last penstock_forward are lost. */
enum pst_status pstl_forward_prepare(penstock_session *session,
                                     struct pst_engine **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the engine that has the outputs of the last penstock_forward; NULL:
 * there are none. */
const struct pst_engine *pstl_forward_engine(const penstock_session *session);
/* forward.c: frees the engine of penstock_forward; NULL is accepted. */
void pstl_forward_free(struct pstl_forward *forward);
/* Returns the planned bytes of the engine of penstock_forward; 0 if forward is
 * NULL. */
size_t pstl_forward_bytes(const struct pstl_forward *forward);
/* checkpoint.c: gives up ownership of the checkpoint folder, and frees
 * session->folders and session->seconds. */
void pstl_checkpoint_fini(penstock_session *session);

/* step.c: checks the inputs of a step and sets session->views. */
enum pst_status pstl_step_set_inputs(penstock_session *session,
                                     const DLTensor *const *inputs, size_t n,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Source of the inputs of a step: the session's views, a callback, or the rows
 * of an evaluation. refused: error for which this rank cannot take part, or
 * NULL; the step then fails on all ranks. */
struct pstl_source {
    penstock_session *session;
    penstock_fill_fn fn; /* NULL: the session's views */
    void *ctx;
    const struct pst_diag *refused;
    bool holds;            /* the step computes gradients without an update */
    struct pst_mean *mean; /* reads the rows of an evaluation; NULL: none */
    uint64_t step;         /* pstl_step_run sets it */
};
/* Returns `from`, the address of a microbatch's part of an input in the
 * caller's memory, if the engine can read it in place, and counts its bytes;
 * NULL: it must be copied. meta: shape of the part; strides are those of the
 * session's view. Any thread. */
const void *pstl_lend(penstock_session *session, unsigned input,
                      const struct pst_meta *meta, const void *from);
enum pst_status pstl_step_run(struct pst_engine *engine,
                              struct pstl_source *source, uint64_t step,
                              struct pst_step_result *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
