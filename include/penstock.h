/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_INCLUDE_PENSTOCK_H
#define PENSTOCK_INCLUDE_PENSTOCK_H
/*
 * libpenstock: runs and trains models exported with torch.export.save inside
 * another program, in one process or on the ranks of an MPI communicator.
 *
 * penstock_open:        reads a .pt2 file or a plan made by `penstock split`
 * penstock_session_new: the model with memory, optimizer and ranks
 * penstock_train_step:  one step of training on arrays of the caller's
 *
 *     cc program.c $(pkg-config --cflags --libs penstock)
 *
 * docs/library.md has whole programs, and the options of each call.
 *
 * Tensors are DLPack's (dlpack.h), with the dtype and shape that the model has,
 * and any strides and byte offset. Strides count elements; NULL:
 * contiguous, the last index changes fastest. A matrix of n rows:
 *
 *     int64_t shape[2] = {n, 5};
 *     DLTensor x = {.data = array, .device = {kDLCPU, 0}, .ndim = 2,
 *                   .dtype = {kDLFloat, 32, 1}, .shape = shape};
 *
 * The library reads and writes them only during the call that they are passed
 * to, and never takes ownership. An input of a step is read where it is, by all
 * stages, if the rows of a microbatch are contiguous and each element is
 * aligned to its size: it must not change before the call returns. Others are
 * copied, microbatch by microbatch, and so are inputs that the model writes or
 * returns, those that go to other processes, bool tensors with bytes other than
 * 0 and 1, and rows that do not fill a microbatch of penstock_evaluate.
 * penstock_session_copies counts both. Parameters, gradients and outputs are
 * copied once, between the library's memory and the caller's. Bool tensors have
 * PENSTOCK_DL_BOOL or 8-bit unsigned integers.
 *
 * Devices: a tensor is on the CPU (kDLCPU, or kDLCUDAHost), or in the memory of
 * a GPU (kDLCUDA, device_id as the CUDA driver counts) on which a rank of this
 * process computes ({"device", "cuda"}). Each tensor of a call may be on
 * another one of these: a result is written to where the tensor for it is. On
 * the GPU of the rank that reads it, an input is read in place if, besides, the
 * rows of a microbatch begin at a multiple of 16 bytes; others are copied there
 * by their strides. These pass through the host: bool inputs, inputs that a
 * rank with another GPU reads, those of penstock_evaluate, and what goes to and
 * from other processes. Operands of programs are on the CPU. Another device, an
 * address that the GPU does not know: PENSTOCK_ERR_SHAPE (library.device). On a
 * GPU a tensor begins at a multiple of its element's size (else
 * library.tensor).
 *
 * Streams: a call waits for the work that was enqueued in the GPU's legacy
 * default stream before it, and for no other, before it reads a tensor in that
 * GPU's memory or writes to one; in the array API's terms, stream is 1. For
 * tensors of the host (kDLCUDAHost, too) it waits for nothing. When it
 * returns, it has read its inputs, and its results can be read in any stream.
 * The current context of the calling thread is what it was before.
 *
 * Complex numbers: a complex64 or complex128 tensor of the model is one of
 * float32 or float64 with the real and the imaginary part along a last
 * dimension of 2, and inputs, outputs and their gradients are described like
 * that. Any such tensor may be given as kDLComplex, too, of 64 or 128 bits and
 * without that dimension, and the other way round.
 *
 * Threads: any thread may use a session, but only one at a time: a call of a
 * second one returns PENSTOCK_ERR_BUSY. Any number of threads may read the
 * descriptions of a model at the same time. Different sessions may be used at
 * the same time, except those on MPI communicators: their calls marked
 * COLLECTIVE call MPI, in the calling thread. An object must not be released
 * while another thread uses it. A process that was forked from that of a
 * session can only free the session, which then changes nothing but memory of
 * that process (else library.forked).
 *
 * COLLECTIVE: all ranks of the session's communicator call the function, in the
 * same order. If it fails on one rank, also because of an argument that is
 * wrong on that rank alone, it fails on all ranks. Only PENSTOCK_ERR_BUSY and
 * an object that is NULL are reported by their rank alone, before it takes
 * part. A session of one process has one caller for all its ranks.
 *
 * Errors: a function that can fail returns 0 or an enum penstock_status, and
 * describes the failure in *error, which may be NULL. Results are written only
 * on success. The library prints nothing and never ends the process.
 *
 * Versions: structs begin with their size, which the caller sets
 * (PENSTOCK_INIT); later versions add members at the end. Symbols are versioned
 * (PENSTOCK_0).
 */
