// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_INDEX_H
#define PENSTOCK_STAGES_FILES_DATA_INDEX_H
/*
 * The index NAME.idx that Megatron-LM writes beside a file of tokens NAME.bin.
 * All numbers are little-endian: 9 bytes "MMIDIDX\0\0", version (u64, 1), code
 * of the dtype (u8), number of sequences (u64) and of documents (u64), the
 * length of each sequence in tokens (i32), its offset in bytes (i64), ... The
 * sum of the lengths shows whether the file of tokens is truncated. Any thread.
 */
#include "stages/base/host/fs.h"

/* Reads the index beside a file of tokens. Sets the width of a token in bytes;
 * 0 if there is no index. PST_ERR_INPUT: the index is damaged or of another
 * program, its tokens are not 1, 2 or 4 bytes wide, or the file has another
 * size. */
enum pst_status pst_tokens_index(const struct pst_file *tokens,
                                 unsigned *ret_width,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
