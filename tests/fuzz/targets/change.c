// SPDX-License-Identifier: Apache-2.0
/* Changes of texts, options and flight records. */
#include "tests/fuzz/targets/change.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/config.h"
#include "stages/run/watch/flight.h"

size_t fuzz_pick(struct fuzz_chance *c, size_t n)
{
    return n > 0 ? mutator_pick(&c->random, (unsigned)n) : 0;
}

size_t fuzz_replace(uint8_t *data, size_t size, size_t most, size_t from,
                    size_t to, const void *with, size_t n)
{
    if (size - (to - from) + n > most)
        return size;
    memmove(data + from + n, data + to, size - to);
    if (n > 0)
        memcpy(data + from, with, n);
    return size - (to - from) + n;
}

size_t fuzz_change_bytes(struct fuzz_chance *c, uint8_t *data, size_t size,
                         size_t most)
{
    return c->bytes(data, size, most);
}

/* --- texts --------------------------------------------------------------- */

#define MAX_COPY 4096

/* Part of a text: bytes [at, end). */
struct part {
    size_t at, end;
};

static bool is_of_word(uint8_t c)
{
    return isalnum(c) || c == '_' || c == '.';
}

/* Finds the word, or the single character, at this position. */
static struct part word_at(const uint8_t *data, size_t size, size_t at)
{
    struct part ret = {at, PST_MIN(at + 1, size)};

    if (at >= size || !is_of_word(data[at]))
        return ret;
    while (ret.at > 0 && is_of_word(data[ret.at - 1]))
        ret.at--;
    while (ret.end < size && is_of_word(data[ret.end]))
        ret.end++;
    return ret;
}

/* Finds the line at this position, with its newline. */
static struct part line_at(const uint8_t *data, size_t size, size_t at)
{
    struct part ret = {at, at};

    while (ret.at > 0 && data[ret.at - 1] != '\n')
        ret.at--;
    while (ret.end < size && data[ret.end] != '\n')
        ret.end++;
    ret.end += ret.end < size;
    return ret;
}

/* Copies a part of the text over another one, or in front of it. */
static size_t copy_part(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most, struct part from, struct part to)
{
    uint8_t copy[MAX_COPY];
    const size_t n = from.end - from.at;

    if (n > sizeof(copy))
        return size;
    memcpy(copy, data + from.at, n);
    return fuzz_replace(data, size, most, to.at,
                        fuzz_pick(c, 4) > 0 ? to.end : to.at, copy, n);
}

/* Replaces a word by another one of the text that begins alike: a number by a
 * number, a name by a name. */
static size_t change_word(struct fuzz_chance *c, uint8_t *data, size_t size,
                          size_t most, struct part to)
{
    struct part from = to;

    for (unsigned i = 0; i < 16; i++) {
        from = word_at(data, size, fuzz_pick(c, size));
        if (from.at != to.at &&
            !isdigit(data[from.at]) == !isdigit(data[to.at]) &&
            !isalpha(data[from.at]) == !isalpha(data[to.at]))
            break;
    }
    return copy_part(c, data, size, most, from, to);
}

static size_t change_number(struct fuzz_chance *c, uint8_t *data, size_t size,
                            size_t most, struct part to)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "-1",
                                          "2",
                                          "3",
                                          "7",
                                          "64",
                                          "255",
                                          "4096",
                                          "65536",
                                          "2147483647",
                                          "2147483648",
                                          "-2147483648",
                                          "4294967296",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "1e308",
                                          "0.1",
                                          "NaN",
                                          "Infinity"};
    const char *number = numbers[fuzz_pick(c, PST_COUNT(numbers))];

    return fuzz_replace(data, size, most, to.at, to.end, number,
                        strlen(number));
}

size_t fuzz_change_text(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most)
{
    const size_t at = fuzz_pick(c, size);
    const struct part word = word_at(data, size, at);
    const struct part line = line_at(data, size, at);

    if (size == 0)
        return c->bytes(data, size, most);
    switch (fuzz_pick(c, 8)) {
    case 0:
    case 1:
        return change_word(c, data, size, most, word);
    case 2:
        return change_number(c, data, size, most, word);
    case 3:
        return fuzz_replace(data, size, most, word.at, word.end, "", 0);
    case 4: /* moves or repeats a line */
        return copy_part(c, data, size, most,
                         line_at(data, size, fuzz_pick(c, size)), line);
    case 5:
        return fuzz_replace(data, size, most, line.at, line.end, "", 0);
    default:
        return c->bytes(data, size, most);
    }
}

/* --- options ------------------------------------------------------------- */

/* Writes the n-th of the choices "a|b|c"; the last one if there are fewer. */
static void write_choice(const char *choices, size_t n, char *out, size_t size)
{
    for (; n > 0 && strchr(choices, '|') != NULL; n--)
        choices = strchr(choices, '|') + 1;
    (void)snprintf(out, size, "%.*s", (int)strcspn(choices, "|"), choices);
}

/* Writes a value for the option: one of its choices, its default, a limit, or
 * what some option accepts. */
