// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/blocks.h"

#include <atomic>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* In a page after the block. */
struct block_state {
    std::atomic<uint64_t> number; /* 0: the block was freed */
    std::atomic<int> readers;     /* processes that have it open */
};

namespace
{

struct contents {
    uint64_t number, size;
    int process, file, device;
};

static_assert(sizeof(contents) <= sizeof(block_handle), "too large");

std::atomic<uint64_t> made;

/* Maps the file: the block, and its state. */
void *map(int file, size_t size, int how, block_state **ret_state)
{
    void *at = mmap(NULL, size, how, MAP_SHARED, file, 0);
    void *state =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)size);

    if (at != MAP_FAILED && state != MAP_FAILED) {
        *ret_state = (block_state *)state;
        return at;
    }
    if (at != MAP_FAILED)
        munmap(at, size);
    if (state != MAP_FAILED)
        munmap(state, PAGE);
    return NULL;
}

} // namespace

void *block_make(size_t size, int device, int how, block *ret)
{
    const int file = memfd_create("penstock-test-cuda", MFD_CLOEXEC);
    void *at = NULL;

    if (file >= 0 && ftruncate(file, (off_t)(size + PAGE)) == 0)
        at = map(file, size, how, &ret->state);
    if (at == NULL) {
        if (file >= 0)
            close(file);
        return NULL;
    }
    ret->size = size;
    ret->device = device;
    ret->file = file;
    ret->state->number = ((uint64_t)getpid() << 32) + ++made;
    return at;
}

bool block_end(void *at, const block *b)
{
    bool ret = true;

    if (b->file < 0) {
        b->state->readers--;
    } else {
        b->state->number = 0;
        ret = b->state->readers == 0;
        close(b->file);
    }
    munmap(at, b->size);
    munmap(b->state, PAGE);
    return ret;
}

void block_give(const block *b, block_handle *ret)
{
    const contents c = {b->state->number, b->size, (int)getpid(), b->file,
                        b->device};

    memset(ret, 0, sizeof(*ret));
    memcpy(ret, &c, sizeof(c));
}

void *block_open(const block_handle *from, int how, block *ret)
{
    char path[64];
    contents c;
    void *at;
    int file;

    memcpy(&c, from, sizeof(c));
    if (c.process == getpid() || c.number == 0)
        return NULL;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", c.process, c.file);
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    at = map(file, c.size, how, &ret->state);
    close(file);
    if (at == NULL)
        return NULL;
    ret->size = c.size;
    ret->device = c.device;
    ret->file = -1;
    ret->state->readers++;
    if (ret->state->number == c.number)
        return at;
    block_end(at, ret);
    return NULL;
}
