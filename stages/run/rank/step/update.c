// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/update.h"

#include <stdio.h>
#include <string.h>

#include "stages/base/rng.h"
#include "stages/layout/layout.h"
#include "stages/ops/cpu/states.h"
#include "stages/run/rank/step/signs.h"

void pst_update_save(const struct pst_layout *layout, struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];

        if (p->shadow != 0)
            d->mem.device->copy(&d->mem, PST_QUEUE_COMPUTE,
                                pst_rank_at(d, p->shadow),
                                pst_rank_at(d, p->data), p->bytes);
    }
}

void pst_update_restore(const struct pst_layout *layout,
                        struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];

        if (p->shadow != 0)
            d->mem.device->copy(&d->mem, PST_QUEUE_COMPUTE,
                                pst_rank_at(d, p->data),
                                pst_rank_at(d, p->shadow), p->bytes);
    }
}

struct pst_stayed pst_stayed_make(const uint64_t *words, uint64_t step)
{
    if (words[1] == 0)
        return (struct pst_stayed){0};
    return (struct pst_stayed){
        .n = words[1], .step = step, .param = (uint32_t)(words[0] - 1)};
}

/* Largest slot that is used: more groups of parameters are rare. */
#define MOST_SLOTS 64

static const struct pst_meta *meta_of(const struct pst_rank_role *role,
                                      const struct pst_rank_param *p)
{
    return &role->plan->params.at[p->index].meta;
}

/* Returns the factor that clips the gradients of parameters with these options,
 * and divides them by the loss scale. The loss scale is a power of two, so one
 * factor gives the same bits as two. */
static double scale_of(const struct pst_rank_role *role,
                       const struct pst_optim_options *o, const double *norms)
{
    const double clip = o->clip_norm > 0
                            ? pst_clip_scale(norms[o->clip_rule], o->clip_norm)
                            : 1;

    return clip / pst_role_loss_scale(role);
}

/* The update of one parameter. */
struct param_update {
    struct pst_rank_device *d;
    const struct pst_rank_role *role;
    const struct pst_rank_param *p;
    const struct pst_optim_options *options;
    const struct pst_update *numbers;
    bool is_bf16;        /* the parameter is */
    unsigned slot;       /* slot of the numbers; 0: none */
    unsigned char *work; /* scratch; NULL: none */
    void *words;         /* counter of elements not updated */
};

/* Moves the average of n elements, from element i of this rank's on, towards
 * their new values. The first update of a run sets it. */
static void update_average(const struct param_update *u, float *values,
                           int64_t i, int64_t n)
{
    const struct pst_rank_param *p = u->p;
    float *const to =
        (float *)(void *)pst_rank_at(u->d, p->state[PST_OPTIM_EMA]) + i;
    void *const from[] = {values, to};
    const struct pst_task task = {
        .dtype = PST_F32,
        .n = n,
        .to = to,
        .from = from,
        .n_from = PST_COUNT(from),
        .number = *u->role->updates == 0 ? 1 : 1 - u->options->ema,
        .pool = u->d->pool,
        .isa = pst_cpu_isa()};

    u->d->mem.device->run(&u->d->mem, u->d->ema, &task);
}

/* Index, following those of states, of the random numbers that round a bf16
 * parameter. */
#define VALUE PST_OPTIM_ALL_STATES

/* The keys of random numbers have `microbatch` = ROUNDING + index of the state.
 * This is larger than any microbatch, so no operator of a step has the same
 * stream. */
#define ROUNDING 0x80000000u

/* Writes to the scratch the random numbers that round state k, or VALUE, from
 * element `first` of the parameter on. They do not depend on the cut. */
static void draw_numbers(const struct param_update *u, unsigned k,
                         int64_t first)
{
    const char *fqn = u->role->plan->params.at[u->p->index].fqn;
    const struct pst_rng_key key = {
        .seed = u->role->options.seed,
        .step = *u->role->updates,
        .microbatch = ROUNDING + k,
        .node = (uint32_t)pst_hash(fqn, strlen(fqn), 0)};
    struct pst_states_draw draw = {.first = first};

    pst_rng_stream(&key, draw.stream);
    memcpy(pst_device_host(&u->d->mem, u->work), &draw, sizeof(draw));
    pst_device_push(&u->d->mem, u->work, sizeof(draw));
}

/* Converts elements of state k, from element i of this rank's on, to f32 (task
 * unpack) or back (pack). */
