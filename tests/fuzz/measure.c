// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/measure.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define SMALL ((size_t)64 << 10)

struct bytes map_bytes(void)
{
    void *at = mmap(NULL, CAPACITY, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_true(at != MAP_FAILED);
    return (struct bytes){.at = at};
}

void put(struct bytes *b, const void *data, size_t n)
{
    assert_true(n <= CAPACITY - b->n);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static size_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "re");
    size_t kb = 0;
    char line[256];

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            kb = strtoul(line + strlen(key), NULL, 10);
    if (f != NULL)
        (void)fclose(f);
    return kb << 10;
}

/* Resets VmHWM, the peak of resident memory. */
static bool reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    const bool ok = f != NULL && fputs("5", f) >= 0;

    return f != NULL && fclose(f) == 0 && ok;
}

static double cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void measure_here(reader_fn read, const struct bytes *b,
                         struct tries tries, struct measured *ret)
{
    const struct bytes cut = {.at = (unsigned char *)"\x80", .n = 1};

    /* Without this, malloc behaves differently after a large block was freed.
     */
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    /* Loads the reader's code into memory before measuring. */
    (void)read(b->n < SMALL ? b : &cut, NULL);
    ret->ms = 1e9;
    ret->grown = SIZE_MAX;
    for (unsigned i = 0;
         i < tries.most && (ret->ms > tries.ms || ret->grown > tries.grown);
         i++) {
        struct pst_diag diag;
        const bool counts = malloc_trim(0) >= 0 && reset_peak();
        const size_t before = status_bytes("VmRSS:");
        const double begin = cpu_ms();

        pst_diag_init(&diag);
        ret->status = read(b, &diag);
        ret->ms = PST_MIN(ret->ms, cpu_ms() - begin);
        if (counts && before > 0)
            ret->grown = PST_MIN(ret->grown, status_bytes("VmHWM:") - before);
        (void)snprintf(ret->text, sizeof(ret->text), "%s", diag.text);
    }
}

struct measured measure(reader_fn read, const struct bytes *b,
                        struct tries tries)
{
    struct measured *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct measured ret;
    int how = 0;
    pid_t child;

    assert_true(shared != MAP_FAILED);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        measure_here(read, b, tries, shared);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    ret = *shared;
    (void)munmap(shared, sizeof(*shared));
    if (how != 0)
        fail_msg("the reader died: %x", (unsigned)how);
    if (ret.grown == SIZE_MAX) {
        print_message("NOT MEASURED: memory, for lack of clear_refs\n");
        ret.grown = 0;
    }
    return ret;
}
