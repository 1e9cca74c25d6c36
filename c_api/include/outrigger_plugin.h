/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plugin gives to Outrigger: one table of functions, found in the plugin's shared object by
 * the name OTR_DEVICE_PLUGIN_SYMBOL if it drives devices, or OTR_COLLECTIVE_PLUGIN_SYMBOL if it
 * moves their memory between ranks. A host program needs outrigger.h only.
 *
 * RESULTS.  Every function that can fail returns OTR_OK or an OTR_E_ code, and last_error() then
 *   tells the reason. OTR_E_DEVICE_FAULT is final: every later call on that device may return it.
 *   Work on a stream fails later: the next synchronize that waits for it says so.
 *
 * STREAMS.  Numbered as DLPack does; 0 and 1 are the default stream. Work of one stream is done in
 *   order, of different streams in any. Except where it says "waits", a function returns before the
 *   device has done anything; structs and arrays that it was given in host memory may be reused at
 *   once, memory that they point to may not.
 *
 * GROWTH.  The table and each struct that describes work begin with their size, as whoever made
 *   them knows it; the elements of an array lie so far apart. What an older plugin's table lacks is
 *   0, and no work that needs it comes: `rules` and its neighbours say what may come. A member that
 *   is beyond the size of a struct given by an older library counts as 0.
 *
 * THREADS.  Every function may be called from any thread.
 */
#ifndef OUTRIGGER_PLUGIN_H
#define OUTRIGGER_PLUGIN_H

#include <stddef.h>

#include "outrigger.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OTR_DEVICE_PLUGIN_VERSION 3
#define OTR_DEVICE_PLUGIN_SYMBOL "otr_device_plugin_table"
#define OTR_PLUGIN_NO_STREAM UINT64_MAX
#define OTR_PLUGIN_SUM_BYTES 256

/* A device that was opened, and an event: a point in a stream. Each plugin has its own. */
typedef struct otr_plugin_device otr_plugin_device;
typedef struct otr_plugin_event otr_plugin_event;

/* Of tensors the first four; the others are of states, in an update only. */
enum {
  OTR_PLUGIN_FLOAT32 = 0,
  OTR_PLUGIN_BFLOAT16 = 1,
  OTR_PLUGIN_FLOAT16 = 2,
  OTR_PLUGIN_FLOAT64 = 3,
  /* A float32 weight in two halves of 16 bits: the bfloat16 that is published, and the rest;
   * kernels/reference/split.h */
  OTR_PLUGIN_SPLIT = 4,
  /* A moment in codes of 8 bits, in whole leaves of 256, and a float32 scale for each leaf in
   * memory of its own; of values that are not negative the second; kernels/reference/block8.h */
  OTR_PLUGIN_BLOCK8 = 5,
  OTR_PLUGIN_POSITIVE_BLOCK8 = 6
};
enum { OTR_PLUGIN_NEAREST = 0, OTR_PLUGIN_STOCHASTIC = 1 };
enum { OTR_PLUGIN_HOST_TO_DEVICE = 0, OTR_PLUGIN_DEVICE_TO_HOST = 1, OTR_PLUGIN_ON_DEVICE = 2 };

/* Kernels. Pointers are to device memory unless they say host. All have the bits of the functions
 * of the same names on a CPU; docs/contract.md has the formulas. */

/* add 0: to = round(from × factor), nearest even; factor 1: round(from), once. add 1: to =
 * round(float32(to) + float32(from)), factor is 1. to may be from, in one format and order. ndim 0
 * and shape NULL: `count` elements one after the other; else strides are in elements. */
typedef struct otr_plugin_convert {
  uint32_t struct_size;
  int32_t reserved1;
  void *to;
  const void *from;
  int32_t to_format, from_format; /* OTR_PLUGIN_FLOAT32 … */
  int64_t count;
  float factor;
  int32_t add;
  int32_t ndim, reserved0;
  const int64_t *shape, *to_strides, *from_strides; /* host, ndim entries */
} otr_plugin_convert;

/* An exact sum of squares: limbs are one 640-bit little-endian integer in units of 2^-298. */
typedef struct otr_plugin_norm {
  uint64_t limbs[10];
  int64_t nonfinite;       /* Inf and NaN elements, whose leaves of 256 are left out */
  int64_t first_nonfinite; /* lowest index of one; -1: none */
  int32_t first_rank;      /* the first source that is not finite there; -1: only the sum is not */
  int32_t reserved0;
} otr_plugin_norm;

/* s = sources[0] + sources[1] + … in float32; accumulator = round(s), or round(accumulator + s)
 * with add. A source may be the accumulator. Without sources: only the norm of the accumulator. */
