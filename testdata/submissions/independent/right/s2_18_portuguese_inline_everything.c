/* STYLE: Portuguese names, all helpers static inline, one-line ifs, ?: returns */
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

#define NADA (-1)
#define TETO (L1_PT_SIZE * L2_PT_SIZE)

static inline Sequence *dono(struct list_node *no) { return (Sequence *)((char *)no - offsetof(Sequence, node)); }
static inline struct list_node *cabeca(LLMEngine *m) { return &m->active_seqs; }
static inline char *endereco(LLMEngine *m, int b) { return (char *)m->pool_base_ptr + (size_t)b * BLOCK_SIZE; }

static inline Sequence *procura(LLMEngine *m, int id)
{
    struct list_node *no = cabeca(m)->next;
    while (no != cabeca(m) && dono(no)->seq_id != id) no = no->next;
    return no == cabeca(m) ? NULL : dono(no);
}

static inline int livre(LLMEngine *m)
{
    for (int b = 0; b < m->total_local_blocks; b++) if (m->ref_count[b] == 0) return b;
    return NADA;
}

static inline int pega(LLMEngine *m)
{
    int b = livre(m);
    if (b == NADA) return NADA;
    m->ref_count[b] = 1;
    m->free_local_blocks--;
    return b;
}

static inline void solta(LLMEngine *m, int b)
{
    m->ref_count[b]--;
    m->free_local_blocks += m->ref_count[b] == 0 ? 1 : 0;
}

static inline int *tabela_nova(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof *t);
    if (t) for (int k = 0; k < L2_PT_SIZE; k++) t[k] = NADA;
    return t;
}

static inline void apaga_memoria(Sequence *s)
{
    for (int k = 0; k < L1_PT_SIZE; k++) free(s->block_table[k]);
    free(s->block_table);
    free(s);
}

static inline void solta_tudo(LLMEngine *m, Sequence *s)
{
    for (int k = 0; k < L1_PT_SIZE; k++) {
        if (!s->block_table[k]) continue;
        for (int l = 0; l < L2_PT_SIZE; l++) if (s->block_table[k][l] != NADA) solta(m, s->block_table[k][l]);
    }
}

static inline Sequence *nova(int id, int n)
{
    Sequence *s = malloc(sizeof *s);
    int **raiz = malloc(L1_PT_SIZE * sizeof *raiz);
    if (!s || !raiz) { free(s); free(raiz); return NULL; }
    for (int k = 0; k < L1_PT_SIZE; k++) raiz[k] = NULL;
    s->block_table = raiz;
    s->seq_id = id;
    s->kv_count = n;
    return s;
}

static inline Sequence *poe_no_fim(LLMEngine *m, Sequence *s)
{
    s->node.prev = cabeca(m)->prev;
    s->node.next = cabeca(m);
    cabeca(m)->prev->next = &s->node;
    cabeca(m)->prev = &s->node;
    return s;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;
    LLMEngine *m = malloc(sizeof *m);
    if (!m) return NULL;
    m->pool_base_ptr = pool_addr;
    m->total_local_blocks = m->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    m->ref_count = calloc((size_t)m->total_local_blocks, sizeof *m->ref_count);
    if (!m->ref_count) { free(m); return NULL; }
    cabeca(m)->prev = cabeca(m)->next = cabeca(m);
    return m;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (procura(engine, seq_id)) return NULL;
    if (initial_kv_len > TETO * KV_PER_BLOCK) return NULL;
    int quantos = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (quantos > engine->free_local_blocks) return NULL;
    Sequence *s = nova(seq_id, initial_kv_len);
    if (!s) return NULL;
    for (int k = 0; k * L2_PT_SIZE < quantos; k++)
        if (!(s->block_table[k] = tabela_nova())) { apaga_memoria(s); return NULL; }
    for (int k = 0; k < quantos; k++) s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = pega(engine);
    return poe_no_fim(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) return -1;
    Sequence *s = procura(engine, seq_id);
    if (!s) return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    solta_tudo(engine, s);
    apaga_memoria(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) return NULL;
    Sequence *pai = procura(engine, parent_seq_id);
    if (!pai) return NULL;
    if (procura(engine, new_seq_id)) return NULL;
    Sequence *filho = nova(new_seq_id, pai->kv_count);
    if (!filho) return NULL;
    for (int k = 0; k < L1_PT_SIZE; k++)
        if (pai->block_table[k] && !(filho->block_table[k] = tabela_nova())) { apaga_memoria(filho); return NULL; }
    for (int k = 0; k < L1_PT_SIZE; k++) {
        if (!pai->block_table[k]) continue;
        for (int l = 0; l < L2_PT_SIZE; l++) {
            int b = filho->block_table[k][l] = pai->block_table[k][l];
            if (b != NADA) engine->ref_count[b]++;
        }
    }
    return poe_no_fim(engine, filho);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) return -1;
    Sequence *s = procura(engine, seq_id);
    if (!s) return -1;
    int logico = s->kv_count / KV_PER_BLOCK, lugar = s->kv_count % KV_PER_BLOCK;
    if (logico >= TETO) return -1;
    int k = logico / L2_PT_SIZE, l = logico % L2_PT_SIZE;
    int b = s->block_table[k] ? s->block_table[k][l] : NADA;
    int copia = b != NADA && engine->ref_count[b] > 1;
    if ((b == NADA || copia) && engine->free_local_blocks == 0) return -1;
    if (!s->block_table[k] && !(s->block_table[k] = tabela_nova())) return -1;
    if (b == NADA) {
        b = s->block_table[k][l] = pega(engine);
    } else if (copia) {
        int outro = pega(engine);
        memcpy(endereco(engine, outro), endereco(engine, b), BLOCK_SIZE);
        solta(engine, b);
        b = s->block_table[k][l] = outro;
    }
    ((int *)endereco(engine, b))[lugar] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) return -1;
    struct list_node *no = cabeca(engine)->next;
    while (no != cabeca(engine)) {
        Sequence *s = dono(no);
        no = no->next;
        apaga_memoria(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
