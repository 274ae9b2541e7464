// SPDX-License-Identifier: Apache-2.0
/*
 * Transport with one rank per process of an MPI job; the only file that uses
 * MPI.
 *
 * It uses two private duplicates of MPI_COMM_WORLD, or of an application's
 * communicator: one for messages of edges, one for all others, so that the tags
 * of both fit below the smallest limit of MPI libraries (2^28). A message of
 * over 1 GiB is sent in pieces, all posted at once with the same tag: MPI keeps
 * their order.
 *
 * Only the receiver can detect a length that differs. Receives of a step are
 * posted at once, for speed: ranks have compared their plans. A receive with
 * another tag is posted when its message has arrived and has the right length,
 * since Open MPI 4.1 may write past the end of one that is too short.
 */
#include "stages/net/transport.h"

#include <mpi.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/crc32c.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fault.h"

#define PIECE      ((size_t)1 << 30)
#define POOL_CHUNK 1024

/* One piece of a message. pst_request.impl points to the message's first piece.
 * With `checks`, the last piece is the checksum of the others. */
struct piece {
    MPI_Request mpi;
    int len; /* bytes */
    bool recv, is_sum;
    bool awaited;  /* the receive is posted once its message has arrived */
    int peer, tag; /* if awaited: source and tag on the second communicator */
    enum pst_status state;
    void *data;
    void *dropped; /* owned memory for a message of a wrong length; or NULL */
    uint32_t sum;
    struct piece *next; /* next piece of the message, or in the free list */
};

struct chunk {
    struct chunk *next;
    struct piece pieces[POOL_CHUNK];
};

struct mpi {
    struct pst_transport base;
    MPI_Comm comms[2]; /* for messages of edges, and for the others */
    bool is_guest; /* MPI belongs to the application (pst_transport_mpi_on) */
    unsigned size, rank, host_size;
    struct chunk *chunks;
    struct piece *free;
};

/* True once MPI was initialized here: it cannot be initialized again. */
static bool opened_before;

static enum pst_status fail(struct pst_diag *diag, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;

    (void)MPI_Error_string(code, text, &len);
    return pst_diag_set(diag, PST_E_NET_MPI, "MPI: %s: %s", what, text);
}

static bool grow_pool(struct mpi *t)
{
    struct chunk *chunk = pst_alloc(PST_TAG_NET, sizeof(*chunk));

    if (!chunk)
        return false;
    chunk->next = t->chunks;
    t->chunks = chunk;
    for (size_t i = POOL_CHUNK; i-- > 0;) {
        chunk->pieces[i].mpi = MPI_REQUEST_NULL;
        chunk->pieces[i].dropped = NULL;
        chunk->pieces[i].next = t->free;
        t->free = &chunk->pieces[i];
    }
    return true;
}

static void mpi_close(struct pst_transport *base);

/* A communicator that is being duplicated: MPI writes to `comm` until the
 * request is done. */
struct duplicate {
    MPI_Comm comm;
    MPI_Request request;
    struct duplicate *next;
};

/* Duplications that other ranks have not joined in time. MPI may still complete
 * them. */
static struct duplicate *abandoned;

/* Waits until all ranks duplicate the communicator. limit: seconds; 0: none. */
static enum pst_status await_duplicate(struct duplicate *d, double limit,
                                       struct pst_diag *diag)
{
    struct pst_awake awake = {0};
    int code = MPI_SUCCESS, done = 0;

    while (code == MPI_SUCCESS && !done) {
        code = MPI_Test(&d->request, &done, MPI_STATUS_IGNORE);
        pst_awake_update(&awake, pst_now());
        if (code == MPI_SUCCESS && !done && limit > 0 && awake.now > limit)
            return pst_diag_set(diag, PST_E_RUN_STUCK,
                                "nothing has moved for %.3g s: not all ranks "
                                "of the communicator make a session "
                                "(--watchdog sets the limit)",
                                awake.now);
        if (!done)
            sched_yield();
    }
    return code == MPI_SUCCESS
               ? PST_OK
               : fail(diag, code, "cannot duplicate the communicator");
}

