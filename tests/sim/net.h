// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SIM_NET_H
#define PENSTOCK_TESTS_SIM_NET_H
/*
 * Replaces the calls of libuv that daemon/loop/ makes by events of a simulated
 * world, with connections whose bytes come in pieces, late, or not at all. A
 * client's end is a descriptor for the C library (connect, poll, read, write,
 * close), numbered from SIM_FD on.
 */
#include "tests/sim/sim.h"

#include <stddef.h>
#include <sys/types.h>

#define SIM_FD 1000000

/* Forgets all connections and handles. */
void sim_net_reset(void);
/* Sets the network: longest delay of a byte, bytes that fit into a connection,
 * and the most that a write or read moves. */
void sim_net_network(uint64_t delay, size_t capacity, size_t piece);
/* Stops listening and ends all connections; makes the callbacks that the daemon
 * still expects. */
void sim_net_cut_all(void);
/* Ends a random connection. */
void sim_net_cut_one(void);

/* Connects a client and returns its descriptor; -1: nothing listens. */
int sim_connect(void);
void sim_close(int fd);
/* Returns the number of bytes; 0: none now; -1: the connection has ended. */
ssize_t sim_read(int fd, void *data, size_t size);
bool sim_write(int fd, const void *data, size_t size);

#endif
