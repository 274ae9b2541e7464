// SPDX-License-Identifier: Apache-2.0
/* Recordings of a CUDA device: CUDA graphs, which the driver captures from the
 * stream of COMPUTE. */
#include <stdlib.h>

#include "stages/device/cuda/cuda.h"

struct recording {
    void *instance; /* the driver's CUgraphExec */
    bool uses_step;
};

static void *stream_of(const struct pst_cuda_context *c)
{
    return c->queues[PST_QUEUE_COMPUTE].stream;
}

static void begin(struct pst_device_memory *mem)
{
    struct pst_cuda_context *c = mem->context;

    c->capture = (struct pst_cuda_capture){.on = true};
    c->capture.begun =
        pst_cuda_enter(c) &&
        pst_cuda_check(
            c, c->driver->capture_begin(stream_of(c), PST_CUDA_CAPTURE_RELAXED),
            "cuStreamBeginCapture");
}

/* Ends the capture, also of work that cannot be recorded. Returns the graph,
 * or NULL. */
static void *end_capture(struct pst_cuda_context *c)
{
    void *graph = NULL;

    if (c->capture.begun)
        (void)pst_cuda_check(c, c->driver->capture_end(stream_of(c), &graph),
                             "cuStreamEndCapture");
    return graph;
}

static void *end(struct pst_device_memory *mem, uint64_t *ret_nodes,
                 const char **ret_why)
{
    struct pst_cuda_context *c = mem->context;
    struct recording *made = calloc(1, sizeof(*made));
    void *graph = end_capture(c);
    size_t nodes = 0;
    bool ok = graph != NULL && pst_cuda_enter(c) &&
              pst_cuda_check(c, c->driver->graph_nodes(graph, NULL, &nodes),
                             "cuGraphGetNodes");

    if (made == NULL)
        pst_cuda_fail(c, -1, "a recording", "out of memory of the host");
    ok = ok && made != NULL &&
         pst_cuda_check(c,
                        c->driver->graph_instantiate(&made->instance, graph, 0),
                        "cuGraphInstantiateWithFlags");
    if (graph != NULL)
        (void)c->driver->graph_destroy(graph);
    c->capture.on = false;
    *ret_why = c->failed != 0 ? c->failure : c->capture.why;
    if (!ok) {
        free(made);
        return NULL;
    }
    made->uses_step = c->capture.uses_step;
    *ret_nodes = nodes;
    return made;
}

static void set_step(struct pst_cuda_context *c, uint64_t step)
{
    const uint32_t words[2] = {(uint32_t)step, (uint32_t)(step >> 32)};

    for (unsigned i = 0; i < 2 && c->step != step; i++)
        if (!pst_cuda_check(c,
                            c->driver->set_words(c->step_at + 4 * i, words[i],
                                                 1, stream_of(c)),
                            "cuMemsetD32Async"))
            return;
    c->step = step;
}

const uint64_t *pst_cuda_step(struct pst_cuda_context *c, uint64_t step)
{
    if (c->capture.on)
        c->capture.uses_step = true;
    else if (pst_cuda_enter(c))
        set_step(c, step);
    return (const uint64_t *)(uintptr_t)c->step_at; // NOLINT
}

static void replay(struct pst_device_memory *mem, void *recording,
                   uint64_t step)
{
    struct pst_cuda_context *c = mem->context;
    const struct recording *r = recording;

    if (!pst_cuda_enter(c))
        return;
    if (r->uses_step)
        set_step(c, step);
    (void)pst_cuda_check(c, c->driver->graph_launch(r->instance, stream_of(c)),
                         "cuGraphLaunch");
}

/* The recording may still run: the driver frees the instance once it has ended.
 */
static void free_recording(struct pst_device_memory *mem, void *recording)
{
    struct pst_cuda_context *c = mem->context;
    struct recording *r = recording;

    if (r == NULL)
        return;
    (void)c->driver->context_set(c->context);
    (void)c->driver->instance_destroy(r->instance);
    free(r);
}

const struct pst_recorder pst_cuda_recorder = {.begin = begin,
                                               .end = end,
                                               .replay = replay,
                                               .free = free_recording,
                                               .slots = PST_CUDA_SLOTS};