static void write_value(struct fuzz_chance *c, const struct pstd_option *row,
                        char *out, size_t size)
{
    static const char *const values[] = {
        "yes",  "no",    "auto",  "0",      "1",       "-1",    "2x3",
        "0.5",  "1e-3",  "8",     "2:10,4", "1epochs", "a=b",   "a=b;c=d",
        "a:/b", "csv:a", "1.5G",  "512KiB", "1e400",   "4:0,8", "0.5epochs",
        "",     "a;b",   "a:b:c", "0=1,5=2"};
    const size_t kind = fuzz_pick(c, 4);

    if (kind == 0 && row->start != NULL)
        (void)snprintf(out, size, "%s", row->start);
    else if (kind == 1)
        (void)snprintf(out, size, "%.17g",
                       fuzz_pick(c, 2) ? row->min : row->max);
    else if (kind == 2 && row->value != NULL)
        write_choice(row->value, fuzz_pick(c, 8), out, size);
    else
        (void)snprintf(out, size, "%s",
                       values[fuzz_pick(c, PST_COUNT(values))]);
}

size_t fuzz_change_options(struct fuzz_chance *c, uint8_t *data, size_t size,
                           size_t most)
{
    const struct part line = line_at(data, size, fuzz_pick(c, size));
    char value[128] = "", word[256];
    const struct pstd_option *row;
    size_t n;

    if (fuzz_pick(c, 3) == 0)
        return fuzz_change_text(c, data, size, most);
    row = pstd_options(&n);
    row += fuzz_pick(c, n);
    write_value(c, row, value, sizeof(value));
    if (row->letter != 0 && fuzz_pick(c, 2))
        (void)snprintf(word, sizeof(word), "-%c%s\n", row->letter, value);
    else
        (void)snprintf(word, sizeof(word), "--%s%c%s\n", row->name,
                       fuzz_pick(c, 8) > 0 ? '=' : '\n', value);
    return fuzz_replace(data, size, most, line.at,
                        fuzz_pick(c, 2) ? line.end : line.at, word,
                        strlen(word));
}

/* --- flight records ------------------------------------------------------ */

#define HEAD   56 /* bytes before the records (watch/flight.c) */
#define RECORD sizeof(struct pst_flight_record)

static void put32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof(value));
}

/* Writes the head of a flight file of 1 to 64 ranks. */
static void write_head(struct fuzz_chance *c, uint8_t *data)
{
    const uint32_t ranks = 1 + (uint32_t)fuzz_pick(c, 64);

    memset(data, 0, HEAD);
    memcpy(data, "PSTFLT1", 8);
    put32(data + 8, PST_FLIGHT_RECORDS);
    put32(data + 12, RECORD);
    put32(data + 16, (uint32_t)fuzz_pick(c, ranks));
    put32(data + 20, ranks);
}

/* Changes one field of a record to a value that matters for it. */
static void change_record(struct fuzz_chance *c, struct pst_flight_record *r)
{
    static const double times[] = {0,     1,    1e9,   1e9 + 1, 1e9 + 3, -1,
                                   1e308, -1e9, 0.001, 1e18,    2e9};
    static const int32_t numbers[] = {-1, 0,  1,         2,        3,
                                      63, 64, INT32_MAX, INT32_MIN};
    const double time = times[fuzz_pick(c, PST_COUNT(times))];
    const int32_t number = fuzz_pick(c, 2)
                               ? (int32_t)fuzz_pick(c, 8)
                               : numbers[fuzz_pick(c, PST_COUNT(numbers))];

    switch (fuzz_pick(c, 8)) {
    case 0:
        r->begin = time;
        break;
    case 1:
        r->end = fuzz_pick(c, 2) ? 0 : time;
        break;
    case 2:
        r->last_poll = time;
        break;
    case 3:
        r->stage = number;
        break;
    case 4:
        r->microbatch = number;
        break;
    case 5:
        r->kind = (uint8_t)(fuzz_pick(c, 2) ? fuzz_pick(c, 16)
                                            : PST_FLIGHT_END + fuzz_pick(c, 9));
        break;
    case 6:
        r->sends = (uint8_t)fuzz_pick(c, 2);
        break;
    default:
        r->peer = number;
    }
}

/* Changes a record, or copies it over another one; gives it a number that
 * belongs to its position. */
static void change_records(struct fuzz_chance *c, uint8_t *data, size_t n)
{
    const size_t to = fuzz_pick(c, n), from = fuzz_pick(c, n);
    struct pst_flight_record r;

    memcpy(&r, data + HEAD + RECORD * (fuzz_pick(c, 4) ? to : from), RECORD);
    for (size_t k = fuzz_pick(c, 4); k > 0; k--)
        change_record(c, &r);
    r.seq = to + 1;
    if (fuzz_pick(c, 4) == 0)
        r.seq += PST_FLIGHT_RECORDS * (uint64_t)fuzz_pick(c, 4);
    memcpy(data + HEAD + RECORD * to, &r, RECORD);
}

size_t fuzz_change_flight(struct fuzz_chance *c, uint8_t *data, size_t size,
                          size_t most)
{
    size_t n;

    if (fuzz_pick(c, 16) == 0 || most < HEAD + RECORD)
        return c->bytes(data, size, most);
    if (size < HEAD || fuzz_pick(c, 16) == 0)
        write_head(c, data);
    size = PST_MAX(size, (size_t)HEAD);
    n = (size - HEAD) / RECORD;
    if (fuzz_pick(c, 8) == 0 || n == 0) { /* one record more */
        if (size + RECORD > most)
            return size;
        memset(data + size, 0, RECORD);
        size += RECORD;
        n = (size - HEAD) / RECORD;
    }
    if (fuzz_pick(c, 4) > 0)
        change_records(c, data, n);
    else
        (void)c->bytes(data + HEAD + RECORD * fuzz_pick(c, n), RECORD, RECORD);
    return size;
}
