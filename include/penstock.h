/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_INCLUDE_PENSTOCK_H
#define PENSTOCK_INCLUDE_PENSTOCK_H
/*
 * libpenstock: runs and trains models exported with torch.export.save inside
 * another program, in one process or on the ranks of an MPI communicator.
 *
 * penstock_open:        reads a .pt2 file or a plan made by `penstock split`
 * penstock_session_new: makes the model's memory, optimizer and ranks
 * penstock_train_step:  makes one step of training on arrays of the caller
 *
 *     cc program.c $(pkg-config --cflags --libs penstock)
 *
 * docs/library.md has whole programs, and the options of each call.
 *
 * Tensors are those of DLPack (dlpack.h). They have the dtype and shape that
 * the model requires, and any strides and byte offset. Strides count elements;
 * NULL: the tensor is contiguous, and its last index changes fastest. A matrix
 * of n rows:
 *
 *     int64_t shape[2] = {n, 5};
 *     DLTensor x = {.data = array, .device = {kDLCPU, 0}, .ndim = 2,
 *                   .dtype = {kDLFloat, 32, 1}, .shape = shape};
 *
 * The library reads and writes tensors only during the call that they are
 * passed to, and never takes ownership. An input of a step is read in place, by
 * all stages, if the rows of a microbatch are contiguous and each element is
 * aligned to its size: it must not change before the call returns. Other inputs
 * are copied, microbatch by microbatch. Also copied are inputs that the model
 * writes or returns, inputs that go to other processes, bool tensors with bytes
 * other than 0 and 1, and rows that do not fill a microbatch of
 * penstock_evaluate. penstock_session_copies counts the bytes of both kinds.
 * Parameters, gradients and outputs are copied once, between the library's
 * memory and the caller's. A bool tensor has the code PENSTOCK_DL_BOOL or is an
 * 8-bit unsigned integer tensor.
 *
 * Devices: a tensor is on the CPU (kDLCPU, or kDLCUDAHost), or in the memory of
 * a GPU (kDLCUDA, device_id as the CUDA driver counts) on which a rank of this
 * process computes ({"device", "cuda"}). The tensors of one call may be on
 * different devices: a result is written to the device of the tensor that
 * receives it. On the GPU of the rank that reads it, an input is read in place
 * if, besides, the rows of a microbatch begin at a multiple of 16 bytes;
 * otherwise it is copied within the GPU. Copies through the host are made of
 * bool inputs, inputs that a rank with another GPU reads, inputs of
 * penstock_evaluate, and data to and from other processes. Operands of programs
 * are on the CPU. A tensor on another device, or at an address that the GPU
 * does not know, is refused with PENSTOCK_ERR_SHAPE (library.device). On a GPU
 * a tensor must begin at a multiple of its element's size (else
 * library.tensor).
 *
 * Streams: before a call reads or writes a tensor in the memory of a GPU, it
 * waits for all work that was enqueued in that GPU's legacy default stream
 * before the call, and for no other stream; in the terms of the array API,
 * stream is 1. For tensors of the host (kDLCUDAHost, too) it waits for nothing.
 * When the call returns, it has read its inputs, and its results can be read in
 * any stream. The current context of the calling thread is unchanged.
 *
 * Complex numbers: a complex64 or complex128 tensor of the model is described
 * as a float32 or float64 tensor with the real and imaginary parts along an
 * additional last dimension of 2; this holds for inputs, outputs and their
 * gradients. Any float32 or float64 tensor whose last dimension is 2 may also
 * be given as kDLComplex, of 64 or 128 bits and without that dimension.
 *
 * Threads: any thread may use a session, but only one at a time: if two threads
 * call, the second call returns PENSTOCK_ERR_BUSY. Any number of threads may
 * read the descriptions of a model at the same time. Different sessions may be
 * used at the same time, except those on MPI communicators: their calls marked
 * COLLECTIVE call MPI, in the calling thread. An object must not be released
 * while another thread uses it. In a process that was forked from the session's
 * process, a session can only be freed, which changes nothing but memory of the
 * forked process (other calls: library.forked).
 *
 * COLLECTIVE: all ranks of the session's communicator call the function, in the
 * same order. If the call fails on one rank, it fails on all ranks, even if
 * only that rank has given a wrong argument. Only PENSTOCK_ERR_BUSY, and an
 * object that is NULL, are reported by a single rank, before it takes part in
 * the call. A session of one process has one caller for all its ranks.
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
    PENSTOCK_ERR_RANGE = -6,       /* wrong value: an index that is too large,
                                    * or a loss that is not finite */
    PENSTOCK_ERR_NOT_FOUND = -7,   /* no such tensor or checkpoint */
    PENSTOCK_ERR_VERSION = -8,     /* a file of another version */
    PENSTOCK_ERR_MISMATCH = -9, /* ranks or a checkpoint have another model */
    PENSTOCK_ERR_CONFIG = -10,  /* settings of the host are wrong */
    PENSTOCK_ERR_IO = -11,      /* failed input or output, or a missing file */
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
    char text[4096];  /* one sentence in UTF-8: the error and its place */
    char remedy[512]; /* one sentence: a way to correct the error */
};

