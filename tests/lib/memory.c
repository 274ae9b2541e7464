// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a session: memory MODEL.pt2, whose rows are free. mmap64 and munmap
 * of this program, which the library calls instead of the C library's, count
 * what it maps. A session maps what penstock_session_bytes says, to the byte,
 * also after penstock_forward, and a step maps and allocates nothing. All
 * tensors are in there: the rest of the session is no larger for 512 times the
 * rows. After the close nothing is left, not a byte; the first sessions of a
 * process are not judged, since libraries keep what they have compiled.
 * GLIBC_TUNABLES=glibc.malloc.tcache_count=0 in the environment: otherwise
 * memory that the allocator keeps for later counts, too.
 */
#include "tests/lib/drive.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_INPUTS 8

static struct penstock_error error = PENSTOCK_INIT(error);
static _Atomic size_t mapped;
static bool warm; /* a step may allocate: libraries compile their kernels */

void *mmap64(void *at, size_t size, int protection, int flags, int fd,
             off64_t offset)
{
    const long p = syscall(SYS_mmap, at, size, protection, flags, fd, offset);

    if (p != -1)
        mapped += size;
    return (void *)p;
}

int munmap(void *at, size_t size)
{
    mapped -= size;
    return (int)syscall(SYS_munmap, at, size);
}

static size_t on_heap(void)
{
    const struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long all, pages = 0;

    require(file != NULL && fscanf(file, "%lu %lu", &all, &pages) == 2);
    (void)fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Runs a pass in eval mode, with inputs of zeros. */
static void pass_forward(const penstock_model *model, penstock_session *session)
{
    const size_t n = penstock_count(model, PENSTOCK_INPUT);
    const DLTensor *inputs[MAX_INPUTS];
    struct held held[MAX_INPUTS];

    require(n <= MAX_INPUTS);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        inputs[i] = &held[i].tensor;
    }
    good(penstock_forward(session, inputs, n, NULL, &error));
    for (size_t i = 0; i < n; i++)
        held_fini(&held[i]);
}

struct sizes {
    size_t planned, mapped, heap, resident;
};

/* Trains with microbatches of that many rows, and closes all. Returns sizes
 * beside those at the beginning: with a session, and after the close. */
static struct sizes live(const char *path, const char *rows, const char *ranks,
                         struct sizes *ret_after)
{
    const size_t all = mapped, heap = on_heap(), pages = resident();
    const struct penstock_option options[] = {{"microbatches", "2"},
                                              {"microbatch-size", rows},
                                              {"ranks", ranks},
                                              {"threads", "1"}};
    const struct penstock_option stages[] = {{"policy", "flops"},
                                             {"stages", ranks}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct penstock_step step = PENSTOCK_INIT(step);
    struct sizes with;
    penstock_session *session;
    penstock_model *model;
    size_t before, map;

    open.options = stages;
    open.n_options = 2;
    config.options = options;
    config.n_options = 4;
    good(penstock_open(path, &open, &model, &error));
    before = on_heap();
    map = mapped;
    good(penstock_session_new(model, &config, &session, &error));
    with.planned = penstock_session_bytes(session);
    with.mapped = mapped - map;
    with.heap = on_heap() - before;
    for (int i = 0; i < 3; i++)
        good(
            penstock_train_step_fill(session, fill_zeros, NULL, &step, &error));
    require(warm ||
            (mapped - map == with.mapped && on_heap() - before == with.heap));
    with.resident = resident() - pages;
    pass_forward(model, session);
    require(penstock_session_bytes(session) > with.planned);
    require(mapped - map == penstock_session_bytes(session));
    penstock_session_free(session);
    penstock_close(model);
    *ret_after = (struct sizes){.mapped = mapped - all,
                                .heap = on_heap() - heap,
                                .resident = resident() - pages};
    return with;
}

static void print(const char *rows, const char *ranks, struct sizes s)
{
    printf("%4s rows, %s ranks: planned %zu, mapped %zu, heap %zu, resident "
           "%zd\n",
           rows, ranks, s.planned, s.mapped, s.heap, (ssize_t)s.resident);
}

static void check_sizes(const char *path, const char *ranks)
{
    struct sizes few, many, after;

    few = live(path, "8", ranks, &after);
    require(after.mapped == 0 && after.heap == 0);
    many = live(path, "4096", ranks, &after);
    require(after.mapped == 0 && after.heap == 0);
    print("8", ranks, few);
    print("4096", ranks, many);
    require(few.mapped == few.planned && many.mapped == many.planned);
    require(many.planned > few.planned + (2 << 20));
    /* Texts with a size in them may be longer. */
    require(many.heap <= few.heap + 16384);
    require(many.resident <= many.planned + many.heap + (1 << 20));
}

int main(int argc, char **argv)
{
    struct sizes after;

    require(argc == 2);
    for (int i = 0; i < 4; i++) {
        warm = i < 2;
        (void)live(argv[1], i % 2 == 0 ? "8" : "4096", "1", &after);
        (void)live(argv[1], i % 2 == 0 ? "8" : "4096", "2", &after);
    }
    check_sizes(argv[1], "1");
    check_sizes(argv[1], "2");
    return 0;
}
