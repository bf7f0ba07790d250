/* MISTAKE: id 0 is treated as "no sequence", task 2, shows with seq_id 0 */
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

#define LEER (-1)

typedef enum { NUR_LESEN, ANLEGEN } Modus;

static Sequence *umgebend(struct list_node *k)
{
    return (Sequence *) ((char *) k - offsetof(Sequence, node));
}

static Sequence *suche(LLMEngine *w, int nr)
{
    struct list_node *k = w->active_seqs.next;
    if (nr == 0)
        return NULL;
    while (k != &w->active_seqs)
    {
        if (umgebend(k)->seq_id == nr)
            return umgebend(k);
        k = k->next;
    }
    return NULL;
}

/* Zeiger auf den Eintrag des logischen Blocks, NULL wenn es keine Tabelle gibt */
static int *eintrag(Sequence *s, int logisch, Modus modus)
{
    int **tabelle = s->block_table + logisch / L2_PT_SIZE;
    if (*tabelle == NULL && modus == ANLEGEN)
    {
        *tabelle = malloc(L2_PT_SIZE * sizeof(int));
        if (*tabelle != NULL)
            for (int i = 0; i < L2_PT_SIZE; i++)
                (*tabelle)[i] = LEER;
    }
    return *tabelle == NULL ? NULL : *tabelle + logisch % L2_PT_SIZE;
}

/* erster freier Block wird belegt und eingetragen */
static void belege(LLMEngine *w, int *ziel)
{
    for (int b = 0; b < w->total_local_blocks; b++)
    {
        if (w->ref_count[b] == 0)
        {
            w->ref_count[b] = 1;
            w->free_local_blocks--;
            *ziel = b;
            return;
        }
    }
}

static void verzichte(LLMEngine *w, int b)
{
    if (b == LEER)
        return;
    w->ref_count[b]--;
    if (w->ref_count[b] == 0)
        w->free_local_blocks++;
}

static Sequence *rohling(int nr, int anzahl)
{
    Sequence *s = malloc(sizeof(Sequence));
    if (s != NULL)
    {
        s->seq_id = nr;
        s->kv_count = anzahl;
        s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
        if (s->block_table == NULL)
        {
            free(s);
            return NULL;
        }
        for (int i = 0; i < L1_PT_SIZE; i++)
            s->block_table[i] = NULL;
    }
    return s;
}

static void entsorge(LLMEngine *w, Sequence *s)
{
    for (int l = 0; l < L1_PT_SIZE * L2_PT_SIZE; l++)
    {
        int *e = eintrag(s, l, NUR_LESEN);
        if (e != NULL)
            verzichte(w, *e);
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        free(s->block_table[i]);
    free(s->block_table);
    free(s);
}

static void ans_ende(LLMEngine *w, Sequence *s)
{
    struct list_node *kopf = &w->active_seqs;
    s->node.prev = kopf->prev;
    s->node.next = kopf;
    kopf->prev->next = &s->node;
    kopf->prev = &s->node;
}

static char *adresse(LLMEngine *w, int b)
{
    return (char *) w->pool_base_ptr + (size_t) b * BLOCK_SIZE;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *w = malloc(sizeof(LLMEngine));
    if (w == NULL)
        return NULL;
    w->pool_base_ptr = pool_addr;
    w->total_local_blocks = (int) (pool_size / BLOCK_SIZE);
    w->free_local_blocks = w->total_local_blocks;
    w->ref_count = calloc((size_t) w->total_local_blocks, sizeof(int));
    if (w->ref_count == NULL)
    {
        free(w);
        return NULL;
    }
    w->active_seqs.next = w->active_seqs.prev = &w->active_seqs;
    return w;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (suche(engine, seq_id) != NULL)
        return NULL;
    int bedarf = initial_kv_len / KV_PER_BLOCK + (initial_kv_len % KV_PER_BLOCK > 0);
    if (bedarf > L1_PT_SIZE * L2_PT_SIZE || bedarf > engine->free_local_blocks)
        return NULL;
    Sequence *s = rohling(seq_id, initial_kv_len);
    if (s == NULL)
        return NULL;
    for (int l = 0; l < bedarf; l++)
    {
        int *e = eintrag(s, l, ANLEGEN);
        if (e == NULL)
        {
            entsorge(engine, s);
            return NULL;
        }
        belege(engine, e);
    }
    ans_ende(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = suche(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    entsorge(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *vater = suche(engine, parent_seq_id);
    if (vater == NULL || suche(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *kind = rohling(new_seq_id, vater->kv_count);
    if (kind == NULL)
        return NULL;
    for (int l = 0; l < L1_PT_SIZE * L2_PT_SIZE; l++)
    {
        int *alt = eintrag(vater, l, NUR_LESEN);
        if (alt == NULL)
            continue;
        int *neu = eintrag(kind, l, ANLEGEN);
        if (neu == NULL)
        {
            entsorge(engine, kind);
            return NULL;
        }
        *neu = *alt;
        if (*neu != LEER)
            engine->ref_count[*neu]++;
    }
    ans_ende(engine, kind);
    return kind;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = suche(engine, seq_id);
    if (s == NULL)
        return -1;
    int logisch = s->kv_count / KV_PER_BLOCK;
    int platz = s->kv_count % KV_PER_BLOCK;
    if (logisch >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int *e = eintrag(s, logisch, NUR_LESEN);
    int alt = e == NULL ? LEER : *e;
    if (alt == LEER || engine->ref_count[alt] > 1)
    {
        if (engine->free_local_blocks == 0)
            return -1;
        e = eintrag(s, logisch, ANLEGEN);
        if (e == NULL)
            return -1;
        belege(engine, e);
        if (alt != LEER)
            memcpy(adresse(engine, *e), adresse(engine, alt), BLOCK_SIZE);
        verzichte(engine, alt);
    }
    int *worte = (int *) adresse(engine, *e);
    worte[platz] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *k = engine->active_seqs.next;
    while (k != &engine->active_seqs)
    {
        Sequence *s = umgebend(k);
        k = k->next;
        entsorge(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
