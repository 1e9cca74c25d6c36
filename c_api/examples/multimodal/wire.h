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
typedef struct link {
  int peer;  /* its number in the world */
  int first; /* the first of them, of this rank's strips */
  int strips;
  otr_message *received; /* the last message from it, until wire_release */
  size_t bytes;          /* of the message that is being built */
  int64_t shape[3];      /* of its tensors: strips, patches, WIDTH */
  otr_tensor tensor;     /* what was received */
} link;

typedef struct wire {
  mailbox *mailbox;
  link *links;
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

/* Begins messages to all links. places: out, of each of this rank's strips, where to put its
 * [patches][WIDTH] numbers, in the receivers' own memory. tag: of a gradient, or NULL. */
void wire_begin(wire *w, const char *name, int64_t number, const otr_call_info *tag, real **places);
/* Checksums, and off they go. */
void wire_send(wire *w);

/* Waits for the messages of micro-batch `number` from all links. */
typedef struct incoming {
  const void *data;
  size_t bytes;
} incoming;
void wire_wait(wire *w, incoming *messages);
/* Checks them. parts: out, of each of this rank's strips, its numbers, where they lie. tag: out, of
 * a gradient; NULL for an embedding. Afterwards links[i].tensor has each message's tensor. */
void wire_open(wire *w, const incoming *messages, const char *name, int64_t number,
               const real **parts, otr_call_info *tag);
/* The messages have been read. */
void wire_release(wire *w);

#endif
