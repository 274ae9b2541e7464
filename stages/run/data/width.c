// SPDX-License-Identifier: Apache-2.0
#include "stages/run/data/width.h"

#include "stages/base/host/fs.h"
#include "stages/base/macros.h"

#include <math.h>

#define PIECE  4096u
#define PIECES 64u
/* Minimum number of bytes at even and at odd offsets: with fewer, they are not
 * taken for 16-bit integers. */
#define FEW 64u

void pst_bytes_count(struct pst_byte_counts *counts, const unsigned char *bytes,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        counts->n[i % 2][bytes[i]]++;
}

/*
 * Compares the distributions of bytes at even and at odd offsets. Their
 * distance is half the sum of all absolute differences. For n draws each from
 * one distribution over k values it is at most about sqrt(k / (pi n)) by
 * chance.
 */
bool pst_bytes_are_halves(const struct pst_byte_counts *c)
{
    unsigned values[2] = {0, 0};
    double n[2] = {0, 0}, distance = 0, chance;

    for (unsigned place = 0; place < 2; place++)
        for (unsigned k = 0; k < 256; k++) {
            n[place] += (double)c->n[place][k];
            values[place] += c->n[place][k] > 0;
        }
    if (n[0] < FEW || n[1] < FEW)
        return false;
    for (unsigned k = 0; k < 256; k++)
        distance += fabs((double)c->n[0][k] / n[0] - (double)c->n[1][k] / n[1]);
    distance /= 2;
    chance = sqrt(values[0] / (3.14159 * n[1]));
    return distance > 0.08 + 1.1 * chance && 10 * values[1] < 9 * values[0];
}

enum pst_status pst_file_has_halves(const char *path, bool *ret,
                                    struct pst_diag *diag)
{
    struct pst_byte_counts counts = {0};
    unsigned char piece[PIECE];
    struct pst_file file;
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status != PST_OK)
        return status;
    for (uint64_t i = 0; i < PIECES && status == PST_OK; i++) {
        /* The parts that are read begin at even offsets; in a small file they
         * are adjacent. */
        const uint64_t at =
            PST_MAX(file.size / PIECES & ~(uint64_t)1, PIECE) * i;
        const uint64_t n = at < file.size ? PST_MIN(file.size - at, PIECE) : 0;

        if (n == 0)
            break;
        status = pst_file_read_at(&file, at, piece, (size_t)n, diag);
        if (status == PST_OK)
            pst_bytes_count(&counts, piece, (size_t)n);
    }
    pst_file_close(&file);
    if (status == PST_OK)
        *ret = pst_bytes_are_halves(&counts);
    return status;
}