static void convert_state(const struct param_update *u, pst_task_fn fn,
                          unsigned k, int64_t i, int64_t n, void *f32)
{
    const bool packs = fn == u->d->pack;
    const bool is_bf16 = u->options->store == PST_STORE_BF16;
    unsigned char *at =
        pst_rank_at(u->d, u->p->state[k]) + pst_optim_bytes(u->options, k, i);
    void *scales =
        is_bf16 ? u->work
                : pst_rank_at(u->d, u->p->state[PST_OPTIM_SCALES + k]) +
                      pst_optim_bytes(u->options, PST_OPTIM_SCALES + k, i);
    void *from[] = {packs ? f32 : at, scales};
    const struct pst_task task = {.dtype = is_bf16 ? PST_BF16 : PST_U8,
                                  .n = n,
                                  .to = packs ? at : f32,
                                  .from = from,
                                  .n_from = PST_COUNT(from),
                                  .number = u->options->row->signs[k] == 's',
                                  .pool = u->d->pool,
                                  .isa = pst_cpu_isa()};

    if (packs && is_bf16)
        draw_numbers(u, k, u->p->begin + i);
    u->d->mem.device->run(&u->d->mem, fn, &task);
}

/* Converts bf16 elements of the parameter to f32 (task unpack) or back (pack,
 * rounded stochastically). */
static void convert_value(const struct param_update *u, pst_task_fn fn,
                          int64_t i, int64_t n, void *f32)
{
    const bool packs = fn == u->d->pack;
    uint16_t *at = (uint16_t *)(void *)pst_rank_at(u->d, u->p->own_data) + i;
    void *from[] = {packs ? f32 : at, u->work};
    const struct pst_task task = {.dtype = PST_BF16,
                                  .n = n,
                                  .to = packs ? (void *)at : f32,
                                  .from = from,
                                  .n_from = PST_COUNT(from),
                                  .pool = u->d->pool,
                                  .isa = pst_cpu_isa()};

    if (packs)
        draw_numbers(u, VALUE, u->p->begin + i);
    u->d->mem.device->run(&u->d->mem, fn, &task);
}

/* Updates n elements from element i of this rank's on. */
static void update_elements(const struct param_update *u, int64_t i, int64_t n)
{
    const unsigned index = (unsigned)u->p->index;
    const bool whole = pst_role_is_whole(u->role, index);
    float *f32 = (float *)(void *)(u->work + PST_OPTIM_DRAW);
    float *packed[PST_OPTIM_MAX_STATES] = {NULL};
    float *const values =
        u->is_bf16 ? f32
                   : (float *)(void *)pst_rank_at(u->d, u->p->own_data) + i;
    void *from[3 + PST_OPTIM_MAX_STATES] = {
        (float *)(void *)pst_rank_at(u->d, u->p->own_grad) + i,
        [1 + PST_OPTIM_MAX_STATES] = whole ? u->work : NULL,
        [2 + PST_OPTIM_MAX_STATES] = u->words};
    const struct pst_task task = {.dtype = PST_F32,
                                  .n = n,
                                  .to = values,
                                  .from = from,
                                  .n_from = PST_COUNT(from),
                                  .slot = u->slot,
                                  .number = (double)index + 1,
                                  .meta = whole ? meta_of(u->role, u->p) : NULL,
                                  .update = u->numbers,
                                  .pool = u->d->pool,
                                  .isa = pst_cpu_isa()};

    if (u->is_bf16) {
        f32 += n;
        convert_value(u, u->d->unpack, i, n, values);
    }
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++) {
        if (u->p->state[k] == 0)
            continue;
        from[1 + k] = (float *)(void *)pst_rank_at(u->d, u->p->state[k]) + i;
        if (!pst_optim_is_packed(u->options, k))
            continue;
        from[1 + k] = packed[k] = f32;
        f32 += n;
        convert_state(u, u->d->unpack, k, i, n, packed[k]);
    }
    u->d->mem.device->run(
        &u->d->mem, u->d->updates[pst_optim_index(u->options->row)], &task);
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
        if (packed[k] != NULL)
            convert_state(u, u->d->pack, k, i, n, packed[k]);
    if (u->is_bf16) {
        convert_value(u, u->d->pack, i, n, values);
        convert_value(u, u->d->unpack, i, n, values);
    }
    if (u->p->state[PST_OPTIM_EMA] != 0)
        update_average(u, values, i, n);
}

/* Updates all elements at once if states and values are f32, else as many at a
 * time as the scratch holds. */
static void update_param(const struct param_update *u)
{
    const bool is_f32 = u->options->store == PST_STORE_F32 && !u->is_bf16;
    const int64_t most = is_f32 ? u->p->n : PST_OPTIM_PIECE;

    for (int64_t i = 0; i < u->p->n; i += most)
        update_elements(u, i, PST_MIN(most, u->p->n - i));
}

/* --- numbers in slots ----------------------------------------------------- */

/* True if the rank updates elements of the parameter. */
static bool is_updated(const struct pst_rank_param *p)
{
    return p->trained && p->n > 0;
}

/* True if an update of the parameter is one task alone, so that a device can
 * record it. Other updates need scratch, where the host writes random numbers.
 */
static bool can_record(const struct pst_rank_role *role,
                       const struct pst_rank_param *p)
{
    return p->state[PST_OPTIM_EMA] == 0 &&
           pst_optim_work(pst_role_update(role, (unsigned)p->index),
                          meta_of(role, p)) == 0;
}