/* Receives notes and warnings, such as one about a parameter that nothing
 * reads. Called in the caller's thread during calls of the library; text is
 * valid until the callback returns. */
typedef void (*penstock_message_fn)(void *ctx, const char *text);

/* --- options -------------------------------------------------------------- */

/* An option of the command line, with its name without dashes: {"lr", "1e-3"}.
 * Flags have the value "yes". An option that may be repeated may have several
 * entries. docs/library.md lists the options of each call. */
struct penstock_option {
    const char *name, *value;
};

/* --- operators of the program's own --------------------------------------- */

struct penstock_plugin; /* penstock_plugin.h */

/* Adds the operators of a plugin for all models of the process. Call it before
 * a model with these operators is opened. The plugin must stay valid and
 * unchanged until the process ends. Adding it again does nothing; another
 * plugin with the same name is refused. Any thread. The option {"plugin",
 * "FILE.so"} of penstock_open adds the operators of a shared library. Operators
 * are never removed, not even after all models, sessions and programs were
 * released: a later model may need them, and code of a shared library may still
 * run in other threads. */
int penstock_op_register(const struct penstock_plugin *plugin,
                         struct penstock_error *error);

/* --- models --------------------------------------------------------------- */

typedef struct penstock_model penstock_model;

struct penstock_open_config {
    size_t size;
    /* Options of `penstock split`, such as {"loss", "loss"}, {"stages", "4"},
     * for a .pt2, which is cut. A plan was cut before. */
    const struct penstock_option *options;
    size_t n_options;
    penstock_message_fn message; /* NULL: messages are dropped */
    void *message_ctx;
};

/* Opens a .pt2 file, which it cuts into stages, or a folder with a plan. config
 * may be NULL. By default, a model has as many stages as it has markers for,
 * else one. The loss is by default the first output if that is a floating-point
 * scalar, else an output named "loss"; without either, the model runs but
 * cannot be trained. *ret: release with penstock_close. A model has one session
 * at a time; for two sessions, open the file twice. */
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
     * paths in the returned value, such as "0" or "1.logits". Others: their
     * names in the model's state_dict. */
    const char *name;
    DLDataType dtype;
    int32_t ndim;
    const int64_t *shape;
    /* Inputs and outputs: the dimension along which a batch is divided into
     * microbatches; -1: the tensor is the same for all microbatches. */
    int32_t batch_dim;
    int32_t trained; /* 1: the optimizer changes it */
};

/* Returns the number of tensors of one kind. */
size_t penstock_count(const penstock_model *model, enum penstock_kind kind);
/* Describes a tensor of one kind, by index < penstock_count. The shape of
 * inputs and outputs is the exported one, which is that of a microbatch. */
int penstock_describe(const penstock_model *model, enum penstock_kind kind,
                      size_t index, struct penstock_info *ret,
                      struct penstock_error *error);
/* Finds the index of a tensor of one kind by its name; for a parameter, also by
 * an alias. */
int penstock_find(const penstock_model *model, enum penstock_kind kind,
                  const char *name, size_t *ret, struct penstock_error *error);

/* A module of a model. Listed are modules that are called, or have parameters
 * that the model reads, and all modules that contain such a module. Pointers
 * are valid until the model is released. */
