// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA driver for tests: the functions of stages/device/cuda/driver.def over
 * the emulated kernels. Work is done late, and streams overtake each other as
 * far as events allow. Device memory is accessible only while a kernel or copy
 * runs, so that an access by the host crashes.
 *
 * In the environment:
 *
 * - PENSTOCK_TEST_CUDA=SEED[:CALL]: the seed determines the order of work; call
 *   number CALL and all later ones that can fail do fail.
 * - PENSTOCK_TEST_CUDA_COUNT=FILE: the process writes how often each function
 *   was called there when it ends.
 * - PENSTOCK_TEST_CUDA_DEVICES: number of devices, 8 at most; default 2.
 * - PENSTOCK_TEST_CUDA_EMPTY: kernels do nothing, and launches take no time; to
 *   measure what the host does.
 * - PENSTOCK_TEST_CUDA_GRAPH=FUNCTION: that function of graphs fails.
 * - PENSTOCK_TEST_CUDA_IPC=FUNCTION: that function of CUDA IPC fails.
 * - PENSTOCK_TEST_CUDA_LOST=FUNCTION[:RANK]: the first call of that function,
 *   and all later ones that can fail, do fail (of that MPI rank).
 * - PENSTOCK_TEST_CUDA_MIB: memory of a device in MiB; default 4096.
 * - PENSTOCK_TEST_CUDA_OPEN: device memory is always accessible, for speed.
 * - PENSTOCK_TEST_CUDA_PEERS=0: no device can access the memory of another.
 */
#include "tests/cuda/driver.h"
#include "tests/cuda/blocks.h"
#include "tests/cuda/emulate.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <vector>

enum {
    OK = 0,
    INVALID = 1,
    NO_MEMORY = 2,
    NO_CONTEXT = 201,
    NO_PEER = 217,
    NOT_FOUND = 500,
    PEERS_ALREADY = 704,
    NOT_READY = 600,
    LOST = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901
};

