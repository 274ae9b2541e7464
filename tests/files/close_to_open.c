// SPDX-License-Identifier: Apache-2.0
/*
 * LD_PRELOAD: files below the folders of PST_CLOSE_TO_OPEN ("DIR:DIR") behave
 * as on NFS, and each process as a host of its own.
 *
 * - Other processes see what a process writes when it syncs or closes the file.
 * - A process reads from its cache what it has read before, until it opens the
 *   file again.
 * - A process caches a file in pages and writes whole pages back. That restores
 *   bytes of other processes in the page as they were when it first touched the
 *   page.
 *
 * Not supported for such files, because the code under test does not use them:
 * mmap, dup, streams of the C library, pipes.
 */
/* The 32- and 64-bit names must be separate functions here. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE    4096
#define MAX_FDS 4096

struct page {
    bool dirty;
    char data[PAGE];
};

/* The cached state of a file in this process. */
struct node {
    dev_t dev;
    ino_t ino;
    unsigned opened;
    off_t size;
    struct page **pages;
    size_t n_pages;
    struct node *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *nodes;
static struct node *of_fd[MAX_FDS];

static void *real(const char *name)
{
    void *fn = dlsym(RTLD_NEXT, name);

    if (fn == NULL)
        abort();
    return fn;
}

#define REAL(ret, name, ...)                                                   \
    static ret (*fn)(__VA_ARGS__);                                             \
    if (fn == NULL)                                                            \
    *(void **)&fn = real(name)

static ssize_t real_pread(int fd, void *to, size_t n, off_t at)
{
    REAL(ssize_t, "pread64", int, void *, size_t, off_t);
    return fn(fd, to, n, at);
}

static ssize_t real_pwrite(int fd, const void *from, size_t n, off_t at)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    return fn(fd, from, n, at);
}

static int real_close(int fd)
{
    REAL(int, "close", int);
    return fn(fd);
}

static int real_fsync(int fd)
{
    REAL(int, "fsync", int);
    return fn(fd);
}

static int real_fstat(int fd, struct stat *st)
{
    REAL(int, "fstat64", int, struct stat *);
    return fn(fd, st);
}

/* --- a file in memory ----------------------------------------------------- */

static void drop_pages(struct node *n, bool dirty_too)
{
    for (size_t i = 0; i < n->n_pages; i++) {
        if (n->pages[i] == NULL || (n->pages[i]->dirty && !dirty_too))
            continue;
        free(n->pages[i]);
        n->pages[i] = NULL;
    }
}

static struct node *find_node(const struct stat *st)
{
    struct node *n = nodes;

    while (n != NULL && (n->dev != st->st_dev || n->ino != st->st_ino))
        n = n->next;
    if (n != NULL)
        return n;
    n = calloc(1, sizeof(*n));
    if (n == NULL)
        abort();
    n->dev = st->st_dev;
    n->ino = st->st_ino;
    n->next = nodes;
    nodes = n;
    return n;
}

static void free_node(struct node *n)
{
    struct node **at = &nodes;

    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    drop_pages(n, true);
    free(n->pages);
    free(n);
}

/* Returns a descriptor that can read the file of fd, perhaps fd itself; -1 with
 * errno. */
static int readable_fd(int fd)
{
    REAL(int, "open64", const char *, int, ...);
    char path[64];

    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY)
        return fd;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return fn(path, O_RDONLY | O_CLOEXEC);
}

/* Returns a page with the server's present contents; NULL, with errno, if it
 * cannot be read. */
static struct page *read_page(int fd, off_t begin)
{
    struct page *page = calloc(1, sizeof(*page));
    const int from = readable_fd(fd);
    int err = 0;

    if (page == NULL)
        abort();
    if (from < 0 || real_pread(from, page->data, PAGE, begin) < 0)
        err = errno;
    if (from >= 0 && from != fd)
        (void)real_close(from);
    if (err == 0)
        return page;
    free(page);
    errno = err;
    return NULL;
}

/* Returns a page of the cache; the first call reads it from the server. NULL,
 * with errno, if it cannot be read. */
static struct page *cached_page(struct node *n, int fd, size_t index)
{
    if (index >= n->n_pages) {
        const size_t more = index + 64;

        n->pages = realloc(n->pages, more * sizeof(*n->pages));
        if (n->pages == NULL)
            abort();
        memset(n->pages + n->n_pages, 0,
               (more - n->n_pages) * sizeof(*n->pages));
        n->n_pages = more;
    }
    if (n->pages[index] == NULL)
        n->pages[index] = read_page(fd, (off_t)index * PAGE);
    return n->pages[index];
}

