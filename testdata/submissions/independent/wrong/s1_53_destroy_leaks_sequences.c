/* MISTAKE: llm_destroy does not free the remaining sequences, task 5, shows as a leak when sequences are left */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
typedef Sequence S; typedef LLMEngine E; typedef struct list_node N;
#define Q(n) ((S *)((char *)(n) - offsetof(S, node)))
#define F(i, n) for (int i = 0; i < (n); i++)
static S *fs(E *e, int d) { N *n, *h = &e->active_seqs; for (n = h->next; n != h && Q(n)->seq_id != d; n = n->next); return n == h ? NULL : Q(n); }
static int bk(E *e) { F(i, e->total_local_blocks) if (!e->ref_count[i]) return e->free_local_blocks--, e->ref_count[i] = 1, i; return -1; }
static int *nt(void) { int *t = malloc(64); if (t) F(i, 16) t[i] = -1; return t; }
static void rl(E *e, S *s) { F(i, 16) { int *t = s->block_table[i]; if (t) F(j, 16) if (t[j] >= 0 && !--e->ref_count[t[j]]) e->free_local_blocks++; free(t); } free(s->block_table); free(s); }
static S *ns(int d, int k) { S *s = malloc(sizeof *s); if (s && !(s->block_table = malloc(16 * sizeof(int *)))) free(s), s = NULL; if (s) { s->seq_id = d, s->kv_count = k; F(i, 16) s->block_table[i] = NULL; } return s; }
static S *at(E *e, S *s) { N *h = &e->active_seqs; s->node.prev = h->prev, s->node.next = h, h->prev->next = &s->node, h->prev = &s->node; return s; }

E *llm_init(void *p, size_t z) {
    if (!p || z < BLOCK_SIZE) return NULL;
    E *e = malloc(sizeof *e); if (!e) return NULL;
    e->pool_base_ptr = p, e->total_local_blocks = e->free_local_blocks = (int)(z / 64), e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
    if (!(e->ref_count = calloc(z / 64, 4))) free(e), e = NULL;
    return e;
}
S *create_sequence(E *e, int d, int k) {
    if (!e) return NULL;
    if (k < 1 || fs(e, d) || k > 4096 || (k + 15) / 16 > e->free_local_blocks) return NULL;
    S *s = ns(d, k); if (!s) return NULL;
    F(b, (k + 15) / 16) { int **t = s->block_table + b / 16; if (!*t && !(*t = nt())) return rl(e, s), NULL; (*t)[b % 16] = bk(e); }
    return at(e, s);
}
int free_sequence(E *e, int d) {
    if (!e) return -1;
    S *s = fs(e, d); if (!s) return -1;
    s->node.prev->next = s->node.next, s->node.next->prev = s->node.prev;
    return rl(e, s), 0;
}
S *fork_sequence(E *e, int a, int d) {
    if (!e) return NULL;
    S *p = fs(e, a), *s; if (!p || fs(e, d) || !(s = ns(d, p->kv_count))) return NULL;
    F(i, 16) if (p->block_table[i]) { int *t = s->block_table[i] = nt(); if (!t) return rl(e, s), NULL; F(j, 16) if ((t[j] = p->block_table[i][j]) != -1) e->ref_count[t[j]]++; }
    return at(e, s);
}
int append_kv(E *e, int d, int v) {
    if (!e) return -1;
    S *s = fs(e, d); if (!s || s->kv_count / 16 >= 256) return -1;
    int l = s->kv_count / 16, **t = s->block_table + l / 16, o = *t ? (*t)[l % 16] : -1, (*m)[16] = e->pool_base_ptr;
    if (o == -1 || e->ref_count[o] > 1) {
        if (!e->free_local_blocks || (!*t && !(*t = nt()))) return -1;
        int b = (*t)[l % 16] = bk(e);
        if (o != -1) memcpy(m[b], m[o], 64), e->ref_count[o]--;
        o = b;
    }
    return m[o][s->kv_count++ % 16] = v, 0;
}
int llm_destroy(E *e) {
    if (!e) return -1;
    return free(e->ref_count), free(e), 0;
}