bool pst_update_init(struct pst_update_slots *slots,
                     const struct pst_rank_role *role,
                     const struct pst_layout *layout, struct pst_arena *heap,
                     bool *ret_records)
{
    const struct pst_recorder *recorder = role->options.device->recorder;
    unsigned updated = 0;

    slots->of =
        pst_arena_calloc(heap, layout->params.n + 1, sizeof(*slots->of));
    if (slots->of == NULL)
        return false;
    slots->most = recorder != NULL && !role->options.no_graphs
                      ? PST_MIN(recorder->slots, (unsigned)MOST_SLOTS)
                      : 0;
    *ret_records = slots->most > 0;
    for (size_t i = 0; i < layout->params.n; i++)
        if (is_updated(&layout->params.at[i])) {
            *ret_records =
                *ret_records && can_record(role, &layout->params.at[i]);
            updated++;
        }
    *ret_records = *ret_records && updated > 1;
    return true;
}

/* Enqueues a task that sets the numbers of a slot, for parameters with these
 * options. since: number of updates before their states were initialized. */
static void set_numbers(struct pst_rank_device *d,
                        const struct pst_rank_role *role,
                        const struct pst_optim_options *options, uint64_t since,
                        const double *norms, unsigned slot)
{
    const struct pst_update numbers =
        pst_optim_update(options->row, options, *role->updates, since,
                         scale_of(role, options, norms));
    void *from[] = {NULL};
    const struct pst_task task = {.dtype = PST_F32,
                                  .from = from,
                                  .n_from = PST_COUNT(from),
                                  .slot = slot,
                                  .update = &numbers,
                                  .pool = d->pool,
                                  .isa = pst_cpu_isa()};

    d->mem.device->run(&d->mem, d->updates[pst_optim_index(options->row)],
                       &task);
}

bool pst_update_set_numbers(struct pst_update_slots *slots,
                            const struct pst_rank_role *role,
                            const struct pst_layout *layout,
                            struct pst_rank_device *d, const double *norms,
                            bool *ret_moved)
{
    struct {
        const struct pst_optim_options *options;
        uint64_t since;
    } set[MOST_SLOTS];
    unsigned n = 0;

    *ret_moved = false;
    for (size_t i = 0; i < layout->params.n; i++) {
        const unsigned index = (unsigned)layout->params.at[i].index;
        const struct pst_optim_options *options = pst_role_update(role, index);
        const uint64_t since = role->since[index];
        unsigned slot = 0;

        if (!is_updated(&layout->params.at[i]))
            continue;
        while (slot < n &&
               (set[slot].options != options || set[slot].since != since))
            slot++;
        if (slot == slots->most)
            return false;
        if (slot == n) {
            set[n].options = options;
            set[n++].since = since;
            set_numbers(d, role, options, since, norms, n);
        }
        *ret_moved = *ret_moved || slots->of[i] != slot + 1;
        slots->of[i] = slot + 1;
    }
    return true;
}

/* --- the updates ---------------------------------------------------------- */

void pst_update_apply(const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d, const double *norms,
                      const struct pst_update_slots *slots,
                      struct pst_rank_signs *signs)
{
    const uint64_t updates = *role->updates;
    struct pst_update numbers = {0};
    struct param_update u = {.d = d,
                             .role = role,
                             .numbers = &numbers,
                             .words = pst_rank_at(d, layout->readback.stayed)};
    uint64_t since = 0;

    d->mem.device->zero(&d->mem, u.words, 2 * sizeof(uint64_t));
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        const unsigned index = (unsigned)p->index;
        size_t work;

        if (!p->trained)
            continue;
        work = pst_optim_work(pst_role_update(role, index), meta_of(role, p));
        u.p = p;
        u.work = pst_rank_at(d, layout->work);
        if (work > 0)
            pst_rank_record_used(d, u.work + work);
        if (p->n == 0)
            continue;
        if (u.options != pst_role_update(role, index) ||
            role->since[index] != since) {
            u.options = pst_role_update(role, index);
            since = role->since[index];
            numbers = pst_optim_update(u.options->row, u.options, updates,
                                       since, scale_of(role, u.options, norms));
        }
        u.is_bf16 = meta_of(role, p)->dtype == PST_BF16;
        u.slot = slots != NULL ? slots->of[i] : 0;
        update_param(&u);
        pst_signs_count_progress(signs);
        pst_alive_progress(); /* sends heartbeats */
    }
}

void pst_stayed_describe(const struct pst_stayed *stayed,
                         const struct pst_rank_role *role, unsigned rank,
                         char *text, size_t size)
{
    (void)snprintf(
        text, size,
        "rank %u: the update of step %llu left %llu elements of parameters as "
        "they were, the first one of '%.300s': they, or what %s keeps of them, "
        "would not be finite",
        rank, (unsigned long long)stayed->step, (unsigned long long)stayed->n,
        role->plan->params.at[stayed->param].fqn,
        pst_optim_name(pst_role_update(role, stayed->param)));
}
