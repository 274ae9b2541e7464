// SPDX-License-Identifier: Apache-2.0
#include "lib/guest.h"

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/graph/bytes.h"
#include "stages/run/state/values.h"

#define TAG PST_TAG_CLIENT
#define MIB 1048576.0

void pstl_thread_keep(penstock_session *s)
{
    const struct pst_device *device = s->options.device;

    s->caller =
        (struct pstl_thread){device != NULL ? device->guest : NULL, NULL};
    if (s->caller.guest != NULL)
        s->caller.current = s->caller.guest->current();
}

void pstl_thread_restore(const struct pstl_thread *caller)
{
    if (caller->guest != NULL)
        caller->guest->restore(caller->current);
}

/* Returns the memory of a rank of this process whose device is that GPU; NULL:
 * there is none. */
static struct pst_device_memory *find_memory(const penstock_session *s, int gpu)
{
    struct pst_device_memory *mem;

    for (unsigned k = 0; (mem = pst_engine_device(s->engine, k)) != NULL; k++)
        if (mem->device->guest != NULL && (int)mem->ordinal == gpu)
            return mem;
    return NULL;
}

/* Appends "GPU 0", "GPU 0 and 1", or "the CPU": the devices of the ranks of
 * this process. */
static void add_devices(const penstock_session *s, struct pst_str *out)
{
    const struct pst_device_memory *mem, *before;
    unsigned n = 0;

    for (unsigned k = 0; (mem = pst_engine_device(s->engine, k)) != NULL; k++) {
        bool again = mem->device->guest == NULL;

        for (unsigned i = 0; i < k && !again; i++) {
            before = pst_engine_device(s->engine, i);
            again = before->ordinal == mem->ordinal;
        }
        if (!again)
            pst_str_addf(out, "%s%u", n++ == 0 ? "GPU " : " and ",
                         mem->ordinal);
    }
    if (n == 0)
        pst_str_add(out, "the CPU");
}

/* Sets *ret to the address of the view's lowest element. Returns the number of
 * bytes from there to the end of the highest element. */
static size_t range_of(const struct pstl_view *view, const char **ret)
{
    const int64_t item = (int64_t)pst_dtype_size(view->meta.dtype);
    int64_t low = 0, high = 0;

    for (unsigned d = 0; d < view->meta.rank; d++) {
        const int64_t far = (view->meta.size[d] - 1) * view->meta.stride[d];

        *(far < 0 ? &low : &high) += far;
    }
    *ret = view->data + low * item;
    return ((size_t)(high - low) + 1) * (size_t)item;
}

static enum pst_status check_guest(const penstock_session *s,
                                   const struct pstl_tensor *want,
                                   const struct pstl_view *view,
                                   struct pst_diag *diag)
{
    struct pst_device_memory *mem = find_memory(s, view->gpu);
    struct pst_str devices = {0};
    const char *first;
    size_t bytes;

    if (mem == NULL) {
        add_devices(s, &devices);
        (void)pst_diag_set(diag, PST_E_LIBRARY_DEVICE,
                           "the tensor of '%.200s' is in the memory of GPU %d, "
                           "and the session computes on %s",
                           want->name, view->gpu, pst_str_text(&devices));
        pst_str_fini(&devices);
        return PST_ERR_SHAPE;
    }
    if (pst_meta_numel(&view->meta) == 0)
        return PST_OK;
    if ((uintptr_t)view->data % pst_dtype_size(view->meta.dtype) != 0)
        return pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                            "the tensor of '%.200s' begins at an address that "
                            "is no multiple of %zu bytes, which a GPU does not "
                            "read",
                            want->name, pst_dtype_size(view->meta.dtype));
    bytes = range_of(view, &first);
    return mem->device->guest->owns(mem, first, bytes)
               ? PST_OK
               : pst_diag_set(diag, PST_E_LIBRARY_DEVICE,
                              "the tensor of '%.200s' is not in the memory of "
                              "GPU %d, as it says: the memory was freed, or is "
                              "that of another device or of the host",
                              want->name, view->gpu);
}

enum pst_status pstl_take(const penstock_session *s,
                          const struct pstl_tensor *wanted,
                          const DLTensor *given, bool writes,
                          struct pstl_view *ret, struct pst_diag *diag)
{
    const enum pst_status status =
        pstl_view_make(wanted, given, writes, ret, diag);

    return status == PST_OK && ret->gpu >= 0 ? check_guest(s, wanted, ret, diag)
                                             : status;
}

/* --- copies --------------------------------------------------------------- */

/* Waits for the work of the queue. */
static enum pst_status finish(struct pst_device_memory *mem,
                              enum pst_queue queue, struct pst_diag *diag)
{
    struct pst_event done;
    const char *why;

    mem->device->record(mem, queue, &done);
    if (pst_device_await(mem, &done) == PST_OK)
        return PST_OK;
    why = mem->device->failure != NULL ? mem->device->failure(mem) : NULL;
    return pst_diag_set(diag, PST_E_RUN_DEVICE, "the GPU number %u: %s",
                        mem->ordinal, why != NULL ? why : "a copy has failed");
}

