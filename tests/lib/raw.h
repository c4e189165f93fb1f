/* SPDX-License-Identifier: MIT */
#ifndef PAWL_TESTS_RAW_H
#define PAWL_TESTS_RAW_H

/* A client without the library, made from the abi headers alone: for tests that say what libpawl
 * never would. Every function that fails ends the test program or worker (harness_fail), but for
 * those that return what the broker said. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/attach.h"
#include "abi/command.h"
#include "abi/layout.h"
#include "abi/region.h"
#include "abi/ring.h"
#include "lib/harness.h"

struct raw_lane {
    int sub_fd, comp_fd, bell;
    uint32_t number;
    struct pawl_region sub, comp;
    struct pawl_ring_producer out;
    struct pawl_ring_consumer in;
    uint64_t seq; /* of the last command */
    uint32_t rung;
};

/* A connected socket, or -1. */
int raw_connect(const struct harness_broker *b);
/* A correct HELLO for a new session. */
struct pawl_attach_hello raw_hello(void);
/* Sends it and reads the answer. False: the broker closed without one. */
bool raw_welcome(int socket, const void *hello, size_t bytes, struct pawl_attach_welcome *out);
/* LANE on an attached socket; returns the result that LANE_OK carries. */
int raw_lane_open(int socket, struct pawl_attach_lane request, struct raw_lane *out);
struct pawl_attach_lane raw_lane_request(void);
/* Connects, attaches, opens a lane. Returns the socket. */
int raw_attach(const struct harness_broker *b, struct raw_lane *out);
void raw_lane_close(struct raw_lane *lane); /* unmaps and closes its descriptors */

/* Copies a record into the submission ring, publishes it and rings. The record's bytes, seq and
 * open fields are set; false: no room. */
bool raw_submit(struct raw_lane *lane, void *command, uint32_t bytes);
/* Where the next record will stand, to be written by hand; then raw_publish(). */
uint8_t *raw_place(struct raw_lane *lane);
void raw_publish(struct raw_lane *lane, uint64_t tail);
void raw_ring_bell(struct raw_lane *lane);
/* Waits for an answer to `seq` (deliveries before it are passed over, the last one is copied to *d
 * if d is not NULL) and returns its result; *value gets its value. */
int raw_answer(struct raw_lane *lane, uint64_t seq, uint64_t *value, struct pawl_comp_delivery *d);
/* The same, unless the broker closes the lane first: then *closed is true and the reason returned.
 */
int raw_answer_or_close(struct raw_lane *lane, uint64_t seq, uint64_t *value,
                        struct pawl_comp_delivery *d, bool *closed);
/* Waits until the broker has closed the lane; returns the reason. */
int raw_closed(struct raw_lane *lane);

/* Ready-made commands; return their seq. */
uint64_t raw_find(struct raw_lane *lane, const char *queue);
uint64_t raw_send(struct raw_lane *lane, uint64_t queue, const void *body, uint32_t bytes);
uint64_t raw_receive(struct raw_lane *lane, uint64_t queue, uint32_t max);
/* QUEUE_FIND and its answer. */
uint64_t raw_queue(struct raw_lane *lane, const char *queue);

#endif
