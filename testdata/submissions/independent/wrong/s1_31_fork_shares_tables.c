/* MISTAKE: the child's L1 points to the parent's L2 tables, task 3, shows with any fork */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define MAX_LOGICOS (L1_PT_SIZE * L2_PT_SIZE)

static Sequence *sec(struct list_node *nodo)
{
    return (Sequence *)((char *)nodo - offsetof(Sequence, node));
}

static Sequence *buscar(LLMEngine *m, int id)
{
    for (struct list_node *x = m->active_seqs.next; x != &m->active_seqs; x = x->next)
        if (id == sec(x)->seq_id)
            return sec(x);
    return NULL;
}

static int bloque_libre(const LLMEngine *m)
{
    for (int i = 0; i < m->total_local_blocks; ++i)
        if (0 == m->ref_count[i])
            return i;
    return -1;
}

static void soltar(LLMEngine *m, int bloque)
{
    m->ref_count[bloque] -= 1;
    if (0 == m->ref_count[bloque])
        m->free_local_blocks += 1;
}

static int *tabla(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof(int));
    if (NULL != t)
        for (int i = 0; i < L2_PT_SIZE; ++i)
            t[i] = -1;
    return t;
}

static void borrar(LLMEngine *m, Sequence *s)
{
    int i = 0, j = 0;
    for (i = 0; i < L1_PT_SIZE; ++i) {
        if (NULL == s->block_table[i])
            continue;
        for (j = 0; j < L2_PT_SIZE; ++j)
            if (-1 != s->block_table[i][j])
                soltar(m, s->block_table[i][j]);
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
}

static Sequence *nueva(int id, int registros)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (NULL == s)
        return NULL;
    if (NULL == (s->block_table = malloc(L1_PT_SIZE * sizeof(int *)))) {
        free(s);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; ++i)
        s->block_table[i] = NULL;
    s->seq_id = id;
    s->kv_count = registros;
    return s;
}

static void al_final(LLMEngine *m, Sequence *s)
{
    struct list_node *cabeza = &m->active_seqs;
    s->node.next = cabeza;
    s->node.prev = cabeza->prev;
    cabeza->prev->next = &s->node;
    cabeza->prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (NULL == pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *m = malloc(sizeof(LLMEngine));
    if (NULL == m)
        return NULL;
    m->pool_base_ptr = pool_addr;
    m->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    m->free_local_blocks = m->total_local_blocks;
    m->ref_count = calloc((size_t)m->total_local_blocks, sizeof(int));
    if (NULL == m->ref_count) {
        free(m);
        return NULL;
    }
    m->active_seqs.prev = m->active_seqs.next = &m->active_seqs;
    return m;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (NULL == engine)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (NULL != buscar(engine, seq_id))
        return NULL;
    if (initial_kv_len > MAX_LOGICOS * KV_PER_BLOCK)
        return NULL;
    int requeridos = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (requeridos > engine->free_local_blocks)
        return NULL;
    Sequence *s = nueva(seq_id, initial_kv_len);
    if (NULL == s)
        return NULL;
    for (int k = 0; k < requeridos; ++k) {
        int **t = &s->block_table[k / L2_PT_SIZE];
        if (NULL == *t && NULL == (*t = tabla())) {
            borrar(engine, s);
            return NULL;
        }
        int b = bloque_libre(engine);
        (*t)[k % L2_PT_SIZE] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks -= 1;
    }
    al_final(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (NULL == engine)
        return -1;
    Sequence *s = buscar(engine, seq_id);
    if (NULL == s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    borrar(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (NULL == engine)
        return NULL;
    Sequence *padre = buscar(engine, parent_seq_id);
    if (NULL == padre)
        return NULL;
    if (NULL != buscar(engine, new_seq_id))
        return NULL;
    Sequence *hija = nueva(new_seq_id, padre->kv_count);
    if (NULL == hija)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        const int *de = padre->block_table[i];
        if (NULL == de)
            continue;
        int *a = padre->block_table[i];
        if (NULL == a) {
            borrar(engine, hija);
            return NULL;
        }
        hija->block_table[i] = a;
        for (int j = 0; j < L2_PT_SIZE; ++j)
            if (-1 != de[j])
                engine->ref_count[a[j] = de[j]] += 1;
    }
    al_final(engine, hija);
    return hija;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (NULL == engine)
        return -1;
    enum { BUSCAR, TRADUCIR, SIN_MEMORIA, TABLA, BLOQUE, COPIAR, ESCRIBIR } estado = BUSCAR;
    Sequence *s = NULL;
    int i = 0, j = 0, viejo = -1, bloque = -1;
    char *base = engine->pool_base_ptr;

    for (;;) {
        switch (estado) {
        case BUSCAR:
            s = buscar(engine, seq_id);
            if (NULL == s)
                return -1;
            estado = TRADUCIR;
            break;
        case TRADUCIR: {
            int logico = s->kv_count / KV_PER_BLOCK;
            if (logico >= MAX_LOGICOS)
                return -1;
            i = logico / L2_PT_SIZE;
            j = logico % L2_PT_SIZE;
            viejo = NULL == s->block_table[i] ? -1 : s->block_table[i][j];
            bloque = viejo;
            estado = (-1 == viejo || engine->ref_count[viejo] > 1) ? SIN_MEMORIA : ESCRIBIR;
            break;
        }
        case SIN_MEMORIA:
            if (0 == engine->free_local_blocks)
                return -1;
            estado = NULL == s->block_table[i] ? TABLA : BLOQUE;
            break;
        case TABLA:
            s->block_table[i] = tabla();
            if (NULL == s->block_table[i])
                return -1;
            estado = BLOQUE;
            break;
        case BLOQUE:
            bloque = bloque_libre(engine);
            engine->ref_count[bloque] = 1;
            engine->free_local_blocks -= 1;
            s->block_table[i][j] = bloque;
            estado = -1 == viejo ? ESCRIBIR : COPIAR;
            break;
        case COPIAR:
            memcpy(base + (size_t)bloque * BLOCK_SIZE, base + (size_t)viejo * BLOCK_SIZE, BLOCK_SIZE);
            soltar(engine, viejo);
            estado = ESCRIBIR;
            break;
        case ESCRIBIR:
            ((int *)(base + (size_t)bloque * BLOCK_SIZE))[s->kv_count % KV_PER_BLOCK] = kv_data;
            s->kv_count += 1;
            return 0;
        }
    }
}

int llm_destroy(LLMEngine *engine)
{
    if (NULL == engine)
        return -1;
    struct list_node *x = engine->active_seqs.next;
    while (x != &engine->active_seqs) {
        struct list_node *sig = x->next;
        borrar(engine, sec(x));
        x = sig;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
