// SPDX-License-Identifier: Apache-2.0
/*
 * LD_PRELOAD library that simulates slow storage of the file PST_SLOW_FILE. A
 * page arrives WAIT_S after it was first requested: by a read, which waits for
 * it, or by posix_fadvise, which does not. Reads of CHECK bytes or more are not
 * delayed and leave no pages in memory: they are the checks at the start of a
 * job. At its end the process writes to PST_SLOW_COUNT how many pages were
 * first requested by a read.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE    4096
#define N_PAGES 4096
#define CHECK   PAGE
#define WAIT_S  0.01

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double comes[N_PAGES]; /* when the page has come; 0: not asked for */
static unsigned n_cold;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_slow(int fd)
{
    const char *path = getenv("PST_SLOW_FILE");
    struct stat a, b;

    return path != NULL && fstat(fd, &a) == 0 && stat(path, &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Asks for the pages of [begin, end); returns when all of them have come. */
static double ask(off_t begin, off_t end, bool read)
{
    double ret = 0;

    pthread_mutex_lock(&lock);
    for (off_t p = begin / PAGE; p * PAGE < end && p < N_PAGES; p++) {
        if (comes[p] == 0) {
            comes[p] = now_s() + WAIT_S;
            n_cold += read;
        }
        if (comes[p] > ret)
            ret = comes[p];
    }
    pthread_mutex_unlock(&lock);
    return ret;
}

static void await(int fd, size_t bytes, off_t at)
{
    const double left = bytes < CHECK && is_slow(fd)
                            ? ask(at, at + (off_t)bytes, true) - now_s()
                            : 0;

    if (left > 0)
        usleep((useconds_t)(1e6 * left));
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");

    await(fd, bytes, at);
    return real(fd, to, bytes, at);
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t at)
{
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");

    await(fd, bytes, at);
    return real(fd, to, bytes, at);
}

static int advise(int fd, off_t at, off_t bytes, int advice)
{
    if (advice == POSIX_FADV_WILLNEED && is_slow(fd))
        (void)ask(at, at + bytes, false);
    return 0;
}

int posix_fadvise(int fd, off_t at, off_t bytes, int advice)
{
    return advise(fd, at, bytes, advice);
}

int posix_fadvise64(int fd, off64_t at, off64_t bytes, int advice)
{
    return advise(fd, at, bytes, advice);
}

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("PST_SLOW_COUNT");
    FILE *f = path != NULL && n_cold > 0 ? fopen(path, "w") : NULL;

    if (f != NULL) {
        fprintf(f, "%u\n", n_cold);
        fclose(f);
    }
}