/* Duplicates a communicator of an application. Fails after `limit` seconds,
 * since one of its ranks may never do the same. */
static enum pst_status duplicate_in_time(MPI_Comm from, double limit,
                                         MPI_Comm *ret, struct pst_diag *diag)
{
    struct duplicate *d = pst_calloc(PST_TAG_NET, 1, sizeof(*d));
    enum pst_status status;
    int code;

    if (d == NULL)
        return pst_diag_nomem(diag, sizeof(*d));
    code = MPI_Comm_idup(from, &d->comm, &d->request);
    status = code == MPI_SUCCESS
                 ? await_duplicate(d, limit, diag)
                 : fail(diag, code, "cannot duplicate the communicator");
    if (status == PST_ERR_PEER) {
        d->next = abandoned;
        abandoned = d;
        return status;
    }
    if (status == PST_OK)
        *ret = d->comm;
    pst_free(d);
    return status;
}

/* Duplicates a communicator, and leaves its error handler, the caller's, as it
 * was. */
static enum pst_status duplicate_comm(const struct mpi *t, MPI_Comm from,
                                      double limit, MPI_Comm *ret,
                                      struct pst_diag *diag)
{
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    enum pst_status status = PST_OK;
    int code = MPI_SUCCESS;

    (void)MPI_Comm_get_errhandler(from, &handler);
    (void)MPI_Comm_set_errhandler(from, MPI_ERRORS_RETURN);
    if (t->is_guest)
        status = duplicate_in_time(from, limit, ret, diag);
    else
        code = MPI_Comm_dup(from, ret);
    (void)MPI_Comm_set_errhandler(from, handler);
    if (handler != MPI_ERRHANDLER_NULL)
        (void)MPI_Errhandler_free(&handler);
    if (code != MPI_SUCCESS)
        return fail(diag, code, "cannot duplicate the communicator");
    if (status == PST_OK)
        (void)MPI_Comm_set_errhandler(*ret, MPI_ERRORS_RETURN);
    return status;
}

/* Duplicates the communicator twice, and queries this rank's number, the number
 * of ranks, and the number of ranks on this host. */
static enum pst_status open_comms(struct mpi *t, MPI_Comm from, double limit,
                                  struct pst_diag *diag)
{
    MPI_Comm host = MPI_COMM_NULL;
    int code, size, rank, host_size;

    for (int i = 0; i < 2; i++) {
        const enum pst_status status =
            duplicate_comm(t, from, limit, &t->comms[i], diag);

        if (status != PST_OK)
            return status;
    }
    (void)MPI_Comm_size(t->comms[0], &size);
    (void)MPI_Comm_rank(t->comms[0], &rank);
    code = MPI_Comm_split_type(t->comms[0], MPI_COMM_TYPE_SHARED, rank,
                               MPI_INFO_NULL, &host);
    if (code != MPI_SUCCESS)
        return fail(diag, code, "cannot find the ranks of this host");
    (void)MPI_Comm_size(host, &host_size);
    (void)MPI_Comm_free(&host);
    t->size = (unsigned)size;
    t->rank = (unsigned)rank;
    t->host_size = (unsigned)host_size;
    return PST_OK;
}

static enum pst_status mpi_new(struct mpi **ret, struct pst_diag *diag)
{
    struct mpi *t = pst_calloc(PST_TAG_NET, 1, sizeof(*t));

    if (!t)
        return pst_diag_nomem(diag, sizeof(*t));
    t->base.ops = &pst_transport_mpi;
    t->comms[0] = t->comms[1] = MPI_COMM_NULL;
    if (!grow_pool(t)) {
        pst_free(t);
        return pst_diag_nomem(diag, sizeof(struct chunk));
    }
    *ret = t;
    return PST_OK;
}

static void mpi_free(struct mpi *t)
{
    while (t->chunks) {
        struct chunk *next = t->chunks->next;

        for (size_t i = 0; i < POOL_CHUNK; i++)
            pst_free(t->chunks->pieces[i].dropped);
        pst_free(t->chunks);
        t->chunks = next;
    }
    pst_free(t);
}

