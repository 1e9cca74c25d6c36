/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "../gpt/check.h"
#include "layers.h"

size_t wire_bytes(int strips, int patches) {
  enum { HEADER = 4096 };
  return HEADER + (size_t)strips * (size_t)patches * WIDTH * sizeof(real);
}

wire wire_create(mailbox *m, int is_vision, int rank, const int64_t *vision_strips,
                 int vision_ranks, const int64_t *language_strips, int language_ranks,
                 int patches) {
  int64_t count = (int64_t)vision_ranks + language_ranks;
  otr_message_route *routes = allocate(count, sizeof *routes);
  wire w = {m, allocate(count, sizeof(link)), 0, patches};
  TRY(otr_message_routes(vision_strips, vision_ranks, language_strips, language_ranks, routes,
                         &count));
  for (int64_t i = 0; i < count; i++) {
    const otr_message_route *r = &routes[i];
    if ((is_vision ? r->source : r->target) != rank) continue;
    link *l = &w.links[w.count++];
    l->peer = is_vision ? vision_ranks + r->target : r->source;
    l->first = (int)(is_vision ? r->source_row : r->target_row);
    l->strips = (int)r->rows;
    l->shape[0] = r->rows;
    l->shape[1] = patches;
    l->shape[2] = WIDTH;
  }
  free(routes);
  return w;
}

void wire_destroy(wire *w) { free(w->links); }

/* Of each strip of the link, its numbers in a tensor. */
static real *strip_of(const wire *w, const otr_tensor *tensor, int strip) {
  return (real *)tensor->data + (int64_t)strip * w->patches * WIDTH;
}

void wire_begin(wire *w, const char *name, int64_t number, const otr_call_info *tag,
                real **places) {
  otr_message_options options;
  TRY(otr_message_options_init(&options, sizeof options));
  options.micro_batch = number;
  options.tag = tag;
  for (int i = 0; i < w->count; i++) {
    link *l = &w->links[i];
    void *place = mailbox_place(w->mailbox, l->peer);
    size_t bytes = wire_bytes(l->strips, w->patches);
    otr_tensor tensor;
    otr_message *message = NULL;
    TRY(otr_tensor_init(NULL, "float32", 3, l->shape, &tensor)); /* a place, and no values yet */
    TRY(otr_message_pack(&name, &tensor, 1, &options, place, &bytes));
    TRY(otr_message_unpack(place, bytes, OTR_MESSAGE_UNCHECKED, &message));
    TRY(otr_message_get_tensor(message, name, &tensor));
    for (int s = 0; s < l->strips; s++) places[l->first + s] = strip_of(w, &tensor, s);
    memset(tensor.data, 0, (size_t)l->strips * (size_t)w->patches * WIDTH * sizeof(real));
    otr_message_destroy(message);
    l->bytes = bytes;
  }
}

void wire_send(wire *w) {
  for (int i = 0; i < w->count; i++) {
    const link *l = &w->links[i];
    TRY(otr_message_seal(mailbox_place(w->mailbox, l->peer), l->bytes));
    mailbox_send(w->mailbox, l->peer, l->bytes);
  }
}

void wire_wait(wire *w, incoming *messages) {
  for (int i = 0; i < w->count; i++) {
    messages[i].data = mailbox_receive(w->mailbox, w->links[i].peer, &messages[i].bytes);
  }
}

/* A gradient's factors. All parts of one gradient have the same. */
static void take_tag(const link *l, int is_first, otr_call_info *tag) {
  otr_call_info said;
  TRY(otr_call_info_init(&said, sizeof said));
  TRY(otr_message_get_tag(l->received, &said));
  if (said.loss_scale == 0) {
    die("rank %d sent a gradient without a tag, so nobody knows its factors", l->peer);
  }
  if (!is_first && (said.loss_scale != tag->loss_scale || said.accumulation != tag->accumulation ||
                    said.ranks != tag->ranks)) {
    die("rank %d sent a part of a gradient with other factors than the ranks before", l->peer);
  }
  *tag = said;
}

void wire_open(wire *w, const incoming *messages, const char *name, int64_t number,
               const real **parts, otr_call_info *tag) {
  for (int i = 0; i < w->count; i++) {
    link *l = &w->links[i];
    otr_message_info info = {.struct_size = sizeof info};
    TRY(otr_message_unpack(messages[i].data, messages[i].bytes, 0, &l->received));
    TRY(otr_message_get_info(l->received, &info));
    if (info.micro_batch != number) {
      die("rank %d sent micro-batch %lld, and this is micro-batch %lld", l->peer,
          (long long)info.micro_batch, (long long)number);
    }
    TRY(otr_message_get_tensor(l->received, name, &l->tensor));
    const otr_tensor *t = &l->tensor;
    if (t->dtype.code != OTR_DTYPE_FLOAT || t->dtype.bits != 32 || t->ndim != 3 ||
        memcmp(t->shape, l->shape, sizeof l->shape) != 0) {
      die("rank %d sent %s in another shape or dtype than float32 [%d, %d, %d]", l->peer, name,
          l->strips, w->patches, WIDTH);
    }
    for (int s = 0; s < l->strips; s++) parts[l->first + s] = strip_of(w, t, s);
    if (tag != NULL) take_tag(l, i == 0, tag);
  }
}

void wire_release(wire *w) {
  for (int i = 0; i < w->count; i++) {
    otr_message_destroy(w->links[i].received);
    w->links[i].received = NULL;
  }
}
