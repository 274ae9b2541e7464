// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/targets/target.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stages/base/host/fs.h"

const struct fuzz_target fuzz_targets[] = {
#define ROW(name, change, most)                                                \
    {#name, fuzz_##name, fuzz_change_##change, most},
    FUZZ_TARGET_LIST(ROW)
#undef ROW
        {NULL, NULL, NULL, 0},
};

const struct fuzz_target *fuzz_find(const char *name)
{
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

void fuzz_check(bool claim, const char *what)
{
    if (claim)
        return;
    (void)fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

bool fuzz_refused(enum pst_status status, const struct pst_diag *diag)
{
    if (status != PST_ERR_INTERNAL && strlen(diag->text) >= 10 &&
        strchr(diag->text, '\n') == NULL)
        return false;
    (void)fprintf(stderr, "fuzz: refused with %s: \"%s\"\n",
                  pst_status_name(status), diag->text);
    abort();
}

static void write_all(int fd, const void *data, size_t size)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t n = write(fd, (const char *)data + done, size - done);

        fuzz_check(n > 0, "cannot write a file in memory");
        done += (size_t)n;
    }
}

const char *fuzz_file(const void *data, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_check(fd >= 0, "memfd_create failed");
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    fuzz_check(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0,
               "cannot empty a file in memory");
    write_all(fd, data, size);
    return path;
}

static char folder[] = "/dev/shm/pst-fuzz-XXXXXX";

static void remove_folder(void)
{
    (void)!chdir("/");
    (void)!pst_remove_tree(folder, NULL);
}

const char *fuzz_folder(void)
{
    static bool made;

    if (!made) {
        fuzz_check(mkdtemp(folder) != NULL && atexit(remove_folder) == 0,
                   "cannot make a folder in /dev/shm");
        made = true;
    }
    return folder;
}

void fuzz_put(const char *name, const void *data, size_t size)
{
    char path[256];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", fuzz_folder(), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(fd >= 0, "cannot write into the folder in /dev/shm");
    write_all(fd, data, size);
    (void)close(fd);
}

void *fuzz_alloc(size_t size)
{
    void *ret = malloc(size > 0 ? size : 1);

    fuzz_check(ret != NULL, "no memory for an input");
    return ret;
}

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *ret = fuzz_alloc(size + 1);

    if (size > 0)
        memcpy(ret, data, size);
    ret[size] = '\0';
    return ret;
}

void fuzz_check_values(enum pst_dtype dtype, const void *data, size_t bytes)
{
    for (size_t i = 0; dtype == PST_BOOL && i < bytes; i++)
        fuzz_check(((const uint8_t *)data)[i] <= 1,
                   "a byte of a bool that is not a value");
}