/* Makes the second queue wait for the work in the first queue. */
static void order(struct pst_device_memory *mem, enum pst_queue first,
                  enum pst_queue second)
{
    struct pst_event done;

    mem->device->record(mem, first, &done);
    mem->device->wait(mem, second, &done);
}

/* Enqueues a copy between two strided tensors on the GPU. */
static enum pst_status copy_within(struct pst_device_memory *mem,
                                   const struct pst_meta *from, const void *src,
                                   const struct pst_meta *to, void *dst,
                                   struct pst_diag *diag)
{
    void *const at = (void *)src;
    const struct pst_task task = {
        .to = dst, .to_meta = to, .from = &at, .n_from = 1, .meta = from};
    pst_task_fn copy;
    enum pst_status status;

    if (pst_meta_is_contiguous(from) && pst_meta_is_contiguous(to)) {
        mem->device->copy(mem, PST_QUEUE_COMPUTE, dst, src,
                          pst_meta_bytes(from));
        return PST_OK;
    }
    status = pst_device_task(mem->device, "copy", &copy, diag);
    if (status == PST_OK)
        mem->device->run(mem, copy, &task);
    return status;
}

/* Allocates GPU memory for a contiguous copy. */
static enum pst_status alloc_dense(struct pst_device_memory *mem, size_t bytes,
                                   void **ret, struct pst_diag *diag)
{
    *ret = mem->device->guest->alloc(mem, bytes);
    return *ret != NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_DEVICE_MEMORY,
                              "the GPU number %u has no %.1f MiB for a copy of "
                              "a tensor with strides",
                              mem->ordinal, (double)bytes / MIB);
}

enum pst_status pstl_pull(const penstock_session *s,
                          const struct pstl_view *view, void *dst,
                          struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&view->meta);
    struct pst_meta whole = view->meta;
    struct pst_device_memory *mem;
    const void *from = view->data;
    void *dense = NULL;
    enum pst_status status = PST_OK;

    pst_meta_set_contiguous(&whole);
    if (view->gpu < 0)
        pstl_view_read(&view->meta, view->data, &whole, dst);
    if (view->gpu < 0 || bytes == 0)
        return PST_OK;
    mem = find_memory(s, view->gpu);
    mem->device->guest->join(mem);
    if (!pst_meta_is_contiguous(&view->meta)) {
        status = alloc_dense(mem, bytes, &dense, diag);
        if (status == PST_OK)
            status = copy_within(mem, &view->meta, from, &whole, dense, diag);
        from = dense;
        order(mem, PST_QUEUE_COMPUTE, PST_QUEUE_OUT);
    }
    if (status == PST_OK) {
        mem->device->copy(mem, PST_QUEUE_OUT, dst, from, bytes);
        status = finish(mem, PST_QUEUE_OUT, diag);
    }
    mem->device->guest->free(mem, dense);
    if (status == PST_OK)
        pst_bytes_to_values(whole.dtype, dst, bytes);
    return status;
}

enum pst_status pstl_push(const penstock_session *s, const void *src,
                          const struct pstl_view *view, struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&view->meta);
    struct pst_meta whole = view->meta;
    struct pst_device_memory *mem;
    void *dense = NULL;
    enum pst_status status = PST_OK;

    pst_meta_set_contiguous(&whole);
    if (view->gpu < 0)
        pst_copy_strided(&whole, src, &view->meta, view->data);
    if (view->gpu < 0 || bytes == 0)
        return PST_OK;
    mem = find_memory(s, view->gpu);
    mem->device->guest->join(mem);
    if (pst_meta_is_contiguous(&view->meta)) {
        mem->device->copy(mem, PST_QUEUE_IN, view->data, src, bytes);
        return finish(mem, PST_QUEUE_IN, diag);
    }
    status = alloc_dense(mem, bytes, &dense, diag);
    if (status != PST_OK)
        return status;
    mem->device->copy(mem, PST_QUEUE_IN, dense, src, bytes);
    order(mem, PST_QUEUE_IN, PST_QUEUE_COMPUTE);
    status = copy_within(mem, &whole, dense, &view->meta, view->data, diag);
    if (status == PST_OK)
        status = finish(mem, PST_QUEUE_COMPUTE, diag);
    mem->device->guest->free(mem, dense);
    return status;
}

enum pst_status pstl_move(struct pst_device_memory *mem, const void *src,
                          const struct pstl_view *view, bool *ret_done,
                          struct pst_diag *diag)
{
    struct pst_meta whole = view->meta;
    enum pst_status status;

    pst_meta_set_contiguous(&whole);
    *ret_done = src != NULL && view->gpu >= 0 && mem->device->guest != NULL &&
                (int)mem->ordinal == view->gpu && pst_meta_numel(&whole) > 0;
    if (!*ret_done)
        return PST_OK;
    mem->device->guest->join(mem);
    status = copy_within(mem, &whole, src, &view->meta, view->data, diag);
    return status == PST_OK ? finish(mem, PST_QUEUE_COMPUTE, diag) : status;
}

/* --- inputs --------------------------------------------------------------- */

