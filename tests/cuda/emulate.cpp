// SPDX-License-Identifier: Apache-2.0
/* Fibers for the threads of a block. */
#include "tests/cuda/emulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define BEGIN_SWITCH(save, bottom, size)                                       \
    __sanitizer_start_switch_fiber(save, bottom, size)
#define END_SWITCH(save, bottom, size)                                         \
    __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define BEGIN_SWITCH(save, bottom, size) (void)0
#define END_SWITCH(save, bottom, size)   (void)0
#endif

#define MOST_THREADS 1024
#define STACK        ((size_t)128 << 10)
#define WARP         32

thread_local struct emu_dim threadIdx, blockIdx, blockDim, gridDim;

enum state { READY, IN_WARP, IN_BLOCK, DONE };

/* Copies that a thread has begun. */
#define MOST_COPIES 160
struct copy {
    void *to;
    const void *from;
    unsigned size, bytes; /* bytes beyond `bytes` become 0 */
};

struct fiber {
    void *sp; /* stack pointer; it points to the saved registers */
    enum state state;
    struct emu_dim index;
    void *fake;    /* ASan's fake stack */
    unsigned turn; /* exchanges so far */
    unsigned n_copies;
    struct copy copies[MOST_COPIES];
};

/* A lane's elements of the matrices a (8) and b (4), as numbers. */
struct fragment {
    float x[12];
};

static thread_local struct {
    const struct emu_kernel *kernel;
    const void *params;
    struct fiber fibers[MOST_THREADS];
    unsigned n, now; /* threads of the block; the one that runs */
    void *sp;        /* stack pointer of the scheduler */
    unsigned char *stacks;
    void *memory; /* shared memory whose size the launch gives */
    uint64_t lanes[MOST_THREADS];
    /* exchanged by the lanes of a warp, see exchange() */
    struct fragment fragments[2][MOST_THREADS];
    const uint16_t *rows[2][MOST_THREADS];
    /* The scheduler's stack: ASan's fake stack; its lowest address and size. */
    void *fake;
    const void *bottom;
    size_t size;
} emu;

static struct emu_kernel *kernels;

emu_kernel::emu_kernel(const char *a_name, size_t a_size,
                       void (*a_run)(const void *))
    : name(a_name), size(a_size), run(a_run), next(kernels)
{
    kernels = this;
}