static enum pst_status mpi_open(const char *spec, struct pst_transport **ret_t,
                                struct pst_diag *diag)
{
    int code, level = MPI_THREAD_SINGLE;
    enum pst_status status;
    struct mpi *t;

    if (spec && spec[0])
        return pst_diag_set(diag, PST_E_NET_TRANSPORT,
                            "transport mpi takes no argument, not \"%s\"",
                            spec);
    if (opened_before)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "MPI can be opened only once in a process");
    status = mpi_new(&t, diag);
    if (status != PST_OK)
        return status;
    opened_before = true;
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS) {
        mpi_free(t);
        return fail(diag, code, "cannot start");
    }
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    status = level < MPI_THREAD_FUNNELED
                 ? pst_diag_set(diag, PST_E_NET_NOT_BUILT,
                                "this MPI cannot be called beside a second "
                                "thread (MPI_THREAD_FUNNELED)")
                 : open_comms(t, MPI_COMM_WORLD, 0, diag);
    if (status != PST_OK) {
        mpi_close(&t->base);
        return status;
    }
    *ret_t = &t->base;
    return PST_OK;
}

static enum pst_status check_initialized(struct pst_diag *diag)
{
    int begun = 0, ended = 0;

    (void)MPI_Initialized(&begun);
    if (begun)
        (void)MPI_Finalized(&ended);
    if (!begun || ended)
        return pst_diag_set(diag, PST_E_NET_COMMUNICATOR,
                            "MPI is not initialized%s",
                            ended ? " any more" : "");
    return PST_OK;
}

enum pst_status pst_transport_mpi_from_fortran(int comm, void *ret, size_t size,
                                               struct pst_diag *diag)
{
    static const MPI_Comm nothing; /* result of MPI_Comm_f2c on failure */
    enum pst_status status = check_initialized(diag);
    MPI_Comm made;

    if (status != PST_OK)
        return status;
    if (size < sizeof(made))
        return pst_diag_set(diag, PST_E_NET_COMMUNICATOR,
                            "an MPI_Comm has %zu bytes, and %zu were given",
                            sizeof(made), size);
    made = MPI_Comm_f2c((MPI_Fint)comm);
    if (memcmp(&made, &nothing, sizeof(made)) == 0)
        return pst_diag_set(diag, PST_E_NET_COMMUNICATOR,
                            "%d is no communicator of Fortran", comm);
    memcpy(ret, &made, sizeof(made));
    return PST_OK;
}

/* Checks that the application's MPI and its communicator can be used by this
 * thread. */
static enum pst_status check_communicator(const MPI_Comm *comm,
                                          struct pst_diag *diag)
{
    int level = MPI_THREAD_SINGLE, is_main = 0, is_inter = 0;
    const enum pst_status status = check_initialized(diag);

    if (status != PST_OK)
        return status;
    (void)MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED)
        return pst_diag_set(diag, PST_E_NET_COMMUNICATOR,
                            "MPI was initialized with MPI_THREAD_SINGLE; "
                            "MPI_THREAD_FUNNELED is needed at least");
    (void)MPI_Is_thread_main(&is_main);
    if (level == MPI_THREAD_FUNNELED && !is_main)
        return pst_diag_set(diag, PST_E_NET_COMMUNICATOR,
                            "with MPI_THREAD_FUNNELED only the thread that "
                            "initialized MPI may call it, and this is another "
                            "one");
    if (*comm == MPI_COMM_NULL ||
        MPI_Comm_test_inter(*comm, &is_inter) != MPI_SUCCESS || is_inter)
        return pst_diag_set(
            diag, PST_E_NET_COMMUNICATOR, "the communicator is %s",
            *comm == MPI_COMM_NULL ? "MPI_COMM_NULL" : "no intra-communicator");
    return PST_OK;
}

enum pst_status pst_transport_mpi_on(const void *comm, double limit,
                                     struct pst_transport **ret,
                                     struct pst_diag *diag)
{
    enum pst_status status = check_communicator(comm, diag);
    struct mpi *t;

