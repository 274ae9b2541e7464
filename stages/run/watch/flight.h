// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_WATCH_FLIGHT_H
#define PENSTOCK_STAGES_RUN_WATCH_FLIGHT_H
/*
 * The flight recorder: the newest actions of a rank in a file that is mapped,
 * DIR/rank-N.flight, so that they can be read whatever kills the process. A
 * record costs stores and a look at the clock, no system call. The file of the
 * start before is DIR/rank-N.flight.before.
 *
 * Writing: the rank's own thread. Reading: anybody, at any time; a record that
 * is half written is left out.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_FLIGHT_RECORDS 4096
#define PST_FLIGHT_SUFFIX  ".flight"
/* Kinds from here on: the end of a step, PST_FLIGHT_END + enum
 * pst_rank_phase. */
#define PST_FLIGHT_END 64

struct pst_flight_record {
    uint64_t seq; /* from 1; 0: none, or being written */
    uint64_t step;
    double begin, end; /* seconds since 1970; end 0: not yet */
    int32_t stage, microbatch;
    int32_t peer;  /* rank of the message that it waits for first; -1: none */
    uint8_t kind;  /* enum pst_action_kind */
    uint8_t sends; /* the message goes to the peer */
    uint8_t pad[2];
    double looked; /* when it last looked for that message */
};
_Static_assert(sizeof(struct pst_flight_record) == 56, "part of a format");

struct pst_flight;

/* Makes the file, of PST_FLIGHT_RECORDS. Returns owned. */
enum pst_status pst_flight_open(const char *dir, unsigned rank, unsigned ranks,
                                struct pst_flight **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* The file stays. NULL is fine, here and below. */
void pst_flight_close(struct pst_flight *f);
/* From a handler of SIGBUS: true if the address is in the memory of a record,
 * whose file somebody has cut short; other memory is there now, and the store
 * can be made again. The file says nothing new from then on. */
bool pst_flight_mend(const void *address);
/* True once after that. */
bool pst_flight_is_lost(struct pst_flight *f);

/* Begins a record, unless one of it is open. */
void pst_flight_begin(struct pst_flight *f, uint64_t step, unsigned kind,
                      int stage, int microbatch);
bool pst_flight_is_open(const struct pst_flight *f);
/* The open one waits for a message (of a peer, unless it is sent there). Said
 * again each time that it looks for it. */
void pst_flight_waits(struct pst_flight *f, int peer, bool sends);
void pst_flight_end(struct pst_flight *f);

/* What a file says. */
struct pst_flight_log {
    unsigned rank, ranks;
    int64_t pid;
    size_t n;
    struct pst_flight_record *at; /* oldest first; by pst_free */
};

/* PST_ERR_INPUT: no such file of ours. */
enum pst_status pst_flight_read(const char *path, struct pst_flight_log *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
