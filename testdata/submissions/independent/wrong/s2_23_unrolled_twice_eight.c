/* MISTAKE: unrolled initialisation sets entries 8 to 11 twice and 12 to 15 never, task 2, shows in entries 12 to 15 of tables */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define SET4(t, o, v)	((t)[(o)] = (v), (t)[(o) + 1] = (v), (t)[(o) + 2] = (v), (t)[(o) + 3] = (v))
#define SET16(t, v)	(SET4(t, 0, v), SET4(t, 4, v), SET4(t, 8, v), SET4(t, 8, v))

static Sequence *
ntos(struct list_node *np)
{
	return (Sequence *)((char *)np - offsetof(Sequence, node));
}

static Sequence *
lookup(LLMEngine *ep, int id)
{
	register struct list_node *np;

	for (np = ep->active_seqs.next; np != &ep->active_seqs; np = np->next)
		if (ntos(np)->seq_id == id)
			return ntos(np);
	return NULL;
}

static int
balloc(LLMEngine *ep)
{
	register int b;

	for (b = 0; b < ep->total_local_blocks; b++)
		if (ep->ref_count[b] == 0) {
			ep->ref_count[b] = 1;
			ep->free_local_blocks--;
			return b;
		}
	return -1;
}

static void
bfree(LLMEngine *ep, int b)
{
	if (--ep->ref_count[b] == 0)
		ep->free_local_blocks++;
}

static int *
ptalloc(void)
{
	int *tp;

	if ((tp = malloc(L2_PT_SIZE * sizeof(int))) != NULL)
		SET16(tp, -1);
	return tp;
}

static Sequence *
salloc(int id, int kv)
{
	Sequence *sp;

	if ((sp = malloc(sizeof(Sequence))) == NULL)
		return NULL;
	if ((sp->block_table = malloc(L1_PT_SIZE * sizeof(int *))) == NULL) {
		free(sp);
		return NULL;
	}
	SET16(sp->block_table, NULL);
	SET4(sp->block_table, 12, NULL);
	sp->seq_id = id;
	sp->kv_count = kv;
	return sp;
}

static void
sfree(LLMEngine *ep, Sequence *sp)
{
	register int i, j;
	int *tp;

	for (i = 0; i < L1_PT_SIZE; i++) {
		if ((tp = sp->block_table[i]) == NULL)
			continue;
		for (j = 0; j < L2_PT_SIZE; j++)
			if (tp[j] != -1)
				bfree(ep, tp[j]);
		free(tp);
	}
	free(sp->block_table);
	free(sp);
}

static void
sinsert(LLMEngine *ep, Sequence *sp)
{
	register struct list_node *hp = &ep->active_seqs;

	sp->node.next = hp;
	sp->node.prev = hp->prev;
	hp->prev->next = &sp->node;
	hp->prev = &sp->node;
}

LLMEngine *
llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *ep;

	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		return NULL;
	if ((ep = malloc(sizeof(LLMEngine))) == NULL)
		return NULL;
	ep->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	if ((ep->ref_count = calloc((size_t)ep->total_local_blocks, sizeof(int))) == NULL) {
		free(ep);
		return NULL;
	}
	ep->free_local_blocks = ep->total_local_blocks;
	ep->pool_base_ptr = pool_addr;
	ep->active_seqs.prev = ep->active_seqs.next = &ep->active_seqs;
	return ep;
}

Sequence *
create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
		return NULL;
	Sequence *sp;
	int nb, b, **tpp;

	if (initial_kv_len <= 0)
		return NULL;
	if (lookup(engine, seq_id) != NULL)
		return NULL;
	if (initial_kv_len > L1_PT_SIZE * L2_PT_SIZE * KV_PER_BLOCK)
		return NULL;
	nb = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (nb > engine->free_local_blocks)
		return NULL;
	if ((sp = salloc(seq_id, initial_kv_len)) == NULL)
		return NULL;
	for (b = 0; b < nb; b++) {
		tpp = &sp->block_table[b / L2_PT_SIZE];
		if (*tpp == NULL && (*tpp = ptalloc()) == NULL) {
			sfree(engine, sp);
			return NULL;
		}
		(*tpp)[b % L2_PT_SIZE] = balloc(engine);
	}
	sinsert(engine, sp);
	return sp;
}

int
free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
		return -1;
	Sequence *sp = lookup(engine, seq_id);

	if (sp == NULL)
		return -1;
	sp->node.prev->next = sp->node.next;
	sp->node.next->prev = sp->node.prev;
	sfree(engine, sp);
	return 0;
}

Sequence *
fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
		return NULL;
	Sequence *pp, *cp;
	register int i, j;
	int *from, *to;

	if ((pp = lookup(engine, parent_seq_id)) == NULL)
		return NULL;
	if (lookup(engine, new_seq_id) != NULL)
		return NULL;
	if ((cp = salloc(new_seq_id, pp->kv_count)) == NULL)
		return NULL;
	for (i = 0; i < L1_PT_SIZE; i++) {
		if ((from = pp->block_table[i]) == NULL)
			continue;
		if ((to = cp->block_table[i] = ptalloc()) == NULL) {
			sfree(engine, cp);
			return NULL;
		}
		for (j = 0; j < L2_PT_SIZE; j++)
			if (from[j] != -1) {
				to[j] = from[j];
				engine->ref_count[to[j]]++;
			}
	}
	sinsert(engine, cp);
	return cp;
}

int
append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
		return -1;
	Sequence *sp;
	int lidx, off, ob, nb, **tpp;
	char *base = engine->pool_base_ptr;

	if ((sp = lookup(engine, seq_id)) == NULL)
		return -1;
	lidx = sp->kv_count / KV_PER_BLOCK;
	off = sp->kv_count % KV_PER_BLOCK;
	if (lidx >= 256)
		return -1;
	tpp = &sp->block_table[lidx / L2_PT_SIZE];
	lidx %= L2_PT_SIZE;
	nb = ob = *tpp == NULL ? -1 : (*tpp)[lidx];
	if (ob == -1 || engine->ref_count[ob] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
		if (*tpp == NULL && (*tpp = ptalloc()) == NULL)
			return -1;
		nb = balloc(engine);
		if (ob != -1) {
			memcpy(base + (size_t)nb * BLOCK_SIZE, base + (size_t)ob * BLOCK_SIZE, BLOCK_SIZE);
			bfree(engine, ob);
		}
		(*tpp)[lidx] = nb;
	}
	((int *)(base + (size_t)nb * BLOCK_SIZE))[off] = kv_data;
	sp->kv_count++;
	return 0;
}

int
llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
		return -1;
	register struct list_node *np = engine->active_seqs.next;

	while (np != &engine->active_seqs) {
		Sequence *sp = ntos(np);

		np = np->next;
		sfree(engine, sp);
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