namespace
{

struct event {
    uint64_t given = 0, passed = 0; /* records enqueued, and those done */
    double time = 0;
};

struct work {
    std::function<void()> run; /* empty: waits for the event */
    struct event *event;
    uint64_t number;
};

/* Work of a captured stream, with the arguments that it had. */
struct graph {
    std::vector<std::function<void()>> nodes;
};

struct stream {
    std::deque<work> queue;
    int device;
    graph *captured = NULL; /* what is recorded in place of the queue */
    bool invalid = false;   /* the capture has failed */
};

std::mutex lock;
std::vector<stream *> streams;

enum { MOST_DEVICES = 8 };
std::map<uint64_t, block> allocated;
std::map<void *, unsigned> shared_of; /* what cuFuncSetAttribute allows */
uint64_t random_state = 1, fail_at = 0, calls = 0;
size_t memory = (size_t)4096 << 20, used[MOST_DEVICES];
std::string lost_in;
bool lost = false, open_memory = false, empty = false, no_peers = false;
int n_devices = 2;
char contexts[MOST_DEVICES];
bool peers[MOST_DEVICES][MOST_DEVICES]; /* may access the other's memory */
thread_local int current = -1;  /* device of the current context; -1: none */
stream *defaults[MOST_DEVICES]; /* made when they are first used */

double now()
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

unsigned draw(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

/* Calls by function, written at the end of the process. */
struct counts {
    std::map<std::string, unsigned long> calls;
    std::string path;

    ~counts()
    {
        FILE *file = path.empty() ? NULL : fopen(path.c_str(), "w");

        for (const auto &c : calls)
            if (file != NULL)
                fprintf(file, "%lu %s\n", c.second, c.first.c_str());
        if (file != NULL)
            fclose(file);
    }
} counted;

void count(const char *function)
{
    if (!counted.path.empty())
        counted.calls[function]++;
}

/* Counts a call that can fail; true if it fails, as all later ones do. */
bool fails(const char *function)
{
    calls++;
    count(function);
    lost |= (fail_at != 0 && calls >= fail_at) || lost_in == function;
    return lost;
}

void protect(int how)
{
    if (open_memory)
        return;
    for (const auto &a : allocated)
        if (mprotect((void *)(uintptr_t)a.first, a.second.size, how) != 0)
            abort();
}

/* True if the bytes are in one block of the device's memory. */
bool is_in(uint64_t at, size_t size, int device)
{
    auto after = allocated.upper_bound(at);

    if (after == allocated.begin())
        return false;
    --after;
    return after->second.device == device &&
           at + size <= after->first + after->second.size;
}

/* Returns the stream of a handle; NULL: the default stream of the current
 * context, which no other stream waits for by itself. */
stream *stream_of(void *handle)
{
    if (handle != NULL || current < 0)
        return (stream *)handle;
    if (defaults[current] == NULL) {
        defaults[current] = new stream;
        defaults[current]->device = current;
        streams.push_back(defaults[current]);
    }
    return defaults[current];
}

/* True if the stream belongs to the current context. */
bool is_current(void *s)
{
    return current >= 0 && stream_of(s)->device == current;
}

bool runnable(const stream *s)
{
    return !s->queue.empty() &&
           (s->queue.front().run ||
            s->queue.front().event->passed >= s->queue.front().number);
}

/* Runs the first piece of work of the stream, which must be runnable. */
void run_first(stream *s)
{
    work w = std::move(s->queue.front());

    s->queue.pop_front();
    if (!w.run)
        return;
    protect(PROT_READ | PROT_WRITE);
    if (!lost)
        w.run();
    protect(PROT_NONE);
}

bool run_some()
{
    const unsigned from = streams.empty() ? 0 : draw((unsigned)streams.size());

    for (size_t i = 0; i < streams.size(); i++) {
        stream *s = streams[(from + i) % streams.size()];

        if (!runnable(s))
            continue;
        run_first(s);
        return true;
    }
    return false;
}

void give(void *s, work w)
{
    stream *to = stream_of(s);

    to->queue.push_back(std::move(w));
    while (to->queue.size() > 256 && run_some())
        ;
}

/* Enqueues or, if the stream is captured, records. */
void give(void *s, std::function<void()> run)
{
    stream *to = stream_of(s);

    if (to->captured != NULL)
        to->captured->nodes.push_back(std::move(run));
    else
        give(s, work{std::move(run), NULL, 0});
}

/* A call that a stream does not permit while it is captured: the capture has
 * failed. Returns false if the stream is not captured. */
bool spoils(void *s)
{
    stream *at = stream_of(s);

    if (at->captured != NULL)
        at->invalid = true;
    return at->captured != NULL;
}

/* Returns the name of "NAME[:RANK]"; "" if it is for another MPI rank. */
std::string of_this_rank(const std::string &words)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const size_t colon = words.find(':');

    return colon == std::string::npos ||
                   (rank != NULL && words.substr(colon + 1) == rank)
               ? words.substr(0, colon)
               : "";
}

/* True if the variable of the environment names the function. */
bool is_named(const char *variable, const char *function)
{
    const char *name = getenv(variable);

    return name != NULL && strcmp(name, function) == 0;
}

bool graph_fails(const char *function)
{
    return is_named("PENSTOCK_TEST_CUDA_GRAPH", function);
}

/* The block that begins at an address; end(): there is none. foreign: of
 * another process. */
std::map<uint64_t, block>::iterator find_block(uint64_t at, bool foreign)
{
    auto found = allocated.find(at);

    return found != allocated.end() && (found->second.file < 0) == foreign
               ? found
               : allocated.end();
}

/* True if the bytes are of another process. */
bool is_foreign(uint64_t at)
{
    auto after = allocated.upper_bound(at);

    return after != allocated.begin() && (--after)->second.file < 0;
}

} // namespace

bool driver_enqueue(void *stream, std::function<void()> run)
{
    std::lock_guard<std::mutex> guard(lock);

    if (fails(__func__))
        return false;
    give(stream, std::move(run));
    return true;
}

#define GUARD                                                                  \
    std::lock_guard<std::mutex> guard(lock);                                   \
    if (fails(__func__))                                                       \
    return LOST