struct penstock_module {
    size_t size;
    const char *name; /* name in named_modules(); "": the model itself */
    /* Python class of the module, such as "torch.nn.modules.linear.Linear"; "":
     * not recorded in the file */
    const char *type;
    /* number of elements of the module's own parameters, and with those of its
     * submodules; a parameter with several names counts once */
    int64_t own_parameters, parameters;
    uint32_t calls; /* how often the model's forward calls it */
    /* stages that run the module's operators, in order */
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
 * NULL). Called for each input that stages of this process read, once for each
 * stage; in one thread at a time, which may be a thread of the library. The
 * callback must not call the session. If it returns a value other than 0, the
 * step fails on all ranks (PENSTOCK_ERR_CANCELLED) and changes nothing. step:
 * number of finished steps.
 */
typedef int (*penstock_fill_fn)(void *ctx, uint64_t step, uint32_t microbatch,
                                uint32_t input, DLTensor *dst);

struct penstock_session_config {
    size_t size;
    /* Options of `penstock run`, such as {"microbatches", "4"}, {"optimizer",
     * "adamw"}, {"lr", "1e-3"}. {"steps", "N"} is the length of schedules of
     * the learning rate. Options that only jobs have (data, checkpoints, logs)
     * are refused. */
    const struct penstock_option *options;
    size_t n_options;
    /* Address of the caller's MPI_Comm: each rank of the communicator is a rank
     * of the session. The caller must have initialized MPI, with
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
 * suffice. Calls MPI, but does not communicate with other ranks. */
int penstock_comm_from_fortran(int comm, void *ret, size_t size,
                               struct penstock_error *error);
/* COLLECTIVE. Releases a session. NULL is accepted. */
void penstock_session_free(penstock_session *session);

/* Returns the number of inputs, outputs, parameters or buffers of the session's
 * model. Numbers of parameters and buffers may change with penstock_swap and
 * penstock_load. */
size_t penstock_session_count(const penstock_session *session,
                              enum penstock_kind kind);
/* Describes an input of a whole step, for penstock_train_step, or an output of
 * a whole step, for penstock_output. These have the rows of all microbatches;
 * an output without dimensions has one number for each microbatch. Also
 * describes a parameter or buffer; its pointers are valid until the model
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
 * COLLECTIVE. Makes one step of training: forward, backward, sums of gradients,
 * optimizer. inputs: all inputs of the model, in its order, with the shapes of
 * penstock_session_describe. An entry may be NULL on a rank whose stages do not
 * read that input. Allocates no memory.
 * After an error nothing has changed on any rank, and the same step can be made
 * again. PENSTOCK_ERR_RANGE: an index in the inputs, a loss or a gradient has a
 * wrong value. After PENSTOCK_ERR_PEER, _DAMAGED, _DEVICE and _INTERNAL the
 * session can only be freed.
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
 * COLLECTIVE. Make a step of training in two calls: the first computes loss and
 * gradients, the second updates the parameters (clipping, learning rate, number
 * of the step). The results are bit for bit those of penstock_train_step. The
 * first call has the errors of penstock_train_step, and after an error no step
 * has begun. If messages between ranks fail in the second call, the session can
 * only be freed.
 *
 * Between the two calls, gradients can be read and set (penstock_set_gradient),
 * parameters have their old values, and buffers have the values that the
 * forward pass has given them. penstock_train_step and penstock_save are
 * refused (library.order). Another penstock_forward_backward replaces the
 * first, with the same number of the step and the current buffers.
 * penstock_load drops the gradients. Results of the first call: step is the
 * number of steps finished before, applied is 0.
 */
int penstock_forward_backward(penstock_session *session,
                              const DLTensor *const *inputs, size_t n_inputs,
                              struct penstock_step *ret,
                              struct penstock_error *error);
int penstock_update(penstock_session *session, struct penstock_step *ret,
                    struct penstock_error *error);
/* COLLECTIVE. Like penstock_forward_backward, with inputs that a callback
 * fills. */
int penstock_forward_backward_fill(penstock_session *session,
                                   penstock_fill_fn fill, void *ctx,
                                   struct penstock_step *ret,
                                   struct penstock_error *error);
/* COLLECTIVE. Call between penstock_forward_backward and penstock_update. Sets
 * the gradient of a parameter to src, or, if add is not 0, adds src to it,
 * rounded once to the parameter's dtype. src has the parameter's dtype and
 * shape, and the same bytes on all ranks (else PENSTOCK_ERR_MISMATCH). The
 * update computes, reports and clips by the norm of the new gradients.
 * PENSTOCK_ERR_RANGE: an element would not be finite; no gradient has changed.
 * A parameter with several names has one gradient. */
int penstock_set_gradient(penstock_session *session, const char *name,
                          const DLTensor *src, int add,
                          struct penstock_error *error);

/* COLLECTIVE. Runs the model in eval mode with the current parameters; changes
 * nothing. Random numbers are those of step 0. inputs: as for
 * penstock_train_step, including inputs that only the loss needs. *ret_loss:
 * NaN if the model has no loss; ret_loss may be NULL. Outputs: see
 * penstock_output. Parameters are read in place; only buffers that the model
 * writes, and parameters that are sharded over replicas, are copied. The first
 * call allocates memory for evaluation, later calls allocate nothing. */
int penstock_forward(penstock_session *session, const DLTensor *const *inputs,
                     size_t n_inputs, double *ret_loss,
                     struct penstock_error *error);
/* COLLECTIVE. Computes the mean loss in eval mode over any number of rows, like
 * `penstock eval`: each row counts once, even if the rows do not fill a step.
 * If the loss can ignore targets, the weight of a microbatch is its number of
 * targets that are not ignored. inputs: as for penstock_forward, but with that
 * number of rows; rank 0 must give all inputs that the model reads. Afterwards
 * penstock_output has no output. */
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
 * to dst, like penstock_get: the mean over the microbatches, weighted like the
 * loss, before clipping. With {"optimizer", "none"} a step computes gradients
 * and changes nothing, so that the caller can update parameters by an optimizer
 * of its own (penstock_set). */
int penstock_gradient(penstock_session *session, const char *name,
                      DLTensor *dst, struct penstock_error *error);
/* COLLECTIVE. Copies the gradient of an input in the last step of training to
 * dst on rank 0: the gradient of the loss in struct penstock_step, before
 * clipping, with the shape of penstock_session_describe. For an input that is
 * not divided into microbatches, it is the sum over all microbatches; for an
 * input that the loss does not depend on, it is zero. input: index of an input
 * that {"input-gradients", "NAME"} of the session names. Other ranks may give
 * NULL. */
int penstock_input_gradient(penstock_session *session, size_t input,
                            DLTensor *dst, struct penstock_error *error);
/* Sets *ret to a parameter or buffer, or to an output of the last
 * penstock_forward, in the session's own memory: nothing is copied. *ret is
 * contiguous (strides are NULL), belongs to the session and is read-only. With
 * {"device", "cuda"} it is in the memory of a GPU (kDLCUDA), and later calls
 * return only after the GPU has written it. An output is valid until the next
 * call of penstock_forward, penstock_evaluate, penstock_swap, penstock_load or
 * penstock_session_free; a parameter or buffer until penstock_swap,
 * penstock_load or penstock_session_free. A parameter or buffer always has its
 * current content: a call that changes it must not run while it is read. index:
 * as for penstock_session_describe. Sends no message. PENSTOCK_ERR_USAGE
 * (library.elsewhere): the tensor is in another process, is sharded over
 * replicas, is read by no stage, or is an output whose rows are not its first
 * dimension: copy it with penstock_get or penstock_output. */
int penstock_view(penstock_session *session, enum penstock_kind kind,
                  size_t index, DLTensor *ret, struct penstock_error *error);

/* COLLECTIVE. Sets a parameter or buffer. All ranks must give the same bytes
 * (else PENSTOCK_ERR_MISMATCH). The optimizer's states are kept. */
int penstock_set(penstock_session *session, const char *name,
                 const DLTensor *src, struct penstock_error *error);

/* COLLECTIVE. Writes a checkpoint to the folder, which all ranks must see, like
 * `penstock run --checkpoint`: parameters, buffers, optimizer, number of
 * finished steps, and the options of the run that was loaded, so that a resume
 * of that run keeps the values of `penstock set`. The position in the data of
 * that run is kept, since the rows of the session's own steps are not known: a
 * resume continues from that position as if the run had made those steps, and
 * reports that.
 * The folder is created if it is missing, and belongs to the session from then
 * on. A folder with checkpoints of another run is refused
 * (checkpoint.other-run), unless it is the folder that penstock_load has read
 * last. A folder is also refused if another program has changed it since the
 * session loaded or saved there (it has saved a checkpoint, has replaced one,
 * even that of the current step, or has gone back with --resume=STEP), or if
 * the run's second folder (--checkpoint-fallback) has a later checkpoint or
 * cannot be read. Nothing is written or removed then.
 * If the session has gone back with penstock_load, its own later checkpoints
 * are moved into a folder former-N of that folder, those in best/ into
 * best/former-N, and a message says so; evaluations of later steps are
 * forgotten. {"keep", "N"}: number of checkpoints that are kept in the folder.
 */
int penstock_save(penstock_session *session, const char *folder,
                  struct penstock_error *error);
/* COLLECTIVE. Loads the newest good checkpoint of the same model, saved by this
 * library or by a job, with any cut and number of ranks. Like a resume, it
 * skips checkpoints that are not in the past of the run any more
 * (--resume=STEP), and reports them. A message says if the run's second folder,
 * which is not read, has or may have a later checkpoint, and if averages of
 * {"ema", ...} are dropped because this session keeps none. If the run has
 * changed its model (`penstock swap`, `freeze`, `attr`), the session continues
 * with the changed model, like a resume, and a message says so: that model is
 * planned and allocated beside the old one, as for penstock_swap, and
 * penstock_session_describe describes it.
 * *ret_step (may be NULL): the number of steps finished in the checkpoint; the
 * session continues with the next step. After an error nothing has changed,
 * unless a file could be read only in part: then the session can only be freed
 * (library.failed). */
int penstock_load(penstock_session *session, const char *folder,
                  uint64_t *ret_step, struct penstock_error *error);

/*
 * COLLECTIVE, between steps. Replaces a module of the model by another one,
 * which was exported by itself to the file `path`, like `penstock swap` in a
 * job. The module is replaced at each of its calls; with {"at-call", "K"}, only
 * at call K; with {"aliases", "yes"}, also under its other names. The
 * parameters of the new module begin with the values in the file, and are named
 * MODULE.NAME. {"state", "keep"}: parameters with an old name and shape keep
 * their optimizer states. {"state", "map:FILE"}: new parameters take over the
 * states of old parameters according to the file, a JSON object {"NEW": "OLD",
 * ...}. All ranks must see the files. The new model is planned and allocated
 * beside the old one, which is kept if the call fails. The penstock_model is
 * unchanged; penstock_session_describe describes this session's parameters.
 * Checkpoints of the session contain the new model: `penstock run --resume` and
 * penstock_load continue with it.
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
    /* Inputs, parameters and gradients that were copied from the caller's
     * memory, without inputs that a callback fills. */
    uint64_t read;
    uint64_t written; /* copied to the caller's memory */
};