/* Returns 0, or -1 with errno; data that cannot be written is lost, as on NFS.
 */
static int flush(struct node *n, int fd)
{
    int err = 0;

    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return 0;
    for (size_t i = 0; i < n->n_pages; i++) {
        const off_t at = (off_t)i * PAGE;
        const off_t end = at + PAGE < n->size ? at + PAGE : n->size;
        off_t done = at;

        if (n->pages[i] == NULL || !n->pages[i]->dirty)
            continue;
        n->pages[i]->dirty = false;
        while (err == 0 && done < end) {
            const ssize_t k = real_pwrite(fd, n->pages[i]->data + (done - at),
                                          (size_t)(end - done), done);

            if (k > 0)
                done += k;
            else if (k == 0 || errno != EINTR)
                err = k == 0 ? ENOSPC : errno;
        }
    }
    errno = err;
    return err == 0 ? 0 : -1;
}

/* --- which files are simulated -------------------------------------------- */

static bool is_below(const char *path)
{
    const char *at = getenv("PST_CLOSE_TO_OPEN");

    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, ":");

        if (n > 0 && strncmp(path, at, n) == 0 &&
            (path[n] == '/' || path[n] == '\0'))
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* Records that fd was opened, and returns it. A file that cannot be examined is
 * closed again; -1 with errno. */
static int record_open(int fd, int flags)
{
    char link[64], path[PATH_MAX];
    const int err = errno;
    struct node *n;
    struct stat st;
    ssize_t len;

    if (fd < 0 || fd >= MAX_FDS)
        return fd;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    len = readlink(link, path, sizeof(path) - 1);
    if (real_fstat(fd, &st) != 0) {
        const int why = errno;

        (void)real_close(fd);
        errno = why;
        return -1;
    }
    if (len > 0 && (flags & O_PATH) == 0 && S_ISREG(st.st_mode)) {
        path[len] = '\0';
        if (is_below(path)) {
            (void)pthread_mutex_lock(&lock);
            n = find_node(&st);
            drop_pages(n, (flags & O_TRUNC) != 0);
            if (n->opened == 0 || n->size < st.st_size || (flags & O_TRUNC))
                n->size = st.st_size;
            n->opened++;
            of_fd[fd] = n;
            (void)pthread_mutex_unlock(&lock);
        }
    }
    errno = err;
    return fd;
}

static struct node *node_of(int fd)
{
    return fd >= 0 && fd < MAX_FDS ? of_fd[fd] : NULL;
}

