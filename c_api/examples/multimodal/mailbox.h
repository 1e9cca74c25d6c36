/* SPDX-License-Identifier: Apache-2.0
 * Messages between processes of one machine, in memory that they share. A sender builds a message
 * where the receiver reads it: nothing is copied. The memory has no name and goes away with its
 * processes, however they end.
 */
#ifndef MULTIMODAL_MAILBOX_H
#define MULTIMODAL_MAILBOX_H

#include <stddef.h>

#include "outrigger.h"

typedef struct mailbox mailbox;

enum { MOST_SLOTS = 64 };

/* Every rank can send to every other one. `slots` messages of at most `bytes` bytes each can be
 * under way from a rank to another one. timeout: seconds that a receiver waits. Collective over
 * `world`, which has one machine's ranks. */
mailbox *mailbox_open(otr_comm *world, int slots, size_t bytes, double timeout);
void mailbox_close(mailbox *m);

/* Where the next message to a rank is to be built. Whoever sends makes sure that the receiver has
 * done with the message `slots` before this one. */
void *mailbox_place(mailbox *m, int to);
void mailbox_send(mailbox *m, int to, size_t bytes);

/* The next message from a rank: read-only memory, until the sender's `slots`-th next one. Waits.
 * Ends the program when the sender is gone or silent, and names the rank that was lost first. */
const void *mailbox_receive(mailbox *m, int from, size_t *out_bytes);

#endif