/* Describes the last call before this one, even if that call has failed. */
int penstock_session_copies(penstock_session *session,
                            struct penstock_copies *ret,
                            struct penstock_error *error);

/* Returns the bytes of memory that were planned for the ranks in this process,
 * including those of penstock_forward after its first call. */
size_t penstock_session_bytes(const penstock_session *session);

/* --- programs on operands that share memory ------------------------------- */

/*
 * A program is a list of ATen operators on named tensors, in JSON
 * (docs/library.md, "Programs"). penstock_call runs it on tensors of the
 * caller, which may overlap. As in PyTorch's eager mode, a write by an operator
 * changes all operands with the same bytes, and results may be views of
 * operands. docs/aliasing.md lists the refused cases; the text of such an error
 * contains the name of the case, such as E_SELF_OVERLAP.
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

/* Opens a program from `size` bytes of JSON, which may be untrusted. The bytes
 * are copied. config may be NULL. *ret: release with penstock_program_close. */
int penstock_program_open(const char *text, size_t size,
                          const struct penstock_program_config *config,
                          penstock_program **ret, struct penstock_error *error);
/* NULL is accepted. */
void penstock_program_close(penstock_program *program);

/*
 * An operand of a call: a CPU tensor of the dtype that the program declares. A
 * tensor of complex numbers is given as its view_as_real(), an operand of
 * float32 or float64. Strides are in elements, not negative. Each element is
 * aligned to its size (else E_UNALIGNED). Operands with the same DLTensor
 * pointer are one tensor with several names; operands with different pointers
 * are different tensors, even if the two DLTensors are equal.
 *
 * storage: the memory that the tensor is a view of. Operators such as
 * as_strided and set_ may access all of it, also outside of the operand, and
 * their offsets count from its beginning. If operands share a storage, each of
 * them must give it.
 * NULL: operands share a storage if their memory overlaps, where the memory of
 * each is taken from its first to its last element. The storage ranges from the
 * lowest to the highest of these bytes. Its size must be a multiple of the
 * element size of each of them.
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
    size_t copied;   /* bytes that were written to the caller's storages */
    size_t passed;   /* bytes that were read from the caller's storages */
    size_t bases;    /* shared pieces of memory that stand for several operands,
                      * since one of them is written */
    size_t plans;    /* plans made so far: one for each way of sharing memory */
    int32_t is_new;  /* 1: this call has made a new plan */
    size_t in_place; /* bytes of `passed` that were read without a copy */
};

