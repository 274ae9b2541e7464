// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SIM_NET_H
#define PENSTOCK_TESTS_SIM_NET_H
/*
 * libuv's calls, as far as daemon/loop/ makes them, over the events of a world,
 * and connections whose bytes come in pieces, late, or not at all. A client's
 * end is a descriptor of the C library (connect, poll, read, write, close) from
 * SIM_FD on.
 */
#include "tests/sim/sim.h"

#include <stddef.h>
#include <sys/types.h>

#define SIM_FD 1000000

/* Forgets all connections and handles. */
void sim_net_reset(void);
/* How connections are: longest way of a byte, bytes that fit into one, and that
 * each write or read takes at most. */
void sim_net_network(uint64_t delay, size_t room, size_t piece);
/* Nobody listens any more, and all connections are gone; callbacks that are
 * owed to the daemon are made. */
void sim_net_cut_all(void);
/* One of the connections is cut, by chance. */
void sim_net_cut_one(void);

/* A client's end; -1: nobody listens. */
int sim_connect(void);
void sim_close(int fd);
/* Bytes, 0: there are none now, -1: the connection has ended. */
ssize_t sim_read(int fd, void *data, size_t size);
bool sim_write(int fd, const void *data, size_t size);

#endif