extern "C" {

/* Calls of cuMemcpyPeerAsync, cuGraphLaunch and cuLaunchKernel, bytes that were
 * copied from other processes, and to the host; for tests. */
unsigned long driver_peer_copies, driver_graph_launches, driver_kernel_launches,
    driver_foreign_bytes, driver_host_bytes;

int cuInit(unsigned)
{
    const char *words = getenv("PENSTOCK_TEST_CUDA");
    const char *mib = getenv("PENSTOCK_TEST_CUDA_MIB");
    char *rest = NULL;

    open_memory = getenv("PENSTOCK_TEST_CUDA_OPEN") != NULL;
    empty = getenv("PENSTOCK_TEST_CUDA_EMPTY") != NULL;
    if (getenv("PENSTOCK_TEST_CUDA_COUNT") != NULL)
        counted.path = getenv("PENSTOCK_TEST_CUDA_COUNT");
    if (getenv("PENSTOCK_TEST_CUDA_DEVICES") != NULL)
        n_devices =
            std::max(1, std::min((int)MOST_DEVICES,
                                 atoi(getenv("PENSTOCK_TEST_CUDA_DEVICES"))));
    if (getenv("PENSTOCK_TEST_CUDA_PEERS") != NULL)
        no_peers = atoi(getenv("PENSTOCK_TEST_CUDA_PEERS")) == 0;
    if (getenv("PENSTOCK_TEST_CUDA_LOST") != NULL)
        lost_in = of_this_rank(getenv("PENSTOCK_TEST_CUDA_LOST"));
    if (words != NULL)
        random_state = strtoull(words, &rest, 10);
    if (rest != NULL && *rest == ':')
        fail_at = strtoull(rest + 1, NULL, 10);
    if (mib != NULL)
        memory = (size_t)strtoull(mib, NULL, 10) << 20;
    return OK;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return OK;
}

int cuGetErrorName(int error, const char **name)
{
    *name =
        error == NO_MEMORY             ? "CUDA_ERROR_OUT_OF_MEMORY"
        : error == NOT_FOUND           ? "CUDA_ERROR_NOT_FOUND"
        : error == NO_CONTEXT          ? "CUDA_ERROR_INVALID_CONTEXT"
        : error == NO_PEER             ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
        : error == LOST                ? "CUDA_ERROR_ILLEGAL_ADDRESS"
        : error == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        : error == CAPTURE_INVALIDATED ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
                                       : "CUDA_ERROR_INVALID_VALUE";
    return OK;
}

int cuGetErrorString(int error, const char **text)
{
    *text = error == LOST ? "an illegal memory access was encountered"
                          : "an error of the test's driver";
    return OK;
}

int cuDeviceGetCount(int *count)
{
    *count = n_devices;
    return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return OK;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Emulated GPU %d", device);
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int)
{
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 4;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &contexts[device];
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int)
{
    return OK;
}

int cuCtxSetCurrent(void *context)
{
    std::lock_guard<std::mutex> guard(lock);

    count(__func__);
    current = context == NULL ? -1 : (int)((char *)context - contexts);
    return OK;
}

int cuCtxGetCurrent(void **context)
{
    *context = current < 0 ? NULL : &contexts[current];
    return OK;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = !no_peers && device != peer;
    return OK;
}

int cuCtxEnablePeerAccess(void *context, unsigned)
{
    const int peer = (int)((char *)context - contexts);

    GUARD;
    if (no_peers || current < 0 || peer == current)
        return INVALID;
    if (peers[current][peer])
        return PEERS_ALREADY;
    peers[current][peer] = true;
    return OK;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    std::lock_guard<std::mutex> guard(lock);

    if (current < 0)
        return INVALID;
    *unused = memory - used[current];
    *total = memory;
    return OK;
}

int cuMemAlloc_v2(uint64_t *at, size_t size)
{
    block made;
    void *p;

    GUARD;
    if (current < 0)
        return INVALID;
    size = (size + 4095) / 4096 * 4096;
    if (size > memory - used[current])
        return NO_MEMORY;
    p = block_make(size, current,
                   open_memory ? PROT_READ | PROT_WRITE : PROT_NONE, &made);
    if (p == NULL)
        return NO_MEMORY;
    used[current] += size;
    *at = (uintptr_t)p;
    allocated[*at] = made;
    return OK;
}

int cuMemFree_v2(uint64_t at)
{
    std::lock_guard<std::mutex> guard(lock);
    auto found = find_block(at, false);

    if (found == allocated.end())
        return INVALID;
    used[found->second.device] -= found->second.size;
    if (!block_end((void *)(uintptr_t)at, &found->second)) {
        fprintf(stderr, "cuMemFree: another process has this memory open\n");
        abort();
    }
    allocated.erase(found);
    return OK;
}

int cuIpcGetMemHandle(struct block_handle *handle, uint64_t at)
{
    GUARD;
    auto found = find_block(at, false);

    if (found == allocated.end() || current < 0 ||
        is_named("PENSTOCK_TEST_CUDA_IPC", __func__))
        return INVALID;
    block_give(&found->second, handle);
    return OK;
}

int cuIpcOpenMemHandle_v2(uint64_t *at, struct block_handle handle,
                          unsigned flags)
{
    block opened;
    void *p;

    GUARD;
    if (current < 0 || flags != 1 ||
        is_named("PENSTOCK_TEST_CUDA_IPC", __func__))
        return INVALID;
    p = block_open(&handle, open_memory ? PROT_READ | PROT_WRITE : PROT_NONE,
                   &opened);
    if (p == NULL)
        return NO_CONTEXT;
    if (no_peers && opened.device != current) {
        (void)block_end(p, &opened);
        return NO_PEER;
    }
    opened.device = current;
    *at = (uintptr_t)p;
    allocated[*at] = opened;
    return OK;
}

int cuIpcCloseMemHandle(uint64_t at)
{
    GUARD;
    auto found = find_block(at, true);

    if (found == allocated.end() || found->second.device != current ||
        is_named("PENSTOCK_TEST_CUDA_IPC", __func__))
        return INVALID;
    (void)block_end((void *)(uintptr_t)at, &found->second);
    allocated.erase(found);
    return OK;
}

int cuPointerGetAttribute(void *data, int attribute, uint64_t at)
{
    GUARD;
    auto after = allocated.upper_bound(at);

    if (after == allocated.begin())
        return INVALID;
    --after;
    if (at >= after->first + after->second.size)
        return INVALID; /* memory of the host, or memory that was freed */
    switch (attribute) {
    case 2: /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CU_MEMORYTYPE_DEVICE */
        *(unsigned *)data = 2;
        return OK;
    case 9: /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
        *(int *)data = after->second.device;
        return OK;
    default:
        return INVALID;
    }
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *s)
{
    GUARD;
    if (!is_current(s) || !is_in(to, size, current))
        return INVALID;
    give(s, [=] { memcpy((void *)(uintptr_t)to, from, size); });
    return OK;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *s)
{
    GUARD;
    if (!is_current(s) || !is_in(from, size, current))
        return INVALID;
    driver_host_bytes += size;
    give(s, [=] { memcpy(to, (const void *)(uintptr_t)from, size); });
    return OK;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *s)
{
    GUARD;
    if (!is_current(s) || !is_in(to, size, current) ||
        !is_in(from, size, current) || is_foreign(to))
        return INVALID;
    if (is_foreign(from))
        driver_foreign_bytes += size;
    give(s, [=] {
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    });
    return OK;
}

int cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from,
                      void *from_context, size_t size, void *s)
{
    const int a = (int)((char *)to_context - contexts);
    const int b = (int)((char *)from_context - contexts);

    GUARD;
    if (!is_current(s) || a != current || !is_in(to, size, a) ||
        !is_in(from, size, b) || !peers[a][b])
        return INVALID;
    driver_peer_copies++;
    give(s, [=] {
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    });
    return OK;
}

