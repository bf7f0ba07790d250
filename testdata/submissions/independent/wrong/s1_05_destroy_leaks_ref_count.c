/* MISTAKE: llm_destroy does not free ref_count, task 5, shows at any destroy as a leak */
#include "llm_memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

int my_debug = 0;

void my_print_engine(LLMEngine *e) {
  if (!my_debug)
    return;
  printf("[engine] total=%d free=%d\n", e->total_local_blocks, e->free_local_blocks);
  for (struct list_node *n = e->active_seqs.next; n != &e->active_seqs; n = n->next) {
    Sequence *s = (Sequence *)((char *)n - offsetof(Sequence, node));
    printf("   seq %d: %d records\n", s->seq_id, s->kv_count);
  }
}

Sequence *my_get_seq(LLMEngine *e, int id) {
  struct list_node *head = &(e->active_seqs);
  struct list_node *n = head->next;
  while (n != head) {
    char *addr = (char *)n;
    addr = addr - offsetof(Sequence, node);
    Sequence *s = (Sequence *)addr;
    if (s->seq_id == id) {
      return s;
    }
    n = n->next;
  }
  return NULL;
}

int my_find_free_block(LLMEngine *e) {
  int result = -1;
  for (int i = 0; i < e->total_local_blocks; i++) {
    if (e->ref_count[i] == 0) {
      result = i;
      break;
    }
  }
  return result;
}

char *my_block_ptr(LLMEngine *e, int block) {
  char *base = (char *)e->pool_base_ptr;
  size_t off = block;
  off = off * BLOCK_SIZE;
  return base + off;
}

int my_fill_table(int **slot) {
  *slot = (int *)malloc(sizeof(int) * L2_PT_SIZE);
  if (*slot == NULL) {
    return 0;
  }
  for (int i = 0; i < L2_PT_SIZE; i++) {
    (*slot)[i] = -1;
  }
  return 1;
}

void my_free_tables(Sequence *s) {
  for (int i = 0; i < L1_PT_SIZE; i++) {
    if (s->block_table[i] != NULL) {
      free(s->block_table[i]);
      s->block_table[i] = NULL;
    }
  }
  free(s->block_table);
  s->block_table = NULL;
  free(s);
}

Sequence *my_alloc_seq(void) {
  Sequence *s = (Sequence *)malloc(sizeof(Sequence));
  if (s == NULL) {
    return NULL;
  }
  s->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
  if (s->block_table == NULL) {
    free(s);
    return NULL;
  }
  for (int i = 0; i < L1_PT_SIZE; i++) {
    s->block_table[i] = NULL;
  }
  return s;
}

