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
 * Tensors are DLPack's, on the CPU, with the dtype and shape that the model
 * has, and any strides and byte offset. The library reads and writes them only
 * during the call that they are passed to, and never takes ownership. Bool
 * tensors have PENSTOCK_DL_BOOL or 8-bit unsigned integers.
 *
 * Threads: any thread may use a session, but only one at a time: a call of a
 * second one returns PENSTOCK_ERR_BUSY. Any number of threads may read the
 * descriptions of a model at the same time. Different sessions may be used at
 * the same time, except those on MPI communicators: their calls marked
 * COLLECTIVE call MPI, in the calling thread. An object must not be released
 * while another thread uses it.
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
 * {"plugin", "FILE.so"} of penstock_open adds those of a shared library. */
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
 * may be NULL. *ret: release with penstock_close. A model has one session at a
 * time; to have two, open the file twice. */
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

/* --- sessions ------------------------------------------------------------- */

typedef struct penstock_session penstock_session;

/*
 * Writes one input of one microbatch of a step to dst, which has the input's
 * dtype and the microbatch's shape and is contiguous (strides are NULL). Called
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
 * parameters. config may be NULL. Borrows the model until the session is freed.
 * *ret: release with penstock_session_free. */
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
 * penstock_swap changes. */
size_t penstock_session_count(const penstock_session *session,
                              enum penstock_kind kind);
/* Describes an input of a whole step, as penstock_train_step takes it, or an
 * output, as penstock_output gives it: with the rows of all microbatches, and
 * an output without dimensions with one number for each microbatch. Also
 * describes a parameter or buffer, whose pointers are valid until a
 * penstock_swap. */
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
 * Between the two, gradients can be read, parameters are the old ones, and
 * buffers have the values that the forward has given them. A
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

/* COLLECTIVE. Runs the model in eval mode on the current parameters; changes
 * nothing. Random numbers are those of step 0. inputs: as for
 * penstock_train_step. *ret_loss: NaN if the model has no loss; may be NULL.
 * Outputs: see penstock_output. The first call allocates memory for evaluation.
 */
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
/* COLLECTIVE. Sets a parameter or buffer. All ranks give the same bytes
 * (PENSTOCK_ERR_MISMATCH). The optimizer's states stay. */
int penstock_set(penstock_session *session, const char *name,
                 const DLTensor *src, struct penstock_error *error);

/* COLLECTIVE. Writes a checkpoint to the folder, which all ranks see, as
 * `penstock run --checkpoint` does: parameters, buffers, optimizer, number of
 * finished steps. The folder is made if it is missing, and belongs to the
 * session from then on. A folder with checkpoints of another run is refused,
 * unless it is the one that penstock_load has read last. {"keep", "N"}: number
 * of checkpoints that stay in the folder. */
int penstock_save(penstock_session *session, const char *folder,
                  struct penstock_error *error);
/* COLLECTIVE. Loads the newest good checkpoint of the same model, of this
 * library or of a job, with any cut and number of ranks. *ret_step (may be
 * NULL): the number of steps finished in it; the session continues with the
 * next one. After an error nothing has changed, except if a file cannot be read
 * half-way: then the session can only be freed (library.failed). */
int penstock_load(penstock_session *session, const char *folder,
                  uint64_t *ret_step, struct penstock_error *error);

/*
 * COLLECTIVE, between steps. Replaces a module of the model by another one,
 * which was exported by itself to the file `path`, as `penstock swap` does in a
 * job: at each call of the module, or with {"at-call", "K"} at one of them, and
 * with {"aliases", "yes"} also under its other names. Its parameters begin with
 * the values in the file, and are named MODULE.NAME; {"state", "keep"}:
 * optimizer states of parameters with old names and shapes stay. All ranks see
 * the file. The new model is planned and allocated beside the old one, which
 * stays if the call fails. The penstock_model stays as it is: this session's
 * parameters are described by penstock_session_describe. Its checkpoints hold
 * the new model: `penstock run --resume` continues with it, and so does
 * penstock_load in a session that has made the same replacements.
 */
int penstock_swap(penstock_session *session, const char *module,
                  const char *path, const struct penstock_option *options,
                  size_t n_options, struct penstock_error *error);

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
 * Strides are in elements, not negative. Each element is aligned to its size
 * (else E_UNALIGNED). Operands with the same DLTensor pointer are one tensor
 * with several names; those with different pointers are different tensors, even
 * if the two DLTensors are equal.
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
    size_t results; /* number of results */
    size_t copied;  /* bytes that were written to storages of the caller's */
    size_t passed;  /* bytes that were read from storages of the caller's */
    size_t bases;   /* pieces of memory that stand for several operands, since
                       one of these writes what another one has */
    size_t plans;   /* plans made so far: one for each way of sharing memory */
    int32_t is_new; /* 1: this call has made a new plan */
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
