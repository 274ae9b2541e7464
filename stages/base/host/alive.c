// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/alive.h"

#include <time.h>

#include "stages/base/host/fault.h"

/* There is one writer and there are many readers: relaxed loads and stores are
 * enough, since no other memory depends on the values. */
static struct pst_alive process = PST_ALIVE_NONE;

static _Thread_local struct pst_alive *own; /* pst_alive_enter */
static _Thread_local bool watched;
static _Thread_local atomic_uint_fast64_t *helped;

static const char *const names[] = {
#define ROW(id, name) (name),
    PST_ALIVE_LIST(ROW)
#undef ROW
};

const char *pst_alive_name(unsigned phase)
{
    return phase < PST_N_ALIVE ? names[phase] : "?";
}

/* Returns the state that the calling thread uses. */
static struct pst_alive *here(void)
{
    return own != NULL ? own : &process;
}

struct pst_alive *pst_alive_enter(struct pst_alive *state)
{
    struct pst_alive *before = own;

    own = state;
    watched = true;
    return before;
}

void pst_alive_leave(struct pst_alive *before)
{
    own = before;
    watched = before != NULL;
}

void pst_alive_watch(void)
{
    watched = true;
    pst_fault_read();
}

bool pst_alive_is_watched(void)
{
    return watched;
}

static void increment_count(atomic_uint_fast64_t *count)
{
    atomic_store_explicit(count,
                          atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void set_phase(enum pst_alive_phase phase, enum pst_alive_phase before)
{
    atomic_store_explicit(&here()->phase, phase, memory_order_relaxed);
    increment_count(&here()->work_done);
    if (phase != before && here()->hook != NULL)
        here()->hook(here()->hook_ctx);
}

static enum pst_alive_phase phase_now(void)
{
    return (enum pst_alive_phase)atomic_load_explicit(&here()->phase,
                                                      memory_order_relaxed);
}

enum pst_alive_phase pst_alive_begin_phase(enum pst_alive_phase phase)
{
    const enum pst_alive_phase before = phase_now();

    if (!watched)
        return before;
    set_phase(phase, before);
    pst_fault_point(names[phase]);
    return before;
}

void pst_alive_begin_lane(void)
{
    pst_fault_point("lane");
}

void pst_alive_restore_phase(enum pst_alive_phase before)
{
    if (watched)
        set_phase(before, phase_now());
}

void pst_alive_mark_collective(bool collective)
{
    if (watched)
        atomic_store_explicit(&here()->collective, collective,
                              memory_order_relaxed);
}

void pst_alive_record_progress(void)
{
    if (watched)
        increment_count(&here()->work_done);
}

void pst_alive_count_in(atomic_uint_fast64_t *count)
{
    helped = count;
}

void pst_alive_progress(void)
{
    if (helped != NULL)
        increment_count(helped);
    if (!watched)
        return;
    increment_count(&here()->work_done);
    if (here()->hook != NULL)
        here()->hook(here()->hook_ctx);
}

void pst_alive_record_poll(void)
{
    if (watched)
        increment_count(&here()->polls);
}

void pst_alive_step(uint64_t step)
{
    if (!watched)
        return;
    atomic_store_explicit(&here()->step, step, memory_order_relaxed);
    pst_fault_step(step);
}

/* Packs 8 bits of kind, 24 of stage and 32 of microbatch, for a single
 * store. */
void pst_alive_action(int kind, int stage, int microbatch)
{
    if (watched)
        atomic_store_explicit(&here()->place,
                              (uint64_t)(kind & 0xff) << 56 |
                                  (uint64_t)(stage & 0xffffff) << 32 |
                                  (uint32_t)microbatch,
                              memory_order_relaxed);
}

struct pst_alive_state pst_alive_state(void)
{
    const uint64_t place =
        atomic_load_explicit(&here()->place, memory_order_relaxed);
    const int stage = (int)(place >> 32 & 0xffffff);

    return (struct pst_alive_state){
        .phase = (enum pst_alive_phase)atomic_load_explicit(
            &here()->phase, memory_order_relaxed),
        .collective =
            atomic_load_explicit(&here()->collective, memory_order_relaxed),
        .work_done =
            atomic_load_explicit(&here()->work_done, memory_order_relaxed),
        .polls = atomic_load_explicit(&here()->polls, memory_order_relaxed),
        .place = {.step =
                      atomic_load_explicit(&here()->step, memory_order_relaxed),
                  .kind = (int)(place >> 56),
                  .stage = stage == 0xffffff ? -1 : stage,
                  .microbatch = (int)(uint32_t)place},
    };
}

void pst_alive_set_hook(pst_alive_fn fn, void *ctx)
{
    here()->hook = fn;
    here()->hook_ctx = ctx;
}

void pst_alive_set_limit(double seconds)
{
    atomic_store_explicit(&here()->limit, seconds, memory_order_relaxed);
    pst_alive_set_step_limit(seconds);
}

void pst_alive_set_step_limit(double seconds)
{
    atomic_store_explicit(&here()->step_limit, seconds, memory_order_relaxed);
}

double pst_alive_limit_of(unsigned phase)
{
    return atomic_load_explicit(phase == PST_ALIVE_STEP ? &here()->step_limit
                                                        : &here()->limit,
                                memory_order_relaxed);
}

double pst_alive_limit(void)
{
    return pst_alive_limit_of(phase_now());
}

double pst_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t pst_now_ms(void)
{
    return (uint64_t)(1e3 * pst_now());
}

void pst_awake_update(struct pst_awake *awake, double clock)
{
    const double gap = awake->last > 0 ? clock - awake->last : 0;

    awake->stopped_s = gap > PST_AWAKE_GAP ? gap : 0;
    if (awake->stopped_s == 0)
        awake->now += gap;
    awake->last = clock;
}

void pst_alive_add_stopped(double seconds)
{
    atomic_store_explicit(
        &here()->stopped_s,
        atomic_load_explicit(&here()->stopped_s, memory_order_relaxed) +
            seconds,
        memory_order_relaxed);
}

double pst_alive_stopped_seconds(void)
{
    return atomic_load_explicit(&here()->stopped_s, memory_order_relaxed);
}
