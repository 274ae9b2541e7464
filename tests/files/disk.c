// SPDX-License-Identifier: Apache-2.0
#include "tests/files/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/files/repack.h"
#include "tests/test.h"

#define MAX_NODES   4096
#define MAX_OPS     4096
#define MAX_ENTRIES 1024
#define MAX_FDS     1024
#define SECTOR      512
#define NONE        (-1)

enum kind { LINK, UNLINK, RENAME, WRITE, GROW, FSYNC };

struct op {
    enum kind kind;
    int node;                 /* file that is written, synced or named */
    int folder;               /* folder whose entries change */
    int to;                   /* RENAME: folder of the new name */
    char name[64], other[64]; /* RENAME: from name to other */
    size_t offset, size;
    unsigned char *data;
};

/* A file or folder; its contents when recording began. */
struct node {
    bool is_folder;
    unsigned char *data;
    size_t size;
};

struct entry {
    int folder, node;
    char name[64];
};

/* Folder entries, in no order. */
struct names {
    struct entry at[MAX_ENTRIES];
    size_t n;
};

static struct node nodes[MAX_NODES];
static int n_nodes;
static struct op ops[MAX_OPS];
static char op_names[MAX_OPS][160]; /* descriptions for messages */
static size_t n_ops;
/* Folder entries at the beginning, and as the program sees them now. */
static struct names first, now;
static int open_nodes[MAX_FDS]; /* node + 1 of each descriptor; 0: none */
static char root[PATH_MAX];
static bool noting;

/* --- names --------------------------------------------------------------- */

static struct entry *find_name(struct names *names, int folder,
                               const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (names->at[i].folder == folder &&
            strcmp(names->at[i].name, name) == 0)
            return &names->at[i];
    return NULL;
}

static void drop_name(struct names *names, int folder, const char *name)
{
    struct entry *e = find_name(names, folder, name);

    if (e != NULL)
        *e = names->at[--names->n];
}

static void put_name(struct names *names, int folder, const char *name,
                     int node)
{
    struct entry *e;

    drop_name(names, folder, name);
    assert_true(names->n < MAX_ENTRIES && strlen(name) < sizeof(e->name));
    e = &names->at[names->n++];
    e->folder = folder;
    e->node = node;
    (void)strcpy(e->name, name);
}

static void apply(struct names *names, const struct op *op)
{
    const struct entry *e;

    switch (op->kind) {
    case LINK:
        put_name(names, op->folder, op->name, op->node);
        break;
    case UNLINK:
        drop_name(names, op->folder, op->name);
        break;
    case RENAME:
        e = find_name(names, op->folder, op->name);
        if (e != NULL) {
            const int node = e->node;

            drop_name(names, op->folder, op->name);
            put_name(names, op->to, op->other, node);
        }
        break;
    default:
        break;
    }
}

static int new_node(bool is_folder)
{
    assert_true(n_nodes < MAX_NODES);
    nodes[n_nodes] = (struct node){.is_folder = is_folder};
    return n_nodes++;
}

/* --- what the program does ----------------------------------------------- */

/* Resolves a path below root to its folder and name; false: it is elsewhere.
 * *ret_node: the node with that name, or NONE; for root itself node 0 and no
 * name. */
static bool resolve_path(int at, const char *path, int *ret_folder,
                         char *ret_name, int *ret_node)
{
    char full[2 * PATH_MAX], link[64], *part, *rest = NULL;
    int node = 0, folder = NONE;
    int above[16], depth = 0; /* folders on the way, for ".." */
    ssize_t n;

    if (!noting)
        return false;
    if (path[0] == '/') {
        (void)snprintf(full, sizeof(full), "%s", path);
    } else {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
        n = readlink(at == AT_FDCWD ? "/proc/self/cwd" : link, full, PATH_MAX);
        assert_true(n > 0);
        (void)snprintf(full + n, sizeof(full) - (size_t)n, "/%s", path);
    }
    if (strncmp(full, root, strlen(root)) != 0 ||
        (full[strlen(root)] != '/' && full[strlen(root)] != '\0'))
        return false;
    ret_name[0] = '\0';
    for (part = strtok_r(full + strlen(root), "/", &rest); part != NULL;
         part = strtok_r(NULL, "/", &rest)) {
        const struct entry *e;

        if (strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            if (depth == 0)
                return false;
            node = above[--depth];
            folder = NONE;
            ret_name[0] = '\0';
            continue;
        }
        assert_true(node != NONE && strlen(part) < 64 && depth < 16);
        above[depth++] = folder = node;
        (void)strcpy(ret_name, part);
        e = find_name(&now, folder, part);
        node = e != NULL ? e->node : NONE;
    }
    *ret_folder = folder;
    *ret_node = node;
    return true;
}

static struct op *record_op(enum kind kind, int folder, int node,
                            const char *name)
{
    struct op *op = &ops[n_ops++];

    assert_true(n_ops < MAX_OPS);
    *op =
        (struct op){.kind = kind, .folder = folder, .to = folder, .node = node};
    (void)snprintf(op->name, sizeof(op->name), "%s", name);
    return op;
}