/*
 * Runs the program. operands: all operands that the program names, each once,
 * in any order. A call that fails has written nothing. The program's 64 latest
 * plans are kept. ret may be NULL. Results: see penstock_result; the operands'
 * memory must stay valid while results are used.
 */
int penstock_call(penstock_program *program,
                  const struct penstock_operand *operands, size_t n_operands,
                  struct penstock_call_info *ret, struct penstock_error *error);

/* Flag of an operand, as in DLManagedTensorVersioned of DLPack 1.0. */
#define PENSTOCK_READ_ONLY 1U

/* Like penstock_call, with flags, one for each of the operands; NULL: none.
 * Other bits are ignored. A call that writes an operand with PENSTOCK_READ_ONLY
 * is refused (E_READ_ONLY), whether an operator writes the operand or a view of
 * it, or the optimizer updates it as a leaf. Writes through other operands with
 * the same memory are not refused: the flag belongs to the tensor, not to its
 * bytes. If a tensor has several names, it has the flag if any of them has. */
int penstock_call_flags(penstock_program *program,
                        const struct penstock_operand *operands,
                        const uint64_t *flags, size_t n_operands,
                        struct penstock_call_info *ret,
                        struct penstock_error *error);

/* A tensor after a call. Pointers are valid until the next call, even one that
 * fails, or until the program is closed. */