const struct emu_kernel *emu_find(const char *name)
{
    const struct emu_kernel *k = kernels;

    while (k != NULL && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

/* emu_switch(save, to): saves the registers that a call keeps on this stack and
 * its pointer in *save, and continues on the other stack. */
extern "C" void emu_switch(void **save, void *to);
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n"
        "  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n"
        "  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size emu_switch, .-emu_switch\n");
#define SAVED 6 /* number of registers that emu_switch saves */
#else
#error "write emu_switch for this processor"
#endif

static void leave(enum state state)
{
    struct fiber *f = &emu.fibers[emu.now];

    f->state = state;
    BEGIN_SWITCH(state == DONE ? NULL : &f->fake, emu.bottom, emu.size);
    emu_switch(&f->sp, emu.sp);
    END_SWITCH(f->fake, NULL, NULL);
}

extern "C" void emu_main(void)
{
    END_SWITCH(NULL, &emu.bottom, &emu.size);
    emu.kernel->run(emu.params);
    leave(DONE);
    abort();
}

/* Return address of a new fiber: aligns the stack as a call does. */
extern "C" void emu_entry(void);
__asm__(".text\n"
        ".globl emu_entry\n"
        ".type emu_entry, @function\n"
        "emu_entry:\n"
        "  andq $-16, %rsp\n"
        "  call emu_main\n"
        ".size emu_entry, .-emu_entry\n");

static void start(unsigned t)
{
    unsigned char *top = emu.stacks + (t + 1) * STACK - 64;
    void **sp = (void **)top;

    *--sp = (void *)emu_entry;
    for (unsigned i = 0; i < SAVED; i++)
        *--sp = NULL;
    emu.fibers[t].sp = sp;
    emu.fibers[t].state = READY;
    emu.fibers[t].fake = NULL;
    emu.fibers[t].n_copies = 0;
    emu.fibers[t].turn = 0;
    emu.fibers[t].index = {t % blockDim.x, t / blockDim.x % blockDim.y,
                           t / blockDim.x / blockDim.y};
}

static void resume(unsigned t)
{
    emu.now = t;
    threadIdx = emu.fibers[t].index;
    BEGIN_SWITCH(&emu.fake, emu.stacks + t * STACK, STACK);
    emu_switch(&emu.sp, emu.fibers[t].sp);
    END_SWITCH(emu.fake, NULL, NULL);
}

/* If all fibers from begin to end that are not done wait at this barrier, makes
 * them ready and returns true. */
static bool release(unsigned begin, unsigned end, enum state barrier)
{
    unsigned n = 0;

    for (unsigned t = begin; t < end; t++)
        if (emu.fibers[t].state == barrier)
            n++;
        else if (emu.fibers[t].state != DONE)
            return false;
    for (unsigned t = begin; n > 0 && t < end; t++)
        if (emu.fibers[t].state == barrier)
            emu.fibers[t].state = READY;
    return n > 0;
}

static bool run_warp(unsigned begin, unsigned end)
{
    bool any = false, again = true;

    while (again) {
        again = false;
        for (unsigned t = begin; t < end; t++)
            if (emu.fibers[t].state == READY) {
                resume(t);
                any = again = true;
            }
        again |= release(begin, end, IN_WARP);
    }
    return any;
}

static void run_block(void)
{
    bool done = false;

    for (unsigned t = 0; t < emu.n; t++)
        start(t);
    while (!done) {
        bool any = false;

        for (unsigned t = 0; t < emu.n; t += WARP)
            any |= run_warp(t, t + WARP < emu.n ? t + WARP : emu.n);
        if (release(0, emu.n, IN_BLOCK))
            continue;
        done = true;
        for (unsigned t = 0; t < emu.n; t++)
            done &= emu.fibers[t].state == DONE;
        if (!done && !any) {
            fprintf(stderr, "%s: threads of a block wait at different places\n",
                    emu.kernel->name);
            abort();
        }
    }
}

void emu_launch(const struct emu_kernel *kernel, const void *params,
                struct emu_dim grid, struct emu_dim block, unsigned shared)
{
    emu.n = block.x * block.y * block.z;
    if (emu.n == 0 || emu.n > MOST_THREADS) {
        fprintf(stderr, "%s: a block of %u threads\n", kernel->name, emu.n);
        abort();
    }
    if (emu.stacks == NULL)
        emu.stacks = (unsigned char *)mmap(
            NULL, MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (emu.stacks == MAP_FAILED)
        abort();
    emu.memory =
        shared == 0 ? NULL : aligned_alloc(16, (shared + 15) / 16 * 16);
    if (shared > 0 && emu.memory == NULL)
        abort();
    emu.kernel = kernel;
    emu.params = params;
    gridDim = grid;
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) {
                if (shared > 0) /* NaN */
                    memset(emu.memory, 0xff, shared);
                run_block();
            }
    free(emu.memory);
}

void *emu_memory(void)
{
    return emu.memory;
}

void emu_sync_block(void)
{
    leave(IN_BLOCK);
}

void emu_sync_warp(void)
{
    leave(IN_WARP);
}

uint64_t *emu_lanes(void)
{
    return emu.lanes + emu.now / WARP * WARP;
}

void emu_copy(void *to, const void *from, unsigned size, unsigned bytes)
{
    struct fiber *f = &emu.fibers[emu.now];

    if (f->n_copies == MOST_COPIES || bytes > size ||
        (uintptr_t)to % size != 0 || (uintptr_t)from % size != 0) {
        fprintf(stderr, "%s: a bad copy, or too many\n", emu.kernel->name);
        abort();
    }
    f->copies[f->n_copies++] = {to, from, size, bytes};
}

void emu_copies_wait(void)
{
    struct fiber *f = &emu.fibers[emu.now];

    for (unsigned i = 0; i < f->n_copies; i++) {
        const struct copy *c = &f->copies[i];

        memset(c->to, 0, c->size);
        memcpy(c->to, c->from, c->bytes);
    }
    f->n_copies = 0;
}

/* Gives the other lanes of the warp what the lane has, in one of two places: a
 * lane that has been quick writes to the other one next. Returns the place. */
template <class T>
static const T *exchange(T (&all)[2][MOST_THREADS], const T &x)
{
    const unsigned turn = emu.fibers[emu.now].turn++ % 2;

    all[turn][emu.now] = x;
    emu_sync_warp();
    return all[turn] + emu.now / WARP * WARP;
}

void emu_mma(float *d, const uint32_t *a, uint32_t b0, uint32_t b1,
             float (*number)(uint16_t))
{
    const unsigned g = emu.now % WARP / 4 * 4, t = emu.now % 4 * 8;
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const struct fragment *lanes;
    struct fragment own;

    for (unsigned i = 0; i < 12; i++)
        own.x[i] = number((uint16_t)(words[i / 2] >> i % 2 * 16));
    lanes = exchange(emu.fragments, own);
    for (unsigned k = 0; k < 4; k++) {
        const float *const x = lanes[g + k].x, *const y = lanes[t + k].x + 8;
        const float *const z = lanes[t + 4 + k].x + 8;

        d[0] += x[0] * y[0] + x[1] * y[1] + x[4] * y[2] + x[5] * y[3];
        d[1] += x[0] * z[0] + x[1] * z[1] + x[4] * z[2] + x[5] * z[3];
        d[2] += x[2] * y[0] + x[3] * y[1] + x[6] * y[2] + x[7] * y[3];
        d[3] += x[2] * z[0] + x[3] * z[1] + x[6] * z[2] + x[7] * z[3];
    }
}

void emu_load_matrices(uint32_t *to, const uint16_t *row, bool transposed)
{
    const unsigned g = emu.now % WARP / 4, t = emu.now % 4 * 2;
    const uint16_t *const *rows;

    if ((uintptr_t)row % 16 != 0) {
        fprintf(stderr, "%s: a row of a matrix is not aligned\n",
                emu.kernel->name);
        abort();
    }
    rows = exchange(emu.rows, row);
    for (unsigned i = 0; i < 4; i++, rows += 8)
        to[i] = transposed ? rows[t][g] | (uint32_t)rows[t + 1][g] << 16
                           : rows[g][t] | (uint32_t)rows[g][t + 1] << 16;
}