static void describe(const struct op *op, const char *what)
{
    (void)snprintf(op_names[op - ops], sizeof(op_names[0]), "%s %s %s", what,
                   op->name, op->other);
}

static void record_names(enum kind kind, int folder, int node, const char *name,
                         const char *other, const char *what)
{
    struct op *op = record_op(kind, folder, node, name);

    (void)snprintf(op->other, sizeof(op->other), "%s", other);
    describe(op, what);
    apply(&now, op);
}

static size_t fail_at = SIZE_MAX;
static int fail_err;

void disk_fail(size_t at, int err)
{
    fail_at = at;
    fail_err = err;
}

/* Returns true, with errno, if this operation is to fail. */
static bool should_fail(void)
{
    if (!noting || n_ops != fail_at)
        return false;
    fail_at = SIZE_MAX;
    errno = fail_err;
    return true;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_pwrite64(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset);
int __real_posix_fallocate64(int fd, off_t offset, off_t size);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t size);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_unlinkat(int at, const char *path, int flags);
int __wrap_unlinkat(int at, const char *path, int flags);
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);

int __wrap_open64(const char *path, int flags, ...)
{
    char name[64];
    int folder, node, fd;
    mode_t mode = 0;
    va_list args;

    va_start(args, flags);
    if ((flags & O_CREAT) != 0)
        mode = va_arg(args, mode_t);
    va_end(args);
    fd = __real_open64(path, flags, mode);
    if (fd < 0 || !resolve_path(AT_FDCWD, path, &folder, name, &node))
        return fd;
    assert_true(fd < MAX_FDS && (flags & O_TRUNC) == 0);
    if (node == NONE) {
        assert_true((flags & O_CREAT) != 0);
        node = new_node(false);
        record_names(LINK, folder, node, name, "", "create");
    }
    open_nodes[fd] = node + 1;
    return fd;
}

int __wrap_close(int fd)
{
    if (noting && fd >= 0 && fd < MAX_FDS)
        open_nodes[fd] = 0;
    return __real_close(fd);
}

static int node_of(int fd)
{
    return noting && fd >= 0 && fd < MAX_FDS ? open_nodes[fd] - 1 : NONE;
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    const int node = node_of(fd);
    ssize_t n;

    if (node != NONE && should_fail())
        return -1;
    n = __real_pwrite64(fd, data, size, offset);
    if (n > 0 && node != NONE) {
        struct op *op = record_op(WRITE, NONE, node, "");

        op->offset = (size_t)offset;
        op->size = (size_t)n;
        op->data = malloc((size_t)n);
        assert_non_null(op->data);
        memcpy(op->data, data, (size_t)n);
        describe(op, "write");
    }
    return n;
}

int __wrap_posix_fallocate64(int fd, off_t offset, off_t size)
{
    const int ret = __real_posix_fallocate64(fd, offset, size);
    const int node = node_of(fd);

    if (ret == 0 && node != NONE) {
        struct op *op = record_op(GROW, NONE, node, "");

        op->size = (size_t)(offset + size);
        describe(op, "grow");
    }
    return ret;
}

/* Records the sync, and syncs nothing: the real disk does not lose power. */
int __wrap_fsync(int fd)
{
    const int node = node_of(fd);

    if (node != NONE && should_fail())
        return -1;
    if (node != NONE)
        describe(record_op(FSYNC, NONE, node, ""), "fsync");
    return 0;
}

static void record_rename(int folder, int node, const char *name, int to,
                          const char *other)
{
    struct op *op = record_op(RENAME, folder, node, name);

    op->to = to;
    (void)snprintf(op->other, sizeof(op->other), "%s", other);
    describe(op, "rename");
    apply(&now, op);
}

int __wrap_rename(const char *from, const char *to)
{
    char a[64], b[64];
    int folder, other, node, target;
    const bool is_ours = resolve_path(AT_FDCWD, from, &folder, a, &node);
    int ret;

    if (is_ours && should_fail())
        return -1;
    ret = __real_rename(from, to);
    if (ret != 0 || !is_ours)
        return ret;
    assert_true(resolve_path(AT_FDCWD, to, &other, b, &target));
    record_rename(folder, node, a, other, b);
    return ret;
}

static int record_removal(int at, const char *path, int ret)
{
    const int err = errno;
    char name[64];
    int folder, node;

    if (ret == 0 && resolve_path(at, path, &folder, name, &node))
        record_names(UNLINK, folder, node, name, "", "remove");
    errno = err;
    return ret;
}

int __wrap_unlink(const char *path)
{
    return record_removal(AT_FDCWD, path, __real_unlink(path));
}

int __wrap_unlinkat(int at, const char *path, int flags)
{
    return record_removal(at, path, __real_unlinkat(at, path, flags));
}

int __wrap_rmdir(const char *path)
{
    return record_removal(AT_FDCWD, path, __real_rmdir(path));
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    const int ret = __real_mkdir(path, mode), err = errno;
    char name[64];
    int folder, node;

    if (ret == 0 && resolve_path(AT_FDCWD, path, &folder, name, &node))
        record_names(LINK, folder, new_node(true), name, "", "mkdir");
    errno = err;
    return ret;
}