typedef struct otr_plugin_fold {
  uint32_t struct_size;
  int32_t reserved0;
  const void *const *sources; /* host: `world` device pointers */
  int32_t world, source_format;
  void *accumulator;
  int32_t accumulator_format, add;
  int64_t count;         /* with sources: a multiple of 256 */
  int64_t first_index;   /* of element 0, for first_nonfinite */
  otr_plugin_norm *norm; /* host; filled when the stream has been synchronized */
  /* In place of norm, which is then NULL: device memory of OTR_PLUGIN_SUM_BYTES, in a form of the
   * plugin's own, for decide. With add it keeps which rank was the first that was not finite in the
   * folds before. NULL where the table has no decide. */
  void *sum;
} otr_plugin_fold;

/* What a step decides, on the device: decide writes it, updates behind it in the stream read it and
 * count in it, and the host copies it, to hear of it later. */
typedef struct otr_plugin_decision {
  otr_plugin_norm total;     /* of all sums */
  double norm;               /* sqrt(total) × mean; infinite if an element is not finite */
  double clip;               /* coefficient; 1 if an element is not finite */
  float gradient_factor;     /* mean × clip */
  int32_t skip;              /* not 0: updates do nothing */
  int64_t updates, vanished; /* see otr_plugin_update_count; decide writes 0 */
} otr_plugin_decision;

/* The formulas stand in kernels/reference/decide.h. */
typedef struct otr_plugin_decide {
  uint32_t struct_size;
  int32_t reserved0;
  const void *sums; /* `count` of otr_plugin_fold's sum, OTR_PLUGIN_SUM_BYTES apart */
  int64_t count;
  double mean, clipping;
  int32_t skip;           /* not 0: the decision's, whatever the sums */
  int32_t skip_nonfinite; /* the decision's if an element is not finite; 0: none */
  otr_plugin_decision *decision;
} otr_plugin_decide;

/* What an update computes; the formulas stand in the library's kernels/reference/update.h. */
enum {
  OTR_PLUGIN_ADAM = 0, /* AdamW, too */
  OTR_PLUGIN_ADAGRAD = 1,
  OTR_PLUGIN_LION = 2,
  OTR_PLUGIN_SGD = 3,
  OTR_PLUGIN_LAMB = 4,      /* the weights, from the moments that LAMB_NORMS has stored */
  OTR_PLUGIN_MUON = 5,      /* exp_avg and `direction`; the weights are not touched */
  OTR_PLUGIN_LAMB_NORMS = 6 /* the moments and `norms`; the weights are only read */
};

/* One piece of a fused update. exp_avg, exp_avg_sq: NULL where the rule has none. */
typedef struct otr_plugin_update {
  uint32_t struct_size;
  int32_t rule; /* OTR_PLUGIN_ADAM … */
  const void *grad;
  void *weight, *exp_avg, *exp_avg_sq, *published; /* published: NULL for none */
  void *remainder;                                 /* of a split weight: the lower halves */
  float *exp_avg_scales, *exp_avg_sq_scales;       /* of block formats */
  float *direction;                                /* of MUON: an element each, to be written */
  otr_plugin_norm *norms; /* host; of LAMB_NORMS: two, of the weights and of the directions, which
                             are filled when the stream has been synchronized */
  int32_t grad_format, weight_format, exp_avg_format, exp_avg_sq_format, published_format;
  int32_t weight_rounding, exp_avg_rounding, exp_avg_sq_rounding;
  int32_t decoupled, nesterov, reserved0;
  int64_t count;
  float gradient_factor, clip_value, beta1, one_minus_beta1, beta2, one_minus_beta2, eps,
      inverse_bias1, inverse_sqrt_bias2, minus_step, weight_decay, minus_lr_decay;
  uint64_t key, first_element, step; /* the random stream */
  /* Not NULL: the gradient factor is the decision's, in place of gradient_factor, and so are the
   * counts, in place of host_total, which is then NULL. The same for all of a list; not with LAMB,
   * LAMB_NORMS and MUON, nor where the table has no decide. */
  otr_plugin_decision *decision;
} otr_plugin_update;

typedef struct otr_plugin_update_count {
  int64_t updates, vanished;
} otr_plugin_update_count;

/* out = factor × (left × right), and plus_factor × plus added to it where plus is not NULL: float32
 * matrices, row-major and without gaps, left (rows × inner) and right (inner × columns). One order
 * of additions, kernels/reference/product.h. out is none of the others. symmetric: it is symmetric
 * to the bit, so a kernel may compute one half and mirror it. */
