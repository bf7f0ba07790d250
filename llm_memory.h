/*
 * llm_memory.h - a PagedAttention memory manager: the contract of the CS110
 * homework "vLLM PagedAttention Memory Manager", and nothing else.
 *
 * Every field below may be read and written between calls. After each call the
 * memory is as if the handout's plain algorithm had run: walk active_seqs from
 * the head, take the first block whose ref_count is 0.
 *
 * For the first 16 sequences of a list this holds without conditions. For later
 * ones libllm_memory remembers where each was when it was linked or last found, and
 * checks that memory before it relies on it. The result is exact as long as
 *   - the ids in one list are unique, and every next leads to readable memory,
 *   - a sequence that is unlinked by hand keeps its id and stays readable, as do the
 *     two it stood between, until a call has looked for that id and not found it, or
 *     the engine is destroyed (linking the head to itself unlinks all sequences),
 *   - whoever takes a sequence out of a list sets its neighbours' next and prev,
 *     and none is taken out, or moved to another list, together with both of its
 *     neighbours.
 * LLM_MEMORY_STRICT=1 in the environment lifts the conditions: every look-up
 * then walks the list.
 *
 * Who owns what: the caller owns the pool. Engine, ref_count, sequences and
 * every table are separate malloc allocations; free_sequence and llm_destroy
 * free them. Calls on one engine from several threads are serialised; reading
 * fields while another thread is in a call is a data race.
 */
#ifndef LLM_MEMORY_H
#define LLM_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLOCK_SIZE 64                                     /* bytes in a physical block */
#define KV_SIZE 4                                         /* bytes in a KV record, one int */
#define KV_PER_BLOCK 16                                   /* BLOCK_SIZE / KV_SIZE */
#define L1_PT_SIZE 16                                     /* L2 tables in a sequence */
#define L2_PT_SIZE 16                                     /* block ids in an L2 table */
#define MAX_LOGICAL_BLOCKS 256                            /* L1_PT_SIZE * L2_PT_SIZE */

struct list_node {
    struct list_node *prev;
    struct list_node *next;
};

typedef struct Sequence {
    int seq_id;            /* any int; unique in its engine */
    int **block_table;     /* L1_PT_SIZE pointers to L2 tables, NULL where there is none */
    int kv_count;          /* records held; the next one goes to this position */
    struct list_node node; /* links into LLMEngine.active_seqs */
} Sequence;

typedef struct {
    void *pool_base_ptr;          /* the caller's memory, total_local_blocks * BLOCK_SIZE bytes of it */
    int total_local_blocks;       /* blocks in the pool */
    int free_local_blocks;        /* blocks with a ref_count of 0 */
    int *ref_count;               /* per block, how many table entries name it */
    struct list_node active_seqs; /* dummy head, linked to itself when the list is empty */
} LLMEngine;

/*
 * Task 1. An engine over pool_size / BLOCK_SIZE blocks at pool_addr.
 * NULL when pool_addr is NULL, when pool_size is below BLOCK_SIZE or above
 * INT_MAX blocks, or when malloc fails.
 */
LLMEngine *llm_init(void *pool_addr, size_t pool_size);

/*
 * Task 2. Appends a sequence with blocks for initial_kv_len records to the list; no
 * byte of the pool is written. NULL, with nothing changed, when engine is NULL,
 * initial_kv_len <= 0, seq_id exists, more than MAX_LOGICAL_BLOCKS or more than
 * the free blocks would be needed, or memory is out.
 */
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len);

/*
 * Task 3. A new last sequence that shares every block of its parent. NULL, with
 * nothing changed, when engine is NULL, the parent does not exist, new_seq_id
 * does, or memory is out.
 */
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id);

/*
 * Task 4. Writes kv_data at position kv_count, into a fresh block where none is
 * mapped and into a copy where the block is shared. 0; or -1, with nothing
 * changed, when engine is NULL, the sequence does not exist or is full, no
 * block is free when one is needed, or memory is out.
 */
int append_kv(LLMEngine *engine, int seq_id, int kv_data);

/*
 * Task 2. Drops the sequence's references and frees it. 0, or -1 when engine is
 * NULL or the sequence does not exist.
 */
int free_sequence(LLMEngine *engine, int seq_id);

/*
 * Task 5. Frees the sequences and the engine, never the pool. 0, or -1 when
 * engine is NULL.
 */
int llm_destroy(LLMEngine *engine);

#ifdef __cplusplus
}
#endif

#endif /* LLM_MEMORY_H */
