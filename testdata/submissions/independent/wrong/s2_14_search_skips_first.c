/* MISTAKE: the search starts at the second sequence, task 2, shows with the first sequence of the list */
#include "llm_memory.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* 位置 */
struct Basho {
	int dan1;	/* L1 */
	int dan2;	/* L2 */
	int oku;	/* ブロック内 */
};

static struct Basho basho(int kazu) {
	struct Basho b;
	b.oku = kazu % KV_PER_BLOCK;
	kazu /= KV_PER_BLOCK;
	b.dan2 = kazu % L2_PT_SIZE;
	b.dan1 = kazu / L2_PT_SIZE;
	return b;
}

/* ノードから列へ */
static Sequence *retsu(struct list_node *n) {
	return (Sequence *)((char *)n - offsetof(Sequence, node));
}

/* 探す */
static int sagasu(LLMEngine *e, int ban, Sequence **kotae) {
	for (struct list_node *n = e->active_seqs.next->next; n != &e->active_seqs; n = n->next) {
		if (retsu(n)->seq_id == ban) {
			if (kotae)
				*kotae = retsu(n);
			return 1;
		}
	}
	return 0;
}

/* 空きブロックを取る */
static int toru(LLMEngine *e) {
	for (int i = 0; i < e->total_local_blocks; i++) {
		if (e->ref_count[i] == 0) {
			e->ref_count[i] = 1;
			e->free_local_blocks--;
			return i;
		}
	}
	return -1;
}

static void kaesu(LLMEngine *e, int i) {
	if (--e->ref_count[i] == 0)
		e->free_local_blocks++;
}

/* 表を用意する */
static int *hyou(int **doko) {
	if (*doko == NULL) {
		int *t = malloc(L2_PT_SIZE * sizeof(int));
		if (t == NULL)
			return NULL;
		for (int i = 0; i < L2_PT_SIZE; i++)
			t[i] = -1;
		*doko = t;
	}
	return *doko;
}

static Sequence *umu(int ban, int kazu) {
	Sequence *s = malloc(sizeof(*s));
	if (s == NULL)
		return NULL;
	s->block_table = malloc(L1_PT_SIZE * sizeof(*s->block_table));
	if (s->block_table == NULL) {
		free(s);
		return NULL;
	}
	for (int i = 0; i < L1_PT_SIZE; i++)
		s->block_table[i] = NULL;
	s->seq_id = ban;
	s->kv_count = kazu;
	return s;
}

static void kesu(LLMEngine *e, Sequence *s) {
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *t = s->block_table[i];
		if (t == NULL)
			continue;
		for (int j = 0; j < L2_PT_SIZE; j++) {
			if (t[j] != -1)
				kaesu(e, t[j]);
		}
		free(t);
	}
	free(s->block_table);
	free(s);
}

static void narabu(LLMEngine *e, Sequence *s) {
	struct list_node *saigo = e->active_seqs.prev;
	saigo->next = &s->node;
	s->node.prev = saigo;
	s->node.next = &e->active_seqs;
	e->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		return NULL;
	LLMEngine *e = malloc(sizeof(*e));
	if (e == NULL)
		return NULL;
	e->pool_base_ptr = pool_addr;
	e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	e->free_local_blocks = e->total_local_blocks;
	e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(*e->ref_count));
	if (e->ref_count == NULL) {
		free(e);
		return NULL;
	}
	e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
	return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
	if (engine == NULL)
		return NULL;
	if (initial_kv_len <= 0 || sagasu(engine, seq_id, NULL))
		return NULL;
	if (initial_kv_len > 256 * KV_PER_BLOCK)
		return NULL;
	int iru = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (iru > engine->free_local_blocks)
		return NULL;
	Sequence *s = umu(seq_id, initial_kv_len);
	if (s == NULL)
		return NULL;
	for (int k = 0; k < initial_kv_len; k += KV_PER_BLOCK) {
		struct Basho b = basho(k);
		if (hyou(&s->block_table[b.dan1]) == NULL) {
			kesu(engine, s);
			return NULL;
		}
		s->block_table[b.dan1][b.dan2] = toru(engine);
	}
	narabu(engine, s);
	return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
	if (engine == NULL)
		return -1;
	Sequence *s;
	if (!sagasu(engine, seq_id, &s))
		return -1;
	s->node.prev->next = s->node.next;
	s->node.next->prev = s->node.prev;
	kesu(engine, s);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
	if (engine == NULL)
		return NULL;
	Sequence *oya;
	if (!sagasu(engine, parent_seq_id, &oya) || sagasu(engine, new_seq_id, NULL))
		return NULL;
	Sequence *ko = umu(new_seq_id, oya->kv_count);
	if (ko == NULL)
		return NULL;
	for (int i = 0; i < L1_PT_SIZE; i++) {
		if (oya->block_table[i] == NULL)
			continue;
		if (hyou(&ko->block_table[i]) == NULL) {
			kesu(engine, ko);
			return NULL;
		}
		for (int j = 0; j < L2_PT_SIZE; j++) {
			int blk = oya->block_table[i][j];
			ko->block_table[i][j] = blk;
			if (blk != -1)
				engine->ref_count[blk]++;
		}
	}
	narabu(engine, ko);
	return ko;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
	if (engine == NULL)
		return -1;
	Sequence *s;
	if (!sagasu(engine, seq_id, &s))
		return -1;
	struct Basho b = basho(s->kv_count);
	if (b.dan1 >= L1_PT_SIZE)	/* logical_idx >= 256 と同じ */
		return -1;
	int *t = s->block_table[b.dan1];
	int mae = (t != NULL) ? t[b.dan2] : -1;
	char *pool = engine->pool_base_ptr;
	if (mae == -1 || engine->ref_count[mae] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
		t = hyou(&s->block_table[b.dan1]);
		if (t == NULL)
			return -1;
		t[b.dan2] = toru(engine);
		if (mae != -1) {
			memcpy(pool + (size_t)t[b.dan2] * BLOCK_SIZE, pool + (size_t)mae * BLOCK_SIZE, BLOCK_SIZE);
			kaesu(engine, mae);
		}
	}
	int *kioku = (int *)(pool + (size_t)t[b.dan2] * BLOCK_SIZE);
	kioku[b.oku] = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine) {
	if (engine == NULL)
		return -1;
	struct list_node *n = engine->active_seqs.next;
	while (n != &engine->active_seqs) {
		Sequence *s = retsu(n);
		n = n->next;
		kesu(engine, s);
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