typedef struct otr_plugin_product {
  uint32_t struct_size;
  int32_t symmetric;
  const float *left, *right, *plus;
  float *out;
  int64_t rows, inner, columns;
  float factor, plus_factor;
} otr_plugin_product;

typedef struct otr_device_plugin {
  uint32_t struct_size;
  uint32_t version;    /* OTR_DEVICE_PLUGIN_VERSION */
  const char *name;    /* "cuda" */
  int32_t device_type; /* OTR_DEVICE_ of its tensors */
  int32_t reserved0;

  /* What may come to update, a bit for each: 1 << OTR_PLUGIN_ADAM …, 1 << OTR_PLUGIN_FLOAT32 …,
   * 1 << OTR_PLUGIN_NEAREST …. Each with each other. What is not there is refused before an engine
   * is made, with a text that names it. */
  uint64_t rules, weight_formats, moment_formats, roundings;

  /* Why the last call of this thread failed; valid until the thread's next call. */
  const char *(*last_error)(void);
  int32_t (*device_count)(int32_t *out_count);
  /* The same device may be opened more than once: memory and streams are common to all. close
   * waits for the device's work; the last close gives everything back. */
  int32_t (*open)(int32_t device_id, otr_plugin_device **out_device);
  void (*close)(otr_plugin_device *device);
  /* What name means is the plugin's affair. OTR_E_NOT_FOUND lists the names there are. */
  int32_t (*set_value)(otr_plugin_device *device, const char *name, double value);
  /* A setting, or what the plugin counts. Names as of set_value. */
  int32_t (*get_value)(otr_plugin_device *device, const char *name, double *out_value);
  int32_t (*memory_info)(otr_plugin_device *device, uint64_t *out_free, uint64_t *out_total);

  /* Aligned to 256 bytes. OTR_PLUGIN_NO_STREAM: zero-filled, and every stream may use it at once.
   * Else uninitialised, and for work that comes after in that stream; nothing waits. */
  int32_t (*allocate)(otr_plugin_device *device, size_t bytes, uint64_t stream, void **out_data);
  /* OTR_PLUGIN_NO_STREAM: waits for work that was given to the device before. Else the memory goes
   * when the work of that stream before it is done, and nothing waits. Both free what either kind
   * of call has allocated. OTR_E_ARGUMENT: no live allocation. */
  int32_t (*release)(otr_plugin_device *device, void *data, uint64_t stream);
  /* Page-locks host memory. Copies from and to it run beside the host; a copy of other host memory
   * may wait until it is done. Several devices, of one process or more, may lock the same memory.
   */
  int32_t (*pin)(otr_plugin_device *device, void *data, size_t bytes);
  void (*unpin)(otr_plugin_device *device, void *data);

  /* Waits for all streams. */
  int32_t (*synchronize)(otr_plugin_device *device);
  int32_t (*stream_create)(otr_plugin_device *device, uint64_t *out_stream);
  void (*stream_destroy)(otr_plugin_device *device, uint64_t stream);        /* waits */
  int32_t (*stream_synchronize)(otr_plugin_device *device, uint64_t stream); /* waits */
  int32_t (*event_record)(otr_plugin_device *device, uint64_t stream, otr_plugin_event **out_event);
  int32_t (*event_synchronize)(otr_plugin_device *device, otr_plugin_event *event); /* waits */
  int32_t (*event_query)(otr_plugin_device *device, otr_plugin_event *event,
                         int32_t *out_done); /* 0 or 1; waits for nothing */
  void (*event_destroy)(otr_plugin_device *device, otr_plugin_event *event);
  int32_t (*stream_wait)(otr_plugin_device *device, uint64_t stream, otr_plugin_event *event);

  int32_t (*copy)(otr_plugin_device *device, void *to, const void *from, size_t bytes,
                  int32_t direction, uint64_t stream);
  int32_t (*zero)(otr_plugin_device *device, void *data, size_t bytes, uint64_t stream);
  /* Of a list no element writes what another one reads or writes. */
  int32_t (*convert)(otr_plugin_device *device, const otr_plugin_convert *list, int64_t count,
                     uint64_t stream);
  int32_t (*fold)(otr_plugin_device *device, const otr_plugin_fold *fold, uint64_t stream);
  /* *host_total is added to, if it is not NULL; complete when the stream has been synchronized. */
  int32_t (*update)(otr_plugin_device *device, const otr_plugin_update *pieces, int64_t count,
                    otr_plugin_update_count *host_total, uint64_t stream);

  /* NULL: there is none, and Muon's matrices are refused. */
  int32_t (*product)(otr_plugin_device *device, const otr_plugin_product *product, uint64_t stream);

  /* NULL: there is none, and the host waits for norms to decide by itself. */
  int32_t (*decide)(otr_plugin_device *device, const otr_plugin_decide *decide, uint64_t stream);
} otr_device_plugin;

