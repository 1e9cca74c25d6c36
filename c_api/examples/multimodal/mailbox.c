/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create, syscall */
#include "mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../gpt/check.h"

enum { PAGE = 4096 };

/* What a rank sends to another one: this header, and behind it the slots. */
typedef struct channel {
  _Atomic uint32_t sent; /* messages so far, modulo 2³²; number n lies in slot n % slots */
  uint32_t reserved;
  uint64_t bytes[MOST_SLOTS]; /* of the message in each slot */
} channel;

_Static_assert(sizeof(channel) <= PAGE, "a channel's header has one page");

/* One rank's memory: world_size channels, one for each receiver. */
typedef struct region {
  int file;
  char *memory;
  uint32_t taken; /* messages that this rank has received from it */
} region;

struct mailbox {
  otr_comm *world;
  otr_comm *alarm; /* the same ranks, for the one question: who was lost? */
  int rank, ranks;
  int slots;
  size_t slot_bytes, channel_bytes, region_bytes;
  double timeout;
  region *regions; /* by rank; this rank's own among them */
};

static char *map(int file, size_t bytes, int protection) {
  void *memory = mmap(NULL, bytes, protection, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) die("cannot map %zu bytes of a mailbox: %s", bytes, strerror(errno));
  return memory;
}

/* A lock on a rank's file, which the system takes away when its process ends, however it ends. */
static struct flock whole_file(short type) {
  const struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
  return lock;
}

static int is_alive(const mailbox *m, int rank) {
  struct flock lock = whole_file(F_WRLCK);
  if (fcntl(m->regions[rank].file, F_GETLK, &lock) != 0) {
    die("cannot ask for rank %d's lock: %s", rank, strerror(errno));
  }
  return lock.l_type != F_UNLCK;
}

static void create_own(mailbox *m) {
  region *own = &m->regions[m->rank];
  struct flock lock = whole_file(F_WRLCK);
  own->file = memfd_create("multimodal-mailbox", MFD_CLOEXEC);
  if (own->file < 0 || ftruncate(own->file, (off_t)m->region_bytes) != 0 ||
      fcntl(own->file, F_SETLK, &lock) != 0) {
    die("cannot make a mailbox of %zu bytes: %s", m->region_bytes, strerror(errno));
  }
  own->memory = map(own->file, m->region_bytes, PROT_READ | PROT_WRITE);
}

/* Another rank's memory, by way of /proc, where its owner's other processes may open it. */
static void open_other(mailbox *m, int rank, const int64_t *place) {
  char path[64];
  region *other = &m->regions[rank];
  snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place[0], (long long)place[1]);
  other->file = open(path, O_RDONLY | O_CLOEXEC);
  if (other->file < 0) die("cannot open rank %d's mailbox, %s: %s", rank, path, strerror(errno));
  other->memory = map(other->file, m->region_bytes, PROT_READ);
}

mailbox *mailbox_open(otr_comm *world, int slots, size_t bytes, double timeout) {
  mailbox *m = allocate(1, sizeof *m);
  if (slots > MOST_SLOTS) die("%d messages under way; at most %d", slots, MOST_SLOTS);
  m->world = world;
  TRY(otr_comm_duplicate(world, &m->alarm));
  TRY(otr_comm_rank(world, &m->rank));
  TRY(otr_comm_size(world, &m->ranks));
  m->slots = slots;
  m->slot_bytes = (bytes + PAGE - 1) / PAGE * PAGE;
  m->channel_bytes = PAGE + (size_t)slots * m->slot_bytes;
  m->region_bytes = (size_t)m->ranks * m->channel_bytes;
  m->timeout = timeout;
  m->regions = allocate(m->ranks, sizeof *m->regions);
  create_own(m);
  const int64_t mine[2] = {getpid(), m->regions[m->rank].file};
  int64_t *all = allocate(m->ranks, sizeof mine);
  TRY(otr_comm_all_gather(world, mine, sizeof mine, all));
  for (int r = 0; r < m->ranks; r++) {
    if (r != m->rank) open_other(m, r, all + (ptrdiff_t)2 * r);
  }
  free(all);
  TRY(otr_comm_barrier(world)); /* nobody ends before all have opened all */
  return m;
}

void mailbox_close(mailbox *m) {
  if (m == NULL) return;
  for (int r = 0; r < m->ranks; r++) {
    munmap(m->regions[r].memory, m->region_bytes);
    close(m->regions[r].file);
  }
  otr_comm_destroy(m->alarm);
  free(m->regions);
  free(m);
}

static channel *channel_of(const mailbox *m, int from, int to) {
  return (channel *)(m->regions[from].memory + (size_t)to * m->channel_bytes);
}

static char *slot_of(const mailbox *m, channel *c, uint32_t number) {
  return (char *)c + PAGE + number % (uint32_t)m->slots * m->slot_bytes;
}

void *mailbox_place(mailbox *m, int to) {
  channel *c = channel_of(m, m->rank, to);
  return slot_of(m, c, atomic_load(&c->sent));
}

void mailbox_send(mailbox *m, int to, size_t bytes) {
  channel *c = channel_of(m, m->rank, to);
  const uint32_t number = atomic_load(&c->sent);
  if (bytes > m->slot_bytes) die("a message of %zu bytes; a place has %zu", bytes, m->slot_bytes);
  c->bytes[number % (uint32_t)m->slots] = bytes;
  atomic_store(&c->sent, number + 1);
  syscall(SYS_futex, &c->sent, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Ends the program. The library knows who was lost first: this rank may only see that a rank is
 * gone that itself has ended for want of another one. */
static void end_without(mailbox *m, int from) {
  TRY(otr_comm_barrier(m->alarm));
  die("rank %d's process has ended, and this rank waits for its message", from);
}

/* Ends the program, and tells the others why. */
static void end_without_word(mailbox *m, int from) {
  char reason[96];
  snprintf(reason, sizeof reason, "rank %d has sent no message for %g s", from, m->timeout);
  otr_comm_abort(m->world, reason);
  otr_comm_abort(m->alarm, reason);
  die("%s", reason);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const void *mailbox_receive(mailbox *m, int from, size_t *out_bytes) {
  channel *c = channel_of(m, from, m->rank);
  const uint32_t number = m->regions[from].taken++;
  const struct timespec pause = {0, 50000000};
  const double limit = now() + m->timeout;
  while (atomic_load(&c->sent) == number) {
    /* Sleeps while `sent` is `number`: until the sender wakes this rank, or for the pause. */
    syscall(SYS_futex, &c->sent, FUTEX_WAIT, number, &pause, NULL, 0);
    if (atomic_load(&c->sent) != number) break;
    if (!is_alive(m, from)) end_without(m, from);
    if (now() > limit) end_without_word(m, from);
  }
  *out_bytes = c->bytes[number % (uint32_t)m->slots];
  if (*out_bytes > m->slot_bytes) die("rank %d sent more than a place has", from);
  return slot_of(m, c, number);
}