/* --- calls of the library ------------------------------------------------- */

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...)                                 \
    {                                                                          \
        va_list args;                                                          \
        mode_t mode;                                                           \
        REAL(int, #name, const char *, int, ...);                              \
        va_start(args, flags);                                                 \
        mode = va_arg(args, mode_t);                                           \
        va_end(args);                                                          \
        return record_open(fn(path, flags, mode), flags);                      \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                           \
    int name(int dir, const char *path, int flags, ...)                        \
    {                                                                          \
        va_list args;                                                          \
        mode_t mode;                                                           \
        REAL(int, #name, int, const char *, int, ...);                         \
        va_start(args, flags);                                                 \
        mode = va_arg(args, mode_t);                                           \
        va_end(args);                                                          \
        return record_open(fn(dir, path, flags, mode), flags);                 \
    }
OPENAT(openat)
OPENAT(openat64)

/* Builds with fortified sources call these. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open(path, flags, 0);
}
int __open64_2(const char *path, int flags)
{
    return open64(path, flags, 0);
}
int __openat_2(int dir, const char *path, int flags)
{
    return openat(dir, path, flags, 0);
}
int __openat64_2(int dir, const char *path, int flags)
{
    return openat64(dir, path, flags, 0);
}

int close(int fd)
{
    struct node *n;
    int err = 0;

    (void)pthread_mutex_lock(&lock);
    n = node_of(fd);
    if (n != NULL) {
        of_fd[fd] = NULL;
        if (flush(n, fd) != 0)
            err = errno;
        if (--n->opened == 0)
            free_node(n);
    }
    (void)pthread_mutex_unlock(&lock);
    if (real_close(fd) != 0)
        return -1;
    errno = err;
    return err == 0 ? 0 : -1;
}

static int sync_it(int fd)
{
    struct node *n;
    int ret = 0;

    (void)pthread_mutex_lock(&lock);
    n = node_of(fd);
    if (n != NULL)
        ret = flush(n, fd);
    (void)pthread_mutex_unlock(&lock);
    return ret == 0 ? real_fsync(fd) : ret;
}

int fsync(int fd)
{
    return sync_it(fd);
}

int fdatasync(int fd)
{
    return sync_it(fd);
}

static ssize_t read_at(int fd, void *to, size_t bytes, off_t at)
{
    struct node *n;
    size_t done = 0;
    bool failed = false;

    (void)pthread_mutex_lock(&lock);
    n = node_of(fd);
    while (n != NULL && done < bytes && at < n->size) {
        const size_t in = (size_t)(at % PAGE);
        size_t k = PAGE - in < bytes - done ? PAGE - in : bytes - done;
        const struct page *page = cached_page(n, fd, (size_t)(at / PAGE));

        failed = page == NULL;
        if (failed)
            break;
        if ((off_t)k > n->size - at)
            k = (size_t)(n->size - at);
        memcpy((char *)to + done, page->data + in, k);
        done += k;
        at += (off_t)k;
    }
    (void)pthread_mutex_unlock(&lock);
    if (n == NULL)
        return real_pread(fd, to, bytes, at);
    return failed && done == 0 ? -1 : (ssize_t)done;
}

static ssize_t write_at(int fd, const void *from, size_t bytes, off_t at)
{
    struct node *n;
    size_t done = 0;
    bool failed = false;

    (void)pthread_mutex_lock(&lock);
    n = node_of(fd);
    while (n != NULL && done < bytes) {
        const size_t in = (size_t)(at % PAGE);
        const size_t k = PAGE - in < bytes - done ? PAGE - in : bytes - done;
        struct page *page = cached_page(n, fd, (size_t)(at / PAGE));

        failed = page == NULL;
        if (failed)
            break;
        memcpy(page->data + in, (const char *)from + done, k);
        page->dirty = true;
        done += k;
        at += (off_t)k;
        if (n->size < at)
            n->size = at;
    }
    (void)pthread_mutex_unlock(&lock);
    if (n == NULL)
        return real_pwrite(fd, from, bytes, at);
    return failed && done == 0 ? -1 : (ssize_t)done;
}

#define READ_AT(name)                                                          \
    ssize_t name(int fd, void *to, size_t bytes, off_t at)                     \
    {                                                                          \
        return read_at(fd, to, bytes, at);                                     \
    }
READ_AT(pread)
READ_AT(pread64)

#define READ_AT_CHECKED(name)                                                  \
    ssize_t name(int fd, void *to, size_t bytes, off_t at, size_t size);       \
    ssize_t name(int fd, void *to, size_t bytes, off_t at, size_t size)        \
    {                                                                          \
        if (bytes > size)                                                      \
            abort();                                                           \
        return read_at(fd, to, bytes, at);                                     \
    }
READ_AT_CHECKED(__pread_chk)
READ_AT_CHECKED(__pread64_chk)

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    return write_at(fd, from, bytes, at);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off_t at)
{
    return write_at(fd, from, bytes, at);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    REAL(ssize_t, "read", int, void *, size_t);
    off_t at;
    ssize_t n;

    if (node_of(fd) == NULL)
        return fn(fd, to, bytes);
    at = lseek(fd, 0, SEEK_CUR);
    n = read_at(fd, to, bytes, at);
    if (n > 0)
        (void)lseek(fd, at + n, SEEK_SET);
    return n;
}

ssize_t __read_chk(int fd, void *to, size_t bytes, size_t size);
ssize_t __read_chk(int fd, void *to, size_t bytes, size_t size)
{
    if (bytes > size)
        abort();
    return read(fd, to, bytes);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    struct node *file = node_of(fd);
    off_t at;
    ssize_t n;

    if (file == NULL)
        return fn(fd, from, bytes);
    at = (fcntl(fd, F_GETFL) & O_APPEND) ? file->size : lseek(fd, 0, SEEK_CUR);
    n = write_at(fd, from, bytes, at);
    if (n > 0)
        (void)lseek(fd, at + n, SEEK_SET);
    return n;
}

static int stat_of(int fd, struct stat *st)
{
    struct node *n;
    const int ret = real_fstat(fd, st);

    (void)pthread_mutex_lock(&lock);
    n = node_of(fd);
    if (ret == 0 && n != NULL)
        st->st_size = n->size;
    (void)pthread_mutex_unlock(&lock);
    return ret;
}

int fstat(int fd, struct stat *st)
{
    return stat_of(fd, st);
}

int fstat64(int fd, struct stat64 *st)
{
    return stat_of(fd, (struct stat *)st);
}
