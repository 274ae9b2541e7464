// SPDX-License-Identifier: Apache-2.0
/*
 * Writes logs of 8 ranks, for tests of a reader that was written from
 * docs/log.md alone:
 *
 *   write-logs DIR LINES SEED
 *
 * LINES lines in all, with every event and texts of arbitrary characters. Each
 * line has a field `crc`, the CRC-32 of its concatenated texts, and a field
 * `cut` if it is too long for all of them.
 */
#include "daemon/common/logfile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS    8
#define MAX_TEXT 200

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t crc(uint32_t sum, const char *text)
{
    sum = ~sum;
    for (; *text != '\0'; text++) {
        sum ^= (unsigned char)*text;
        for (int i = 0; i < 8; i++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
    return ~sum;
}

/* Appends any Unicode character except NUL and surrogates, as UTF-8. */
static void add_any(struct pst_str *out, uint64_t number)
{
    uint32_t c = number % 4 == 0 ? (uint32_t)(number >> 8) % 0x10ffff
                                 : (uint32_t)(number >> 8) % 0x80;
    char text[5] = "";

    if (c == 0 || (c >= 0xd800 && c < 0xe000))
        c = ' ';
    if (c < 0x80)
        text[0] = (char)c;
    else if (c < 0x800)
        (void)snprintf(text, sizeof(text), "%c%c", (char)(0xc0 | c >> 6),
                       (char)(0x80 | (c & 0x3f)));
    else if (c < 0x10000)
        (void)snprintf(text, sizeof(text), "%c%c%c", (char)(0xe0 | c >> 12),
                       (char)(0x80 | (c >> 6 & 0x3f)),
                       (char)(0x80 | (c & 0x3f)));
    else
        (void)snprintf(text, sizeof(text), "%c%c%c%c", (char)(0xf0 | c >> 18),
                       (char)(0x80 | (c >> 12 & 0x3f)),
                       (char)(0x80 | (c >> 6 & 0x3f)),
                       (char)(0x80 | (c & 0x3f)));
    pst_str_add(out, text);
}

static void add_fields(struct pstd_note *note, uint64_t *state)
{
    static const char *const keys[] = {"text", "dir", "name", "path"};
    static const double odd[] = {0, -0.0, 1e-320, 1e300, 0.1, -7.25};
    uint32_t sum = 0;

    for (size_t i = 0; i < draw(state) % 4; i++) {
        struct pst_str text = {0};
        size_t n = draw(state) % MAX_TEXT;

        if (draw(state) % 64 == 0)
            n *= 4;
        while (n-- > 0)
            add_any(&text, draw(state));
        pstd_note_text(note, keys[i], pst_str_text(&text));
        sum = crc(sum, pst_str_text(&text));
        pst_str_fini(&text);
    }
    pstd_note_int(note, "crc", sum);
    pstd_note_int(note, "step", (int64_t)draw(state));
    pstd_note_real(note, "loss",
                   draw(state) % 8 == 0 ? (double)NAN : odd[draw(state) % 6]);
    pstd_note_real(note, "lr", (double)draw(state));
}

/* Writes the log of one rank, as its process does. */
static int write_one(const char *dir, unsigned rank, unsigned long lines,
                     uint64_t state)
{
    struct pstd_log_head head = {
        .rank = rank, .stage = rank % 2 ? "0-1,3" : "-", .job = "a \"job\""};
    struct pstd_logfile file;
    struct pst_diag diag;
    char name[32];

    (void)snprintf(name, sizeof(name), "rank-%u", rank);
    if (pstd_logfile_open(&file, dir, name, &diag) != PST_OK) {
        (void)fprintf(stderr, "%s\n", diag.text);
        return 1;
    }
    while (head.seq < lines) {
        struct pst_str line = {0};
        struct pstd_note note;

        head.seq++;
        head.time_us = pstd_now_us();
        pstd_note_init(&note, (enum pstd_event)(draw(&state) % PSTD_N_EVENTS));
        add_fields(&note, &state);
        pstd_log_format(&head, &note, &line);
        pstd_logfile_write(&file, pst_str_text(&line), line.len);
        pst_str_fini(&line);
    }
    pstd_logfile_close(&file);
    return file.lost > 0;
}

int main(int argc, char **argv)
{
    const unsigned long lines = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    int failed = 0, code;

    if (lines == 0)
        return 64;
    for (unsigned r = 0; r < RANKS; r++)
        if (fork() == 0)
            _exit(write_one(argv[1], r, lines / RANKS,
                            strtoul(argv[3], NULL, 10) * 0x9e3779b97f4a7c15u +
                                r + 1));
    while (wait(&code) > 0)
        failed |= code;
    return failed != 0;
}
