// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/elf.h"

#include <elf.h>
#include <inttypes.h>
#include <string.h>

static bool is_elf(const Elf64_Ehdr *head)
{
    return memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 &&
           head->e_ident[EI_CLASS] == ELFCLASS64 &&
           head->e_ident[EI_DATA] == ELFDATA2LSB &&
           head->e_phentsize == sizeof(Elf64_Phdr);
}

/* Raises *end to the end of a part of the file; UINT64_MAX on overflow. */
static void extend(uint64_t *end, uint64_t offset, uint64_t bytes)
{
    uint64_t e;

    if (__builtin_add_overflow(offset, bytes, &e))
        e = UINT64_MAX;
    *end = PST_MAX(*end, e);
}

/* Computes the size that the file needs for its tables and segments. */
static enum pst_status find_end(const struct pst_file *file,
                                const Elf64_Ehdr *head, uint64_t *ret,
                                struct pst_diag *diag)
{
    const uint64_t bytes = (uint64_t)head->e_phnum * sizeof(Elf64_Phdr);
    enum pst_status status = PST_OK;
    uint64_t end = 0;

    /* Includes the table of sections, although dlopen does not read it: linkers
     * write it last, so it is the first part that an interrupted copy lacks. */
    if (head->e_shoff > 0)
        extend(&end, head->e_shoff,
               (uint64_t)head->e_shnum * head->e_shentsize);
    extend(&end, head->e_phoff, bytes);
    for (uint64_t i = 0; i < head->e_phnum && end <= file->size; i++) {
        Elf64_Phdr segment;

        status = pst_file_read_at(file, head->e_phoff + i * sizeof(segment),
                                  &segment, sizeof(segment), diag);
        if (status != PST_OK)
            return status;
        if (segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC)
            extend(&end, segment.p_offset, segment.p_filesz);
    }
    *ret = end;
    return status;
}

enum pst_status pst_plugin_check_elf(const struct pst_file *file,
                                     struct pst_diag *diag)
{
    Elf64_Ehdr head;
    enum pst_status status;
    uint64_t end = 0;

    if (file->size < sizeof(head))
        return PST_OK;
    status = pst_file_read_at(file, 0, &head, sizeof(head), diag);
    if (status != PST_OK || !is_elf(&head))
        return status;
    status = find_end(file, &head, &end, diag);
    if (status != PST_OK || end <= file->size)
        return status;
    return pst_diag_set(diag, PST_E_PLUGIN_FILE,
                        "it is truncated: it has %" PRIu64
                        " bytes, and its ELF header refers to byte %" PRIu64
                        ": copy or link it again",
                        file->size, end - 1);
}