struct penstock_tensor {
    size_t size;
    /* Shape, strides and offset are those of eager mode. data: the storage;
     * byte_offset: the first element in it. Memory of the program (operand -1)
     * is read-only. */
    DLTensor tensor;
    /* >= 0: the tensor is a view of the caller's memory, in the storage of the
     * operand with this number in the call. That memory has the tensor's
     * content; for a leaf, the content after the optimizer's step. -1: the
     * tensor is in memory of the program, which no other result shares. */
    int32_t operand;
    int32_t moved; /* 1: the call has changed the geometry of the operand, or
                    * has moved it to another storage */
};

/* Describes a result of the last call, by its index in "returns". */
int penstock_result(penstock_program *program, size_t index,
                    struct penstock_tensor *ret, struct penstock_error *error);
/* Describes an operand after the last call; the DLTensor that was passed is
 * unchanged. An operand that set_() has moved to new memory has no data here
 * (NULL): its content is available only if the program returns it. */
int penstock_result_operand(penstock_program *program, const char *name,
                            struct penstock_tensor *ret,
                            struct penstock_error *error);
/* Describes the gradient of a leaf in the last call: contiguous, with the
 * leaf's shape and dtype, in the program's memory. PENSTOCK_ERR_NOT_FOUND: the
 * leaf has no gradient. */
int penstock_result_gradient(penstock_program *program, const char *name,
                             struct penstock_tensor *ret,
                             struct penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