int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t size, void *s)
{
    GUARD;
    give(s, [=] { memset((void *)(uintptr_t)at, byte, size); });
    return OK;
}

int cuMemsetD32Async(uint64_t at, unsigned word, size_t n, void *s)
{
    GUARD;
    give(s, [=] {
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)(uintptr_t)at)[i] = word;
    });
    return OK;
}

int cuStreamCreate(void **s, unsigned)
{
    GUARD;
    if (current < 0)
        return INVALID;
    streams.push_back(new stream);
    streams.back()->device = current;
    *s = streams.back();
    return OK;
}

int cuStreamDestroy_v2(void *s)
{
    std::lock_guard<std::mutex> guard(lock);

    streams.erase(std::find(streams.begin(), streams.end(), (stream *)s));
    delete (stream *)s;
    return OK;
}

int cuStreamSynchronize(void *s)
{
    GUARD;
    if (spoils(s))
        return CAPTURE_UNSUPPORTED;
    while (!stream_of(s)->queue.empty())
        if (!run_some())
            abort(); /* a stream waits for an event that nobody records */
    return OK;
}

int cuStreamWaitEvent(void *s, void *e, unsigned)
{
    GUARD;
    if (spoils(s))
        return CAPTURE_UNSUPPORTED;
    give(s, work{nullptr, (event *)e, ((event *)e)->given});
    return OK;
}

int cuEventCreate(void **e, unsigned)
{
    GUARD;
    *e = new event;
    return OK;
}

