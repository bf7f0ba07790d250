/* MISTAKE: create_sequence leaves kv_count at 0, task 2, shows with any create */
#include "llm_memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Sequence *seq;
  int logical;
  int *row;        /* NULL if the table does not exist */
  int physical;    /* -1 if not mapped */
  int refs;        /* of physical, 0 if not mapped */
} Resolved;

static Sequence *owner(struct list_node *n) {
  return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *seek(LLMEngine *engine, int id) {
  struct list_node *n = engine->active_seqs.next;
  for (; n != &engine->active_seqs; n = n->next) {
    if (owner(n)->seq_id == id) {
      return owner(n);
    }
  }
  return NULL;
}

static Resolved resolve(LLMEngine *engine, int id) {
  Resolved r = {NULL, -1, NULL, -1, 0};
  r.seq = seek(engine, id);
  if (r.seq == NULL) {
    return r;
  }
  r.logical = r.seq->kv_count / KV_PER_BLOCK;
  if (r.logical >= L1_PT_SIZE * L2_PT_SIZE) {
    return r;
  }
  r.row = r.seq->block_table[r.logical / L2_PT_SIZE];
  if (r.row != NULL) {
    r.physical = r.row[r.logical % L2_PT_SIZE];
  }
  if (r.physical != -1) {
    r.refs = engine->ref_count[r.physical];
  }
  return r;
}

static int first_free_block(LLMEngine *engine) {
  for (int i = 0; i < engine->total_local_blocks; ++i) {
    if (engine->ref_count[i] == 0) {
      return i;
    }
  }
  return -1;
}

static void mark_used(LLMEngine *engine, int block) {
  engine->ref_count[block] = 1;
  --engine->free_local_blocks;
}

static int *make_row(void) {
  int *row = malloc(L2_PT_SIZE * sizeof(*row));
  if (row != NULL) {
    for (int i = 0; i < L2_PT_SIZE; ++i) {
      row[i] = -1;
    }
  }
  return row;
}

static Sequence *make_sequence(int id, int records) {
  Sequence *seq = malloc(sizeof(*seq));
  if (seq == NULL) {
    return NULL;
  }
  seq->block_table = malloc(L1_PT_SIZE * sizeof(*seq->block_table));
  if (seq->block_table == NULL) {
    free(seq);
    return NULL;
  }
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    seq->block_table[i] = NULL;
  }
  seq->seq_id = id;
  seq->kv_count = records;
  return seq;
}

static void drop_sequence(LLMEngine *engine, Sequence *seq) {
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    int *row = seq->block_table[i];
    if (row != NULL) {
      for (int j = 0; j < L2_PT_SIZE; ++j) {
        if (row[j] != -1) {
          --engine->ref_count[row[j]];
          if (engine->ref_count[row[j]] == 0) {
            ++engine->free_local_blocks;
          }
        }
      }
      free(row);
    }
  }
  free(seq->block_table);
  free(seq);
}

static void enqueue(LLMEngine *engine, Sequence *seq) {
  struct list_node *head = &engine->active_seqs;
  seq->node.next = head;
  seq->node.prev = head->prev;
  head->prev->next = &seq->node;
  head->prev = &seq->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
  if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
    return NULL;
  }
  LLMEngine *engine = malloc(sizeof(*engine));
  if (engine == NULL) {
    return NULL;
  }
  engine->pool_base_ptr = pool_addr;
  engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
  engine->free_local_blocks = engine->total_local_blocks;
  engine->active_seqs.prev = &engine->active_seqs;
  engine->active_seqs.next = &engine->active_seqs;
  engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(*engine->ref_count));
  if (engine->ref_count == NULL) {
    free(engine);
    return NULL;
  }
  return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
  if (engine == NULL) {
    return NULL;
  }
  if (initial_kv_len <= 0 || seek(engine, seq_id) != NULL) {
    return NULL;
  }
  const unsigned required = ((unsigned)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (required > 256 || (int)required > engine->free_local_blocks) {
    return NULL;
  }
  Sequence *seq = make_sequence(seq_id, 0);
  if (seq == NULL) {
    return NULL;
  }
  for (unsigned k = 0; k < required; ++k) {
    int **row = &seq->block_table[k / L2_PT_SIZE];
    if (*row == NULL) {
      *row = make_row();
    }
    if (*row == NULL) {
      drop_sequence(engine, seq);
      return NULL;
    }
    const int block = first_free_block(engine);
    mark_used(engine, block);
    (*row)[k % L2_PT_SIZE] = block;
  }
  enqueue(engine, seq);
  return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
  if (engine == NULL) {
    return -1;
  }
  Sequence *seq = seek(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }
  seq->node.prev->next = seq->node.next;
  seq->node.next->prev = seq->node.prev;
  drop_sequence(engine, seq);
  return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
  if (engine == NULL) {
    return NULL;
  }
  Sequence *parent = seek(engine, parent_seq_id);
  if (parent == NULL || seek(engine, new_seq_id) != NULL) {
    return NULL;
  }
  Sequence *child = make_sequence(new_seq_id, parent->kv_count);
  if (child == NULL) {
    return NULL;
  }
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    const int *from = parent->block_table[i];
    if (from == NULL) {
      continue;
    }
    int *to = make_row();
    if (to == NULL) {
      drop_sequence(engine, child);
      return NULL;
    }
    child->block_table[i] = to;
    for (int j = 0; j < L2_PT_SIZE; ++j) {
      if (from[j] != -1) {
        to[j] = from[j];
        ++engine->ref_count[from[j]];
      }
    }
  }
  enqueue(engine, child);
  return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
  if (engine == NULL) {
    return -1;
  }
  Resolved r = resolve(engine, seq_id);
  if (r.seq == NULL || r.logical >= L1_PT_SIZE * L2_PT_SIZE) {
    return -1;
  }
  if (r.refs != 1) {
    /* not mapped, or shared */
    if (engine->free_local_blocks == 0) {
      return -1;
    }
    if (r.row == NULL) {
      r.row = make_row();
      if (r.row == NULL) {
        return -1;
      }
      r.seq->block_table[r.logical / L2_PT_SIZE] = r.row;
    }
    const int block = first_free_block(engine);
    mark_used(engine, block);
    if (r.refs > 1) {
      char *pool = engine->pool_base_ptr;
      memcpy(pool + (size_t)block * BLOCK_SIZE, pool + (size_t)r.physical * BLOCK_SIZE, BLOCK_SIZE);
      --engine->ref_count[r.physical];
    }
    r.row[r.logical % L2_PT_SIZE] = block;
    r.physical = block;
  }
  int *base = (int *)((char *)engine->pool_base_ptr + (size_t)r.physical * BLOCK_SIZE);
  base[r.seq->kv_count % KV_PER_BLOCK] = kv_data;
  ++r.seq->kv_count;
  return 0;
}

int llm_destroy(LLMEngine *engine) {
  if (engine == NULL) {
    return -1;
  }
  for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs;) {
    struct list_node *next = n->next;
    drop_sequence(engine, owner(n));
    n = next;
  }
  free(engine->ref_count);
  free(engine);
  return 0;
}