/* A table may end here. */
#define OTR_DEVICE_PLUGIN_LEAST_SIZE offsetof(otr_device_plugin, product)

/* The symbol's type. */
typedef const otr_device_plugin *(*otr_device_plugin_function)(void);

/* ---- Collectives: what moves a device's memory between ranks --------------------------------- */

#define OTR_COLLECTIVE_PLUGIN_VERSION 1
#define OTR_COLLECTIVE_PLUGIN_SYMBOL "otr_collective_plugin_table"
#define OTR_PLUGIN_ID_BYTES 128

/* One rank's end of a communicator, on one device. Its operations are begun by one thread at a
 * time, in the same order on all ranks; abort may be called by any thread beside them. */
typedef struct otr_plugin_collective otr_plugin_collective;

typedef struct otr_plugin_ranks {
  uint32_t struct_size;
  int32_t device_id;
  int32_t rank, world;
  unsigned char id[OTR_PLUGIN_ID_BYTES]; /* of create_id, which one rank has called */
} otr_plugin_ranks;

/* Bytes that go to a rank or come from it. */
typedef struct otr_plugin_transfer {
  uint32_t struct_size;
  int32_t peer;
  void *data; /* device memory; of a transport, host memory */
  size_t bytes;
} otr_plugin_transfer;

typedef struct otr_collective_plugin {
  uint32_t struct_size;
  uint32_t version;    /* OTR_COLLECTIVE_PLUGIN_VERSION */
  const char *name;    /* "nccl" */
  int32_t device_type; /* OTR_DEVICE_ of the memory that it moves; streams are those of the device
                          plugin of that type */
  int32_t reserved0;

  /* As a device plugin's. */
  const char *(*last_error)(void);
  /* Of the library behind the plugin, as it counts; 22809 for NCCL 2.28.9. */
  int32_t (*library_version)(int32_t *out_version);
  /* Names a communicator, for all its ranks. */
  int32_t (*create_id)(unsigned char *out_id); /* OTR_PLUGIN_ID_BYTES */
  /* Begins to meet the other ranks; is_ready says when that is done. Waits for no rank where the
   * library can begin without. */
  int32_t (*create)(const otr_plugin_ranks *ranks, otr_plugin_collective **out_collective);
  /* Local, waits for no rank, and gives back everything; what is under way ends. */
  void (*close)(otr_plugin_collective *collective);
  /* Ends what is under way, so that streams go on, with memory that holds anything; every later
   * call but close fails. */
  void (*abort)(otr_plugin_collective *collective);
  /* 1: what was begun last is in its stream, and something else may be begun. Else 0: ask again.
   * Fails with what went wrong since, also on other ranks: OTR_E_PEER_DEAD for a connection that
   * broke. Waits for nothing. */
  int32_t (*is_ready)(otr_plugin_collective *collective, int32_t *out_ready);

  /* These begin an operation in a stream's order, while is_ready says 1, and return at once. Sizes
   * are the same on all ranks, 0 too. */

  /* All at a time. What one rank sends to another comes in the order of the lists. */
  int32_t (*exchange)(otr_plugin_collective *collective, const otr_plugin_transfer *sends,
                      int64_t send_count, const otr_plugin_transfer *receives,
                      int64_t receive_count, uint64_t stream);
  /* `bytes` of each rank, in rank order; mine may be its own place in all. */
  int32_t (*all_gather)(otr_plugin_collective *collective, const void *mine, void *all,
                        size_t bytes, uint64_t stream);
  /* mine = the sum over ranks of their slice number `rank` of all, of `count` elements each, in the
   * order and the precision of the library. mine may be that slice. */
  int32_t (*reduce_scatter)(otr_plugin_collective *collective, const void *all, void *mine,
                            int64_t count, int32_t format, uint64_t stream);

  /* Tells the library that operations will use this memory, so that it may move it without a copy
   * of its own. NULL, and OTR_E_UNSUPPORTED: the library cannot. Until unregister, or close. */
  int32_t (*register_memory)(otr_plugin_collective *collective, void *data, size_t bytes,
                             void **out_handle);
  void (*unregister_memory)(otr_plugin_collective *collective, void *handle);
} otr_collective_plugin;

/* A table may end here. */
#define OTR_COLLECTIVE_PLUGIN_LEAST_SIZE offsetof(otr_collective_plugin, register_memory)

typedef const otr_collective_plugin *(*otr_collective_plugin_function)(void);