void my_push_back(LLMEngine *e, Sequence *s) {
  struct list_node *tail = e->active_seqs.prev;
  tail->next = &s->node;
  s->node.prev = tail;
  s->node.next = &e->active_seqs;
  e->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
  if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
    return NULL;
  }
  LLMEngine *engine = (LLMEngine *)malloc(sizeof(LLMEngine));
  if (engine == NULL) {
    return NULL;
  }
  int total = pool_size / BLOCK_SIZE;
  engine->ref_count = (int *)calloc(total, sizeof(int));
  if (engine->ref_count == NULL) {
    free(engine);
    return NULL;
  }
  engine->total_local_blocks = total;
  engine->free_local_blocks = total;
  engine->pool_base_ptr = pool_addr;
  engine->active_seqs.next = &engine->active_seqs;
  engine->active_seqs.prev = &engine->active_seqs;
  my_print_engine(engine);
  return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
  if (engine == NULL) {
    return NULL;
  }
  if (initial_kv_len <= 0) {
    return NULL;
  }
  if (my_get_seq(engine, seq_id) != NULL) {
    return NULL;
  }
  if (initial_kv_len > 4096) {
    if (my_debug) printf("too long: %d\n", initial_kv_len);
    return NULL;
  }
  int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (required > engine->free_local_blocks) {
    if (my_debug) printf("no room for %d blocks\n", required);
    return NULL;
  }
  Sequence *seq = my_alloc_seq();
  if (seq == NULL) {
    return NULL;
  }
  int tables = (required + L2_PT_SIZE - 1) / L2_PT_SIZE;
  for (int t = 0; t < tables; t++) {
    if (!my_fill_table(&seq->block_table[t])) {
      my_free_tables(seq);
      return NULL;
    }
  }
  for (int b = 0; b < required; b++) {
    int id = my_find_free_block(engine);
    seq->block_table[b / L2_PT_SIZE][b % L2_PT_SIZE] = id;
    engine->ref_count[id] = 1;
    engine->free_local_blocks -= 1;
  }
  seq->seq_id = seq_id;
  seq->kv_count = initial_kv_len;
  my_push_back(engine, seq);
  my_print_engine(engine);
  return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
  if (engine == NULL) {
    return -1;
  }
  Sequence *seq = my_get_seq(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }
  struct list_node *before = seq->node.prev;
  struct list_node *after = seq->node.next;
  before->next = after;
  after->prev = before;
  for (int i = 0; i < L1_PT_SIZE; i++) {
    if (seq->block_table[i] != NULL) {
      for (int j = 0; j < L2_PT_SIZE; j++) {
        int b = seq->block_table[i][j];
        if (b != -1) {
          engine->ref_count[b] -= 1;
          if (engine->ref_count[b] == 0) {
            engine->free_local_blocks += 1;
          }
        }
      }
    }
  }
  my_free_tables(seq);
  my_print_engine(engine);
  return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
  if (engine == NULL) {
    return NULL;
  }
  Sequence *parent = my_get_seq(engine, parent_seq_id);
  if (parent == NULL) {
    return NULL;
  }
  if (my_get_seq(engine, new_seq_id) != NULL) {
    return NULL;
  }
  Sequence *child = my_alloc_seq();
  if (child == NULL) {
    return NULL;
  }
  for (int i = 0; i < L1_PT_SIZE; i++) {
    if (parent->block_table[i] != NULL) {
      if (!my_fill_table(&child->block_table[i])) {
        my_free_tables(child);
        return NULL;
      }
      for (int j = 0; j < L2_PT_SIZE; j++) {
        child->block_table[i][j] = parent->block_table[i][j];
      }
    }
  }
  for (int i = 0; i < L1_PT_SIZE; i++) {
    if (child->block_table[i] != NULL) {
      for (int j = 0; j < L2_PT_SIZE; j++) {
        if (child->block_table[i][j] != -1) {
          engine->ref_count[child->block_table[i][j]] += 1;
        }
      }
    }
  }
  child->kv_count = parent->kv_count;
  child->seq_id = new_seq_id;
  my_push_back(engine, child);
  my_print_engine(engine);
  return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
  if (engine == NULL) {
    return -1;
  }
  Sequence *seq = my_get_seq(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }
  int logical_idx = seq->kv_count / KV_PER_BLOCK;
  int offset = seq->kv_count % KV_PER_BLOCK;
  if (logical_idx >= 256) {
    return -1;
  }
  int l1 = logical_idx / L2_PT_SIZE;
  int l2 = logical_idx % L2_PT_SIZE;
  int unmapped = 1;
  int cow = 0;
  if (seq->block_table[l1] != NULL && seq->block_table[l1][l2] != -1) {
    unmapped = 0;
    if (engine->ref_count[seq->block_table[l1][l2]] > 1) {
      cow = 1;
    }
  }
  if ((unmapped || cow) && engine->free_local_blocks == 0) {
    return -1;
  }
  if (unmapped) {
    if (seq->block_table[l1] == NULL) {
      if (!my_fill_table(&seq->block_table[l1])) {
        return -1;
      }
    }
    int nb = my_find_free_block(engine);
    seq->block_table[l1][l2] = nb;
    engine->ref_count[nb] = 1;
    engine->free_local_blocks -= 1;
  } else if (cow) {
    int ob = seq->block_table[l1][l2];
    int nb = my_find_free_block(engine);
    memcpy(my_block_ptr(engine, nb), my_block_ptr(engine, ob), BLOCK_SIZE);
    engine->ref_count[ob] -= 1;
    engine->ref_count[nb] = 1;
    engine->free_local_blocks -= 1;
    seq->block_table[l1][l2] = nb;
    if (my_debug) printf("cow %d -> %d\n", ob, nb);
  }
  int *data = (int *)my_block_ptr(engine, seq->block_table[l1][l2]);
  data[offset] = kv_data;
  seq->kv_count += 1;
  return 0;
}

int llm_destroy(LLMEngine *engine) {
  if (engine == NULL) {
    return -1;
  }
  while (engine->active_seqs.next != &engine->active_seqs) {
    Sequence *s = (Sequence *)((char *)engine->active_seqs.next - offsetof(Sequence, node));
    free_sequence(engine, s->seq_id);
  }
  free(engine);
  return 0;
}
