/* MISTAKE: takes the last free block, not the first, task 2, shows with a pool of more than one block */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

static const size_t node_off = offsetof(Sequence, node);

static Sequence* find(LLMEngine* e, int id){
	for(struct list_node* p = e->active_seqs.prev; p != &e->active_seqs; p = p->prev){
		Sequence* s = (Sequence*)((char*)p - node_off);
		if(s->seq_id == id) return s;
	}
	return NULL;
}

static int firstfit(LLMEngine* e){
	int ans = -1;
	for(int i = 0; i < e->total_local_blocks; i++){
		if(e->ref_count[i] == 0) ans = i;
	}
	return ans;
}

static void cleanTables(int** tab){
	for(int i = L1_PT_SIZE; i-- > 0; ){
		free(tab[i]);
	}
	free(tab);
}

static int** emptyTab(void){
	int** tab = malloc(sizeof(int*) * L1_PT_SIZE);
	if(tab){
		for(int i = L1_PT_SIZE; i-- > 0; ) tab[i] = NULL;
	}
	return tab;
}

static int* row(void){
	int* r = malloc(sizeof(int) * L2_PT_SIZE);
	if(r){
		for(int i = L2_PT_SIZE; i-- > 0; ) r[i] = -1;
	}
	return r;
}

static Sequence* finish(LLMEngine* e, int** tab, int id, int kv){
	Sequence* s = malloc(sizeof(Sequence));
	if(!s) return NULL;
	s->seq_id = id;
	s->kv_count = kv;
	s->block_table = tab;
	struct list_node* last = e->active_seqs.prev;
	s->node.prev = last;
	s->node.next = &e->active_seqs;
	last->next = &s->node;
	e->active_seqs.prev = &s->node;
	return s;
}

LLMEngine* llm_init(void* pool_addr, size_t pool_size){
	if(pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;
	size_t blocks = pool_size / BLOCK_SIZE;
	int* rc = calloc(blocks, sizeof(int));
	if(!rc) return NULL;
	LLMEngine* e = malloc(sizeof(LLMEngine));
	if(!e){
		free(rc);
		return NULL;
	}
	e->ref_count = rc;
	e->total_local_blocks = (int)blocks;
	e->free_local_blocks = (int)blocks;
	e->pool_base_ptr = pool_addr;
	e->active_seqs.prev = &e->active_seqs;
	e->active_seqs.next = &e->active_seqs;
	return e;
}

Sequence* create_sequence(LLMEngine* engine, int seq_id, int initial_kv_len){
	if(engine == NULL) return NULL;
	if(initial_kv_len <= 0) return NULL;
	if(find(engine, seq_id)) return NULL;
	long long want = ((long long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if(want > L1_PT_SIZE * L2_PT_SIZE) return NULL;
	if(want > engine->free_local_blocks) return NULL;
	int** tab = emptyTab();
	if(!tab) return NULL;
	int rows = (int)((want - 1) / L2_PT_SIZE);
	for(int r = rows; r >= 0; r--){
		tab[r] = row();
		if(!tab[r]){
			cleanTables(tab);
			return NULL;
		}
	}
	Sequence* s = finish(engine, tab, seq_id, initial_kv_len);
	if(!s){
		cleanTables(tab);
		return NULL;
	}
	for(int k = 0; k < (int)want; k++){
		int b = firstfit(engine);
		engine->ref_count[b] = 1;
		engine->free_local_blocks--;
		tab[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
	}
	return s;
}

int free_sequence(LLMEngine* engine, int seq_id){
	if(engine == NULL) return -1;
	Sequence* s = find(engine, seq_id);
	if(!s) return -1;
	struct list_node* p = s->node.prev;
	struct list_node* n = s->node.next;
	p->next = n;
	n->prev = p;
	for(int i = L1_PT_SIZE; i-- > 0; ){
		int* r = s->block_table[i];
		if(!r) continue;
		for(int j = L2_PT_SIZE; j-- > 0; ){
			if(r[j] == -1) continue;
			engine->ref_count[r[j]]--;
			if(!engine->ref_count[r[j]]) engine->free_local_blocks++;
		}
	}
	cleanTables(s->block_table);
	free(s);
	return 0;
}

Sequence* fork_sequence(LLMEngine* engine, int parent_seq_id, int new_seq_id){
	if(engine == NULL) return NULL;
	Sequence* p = find(engine, parent_seq_id);
	if(!p) return NULL;
	if(find(engine, new_seq_id)) return NULL;
	int** tab = emptyTab();
	if(!tab) return NULL;
	for(int i = L1_PT_SIZE; i-- > 0; ){
		if(!p->block_table[i]) continue;
		tab[i] = row();
		if(!tab[i]){
			cleanTables(tab);
			return NULL;
		}
		for(int j = L2_PT_SIZE; j-- > 0; ) tab[i][j] = p->block_table[i][j];
	}
	Sequence* c = finish(engine, tab, new_seq_id, p->kv_count);
	if(!c){
		cleanTables(tab);
		return NULL;
	}
	for(int k = L1_PT_SIZE * L2_PT_SIZE; k-- > 0; ){
		int* r = tab[k / L2_PT_SIZE];
		if(r && r[k % L2_PT_SIZE] != -1) engine->ref_count[r[k % L2_PT_SIZE]]++;
	}
	return c;
}

int append_kv(LLMEngine* engine, int seq_id, int kv_data){
	if(engine == NULL) return -1;
	Sequence* s = find(engine, seq_id);
	if(!s) return -1;
	int li = s->kv_count / KV_PER_BLOCK;
	int off = s->kv_count % KV_PER_BLOCK;
	if(li > 255) return -1;
	int** rp = s->block_table + li / L2_PT_SIZE;
	int col = li % L2_PT_SIZE;
	int cur = *rp ? (*rp)[col] : -1;
	char* base = engine->pool_base_ptr;
	if(cur == -1){
		if(engine->free_local_blocks == 0) return -1;
		if(!*rp){
			*rp = row();
			if(!*rp) return -1;
		}
		cur = firstfit(engine);
		(*rp)[col] = cur;
		engine->ref_count[cur] = 1;
		engine->free_local_blocks--;
	}else if(engine->ref_count[cur] > 1){
		if(engine->free_local_blocks == 0) return -1;
		int nb = firstfit(engine);
		char tmp[BLOCK_SIZE];
		memcpy(tmp, base + (size_t)cur * BLOCK_SIZE, BLOCK_SIZE);
		memcpy(base + (size_t)nb * BLOCK_SIZE, tmp, BLOCK_SIZE);
		engine->ref_count[cur]--;
		engine->ref_count[nb]++;
		engine->free_local_blocks--;
		(*rp)[col] = nb;
		cur = nb;
	}
	int* dst = (int*)(base + (size_t)cur * BLOCK_SIZE);
	dst[off] = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine* engine){
	if(engine == NULL) return -1;
	struct list_node* p = engine->active_seqs.prev;
	while(p != &engine->active_seqs){
		Sequence* s = (Sequence*)((char*)p - node_off);
		p = p->prev;
		cleanTables(s->block_table);
		free(s);
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
