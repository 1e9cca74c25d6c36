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
  otr_message_route *all = allocate(count, sizeof *all);
  wire w = {m, allocate(count, sizeof(route)), 0, patches};
  TRY(otr_message_routes(vision_strips, vision_ranks, language_strips, language_ranks, all,
                         &count));
  for (int64_t i = 0; i < count; i++) {
    const otr_message_route *of = &all[i];
    if ((is_vision ? of->source : of->target) != rank) continue;
    route *r = &w.routes[w.count++];
    r->peer = is_vision ? vision_ranks + of->target : of->source;
    r->first = (int)(is_vision ? of->source_row : of->target_row);
    r->strips = (int)of->rows;
    r->shape[0] = of->rows;
    r->shape[1] = patches;
    r->shape[2] = WIDTH;
  }
  free(all);
  return w;
}

void wire_destroy(wire *w) { free(w->routes); }

/* Of each strip of the route, its numbers in a tensor. */
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
    route *r = &w->routes[i];
    void *place = mailbox_place(w->mailbox, r->peer);
    size_t bytes = wire_bytes(r->strips, w->patches);
    otr_tensor tensor;
    otr_message *message = NULL;
    TRY(otr_tensor_init(NULL, "float32", 3, r->shape, &tensor)); /* a place, and no values yet */
    TRY(otr_message_pack(&name, &tensor, 1, &options, place, &bytes));
    TRY(otr_message_unpack(place, bytes, OTR_MESSAGE_UNCHECKED, &message));
    TRY(otr_message_get_tensor(message, name, &tensor));
    for (int s = 0; s < r->strips; s++) places[r->first + s] = strip_of(w, &tensor, s);
    memset(tensor.data, 0, (size_t)r->strips * (size_t)w->patches * WIDTH * sizeof(real));
    otr_message_destroy(message);
    r->bytes = bytes;
  }
}

void wire_send(wire *w) {
  for (int i = 0; i < w->count; i++) {
    const route *r = &w->routes[i];
    TRY(otr_message_seal(mailbox_place(w->mailbox, r->peer), r->bytes));
    mailbox_send(w->mailbox, r->peer, r->bytes);
  }
}

void wire_wait(wire *w) {
  for (int i = 0; i < w->count; i++) {
    route *r = &w->routes[i];
    r->arrived = mailbox_receive(w->mailbox, r->peer, &r->arrived_bytes);
  }
}

/* A gradient's factors. All parts of one gradient have the same. */
static void take_tag(const route *r, int is_first, otr_call_info *tag) {
  otr_call_info said;
  TRY(otr_call_info_init(&said, sizeof said));
  TRY(otr_message_get_tag(r->message, &said));
  if (said.loss_scale == 0) {
    die("rank %d sent a gradient without a tag, so nobody knows its factors", r->peer);
  }
  if (!is_first && (said.loss_scale != tag->loss_scale || said.accumulation != tag->accumulation ||
                    said.ranks != tag->ranks)) {
    die("rank %d sent a part of a gradient with other factors than the ranks before", r->peer);
  }
  *tag = said;
}

void wire_open(wire *w, const char *name, int64_t number, const real **parts, otr_call_info *tag) {
  for (int i = 0; i < w->count; i++) {
    route *r = &w->routes[i];
    otr_message_info info = {.struct_size = sizeof info};
    TRY(otr_message_unpack(r->arrived, r->arrived_bytes, 0, &r->message));
    TRY(otr_message_get_info(r->message, &info));
    if (info.micro_batch != number) {
      die("rank %d sent micro-batch %lld, and this is micro-batch %lld", r->peer,
          (long long)info.micro_batch, (long long)number);
    }
    TRY(otr_message_get_tensor(r->message, name, &r->tensor));
    const otr_tensor *t = &r->tensor;
    if (t->dtype.code != OTR_DTYPE_FLOAT || t->dtype.bits != 32 || t->ndim != 3 ||
        memcmp(t->shape, r->shape, sizeof r->shape) != 0) {
      die("rank %d sent %s in another shape or dtype than float32 [%d, %d, %d]", r->peer, name,
          r->strips, w->patches, WIDTH);
    }
    for (int s = 0; s < r->strips; s++) parts[r->first + s] = strip_of(w, t, s);
    if (tag != NULL) take_tag(r, i == 0, tag);
  }
}

void wire_close(wire *w) {
  for (int i = 0; i < w->count; i++) otr_message_destroy(w->routes[i].message);
}