/* Sets *ret to a copy of the view in host memory. */
static enum pst_status copy_to_host(penstock_session *s, unsigned input,
                                    const struct pstl_view *view,
                                    struct pstl_view *ret,
                                    struct pst_diag *diag)
{
    struct pstl_buffer *to = &s->copied[input];
    const size_t bytes = pst_meta_bytes(&view->meta);

    if (to->bytes < bytes || to->at == NULL) {
        pst_free(to->at);
        *to = (struct pstl_buffer){pst_alloc(TAG, bytes + 1), bytes};
    }
    if (to->at == NULL)
        return pst_diag_nomem(diag, bytes);
    *ret = (struct pstl_view){
        .meta = view->meta, .data = to->at, .gpu = PSTL_ON_CPU};
    pst_meta_set_contiguous(&ret->meta);
    return pstl_pull(s, view, to->at, diag);
}

enum pst_status pstl_copy_input(penstock_session *s, unsigned input,
                                struct pst_diag *diag)
{
    const struct pstl_view view = s->views[input];

    if (view.data == NULL || view.gpu < 0)
        return PST_OK;
    return copy_to_host(s, input, &view, &s->views[input], diag);
}

/* True if a rank of this process reads the input on another GPU than that of
 * the caller's tensor. */
static bool is_read_elsewhere(const penstock_session *s, unsigned input)
{
    const struct pst_plan *plan = s->batch.plan;
    const struct pst_schedule *sched = pst_engine_schedule(s->engine);
    const struct pst_device_memory *mem;

    for (unsigned k = 0; (mem = pst_engine_device(s->engine, k)) != NULL; k++) {
        if ((int)mem->ordinal == s->views[input].gpu)
            continue;
        for (size_t n = 0; n < plan->stages.n; n++) {
            const struct pst_stage *stage = &plan->stages.at[n];

            if ((unsigned)sched->rank_of[n] != k % sched->n_ranks)
                continue;
            for (size_t i = 0; i < stage->graph->inputs.n; i++)
                if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT &&
                    stage->inputs[i].index == input)
                    return true;
        }
        for (size_t i = 0; i < plan->outputs.n; i++)
            if (plan->outputs.at[i].is_tensor &&
                plan->outputs.at[i].stage < 0 &&
                (unsigned)plan->outputs.at[i].output == input)
                return true;
    }
    return false;
}

enum pst_status pstl_copy_inputs(penstock_session *s, struct pst_diag *diag)
{
    const bool sends = s->options.scatter && !s->transport->ops->one_process;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < s->n_inputs && status == PST_OK; i++) {
        const struct pstl_view *view = &s->views[i];

        s->hosts[i] = (struct pstl_view){0};
        if (view->data != NULL && view->gpu >= 0 &&
            (sends || view->meta.dtype == PST_BOOL ||
             pst_meta_numel(&view->meta) == 0 || is_read_elsewhere(s, i)))
            status = copy_to_host(s, i, view, &s->hosts[i], diag);
    }
    return status;
}

void pstl_drop_copies(penstock_session *s)
{
    for (size_t i = 0; s->copied != NULL && i < s->n_inputs; i++) {
        pst_free(s->copied[i].at);
        s->copied[i] = (struct pstl_buffer){0};
    }
}

void pstl_join(const penstock_session *s, const struct pst_engine *engine)
{
    struct pst_device_memory *mem;
    bool any = false;

    for (size_t i = 0; i < s->n_inputs; i++)
        any = any || (s->views[i].data != NULL && s->views[i].gpu >= 0);
    for (unsigned k = 0; any && (mem = pst_engine_device(engine, k)) != NULL;
         k++)
        if (mem->device->guest != NULL)
            mem->device->guest->join(mem);
}

bool pstl_lend_guest(penstock_session *s,
                     const struct pst_device_memory *reader, bool in_place,
                     unsigned input, const struct pst_meta *meta,
                     const void *from, struct pst_lent *ret)
{
    const struct pstl_view *view = &s->views[input];
    struct pst_meta part = *meta;

    if (reader->device->guest == NULL || (int)reader->ordinal != view->gpu ||
        part.dtype == PST_BOOL || pst_meta_numel(&part) == 0)
        return false;
    for (unsigned d = 0; d < part.rank; d++)
        part.stride[d] = view->meta.stride[d];
    *ret = (struct pst_lent){.data = from,
                             .copied = !in_place ||
                                       !pst_meta_is_contiguous(&part) ||
                                       (uintptr_t)from % PST_DEVICE_ALIGN != 0,
                             .meta = part};
    atomic_fetch_add(ret->copied ? &s->copies.read : &s->copies.in_place,
                     pst_meta_bytes(&part));
    return true;
}

void pstl_settle_views(penstock_session *s)
{
    struct pst_device_memory *mem;

    for (unsigned k = 0;
         s->viewed && (mem = pst_engine_device(s->engine, k)) != NULL; k++) {
        struct pst_event done;

        /* A failure of the device is ignored here, since the next step reports
         * it. */
        mem->device->record(mem, PST_QUEUE_COMPUTE, &done);
        (void)pst_device_await(mem, &done);
    }
}
