// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_WATCH_FLIGHT_H
#define PENSTOCK_STAGES_RUN_WATCH_FLIGHT_H
/*
 * The flight recorder: the newest actions of a rank in a mapped file,
 * DIR/rank-N.flight, which remains however the process ends. A record costs
 * stores and one read of the clock, no system call. The file of the previous
 * start is DIR/rank-N.flight.before.
 *
 * Writing: the rank's own thread. Reading: any process, at any time; a record
 * that is partly written is skipped.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_FLIGHT_RECORDS 4096
#define PST_FLIGHT_SUFFIX  ".flight"
/* Kinds from here on mark the end of a step: PST_FLIGHT_END + enum
 * pst_rank_phase. */
#define PST_FLIGHT_END 64

struct pst_flight_record {
    uint64_t seq; /* number, from 1; 0: empty, or being written */
    uint64_t step;
    double begin, end; /* seconds since 1970; end 0: not ended */
    int32_t stage, microbatch;
    int32_t peer;  /* peer of the first message that it waits for; -1: none */
    uint8_t kind;  /* enum pst_action_kind, or from PST_FLIGHT_END on */
    uint8_t sends; /* 1: that message is sent to the peer; 0: received */
    uint8_t pad[2];
    double last_poll; /* seconds since 1970 at the last poll of that message */
};
_Static_assert(sizeof(struct pst_flight_record) == 56, "part of a format");

struct pst_flight;

/* Creates the file with PST_FLIGHT_RECORDS records. Returns owned. */
enum pst_status pst_flight_open(const char *dir, unsigned rank, unsigned ranks,
                                struct pst_flight **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Unmaps the file, which remains. NULL is accepted, here and below. */
void pst_flight_close(struct pst_flight *f);
/* For a handler of SIGBUS: returns true if the address is in a mapped record
 * file that was truncated; the mapping is then replaced by anonymous memory,
 * and the store can be repeated. The file is not updated from then on. */
bool pst_flight_repair(const void *address);
/* Returns true once after pst_flight_repair has replaced the mapping. */
bool pst_flight_is_lost(struct pst_flight *f);

/* Begins a record, unless one is open. now: pst_now(). */
void pst_flight_begin(struct pst_flight *f, double now, uint64_t step,
                      unsigned kind, int stage, int microbatch);
/* Records that the open action waits for a message from the peer, or to it
 * (sends). Called at each poll. */
void pst_flight_waits(struct pst_flight *f, int peer, bool sends);
void pst_flight_end(struct pst_flight *f, double now);

/* The content of a flight file. */
struct pst_flight_log {
    unsigned rank, ranks;
    int64_t pid;
    size_t n;
    struct pst_flight_record *at; /* oldest first; free with pst_free */
};

/* Reads a flight file. PST_ERR_INPUT: it is no flight file. */
enum pst_status pst_flight_read(const char *path, struct pst_flight_log *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
