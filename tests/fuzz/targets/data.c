// SPDX-License-Identifier: Apache-2.0
/* Fuzz target for training data without names: files of tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "stages/files/data.h"
#include "tests/fuzz/targets/target.h"

#define ROWS   2
#define WINDOW 3
#define HEAD   3u /* bytes of the input before those of the two files */

static const char *const dtypes[] = {NULL, "uint8", "uint16", "uint32"};

/* Writes NAME.bin and, if there are bytes for it, its index NAME.idx. */
static void put_files(const uint8_t *data, size_t size)
{
    const size_t rest = size - HEAD;
    const size_t want = data[1] | (size_t)data[2] << 8;
    const size_t n = want < rest ? want : rest;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/tokens.idx", fuzz_folder());
    if (n > 0)
        fuzz_put("tokens.idx", data + HEAD, n);
    else
        (void)unlink(path);
    fuzz_put("tokens.bin", data + HEAD + n, rest - n);
}

/* Reads two steps of two microbatches. Where a window is one document, each
 * target is the next token. */
static void read_steps(struct pst_data *d, bool packed)
{
    int64_t x[ROWS * WINDOW], y[ROWS * WINDOW];
    struct pst_data_place place;
    struct pst_str text = {0};
    struct pst_diag diag;

    pst_diag_init(&diag);
    for (unsigned k = 0; k < 4; k++) {
        const uint64_t step = k / 2;

        if (pst_data_fill(d, step, k % 2, 0, x, &diag) != PST_OK ||
            pst_data_fill(d, step, k % 2, 1, y, &diag) != PST_OK)
            fuzz_check(false, diag.text);
        for (unsigned i = 0; i + 1 < ROWS * WINDOW && !packed; i++)
            fuzz_check(i % WINDOW == WINDOW - 1 || y[i] == x[i + 1],
                       "a target is not the next token");
        pst_data_rows(d, step, k % 2, &text);
        fuzz_check(pst_data_place(d, step, &place) && place.tokens,
                   "a step has no position");
    }
    pst_str_fini(&text);
}

/* The first byte has options, the next two the size of the index; then follow
 * the index and the tokens. */
bool fuzz_tokens(const uint8_t *data, size_t size)
{
    static const int64_t sizes[] = {ROWS, WINDOW};
    struct pst_data_input inputs[2] = {{.name = "x"}, {.name = "y"}};
    struct pst_data_options options = {0};
    char path[128];
    struct pst_data *d;
    struct pst_diag diag;
    enum pst_status status;

    if (size < HEAD)
        return false;
    pst_diag_init(&diag);
    put_files(data, size);
    (void)snprintf(path, sizeof(path), "%s/tokens.bin", fuzz_folder());
    options.path = path;
    options.token_dtype = dtypes[data[0] & 3];
    options.pack = (data[0] & 4) != 0 ? "0" : NULL;
    options.shuffle = (data[0] & 8) != 0;
    options.compare = (data[0] & 16) != 0;
    for (unsigned i = 0; i < 2; i++) {
        inputs[i].meta = pst_meta_make(PST_I64, 2, sizes);
        inputs[i].bound.below = 1000;
        inputs[i].bound.ignores = true;
        inputs[i].bound.ignored = -100;
    }
    status = pst_data_open(&options, inputs, 2, (struct pst_data_step){2, 0},
                           &d, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    read_steps(d, options.pack != NULL);
    pst_data_close(d);
    return true;
}
