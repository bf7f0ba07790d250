/* STYLE: Linux kernel style, tabs, container_of and list_for_each macros, small list library */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define list_entry(ptr) container_of(ptr, Sequence, node)
#define list_for_each(pos, head) \
	for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
#define list_for_each_safe(pos, n, head) \
	for ((pos) = (head)->next, (n) = (pos)->next; (pos) != (head); \
	     (pos) = (n), (n) = (pos)->next)

static inline void INIT_LIST_HEAD(struct list_node *list)
{
	list->next = list;
	list->prev = list;
}

static inline void __list_add(struct list_node *new, struct list_node *prev,
			      struct list_node *next)
{
	next->prev = new;
	new->next = next;
	new->prev = prev;
	prev->next = new;
}

static inline void list_add_tail(struct list_node *new, struct list_node *head)
{
	__list_add(new, head->prev, head);
}

static inline void list_del(struct list_node *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
	entry->next = NULL;
	entry->prev = NULL;
}

static Sequence *seq_lookup(LLMEngine *engine, int id)
{
	struct list_node *pos;

	list_for_each(pos, &engine->active_seqs) {
		if (list_entry(pos)->seq_id == id)
			return list_entry(pos);
	}
	return NULL;
}

static int get_block(LLMEngine *engine)
{
	for (int i = 0; i < engine->total_local_blocks; i++) {
		if (engine->ref_count[i] == 0) {
			engine->ref_count[i] = 1;
			engine->free_local_blocks--;
			return i;
		}
	}
	return -1;
}

static void put_block(LLMEngine *engine, int block)
{
	if (--engine->ref_count[block] == 0)
		engine->free_local_blocks++;
}

static int *alloc_pt(void)
{
	int *pt = malloc(sizeof(*pt) * L2_PT_SIZE);

	if (pt)
		memset(pt, 0xff, sizeof(*pt) * L2_PT_SIZE);
	return pt;
}

static Sequence *alloc_seq(int id)
{
	Sequence *seq = calloc(1, sizeof(*seq));

	if (!seq)
		return NULL;
	seq->block_table = calloc(L1_PT_SIZE, sizeof(*seq->block_table));
	if (!seq->block_table) {
		free(seq);
		return NULL;
	}
	for (int i = 0; i < L1_PT_SIZE; i++)
		seq->block_table[i] = NULL;
	seq->seq_id = id;
	INIT_LIST_HEAD(&seq->node);
	return seq;
}

static void release_seq(LLMEngine *engine, Sequence *seq)
{
	for (int i = 0; i < L1_PT_SIZE; i++) {
		if (!seq->block_table[i])
			continue;
		for (int j = 0; j < L2_PT_SIZE; j++)
			if (seq->block_table[i][j] != -1)
				put_block(engine, seq->block_table[i][j]);
		free(seq->block_table[i]);
	}
	free(seq->block_table);
	free(seq);
}

static void *block_addr(const LLMEngine *engine, int block)
{
	return (char *)engine->pool_base_ptr + (ptrdiff_t)block * BLOCK_SIZE;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *engine;

	if (!pool_addr || pool_size < BLOCK_SIZE)
		return NULL;

	engine = malloc(sizeof(*engine));
	if (!engine)
		return NULL;

	engine->pool_base_ptr = pool_addr;
	engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	engine->free_local_blocks = engine->total_local_blocks;
	engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
	if (!engine->ref_count) {
		free(engine);
		return NULL;
	}
	INIT_LIST_HEAD(&engine->active_seqs);
	return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *seq;
	long need;

	if (!engine)
		return NULL;
	if (initial_kv_len <= 0 || seq_lookup(engine, seq_id))
		return NULL;

	need = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (need > L1_PT_SIZE * L2_PT_SIZE || need > engine->free_local_blocks)
		return NULL;

	seq = alloc_seq(seq_id);
	if (!seq)
		return NULL;

	for (int idx = 0; idx < need; idx++) {
		int **l2 = &seq->block_table[idx / L2_PT_SIZE];

		if (!*l2)
			*l2 = alloc_pt();
		if (!*l2)
			goto err;
		(*l2)[idx % L2_PT_SIZE] = get_block(engine);
		if ((*l2)[idx % L2_PT_SIZE] == -1)
			goto err;
	}

	seq->kv_count = initial_kv_len;
	list_add_tail(&seq->node, &engine->active_seqs);
	return seq;
err:
	release_seq(engine, seq);
	return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *seq;

	if (!engine)
		return -1;
	seq = seq_lookup(engine, seq_id);
	if (!seq)
		return -1;
	list_del(&seq->node);
	release_seq(engine, seq);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *parent, *child;

	if (!engine)
		return NULL;
	parent = seq_lookup(engine, parent_seq_id);
	if (!parent || seq_lookup(engine, new_seq_id))
		return NULL;

	child = alloc_seq(new_seq_id);
	if (!child)
		return NULL;

	for (int i = 0; i < L1_PT_SIZE; i++) {
		const int *src = parent->block_table[i];
		int *dst;

		if (!src)
			continue;
		dst = child->block_table[i] = alloc_pt();
		if (!dst) {
			release_seq(engine, child);
			return NULL;
		}
		for (int j = 0; j < L2_PT_SIZE; j++) {
			dst[j] = src[j];
			if (src[j] != -1)
				engine->ref_count[src[j]]++;
		}
	}
	child->kv_count = parent->kv_count;
	list_add_tail(&child->node, &engine->active_seqs);
	return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	Sequence *seq;
	int idx, off, blk, fresh;
	int **l2;

	if (!engine)
		return -1;
	seq = seq_lookup(engine, seq_id);
	if (!seq)
		return -1;

	idx = seq->kv_count / KV_PER_BLOCK;
	off = seq->kv_count % KV_PER_BLOCK;
	if (idx >= L1_PT_SIZE * L2_PT_SIZE)
		return -1;

	l2 = &seq->block_table[idx / L2_PT_SIZE];
	idx %= L2_PT_SIZE;
	blk = *l2 ? (*l2)[idx] : -1;

	if (blk == -1 || engine->ref_count[blk] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
		if (!*l2 && !(*l2 = alloc_pt()))
			return -1;
		fresh = get_block(engine);
		if (blk != -1) {
			memcpy(block_addr(engine, fresh), block_addr(engine, blk), BLOCK_SIZE);
			put_block(engine, blk);
		}
		(*l2)[idx] = blk = fresh;
	}

	((int *)block_addr(engine, blk))[off] = kv_data;
	seq->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	struct list_node *pos, *n;

	if (!engine)
		return -1;
	list_for_each_safe(pos, n, &engine->active_seqs) {
		list_del(pos);
		release_seq(engine, list_entry(pos));
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