    if (status == PST_OK)
        status = mpi_new(&t, diag);
    if (status != PST_OK)
        return status;
    t->is_guest = true;
    status = open_comms(t, *(const MPI_Comm *)comm, limit, diag);
    if (status != PST_OK) {
        mpi_close(&t->base);
        return status;
    }
    *ret = &t->base;
    return PST_OK;
}

/* Ends a message in flight. In an application's MPI a peer that has failed may
 * never take part: there receives are cancelled, and unfinished sends are freed
 * without waiting for them. */
static void end_piece(const struct mpi *t, struct piece *p)
{
    int done = 0;

    if (t->is_guest && p->mpi != MPI_REQUEST_NULL &&
        MPI_Test(&p->mpi, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        (void)MPI_Cancel(&p->mpi);
        if (!p->recv) {
            (void)MPI_Request_free(&p->mpi);
            return;
        }
    }
    (void)MPI_Wait(&p->mpi, MPI_STATUS_IGNORE);
}

static void mpi_close(struct pst_transport *base)
{
    struct mpi *t = (struct mpi *)base;
    int ended = 0;

    if (!t)
        return;
    (void)MPI_Finalized(&ended); /* perhaps by the application */
    for (struct chunk *c = t->chunks; !ended && c; c = c->next)
        for (size_t i = 0; i < POOL_CHUNK; i++)
            end_piece(t, &c->pieces[i]);
    for (int i = 0; !ended && i < 2; i++)
        if (t->comms[i] != MPI_COMM_NULL)
            (void)MPI_Comm_free(&t->comms[i]);
    if (!t->is_guest)
        (void)MPI_Finalize();
    mpi_free(t);
}

static unsigned mpi_size(const struct pst_transport *base)
{
    return ((const struct mpi *)base)->size;
}

static unsigned mpi_rank(const struct pst_transport *base)
{
    return ((const struct mpi *)base)->rank;
}

static unsigned mpi_host_size(const struct pst_transport *base)
{
    return ((const struct mpi *)base)->host_size;
}

/* Returns the pieces of a completed message to the free list. */
static void release_pieces(struct mpi *t, struct pst_request *req)
{
    struct piece *p = req->impl;

    req->impl = NULL;
    while (p) {
        struct piece *next = p->next;

        p->next = t->free;
        t->free = p;
        p = next;
    }
}

/* Destination or source of a message. */
struct end {
    MPI_Comm comm;
    int peer, tag;
    bool recv, awaited;
};

/* Posts a piece of `len` bytes and appends it to the message. data NULL: the
 * piece is the checksum, `sum` for a send. */
static enum pst_status post_piece(struct mpi *t, const struct end *end,
                                  void *data, size_t len, uint32_t sum,
                                  struct piece **last, struct pst_request *req)
{
    struct piece *p;
    int code;

    if (!t->free && !grow_pool(t))
        return req->state = PST_ERR_NOMEM;
    p = t->free;
    t->free = p->next;
    *p = (struct piece){.mpi = MPI_REQUEST_NULL,
                        .len = (int)len,
                        .recv = end->recv,
                        .is_sum = data == NULL,
                        .awaited = end->awaited,
                        .peer = end->peer,
                        .tag = end->tag,
                        .state = PST_AGAIN,
                        .sum = sum};
    p->data = data != NULL ? data : &p->sum;
    if (*last)
        (*last)->next = p;
    else
        req->impl = p;
    *last = p;
    if (p->awaited)
        return PST_OK;
    code = end->recv ? MPI_Irecv(p->data, p->len, MPI_BYTE, end->peer, end->tag,
                                 end->comm, &p->mpi)
                     : MPI_Isend(p->data, p->len, MPI_BYTE, end->peer, end->tag,
                                 end->comm, &p->mpi);
    if (code != MPI_SUCCESS)
        return req->state = PST_ERR_PEER;
    return PST_OK;
}

static enum pst_status post_message(struct mpi *t, unsigned peer, int tag,
                                    char *buf, size_t len, bool recv,
                                    struct pst_request *req)
{
    const struct end end = {.comm = t->comms[tag >= PST_MSG_OTHERS],
                            .peer = (int)peer,
                            .tag = tag >= PST_MSG_OTHERS ? tag - PST_MSG_OTHERS
                                                         : tag,
                            .recv = recv,
                            .awaited = recv && PST_MSG_IS_ALONE(tag)};
    /* Messages that `take` receives have no checksum. */
    const bool has_sum =
        t->base.checks && tag != PST_MSG_BEAT && tag != PST_MSG_CALLED;
    const uint32_t sum = has_sum && !recv ? pst_crc32c(0, buf, len) : 0;
    static char nothing; /* MPI needs an address even for an empty message */
    struct piece *last = NULL;
    enum pst_status status = PST_OK;

    req->impl = NULL;
    req->state = PST_AGAIN;
    if (peer >= t->size || tag < 0 || end.tag >= PST_MSG_OTHERS)
        return req->state = PST_ERR_RANGE;
    do { /* once even for an empty message */
        const size_t part = PST_MIN(len, PIECE);

        status = post_piece(t, &end, buf != NULL ? buf : &nothing, part, 0,
                            &last, req);
        len -= part;
        if (len > 0)
            buf += part;
    } while (len > 0 && status == PST_OK);
    if (status == PST_OK && has_sum)
        status = post_piece(t, &end, NULL, sizeof(sum), sum, &last, req);
    return status;
}

static enum pst_status mpi_isend(struct pst_transport *base, unsigned self_rank,
                                 unsigned peer, int tag, const void *buf,
                                 size_t len, struct pst_request *req)
{
    (void)self_rank; /* this process is one rank */
    return post_message((struct mpi *)base, peer, tag, (char *)(uintptr_t)buf,
                        len, false, req);
}

static enum pst_status mpi_irecv(struct pst_transport *base, unsigned self_rank,
                                 unsigned peer, int tag, void *buf, size_t len,
                                 struct pst_request *req)
{
    (void)self_rank;
    return post_message((struct mpi *)base, peer, tag, buf, len, true, req);
}

/* Posts the receive of an awaited piece if its message has arrived. A message
 * of another length is received into separate memory and dropped. */
static void receive_arrived(const struct mpi *t, struct piece *p)
{
    MPI_Message message;
    MPI_Status status;
    int flag = 0, count = 0;

    if (MPI_Improbe(p->peer, p->tag, t->comms[1], &flag, &message, &status) !=
        MPI_SUCCESS)
        p->state = PST_ERR_PEER;
    if (p->state != PST_AGAIN || !flag)
        return;
    p->awaited = false;
    if (MPI_Get_count(&status, MPI_BYTE, &count) != MPI_SUCCESS)
        p->state = PST_ERR_PEER;
    if (p->state == PST_AGAIN && count != p->len) {
        p->len = count;
        p->dropped = p->data = pst_alloc(PST_TAG_NET, (size_t)count + 1);
        if (p->data == NULL)
            p->state = PST_ERR_PEER;
    }
    if (p->state == PST_AGAIN &&
        MPI_Imrecv(p->data, p->len, MPI_BYTE, &message, &p->mpi) != MPI_SUCCESS)
        p->state = PST_ERR_PEER;
}

/* Frees the memory of a message that is dropped. */
static bool free_dropped(struct piece *p)
{
    const bool any = p->dropped != NULL;

    pst_free(p->dropped);
    p->dropped = NULL;
    return any;
}

/* Calls MPI_Test on one piece. Returns false while it is in flight. */
static bool test_piece(const struct mpi *t, struct piece *p)
{
    MPI_Status status;
    int done = 0, count = 0;

    if (p->state == PST_AGAIN && p->awaited)
        receive_arrived(t, p);
    if (p->state != PST_AGAIN)
        return true;
    if (p->awaited)
        return false;
    if (MPI_Test(&p->mpi, &done, &status) != MPI_SUCCESS) {
        p->mpi = MPI_REQUEST_NULL;
        p->state = PST_ERR_PEER; /* also if the message was too long */
    } else if (done) {
        (void)MPI_Get_count(&status, MPI_BYTE, &count);
        p->state = p->recv && count != p->len ? PST_ERR_PEER : PST_OK;
        if (free_dropped(p))
            p->state = PST_ERR_PEER;
    }
    return p->state != PST_AGAIN;
}

/* Verifies the checksum, if any, once all pieces of a message have arrived. */
static enum pst_status check_sum(const struct mpi *t, struct piece *p)
{
    uint32_t sum = 0;

    if (!p->recv)
        return PST_OK;
    for (struct piece *q = p; pst_fault_is_set() && q != NULL; q = q->next)
        pst_fault_data(q->is_sum ? "checksum" : "message", q->data,
                       (size_t)q->len);
    if (!t->base.checks)
        return PST_OK;
    for (; p != NULL && !p->is_sum; p = p->next)
        sum = pst_crc32c(sum, p->data, (size_t)p->len);
    return p == NULL || p->sum == sum ? PST_OK : PST_ERR_DAMAGED;
}

static enum pst_status mpi_test(struct pst_transport *base,
                                struct pst_request *req)
{
    enum pst_status state = PST_OK;

    if (req->state != PST_AGAIN)
        return (enum pst_status)req->state;
    for (struct piece *p = req->impl; p; p = p->next) {
        if (!test_piece((const struct mpi *)base, p))
            return PST_AGAIN;
        if (p->state != PST_OK)
            state = p->state;
    }
    if (state == PST_OK)
        state = check_sum((const struct mpi *)base, req->impl);
    release_pieces((struct mpi *)base, req);
    return req->state = state;
}

#define TAKE_MAX 4096 /* bytes; below the eager limit of any MPI */

static enum pst_status mpi_take(struct pst_transport *base, int tag, void *buf,
                                size_t len, unsigned *ret_from)
{
    const MPI_Comm comm = ((struct mpi *)base)->comms[tag >= PST_MSG_OTHERS];
    const int inner = tag >= PST_MSG_OTHERS ? tag - PST_MSG_OTHERS : tag;
    char bytes[TAKE_MAX];
    MPI_Message message;
    MPI_Status status;
    int flag = 0, count = 0;

    if (MPI_Improbe(MPI_ANY_SOURCE, inner, comm, &flag, &message, &status) !=
        MPI_SUCCESS)
        return PST_ERR_PEER;
    if (!flag)
        return PST_AGAIN;
    /* The length decides before memory is written (see the head of this file).
     */
    if (MPI_Get_count(&status, MPI_BYTE, &count) != MPI_SUCCESS ||
        count > TAKE_MAX ||
        MPI_Mrecv(bytes, TAKE_MAX, MPI_BYTE, &message, &status) !=
            MPI_SUCCESS ||
        (size_t)count != len)
        return PST_ERR_PEER;
    memcpy(buf, bytes, len);
    *ret_from = (unsigned)status.MPI_SOURCE;
    return PST_OK;
}

/* Lets all messages in flight progress, as any call into Open MPI does. */
static void mpi_progress(struct pst_transport *base)
{
    int flag;

    (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG,
                     ((struct mpi *)base)->comms[0], &flag, MPI_STATUS_IGNORE);
}

static void mpi_wait(struct pst_transport *base, unsigned self_rank,
                     uint64_t *seen, double seconds)
{
    (void)base, (void)self_rank, (void)seen, (void)seconds;
    sched_yield(); /* Open MPI makes no progress while its caller sleeps */
}

/* Ends this process without MPI_Finalize: mpirun then ends the other ranks.
 * MPI_Abort is not used for two reasons. It makes mpirun print a text first,
 * which Open MPI 4.1's mpirun may read after freeing it
 * (orte_rml_oob_send_buffer_nb). It also waits for seconds for an mpirun that
 * is already ending the job. */
static void mpi_abort(struct pst_transport *base, int exit_code)
{
    (void)base;
    _exit(exit_code);
}

const struct pst_transport_ops pst_transport_mpi = {
    .name = "mpi",
    .spaces = PST_SPACE_HOST,
    .open = mpi_open,
    .close = mpi_close,
    .size = mpi_size,
    .rank = mpi_rank,
    .host_size = mpi_host_size,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .test = mpi_test,
    .take = mpi_take,
    .progress = mpi_progress,
    .wait = mpi_wait,
    .abort = mpi_abort,
};
