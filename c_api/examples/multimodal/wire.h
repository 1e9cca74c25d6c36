/* SPDX-License-Identifier: Apache-2.0
 * What the groups send each other: the embedding one way, its gradient the other. The ranks of each
 * group share the strips of a micro-batch, and a rank sends one message to each rank of the other
 * group that has some of the same strips.
 */
#ifndef MULTIMODAL_WIRE_H
#define MULTIMODAL_WIRE_H

#include "mailbox.h"
#include "weights.h"

/* Strips that this rank has in common with a rank of the other group. */
typedef struct route {
  int peer;  /* its number in the world */
  int first; /* the first of them, of this rank's strips */
  int strips;
  int64_t shape[3];    /* of a message's tensor: strips, patches, WIDTH */
  size_t bytes;        /* of the message that is being built */
  const void *arrived; /* the last message from it */
  size_t arrived_bytes;
  otr_message *message; /* it, from wire_open to wire_close */
  otr_tensor tensor;    /* its tensor */
} route;

typedef struct wire {
  mailbox *mailbox;
  route *routes;
  int count;
  int patches;
} wire;

/* Bytes that are enough for a message with `strips` strips. */
size_t wire_bytes(int strips, int patches);

/* is_vision: which group this rank is in. strips: of each rank, the vision ranks' and the language
 * ranks'. */
wire wire_create(mailbox *m, int is_vision, int rank, const int64_t *vision_strips,
                 int vision_ranks, const int64_t *language_strips, int language_ranks, int patches);
void wire_destroy(wire *w);

/* Begins a message on each route. places: out, of each of this rank's strips, where to put its
 * [patches][WIDTH] numbers, in the memory that the receivers read. tag: of a gradient, or NULL. */
void wire_begin(wire *w, const char *name, int64_t number, const otr_call_info *tag, real **places);
/* Checksums, and off they go. */
void wire_send(wire *w);

/* Waits for a message on each route. */
void wire_wait(wire *w);
/* Checks them: they are of micro-batch `number`. parts: out, of each of this rank's strips, its
 * numbers, where they lie. tag: out, of a gradient; NULL for an embedding. Each route then has its
 * message's tensor, until wire_close. */
void wire_open(wire *w, const char *name, int64_t number, const real **parts, otr_call_info *tag);
void wire_close(wire *w);

#endif