int cuEventDestroy_v2(void *e)
{
    std::lock_guard<std::mutex> guard(lock);

    /* A lost device has not done what it was given. */
    for (const stream *s : streams)
        for (const work &w : s->queue)
            if (w.event == e && !lost)
                abort(); /* destroyed while a stream waits for it */
    delete (event *)e;
    return OK;
}

int cuEventRecord(void *e, void *s)
{
    event *at = (event *)e;

    GUARD;
    if (spoils(s))
        return CAPTURE_UNSUPPORTED;
    const uint64_t number = ++at->given;
    give(s, [=] {
        at->passed = std::max(at->passed, number);
        at->time = now();
    });
    return OK;
}

int cuEventQuery(void *e)
{
    GUARD;
    for (unsigned n = 1 + draw(4); n > 0; n--)
        (void)run_some();
    return ((event *)e)->passed >= ((event *)e)->given ? OK : NOT_READY;
}

int cuEventSynchronize(void *e)
{
    GUARD;
    while (((event *)e)->passed < ((event *)e)->given)
        if (!run_some())
            abort();
    return OK;
}

int cuEventElapsedTime(float *ms, void *from, void *to)
{
    GUARD;
    const event *a = (event *)from, *b = (event *)to;
    if (a->passed < a->given || b->passed < b->given)
        return NOT_READY;
    *ms = (float)(1e3 * (b->time - a->time));
    return OK;
}

int cuModuleLoadData(void **module, const void *)
{
    GUARD;
    *module = &lock;
    return OK;
}

int cuModuleUnload(void *)
{
    return OK;
}

int cuModuleGetFunction(void **function, void *, const char *name)
{
    *function = (void *)emu_find(name);
    return *function != NULL ? OK : NOT_FOUND;
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
    GUARD;
    if (attribute != 8 || value < 0 || value > 99 << 10)
        return INVALID;
    shared_of[function] = (unsigned)value;
    return OK;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y,
                   unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, void *s, void **params,
                   void **)
{
    const auto *kernel = (const struct emu_kernel *)function;

    GUARD;
    if (!is_current(s) || grid_x == 0 || grid_y == 0 || grid_z == 0 ||
        grid_y > 65535 || grid_z > 65535 ||
        block_x * block_y * block_z > 1024 ||
        shared > (shared_of.count(function) ? shared_of[function] : 48 << 10))
        return INVALID;
    driver_kernel_launches++;
    if (empty && ((stream *)s)->captured == NULL)
        return OK;
    const std::string copy((const char *)params[0], kernel->size);
    give(s, [=] {
        emu_launch(kernel, copy.data(), {grid_x, grid_y, grid_z},
                   {block_x, block_y, block_z}, shared);
    });
    return OK;
}

int cuStreamBeginCapture_v2(void *s, int mode)
{
    stream *to = (stream *)s;

    GUARD;
    if (mode != 2 || to->captured != NULL ||
        graph_fails("cuStreamBeginCapture"))
        return INVALID;
    to->captured = new graph;
    to->invalid = false;
    return OK;
}

int cuStreamEndCapture(void *s, void **ret)
{
    stream *from = (stream *)s;
    graph *g = from->captured;

    GUARD;
    if (g == NULL)
        return INVALID;
    from->captured = NULL;
    *ret = NULL;
    if (from->invalid || graph_fails("cuStreamEndCapture")) {
        delete g;
        return CAPTURE_INVALIDATED;
    }
    *ret = g;
    return OK;
}

int cuGraphGetNodes(void *g, void **, size_t *n)
{
    GUARD;
    *n = ((graph *)g)->nodes.size();
    return OK;
}

int cuGraphInstantiateWithFlags(void **instance, void *g, unsigned long long)
{
    GUARD;
    if (graph_fails("cuGraphInstantiateWithFlags"))
        return NO_MEMORY;
    *instance = new graph(*(graph *)g);
    return OK;
}

int cuGraphLaunch(void *instance, void *s)
{
    GUARD;
    if (graph_fails("cuGraphLaunch"))
        return INVALID;
    if (spoils(s))
        return CAPTURE_UNSUPPORTED;
    driver_graph_launches++;
    if (empty)
        return OK;
    for (const auto &node : ((graph *)instance)->nodes)
        give(s, node);
    return OK;
}

int cuGraphDestroy(void *g)
{
    std::lock_guard<std::mutex> guard(lock);

    delete (graph *)g;
    return OK;
}

int cuGraphExecDestroy(void *instance)
{
    std::lock_guard<std::mutex> guard(lock);

    delete (graph *)instance;
    return OK;
}

} // extern "C"