#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
template <typename object> object penstock_init()
{
    object made = object();

    made.size = sizeof(object);
    return made;
}

extern "C" {
#endif

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1

/* Initializes a struct of this header: struct penstock_error error =
 * PENSTOCK_INIT(error); */
#ifdef __cplusplus
#define PENSTOCK_INIT(object) penstock_init<decltype(object)>()
#else
#define PENSTOCK_INIT(object)                                                  \
    {                                                                          \
        .size = sizeof(object)                                                 \
    }
#endif

/* Code of bool in DLDataType (8 bits), which early versions of dlpack.h lack.
 */
#ifndef PENSTOCK_DL_BOOL
#define PENSTOCK_DL_BOOL 6
#endif

/* Returns the version of the library, such as "0.1.0". */
const char *penstock_version(void);

/* --- errors --------------------------------------------------------------- */

enum penstock_status {
    PENSTOCK_OK = 0,
    PENSTOCK_ERR_NOMEM = -1,
    PENSTOCK_ERR_USAGE = -2,       /* a wrong argument or option */
    PENSTOCK_ERR_INPUT = -3,       /* a file is damaged or of another kind */
    PENSTOCK_ERR_UNSUPPORTED = -4, /* unsupported model or option */
    PENSTOCK_ERR_SHAPE = -5,       /* wrong dtype, shape or device */
    PENSTOCK_ERR_RANGE = -6,       /* a wrong value: an index that is too
                                      large, a loss that is not finite */
    PENSTOCK_ERR_NOT_FOUND = -7,   /* no such tensor or checkpoint */
    PENSTOCK_ERR_VERSION = -8,     /* a file of another version */
    PENSTOCK_ERR_MISMATCH = -9, /* ranks or a checkpoint have another model */
    PENSTOCK_ERR_CONFIG = -10,  /* settings of the host are wrong */
    PENSTOCK_ERR_IO = -11,      /* also a file that is missing */
    PENSTOCK_ERR_PEER = -12,    /* another rank failed or does not answer */
    PENSTOCK_ERR_BUSY = -14,    /* another thread uses the object */
    PENSTOCK_ERR_DENIED = -15,
    PENSTOCK_ERR_CANCELLED = -17, /* the caller's callback failed */
    PENSTOCK_ERR_INTERNAL = -18,  /* a fault of the library */
    PENSTOCK_ERR_DAMAGED = -20,   /* a damaged message between ranks */
    PENSTOCK_ERR_DEVICE = -21
};

struct penstock_error {
    size_t size;
    int status;       /* enum penstock_status */
    char id[48];      /* row of the error catalogue (docs/errors.md), such as
                         "library.tensor" */
    char text[4096];  /* one sentence in UTF-8: the fault and its place */
    char remedy[512]; /* one sentence: the next thing to try */
};

/* Receives notes and warnings that are no errors, such as a parameter that
 * nothing reads. Called during calls, by the caller's thread; text is valid
 * until it returns. */
typedef void (*penstock_message_fn)(void *ctx, const char *text);

/* --- options -------------------------------------------------------------- */

/* An option of the command line by its name without dashes: {"lr", "1e-3"};
 * flags have the value "yes". An option that may be repeated may have several
 * entries. docs/library.md lists those of each call. */
struct penstock_option {
    const char *name, *value;
};

/* --- operators of the program's own --------------------------------------- */

struct penstock_plugin; /* penstock_plugin.h */

/* Adds operators, before a model that has them is opened: for all models of the
 * process, until it ends. The plugin stays valid and unchanged. Adding it again
 * does nothing; another one with that name is refused. Any thread.
 * {"plugin", "FILE.so"} of penstock_open adds those of a shared library. Both
 * stay after the last penstock_close, since a later model may have their
 * operators, and code that a shared library has started may still run: the one
 * thing that the library keeps when all models, sessions and programs are
 * released. */
int penstock_op_register(const struct penstock_plugin *plugin,
                         struct penstock_error *error);

/* --- models --------------------------------------------------------------- */

typedef struct penstock_model penstock_model;

struct penstock_open_config {
    size_t size;
    /* Options of `penstock split`, such as {"loss", "loss"}, {"stages", "4"}
     * (a .pt2 is cut; a plan is cut already). */
    const struct penstock_option *options;
    size_t n_options;
    penstock_message_fn message; /* NULL: messages are dropped */
    void *message_ctx;
};

/* Opens a .pt2 file, which it cuts into stages, or a folder with a plan. config
 * may be NULL: as many stages as the model has markers for, else one; the loss
 * is the first output if that is a floating-point scalar, else one named
 * "loss"; without either the model runs, but does not train. *ret: release with
 * penstock_close. A model has one session at a time; to have two, open the file
 * twice. */
int penstock_open(const char *path, const struct penstock_open_config *config,
                  penstock_model **ret, struct penstock_error *error);
/* Releases a model. Its session must have been freed before. NULL is accepted.
 */
void penstock_close(penstock_model *model);

enum penstock_kind {
    PENSTOCK_INPUT = 0,
    PENSTOCK_OUTPUT = 1,
    PENSTOCK_PARAMETER = 2, /* a parameter that the model may train */
    PENSTOCK_BUFFER = 3     /* any other tensor of the model's state */
};

/* Description of a tensor of the model. Pointers are valid until the model or
 * session that described it is released. */
struct penstock_info {
    size_t size;
    /* Inputs: the names of the arguments of the model's forward. Outputs: their
     * place in what it returns, "0" or "1.logits". Others: as in the model's
     * state_dict. */
    const char *name;
    DLDataType dtype;
    int32_t ndim;
    const int64_t *shape;
    /* Inputs and outputs: the dimension along which a batch is divided into
     * microbatches; -1: all microbatches have the same tensor. */
    int32_t batch_dim;
    int32_t trained; /* 1: the optimizer changes it */
};

/* Returns the number of tensors of one kind. */
size_t penstock_count(const penstock_model *model, enum penstock_kind kind);
/* Describes a tensor of one kind, by index < penstock_count. Inputs and outputs
 * have their exported shape, which is that of a microbatch. */
int penstock_describe(const penstock_model *model, enum penstock_kind kind,
                      size_t index, struct penstock_info *ret,
                      struct penstock_error *error);
/* Finds the index of a tensor of one kind by its name; a parameter also by an
 * alias. */
int penstock_find(const penstock_model *model, enum penstock_kind kind,
                  const char *name, size_t *ret, struct penstock_error *error);

/* A module of a model: one that is called, contains such a module, or has
 * parameters that the model reads. Pointers are valid until the model is
 * released. */
struct penstock_module {
    size_t size;
    const char *name; /* as named_modules() has it; "": the model itself */
    /* its Python class, such as "torch.nn.modules.linear.Linear"; "": the file
     * does not say */
    const char *type;
    /* elements of the parameters of the module itself, and of those including
     * its submodules; a parameter with several names counts once */
    int64_t own_parameters, parameters;
    uint32_t calls; /* how often the model's forward calls it */
    /* the stages that run its operators, in order */
    int32_t n_stages;
    const int32_t *stages;
};

/* Returns the number of modules of the model as it was opened. */
size_t penstock_module_count(const penstock_model *model);
/* Describes a module by index < penstock_module_count: parents come before
 * their submodules, which are in the order of their first calls. */
int penstock_describe_module(const penstock_model *model, size_t index,
                             struct penstock_module *ret,
                             struct penstock_error *error);

/* --- sessions ------------------------------------------------------------- */

typedef struct penstock_session penstock_session;

/*
 * Writes one input of one microbatch of a step to dst, which is on the CPU, has
 * the input's dtype and the microbatch's shape, and is contiguous (strides are
 * NULL). Called
 * for the inputs that the stages of this process read, once for each stage; in
 * one thread at a time, which may be one of the library's. It must not call the
 * session. Not 0: the step fails on all ranks (PENSTOCK_ERR_CANCELLED) and
 * changes nothing. step: number of finished steps.
 */
typedef int (*penstock_fill_fn)(void *ctx, uint64_t step, uint32_t microbatch,
                                uint32_t input, DLTensor *dst);

struct penstock_session_config {
    size_t size;
    /* Options of `penstock run`, such as {"microbatches", "4"},
     * {"optimizer", "adamw"}, {"lr", "1e-3"}; {"steps", "N"} is the length of
     * schedules of the learning rate. Options of jobs (data, checkpoints, logs)
     * are refused by name. */
    const struct penstock_option *options;
    size_t n_options;
    /* Address of an MPI_Comm of the caller's: each rank of the communicator is
     * a rank of the session. The caller must have initialized MPI, with
     * MPI_THREAD_FUNNELED at least. The session uses private duplicates. NULL:
     * all ranks ({"ranks", "2"}; default: one for each stage) are in this
     * process. */
    const void *mpi_comm;
    penstock_message_fn message; /* NULL: messages are dropped */
    void *message_ctx;
};

/* COLLECTIVE. Makes a session: plans and allocates all memory, and loads the
 * parameters. config may be NULL: AdamW with a learning rate of 1e-3, steps of
 * one microbatch, threads on all processors. Borrows the model until the
 * session is freed. *ret: release with penstock_session_free. */
int penstock_session_new(penstock_model *model,
                         const struct penstock_session_config *config,
                         penstock_session **ret, struct penstock_error *error);
/* Converts a communicator of Fortran (MPI_Fint, or the member MPI_VAL of
 * mpi_f08) for mpi_comm: writes an MPI_Comm to ret, which has `size` bytes; 16
 * suffice. Calls MPI, but no other rank. */
int penstock_comm_from_fortran(int comm, void *ret, size_t size,
                               struct penstock_error *error);
/* COLLECTIVE. Releases a session. NULL is accepted. */
void penstock_session_free(penstock_session *session);

/* Returns the number of inputs, outputs, ... of the session's model, which
 * penstock_swap changes, and penstock_load where it says so. */
size_t penstock_session_count(const penstock_session *session,
                              enum penstock_kind kind);
/* Describes an input of a whole step, as penstock_train_step takes it, or an
 * output, as penstock_output gives it: with the rows of all microbatches, and
 * an output without dimensions with one number for each microbatch. Also
 * describes a parameter or buffer, whose pointers are valid until the model
 * changes (penstock_swap, penstock_load). */
int penstock_session_describe(penstock_session *session,
                              enum penstock_kind kind, size_t index,
                              struct penstock_info *ret,
                              struct penstock_error *error);

/* Result of a step; the same on all ranks. */
struct penstock_step {
    size_t size;
    uint64_t step;    /* finished steps of the session */
    double loss;      /* mean over the microbatches, weighted by their rows */
    double grad_norm; /* norm of all gradients before clipping; NaN: not
                         computed */
    double lr;
    int32_t applied; /* 1: the optimizer has changed parameters; 0:
                        {"optimizer", "none"} */
};

/*
 * COLLECTIVE. One step of training: forward, backward, sums of gradients,
 * optimizer. inputs: all of the model, in its order, as
 * penstock_session_describe has them. On a rank whose stages do not read an
 * input, its entry may be NULL. Nothing is allocated.
 * After an error nothing has changed on any rank, and the same step can be made
 * again; PENSTOCK_ERR_RANGE: an index in the inputs or a loss or gradient is at
 * fault. After PENSTOCK_ERR_PEER, _DAMAGED, _DEVICE and _INTERNAL the session
 * can only be freed.
 */
int penstock_train_step(penstock_session *session,
                        const DLTensor *const *inputs, size_t n_inputs,
                        struct penstock_step *ret,
                        struct penstock_error *error);
/* COLLECTIVE. Makes a step like penstock_train_step, with inputs that a
 * callback fills. */
int penstock_train_step_fill(penstock_session *session, penstock_fill_fn fill,
                             void *ctx, struct penstock_step *ret,
                             struct penstock_error *error);

/*
 * COLLECTIVE. A step of training in two calls: the first computes loss and
 * gradients, the second makes the optimizer's step with them (clipping,
 * learning rate, number of the step). Together they have the bits of
 * penstock_train_step. The first one has its errors, and no step has begun
 * after them; the second one fails as messages do.
 *
 * Between the two, gradients can be read and set (penstock_set_gradient),
 * parameters are the old ones, and buffers have the values that the forward has
 * given them. A
 * penstock_train_step or penstock_save is refused (library.order). A further
 * penstock_forward_backward takes the place of the first, with the same number
 * of the step and the buffers as they are. penstock_load drops the gradients.
 * Results of the first: step is the number of steps finished before, applied
 * is 0.
 */
int penstock_forward_backward(penstock_session *session,
                              const DLTensor *const *inputs, size_t n_inputs,
                              struct penstock_step *ret,
                              struct penstock_error *error);
int penstock_update(penstock_session *session, struct penstock_step *ret,
                    struct penstock_error *error);
/* COLLECTIVE. penstock_forward_backward with inputs that a callback fills. */
int penstock_forward_backward_fill(penstock_session *session,
                                   penstock_fill_fn fill, void *ctx,
                                   struct penstock_step *ret,
                                   struct penstock_error *error);
/* COLLECTIVE, between penstock_forward_backward and penstock_update. Sets the
 * gradient of a parameter to src, or, if add is not 0, adds src to it, rounded
 * once to the parameter's dtype. src has the parameter's dtype and shape, and
 * all ranks give the same bytes (PENSTOCK_ERR_MISMATCH). The update clips by
 * the norm of the new gradients, and reports it. PENSTOCK_ERR_RANGE: an element
 * would not be finite; no gradient has changed. A parameter with several names
 * has one gradient. */
int penstock_set_gradient(penstock_session *session, const char *name,
                          const DLTensor *src, int add,
                          struct penstock_error *error);

/* COLLECTIVE. Runs the model in eval mode on the current parameters; changes
 * nothing. Random numbers are those of step 0. inputs: as for
 * penstock_train_step, also those that only the loss needs. *ret_loss: NaN if
 * the model has no loss; may be NULL. Outputs: see penstock_output. Parameters
 * are read where they are; only buffers that the model writes, and what
 * replicas shard, are copied. The first call allocates memory for evaluation,
 * later ones allocate nothing. */
int penstock_forward(penstock_session *session, const DLTensor *const *inputs,
                     size_t n_inputs, double *ret_loss,
                     struct penstock_error *error);
/* COLLECTIVE. The mean loss in eval mode over any number of rows, as `penstock
 * eval` computes it: each row counts once, also where they do not fill a step,
 * and if the loss can ignore targets, each microbatch counts by those that it
 * does not. inputs: as for penstock_forward, but with that number of rows, and
 * all of them on rank 0, if the model reads them. penstock_output has nothing
 * afterwards. */
int penstock_evaluate(penstock_session *session, const DLTensor *const *inputs,
                      size_t n_inputs, double *ret_loss,
                      struct penstock_error *error);
/* COLLECTIVE. Copies an output of the last penstock_forward to dst on rank 0,
 * with the shape of penstock_session_describe. Other ranks may give NULL. */
int penstock_output(penstock_session *session, size_t output, DLTensor *dst,
                    struct penstock_error *error);

/* COLLECTIVE. Copies a parameter or buffer to dst on rank 0; other ranks may
 * give NULL. */
int penstock_get(penstock_session *session, const char *name, DLTensor *dst,
                 struct penstock_error *error);
/* COLLECTIVE. Copies the gradient of a parameter in the last step of training
 * to dst, as penstock_get does: the mean over the microbatches, weighted as the
 * loss is, before clipping. With {"optimizer", "none"} a step computes
 * gradients and changes nothing, for an optimizer of the caller's
 * (penstock_set). */
int penstock_gradient(penstock_session *session, const char *name,
                      DLTensor *dst, struct penstock_error *error);
/* COLLECTIVE. Copies the gradient of an input in the last step of training to
 * dst on rank 0: that of the loss of struct penstock_step, before clipping,
 * with the shape of penstock_session_describe. An input that is not divided
 * into microbatches has the sum over all of them; one that the loss does not
 * depend on has zeros. input: its index, one of those that {"input-gradients",
 * "NAME"} of the session names. Other ranks may give NULL. */
int penstock_input_gradient(penstock_session *session, size_t input,
                            DLTensor *dst, struct penstock_error *error);
/* Sets *ret to a parameter or buffer, or an output of the last
 * penstock_forward, in the session's own memory: nothing is copied. It is
 * contiguous (strides are NULL), belongs to the session and is read-only. With
 * {"device", "cuda"} it is in the memory of a GPU (kDLCUDA), and later calls
 * return only when the GPU has written it. An output is valid until the next
 * call of penstock_forward, penstock_evaluate, penstock_swap, penstock_load or
 * penstock_session_free; a parameter or buffer until penstock_swap,
 * penstock_load or penstock_session_free, and its content is the current one: a call that
 * changes it must not run while it is read. index: as for
 * penstock_session_describe. Sends no message. PENSTOCK_ERR_USAGE: another
 * process has it, replicas share it, no stage reads it, or the rows of the
 * output are not its first dimension (library.elsewhere): penstock_get and
 * penstock_output copy it then. */
int penstock_view(penstock_session *session, enum penstock_kind kind,
                  size_t index, DLTensor *ret, struct penstock_error *error);

/* COLLECTIVE. Sets a parameter or buffer. All ranks give the same bytes
 * (PENSTOCK_ERR_MISMATCH). The optimizer's states stay. */
int penstock_set(penstock_session *session, const char *name,
                 const DLTensor *src, struct penstock_error *error);

/* COLLECTIVE. Writes a checkpoint to the folder, which all ranks see, as
 * `penstock run --checkpoint` does: parameters, buffers, optimizer, number of
 * finished steps, and the options of the run that was loaded, so that a resume
 * of it keeps the values of `penstock set`. The position in the data of that
 * run is kept; a resume goes on from there as if the run had made the steps of
 * the session, whose rows are not known, and reports that. The folder is made if it is missing, and belongs to the
 * session from then on. A folder with checkpoints of another run is refused
 * (checkpoint.other-run), unless it is the one that penstock_load has read
 * last. So is one that another program has changed since the session loaded or
 * saved there: it has made checkpoints, has replaced one, also of the current
 * step, or has gone back (--resume=STEP); or if the run's second folder
 * (--checkpoint-fallback) has a later checkpoint, or cannot be read. Nothing is
 * written or removed then. If the session has gone back with penstock_load, its
 * own later checkpoints are moved into a folder former-N of that folder, those
 * in best/ into best/former-N, and a message says so; evaluations of later
 * steps are forgotten. {"keep", "N"}: number of checkpoints that stay in the
 * folder. */
int penstock_save(penstock_session *session, const char *folder,
                  struct penstock_error *error);
/* COLLECTIVE. Loads the newest good checkpoint of the same model, of this
 * library or of a job, with any cut and number of ranks. It skips those that
 * are not in the past of the run any more (--resume=STEP), like a resume, and
 * says so. A message says if the run's second folder, which is not read, has or
 * may have a later one, and if averages of {"ema", ...} are dropped because
 * this session keeps none. If the run has changed its model (`penstock swap`,
 * `freeze`, `attr`), the session goes on with the changed one, like a resume,
 * and a message says so: it is planned and allocated beside the old one, as for
 * penstock_swap, and penstock_session_describe describes it.
 * *ret_step (may be NULL): the number of steps finished in it; the session
 * continues with the next one. After an error nothing has changed, except if a
 * file cannot be read half-way: then the session can only be freed
 * (library.failed). */
int penstock_load(penstock_session *session, const char *folder,
                  uint64_t *ret_step, struct penstock_error *error);

/*
 * COLLECTIVE, between steps. Replaces a module of the model by another one,
 * which was exported by itself to the file `path`, as `penstock swap` does in a
 * job: at each call of the module, or with {"at-call", "K"} at one of them, and
 * with {"aliases", "yes"} also under its other names. Its parameters begin with
 * the values in the file, and are named MODULE.NAME; {"state", "keep"}:
 * optimizer states of parameters with old names and shapes stay; {"state",
 * "map:FILE"}: new parameters go on with the states of those that the file, an
 * object of JSON, names: {"NEW": "OLD", ...}. All ranks see the files. The new
 * model is planned and allocated beside the old one, which stays if the call
 * fails. The penstock_model stays as it is: this session's parameters are
 * described by penstock_session_describe. Its checkpoints hold the new model:
 * `penstock run --resume` continues with it, and so does penstock_load.
 */
int penstock_swap(penstock_session *session, const char *module,
                  const char *path, const struct penstock_option *options,
                  size_t n_options, struct penstock_error *error);

/* Bytes that the last call of a session has moved in this process. */
struct penstock_copies {
    size_t size;
    /* Inputs that the stages read in the caller's memory, once for each stage
     * that reads them. */
    uint64_t in_place;
    /* Inputs, parameters, gradients that were copied from the caller's memory;
     * what a callback fills is not copied. */
    uint64_t read;
    uint64_t written; /* copied to the caller's memory */
};

/* Describes the last call but this one, also one that has failed. */
int penstock_session_copies(penstock_session *session,
                            struct penstock_copies *ret,
                            struct penstock_error *error);

/* Returns the bytes of the memory that was planned for the ranks in this
 * process, that of penstock_forward included once it was called. */
size_t penstock_session_bytes(const penstock_session *session);

/* --- programs on operands that share memory ------------------------------- */

/*
 * A program is a list of ATen operators on named tensors, in JSON
 * (docs/library.md, "Programs"). penstock_call runs it on tensors of the
 * caller's, which may overlap: what operators write, all operands with the
 * same bytes see, and results are views of them, as in PyTorch's eager mode.
 * docs/aliasing.md lists what is refused; the text of such an error has the
 * reason's name, such as E_SELF_OVERLAP.
 */
typedef struct penstock_program penstock_program;

struct penstock_program_config {
    size_t size;
    /* Options of an optimizer that updates the leaves in each call:
     * {"optimizer", "sgd"}, {"lr", "0.1"}. Default: no optimizer; calls only
     * compute gradients. */
    const struct penstock_option *options;
    size_t n_options;
    penstock_message_fn message; /* NULL: messages are dropped */
    void *message_ctx;
};

/* Opens a program from `size` bytes of JSON, which need not be trusted. They
 * are copied. config may be NULL. *ret: release with penstock_program_close. */
int penstock_program_open(const char *text, size_t size,
                          const struct penstock_program_config *config,
                          penstock_program **ret, struct penstock_error *error);
/* NULL is accepted. */
void penstock_program_close(penstock_program *program);

/*
 * An operand of a call: a CPU tensor of the dtype that the program declares.
 * One of complex numbers is an operand of float32 or float64, its
 * view_as_real(). Strides are in elements, not negative. Each element is
 * aligned to its size (else E_UNALIGNED). Operands with the same DLTensor
 * pointer are one tensor with several names; those with different pointers are
 * different tensors, even if the two DLTensors are equal.
 *
 * storage: the memory that the tensor is a view of. Operators such as
 * as_strided and set_ may reach all of it, also outside of the operand, and
 * their offsets count from its beginning. Operands that share a storage must
 * all give it.
 * NULL: operands whose memory overlaps, each taken from its first to its last
 * element, share a storage, from the lowest of these bytes to the highest. Its
 * size must be a multiple of the element size of each of them.
 */
struct penstock_operand {
    const char *name;
    const DLTensor *tensor;
    void *storage;
    size_t storage_bytes;
};

struct penstock_call_info {
    size_t size;
    size_t results;  /* number of results */
    size_t copied;   /* bytes that were written to storages of the caller's */
    size_t passed;   /* bytes that were read from storages of the caller's */
    size_t bases;    /* pieces of memory that stand for several operands, since
                        one of these writes what another one has */
    size_t plans;    /* plans made so far: one for each way of sharing memory */
    int32_t is_new;  /* 1: this call has made a new plan */
    size_t in_place; /* bytes of `passed` that were read without a copy */
};

/*
 * Runs the program. operands: all that the program names, each once, in any
 * order. A call that fails has written nothing. The program's 64 latest plans
 * are kept. ret may be NULL. Results: see penstock_result; the operands' memory
 * must stay valid while results are used.
 */
int penstock_call(penstock_program *program,
                  const struct penstock_operand *operands, size_t n_operands,
                  struct penstock_call_info *ret, struct penstock_error *error);

/* Flag of an operand, as in DLManagedTensorVersioned of DLPack 1.0. */
#define PENSTOCK_READ_ONLY 1U

/* penstock_call with flags, one for each of the operands; NULL: none. Other
 * bits are ignored. A call that writes an operand with PENSTOCK_READ_ONLY is
 * refused (E_READ_ONLY): by operators that write it or a view of it, or as a
 * leaf, by the optimizer. Writes through other operands with the same memory
 * are not: the flag belongs to the tensor, not to its bytes. If a tensor has
 * several names, the flag of any of them counts. */
int penstock_call_flags(penstock_program *program,
                        const struct penstock_operand *operands,
                        const uint64_t *flags, size_t n_operands,
                        struct penstock_call_info *ret,
                        struct penstock_error *error);

/* A tensor after a call. Pointers are valid until the next call, also one that
 * fails, or until the program is closed. */
struct penstock_tensor {
    size_t size;
    /* Shape, strides and offset are those of eager mode. data: the storage;
     * byte_offset: the first element in it. Memory of the program (operand -1)
     * is read-only. */
    DLTensor tensor;
    /* >= 0: the tensor is a view of the caller's memory, in the storage of this
     * operand of the call. That memory has the tensor's content; for a leaf,
     * the content after the optimizer's step. -1: the tensor is in memory of
     * the program, with a copy of its own for each result. */
    int32_t operand;
    int32_t moved; /* 1: an operand whose geometry the call has changed, or
                      that it has moved to another storage */
};

/* Describes a result of the last call, by its index in "returns". */
int penstock_result(penstock_program *program, size_t index,
                    struct penstock_tensor *ret, struct penstock_error *error);
/* Describes an operand after the last call; the DLTensor that was passed is
 * left as it was. One that set_() has moved to new memory has no data (NULL)
 * here: let the program return it. */
int penstock_result_operand(penstock_program *program, const char *name,
                            struct penstock_tensor *ret,
                            struct penstock_error *error);
/* Describes the gradient of a leaf in the last call: contiguous, with the
 * leaf's shape and dtype, in the program's memory. PENSTOCK_ERR_NOT_FOUND: it
 * has none. */
int penstock_result_gradient(penstock_program *program, const char *name,
                             struct penstock_tensor *ret,
                             struct penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