/* --- begin and end ------------------------------------------------------- */

static void read_folder(const char *path, int folder)
{
    DIR *dir = opendir(path);
    const struct dirent *e;

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL) {
        char full[2 * PATH_MAX];
        struct stat st;
        int node;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        (void)snprintf(full, sizeof(full), "%s/%s", path, e->d_name);
        assert_int_equal(lstat(full, &st), 0);
        node = new_node(S_ISDIR(st.st_mode));
        put_name(&first, folder, e->d_name, node);
        if (S_ISDIR(st.st_mode))
            read_folder(full, node);
        else
            nodes[node].data = slurp(full, &nodes[node].size);
    }
    (void)closedir(dir);
}

void disk_begin(const char *folder)
{
    assert_non_null(realpath(folder, root));
    disk_free();
    (void)new_node(true);
    read_folder(root, 0);
    now = first;
    noting = true;
}

size_t disk_end(void)
{
    noting = false;
    fail_at = SIZE_MAX;
    return n_ops;
}

size_t disk_count(void)
{
    return n_ops;
}

const char *disk_name(size_t i)
{
    return i < n_ops ? op_names[i] : "the end";
}

void disk_free(void)
{
    for (int i = 0; i < n_nodes; i++)
        free(nodes[i].data);
    for (size_t i = 0; i < n_ops; i++)
        free(ops[i].data);
    n_nodes = 0;
    n_ops = 0;
    first.n = now.n = 0;
    memset(open_nodes, 0, sizeof(open_nodes));
}

/* --- what is left -------------------------------------------------------- */

static uint64_t chance;
static bool keeps_all; /* no power loss: everything is kept */

static unsigned pick(unsigned n)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (unsigned)((chance >> 20) % n);
}

/* True if an fsync before `at` made operation i durable. */
static bool is_sure(size_t i, size_t at)
{
    const struct op *op = &ops[i];
    const int what = op->folder != NONE ? op->folder : op->node;

    if (keeps_all)
        return true;
    for (size_t k = i + 1; k < at; k++)
        if (ops[k].kind == FSYNC &&
            (ops[k].node == what || ops[k].node == op->to))
            return true;
    return false;
}

static void write_piece(struct node *file, const struct op *op, size_t from,
                        size_t size)
{
    const size_t end = op->offset + from + size;

    if (end > file->size) {
        file->data = realloc(file->data, end + 1);
        assert_non_null(file->data);
        memset(file->data + file->size, 0, end - file->size);
        file->size = end;
    }
    if (op->data != NULL)
        memcpy(file->data + op->offset + from, op->data + from, size);
}

static void write_some(struct node *file, const struct op *op, bool sure)
{
    const unsigned how = sure ? 0 : pick(3);

    if (how == 0)
        write_piece(file, op, 0, op->size);
    for (size_t at = 0; how == 1 && at < op->size; at += SECTOR)
        if (pick(2))
            write_piece(file, op, at,
                        op->size - at < SECTOR ? op->size - at : SECTOR);
}

static void make_file(const char *path, int node, size_t at)
{
    struct node file = {.size = nodes[node].size};

    file.data = malloc(file.size + 1);
    assert_non_null(file.data);
    if (file.size > 0)
        memcpy(file.data, nodes[node].data, file.size);
    for (size_t i = 0; i < at; i++)
        if (ops[i].node == node &&
            (ops[i].kind == WRITE || ops[i].kind == GROW))
            write_some(&file, &ops[i], is_sure(i, at));
    spill(path, file.data, file.size);
    free(file.data);
}

static void make_folder(const char *path, int folder, struct names *names,
                        size_t at)
{
    assert_int_equal(__real_mkdir(path, 0700), 0);
    for (size_t i = 0; i < names->n; i++) {
        const struct entry *e = &names->at[i];
        char full[2 * PATH_MAX];

        if (e->folder != folder)
            continue;
        (void)snprintf(full, sizeof(full), "%s/%s", path, e->name);
        if (nodes[e->node].is_folder)
            make_folder(full, e->node, names, at);
        else
            make_file(full, e->node, at);
    }
}

static void make_disk(size_t at, const char *to)
{
    static bool ended[MAX_NODES]; /* later operations in this folder are lost */
    static struct names names;

    assert_true(!noting && at <= n_ops);
    names = first;
    memset(ended, 0, sizeof(ended));
    for (size_t i = 0; i < at; i++) {
        const int folder = ops[i].folder;

        if (folder == NONE || ended[folder] || ended[ops[i].to])
            continue;
        if (is_sure(i, at) || pick(4) != 0)
            apply(&names, &ops[i]);
        else
            ended[folder] = ended[ops[i].to] = true;
    }
    make_folder(to, 0, &names, at);
}

void disk_crash(size_t at, uint64_t seed, const char *to)
{
    chance = (seed + 1) * 0x9e3779b97f4a7c15u + at;
    keeps_all = false;
    make_disk(at, to);
}

void disk_kill(size_t at, const char *to)
{
    keeps_all = true;
    make_disk(at, to);
}
