/* SPDX-License-Identifier: Apache-2.0 */
#include "summary.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

memory_use memory_over_ranks(otr_comm *comm, const otr_engine *engine) {
  otr_memory_entry entries[SUMMARY_MAX_PURPOSES] = {{0}};
  memory_use use = {.count = SUMMARY_MAX_PURPOSES};
  entries[0].struct_size = (uint32_t)sizeof entries[0];
  TRY(otr_engine_memory(engine, entries, &use.count));
  for (size_t i = 0; i < use.count; i++) {
    use.purpose[i] = entries[i].purpose;
    use.resident[i] = (double)entries[i].resident_bytes;
    use.peak[i] = (double)entries[i].peak_bytes;
  }
  TRY(otr_comm_all_reduce_sum(comm, use.resident, use.count));
  TRY(otr_comm_all_reduce_sum(comm, use.peak, use.count));
  return use;
}

void summary_print(const summary *s) {
  double n = (double)s->parameters;
  printf("%lld parameters, %d rank%s, %lld steps of %.1f ms\n", (long long)s->parameters,
         (int)s->world, s->world == 1 ? "" : "s", (long long)s->steps, 1e3 * s->seconds_per_step);
  printf("held-out %.4f nats per character (bigram table %.4f)\n", s->held_out, s->bigram);
  if (s->updates > 0) {
    printf("%.2f %% of updates vanished\n", 100.0 * (double)s->vanished / (double)s->updates);
  }
  size_t total = s->memory.count - 1;
  printf("%.2f bytes per parameter on all ranks together, %.2f at the peak\n",
         s->memory.resident[total] / n, s->memory.peak[total] / n);
  if (s->sample[0] != '\0') printf("---\n%s\n---\n", s->sample);
}

static void write_string(FILE *file, const char *text) {
  fputc('"', file);
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') {
      fprintf(file, "\\%c", *c);
    } else if (*c < 0x20 || *c > 0x7e) {
      fprintf(file, "\\u%04x", *c);
    } else {
      fputc(*c, file);
    }
  }
  fputc('"', file);
}

void summary_write(const summary *s, const char *path) {
  FILE *file = fopen(path, "w");
  if (file == NULL) die("cannot write %s: %s", path, strerror(errno));
  fprintf(file, "{\"name\": ");
  write_string(file, s->name);
  fprintf(file, ",\n \"world\": %d, \"parameters\": %lld, \"steps\": %lld, \"tokens\": %lld,\n",
          (int)s->world, (long long)s->parameters, (long long)s->steps, (long long)s->tokens);
  fprintf(file, " \"held_out\": %.6f, \"held_out_characters\": %lld, \"bigram\": %.6f,\n",
          s->held_out, (long long)s->held_out_characters, s->bigram);
  fprintf(file, " \"seconds_per_step\": %.6f, \"updates\": %lld, \"vanished\": %lld,\n",
          s->seconds_per_step, (long long)s->updates, (long long)s->vanished);
  fprintf(file, " \"memory\": [");
  for (size_t i = 0; i < s->memory.count; i++) {
    fprintf(file, "%s\n  {\"purpose\": ", i > 0 ? "," : "");
    write_string(file, s->memory.purpose[i]);
    fprintf(file, ", \"resident_bytes\": %.0f, \"peak_bytes\": %.0f}", s->memory.resident[i],
            s->memory.peak[i]);
  }
  fprintf(file, "],\n \"sample\": ");
  write_string(file, s->sample);
  fprintf(file, "}\n");
  if (fclose(file) != 0) die("cannot write %s: %s", path, strerror(errno));
}