/* ---- Transports --------------------------------------------------------------------------------
 * What moves bytes between processes, of many hosts too, in host memory: MPI. It exports
 * otr_transport_plugin_table. Every function returns at once but where it says otherwise; what
 * takes time is a request, which the library asks after. Functions of one channel are called by one
 * thread at a time but for messages, and of several channels at a time. */

#define OTR_TRANSPORT_PLUGIN_VERSION 1
#define OTR_TRANSPORT_PLUGIN_SYMBOL "otr_transport_plugin_table"
#define OTR_PLUGIN_MESSAGE_BYTES 1024

/* This rank's place in a group of ranks. */
typedef struct otr_plugin_channel otr_plugin_channel;
/* What was begun, until test says that it is over. */
typedef struct otr_plugin_request otr_plugin_request;

typedef struct otr_transport_plugin {
  uint32_t struct_size;
  uint32_t version;  /* OTR_TRANSPORT_PLUGIN_VERSION */
  const char *name;  /* "mpi" */
  size_t most_bytes; /* of one rank's part of an operation */

  /* As a device plugin's. */
  const char *(*last_error)(void);
  /* The library behind the plugin: name, version, path, shortened to `size` bytes with the zero
   * byte. */
  int32_t (*describe)(char *text, size_t size);

  /* A channel over the ranks of `group`, which is the address of the library's handle (of an
   * MPI_Comm), or NULL: all processes that a launcher started together. Initialises the library if
   * nobody has, which may block. The channel is used when the request is over. Collective, as the
   * next two. */
  int32_t (*attach)(const void *group, otr_plugin_channel **out_channel,
                    otr_plugin_request **out_request);
  int32_t (*duplicate)(otr_plugin_channel *channel, otr_plugin_channel **out_channel,
                       otr_plugin_request **out_request);
  /* Of the ranks that give the same color, ordered by key; -1: NULL, in no group. May block:
   * all ranks have come to it. */
  int32_t (*split)(otr_plugin_channel *channel, int32_t color, int32_t key,
                   otr_plugin_channel **out_channel, otr_plugin_request **out_request);
  int32_t (*place)(otr_plugin_channel *channel, int32_t *out_rank, int32_t *out_world);
  /* Local. What is not over keeps its memory until the process ends. */
  void (*close)(otr_plugin_channel *channel);

  /* These begin an operation; sizes are alike on all ranks. The memory is the request's until it is
   * over. */

  /* `bytes` of each rank, in rank order; mine may be its own place in all. */
  int32_t (*all_gather)(otr_plugin_channel *channel, const void *mine, void *all, size_t bytes,
                        otr_plugin_request **out_request);
  int32_t (*broadcast)(otr_plugin_channel *channel, void *data, size_t bytes, int32_t root,
                       otr_plugin_request **out_request);
  /* parts: `bytes` for each rank; received: what each has for this one. */
  int32_t (*all_to_all)(otr_plugin_channel *channel, const void *parts, void *received,
                        size_t bytes, otr_plugin_request **out_request);
  /* Each number becomes the smallest of all ranks'. */
  int32_t (*smallest)(otr_plugin_channel *channel, uint64_t *numbers, int64_t count,
                      otr_plugin_request **out_request);
  /* Between pairs, in host memory; the others need not call. What one rank sends to another comes
   * in the order of its lists. */
  int32_t (*exchange)(otr_plugin_channel *channel, const otr_plugin_transfer *sends,
                      int64_t send_count, const otr_plugin_transfer *receives,
                      int64_t receive_count, otr_plugin_request **out_request);

  /* 1: it is over, and freed. A failure frees it, too: OTR_E_PEER_DEAD where the library says that
   * a process has ended. Its memory may then still be written. */
  int32_t (*test)(otr_plugin_request *request, int32_t *out_done);

  /* Messages of OTR_PLUGIN_MESSAGE_BYTES, beside operations. Any thread, at any time. */
  int32_t (*send_message)(otr_plugin_channel *channel, int32_t to, const void *message);
  int32_t (*receive_message)(otr_plugin_channel *channel, void *message, int32_t *out_has);
  /* The ranks that the library knows to have ended, as far as there is room; none where it cannot
   * know. */
  int32_t (*failed)(otr_plugin_channel *channel, int32_t *ranks, int64_t room, int64_t *out_count);
} otr_transport_plugin;

/* A table may end here. */
#define OTR_TRANSPORT_PLUGIN_LEAST_SIZE sizeof(otr_transport_plugin)

typedef const otr_transport_plugin *(*otr_transport_plugin_function)(void);

#ifdef __cplusplus
}
#endif

#endif /* OUTRIGGER_PLUGIN_H */
