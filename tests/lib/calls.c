// SPDX-License-Identifier: Apache-2.0
/*
 * Counts the allocations of the whole process in steps and passes: calls
 * TINY.pt2. Its malloc takes the place of the C library's, for all libraries.
 */
#include "tests/lib/drive.h"

#include <errno.h>
#include <stdatomic.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_ulong n_calls;

void *malloc(size_t size)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&n_calls, 1);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
    atomic_fetch_add(&n_calls, 1);
    *ret = __libc_memalign(alignment, size);
    return *ret != NULL ? 0 : ENOMEM;
}

static struct penstock_error error = PENSTOCK_INIT(error);

/* Index of the input that has a gradient. */
static size_t floats;

/* Makes a tensor for it. */
static void first_gradient(penstock_session *session, struct held *ret)
{
    struct penstock_info info = PENSTOCK_INIT(info);

    for (floats = 0; info.dtype.code != kDLFloat; floats++)
        good(penstock_session_describe(session, PENSTOCK_INPUT, floats, &info,
                                       &error));
    floats--;
    held_init(ret, &info);
}

static void read_results(penstock_session *session, struct held *grad,
                         struct penstock_error *own)
{
    struct penstock_copies copies = PENSTOCK_INIT(copies);

    require(penstock_input_gradient(session, floats, &grad->tensor, own) == 0);
    require(penstock_session_copies(session, &copies, own) == 0);
    require(copies.written > 0 && copies.read == 0);
}

static void count(const char *path, const char *ranks)
{
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {{"ranks", ranks},
                                              {"threads", "1"},
                                              {"microbatches", "2"},
                                              {"input-gradients", "*"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    const DLTensor *inputs[8];
    struct held held[9];
    penstock_session *session;
    penstock_model *model;
    unsigned long before;
    size_t n;

    open.options = stages;
    open.n_options = 1;
    config.options = options;
    config.n_options = 4;
    good(penstock_open(path, &open, &model, &error));
    before = atomic_load(&n_calls);
    good(penstock_session_new(model, &config, &session, &error));
    require(atomic_load(&n_calls) > before + 100); /* this one counts */
    n = penstock_count(model, PENSTOCK_INPUT);
    require(n <= 8);
    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&held[i], &info);
        inputs[i] = &held[i].tensor;
    }
    first_gradient(session, &held[n]);
    /* the first pass makes an engine */
    good(penstock_forward(session, inputs, n, NULL, &error));
    for (int step = 0; step < 10; step++) {
        struct penstock_step result = PENSTOCK_INIT(result);
        struct penstock_error own = PENSTOCK_INIT(own);
        double loss;

        if (step == 0)
            before = atomic_load(&n_calls);
        require(penstock_forward(session, inputs, n, &loss, &own) == 0);
        require(penstock_train_step(session, inputs, n, &result, &own) == 0);
        require(penstock_forward_backward(session, inputs, n, &result, &own) ==
                0);
        require(penstock_update(session, &result, &own) == 0);
        read_results(session, &held[n], &own);
    }
    if (atomic_load(&n_calls) != before) {
        fprintf(stderr, "%s ranks: %lu allocations in 30 steps\n", ranks,
                atomic_load(&n_calls) - before);
        exit(1);
    }
    for (size_t i = 0; i <= n; i++)
        held_fini(&held[i]);
    penstock_session_free(session);
    penstock_close(model);
}

int main(int argc, char **argv)
{
    require(argc == 2);
    count(argv[1], "1");
    count(argv[1], "2");
    return 0;
}
