/* STYLE: French comments, loops written with goto/labels here and there, if-chains instead of && */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define SEQUENCE(n) ((Sequence *)(void *)((char *)(n) - offsetof(Sequence, node)))

/* chercher la séquence par son identifiant */
Sequence *chercher(LLMEngine *moteur, int id)
{
    struct list_node *p = moteur->active_seqs.next;
encore:
    if (p == &moteur->active_seqs)
        return NULL;
    if (SEQUENCE(p)->seq_id == id)
        return SEQUENCE(p);
    p = p->next;
    goto encore;
}

/* allouer la table de niveau 2, toutes les cases à -1 */
int *table_vide(void)
{
    int k = 0;
    int *t = malloc(sizeof(int) * L2_PT_SIZE);
    if (t == NULL)
        return NULL;
remplir:
    t[k] = -1;
    k++;
    if (k < L2_PT_SIZE)
        goto remplir;
    return t;
}

/* premier bloc libre */
int premier_libre(LLMEngine *moteur)
{
    int b;
    for (b = 0; b < moteur->total_local_blocks; b++) {
        if (moteur->ref_count[b] == 0)
            return b;
    }
    return -1;
}

void prendre(LLMEngine *moteur, int b)
{
    moteur->ref_count[b] = 1;
    moteur->free_local_blocks = moteur->free_local_blocks - 1;
}

void rendre(LLMEngine *moteur, int b)
{
    moteur->ref_count[b] = moteur->ref_count[b] - 1;
    if (moteur->ref_count[b] == 0)
        moteur->free_local_blocks = moteur->free_local_blocks + 1;
}

/* tout rendre et tout libérer */
void liberer(LLMEngine *moteur, Sequence *s)
{
    int i, j;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            goto suivante;
        for (j = 0; j < L2_PT_SIZE; j++) {
            if (s->block_table[i][j] != -1)
                rendre(moteur, s->block_table[i][j]);
        }
        free(s->block_table[i]);
suivante:
        ;
    }
    free(s->block_table);
    free(s);
}

Sequence *sequence_vide(int id)
{
    int i;
    Sequence *s = malloc(sizeof(Sequence));
    if (s == NULL)
        goto rien;
    s->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (s->block_table == NULL)
        goto sans_table;
    for (i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    s->seq_id = id;
    s->kv_count = 0;
    return s;
sans_table:
    free(s);
rien:
    return NULL;
}

void ajouter_en_queue(LLMEngine *moteur, Sequence *s)
{
    struct list_node *dernier = moteur->active_seqs.prev;
    dernier->next = &s->node;
    s->node.prev = dernier;
    s->node.next = &moteur->active_seqs;
    moteur->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *moteur;
    if (pool_addr == NULL)
        return NULL;
    if (pool_size < BLOCK_SIZE)
        return NULL;
    moteur = malloc(sizeof(LLMEngine));
    if (moteur == NULL)
        return NULL;
    moteur->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    moteur->free_local_blocks = moteur->total_local_blocks;
    moteur->pool_base_ptr = pool_addr;
    moteur->ref_count = calloc((size_t)moteur->total_local_blocks, sizeof(int));
    if (moteur->ref_count == NULL) {
        free(moteur);
        return NULL;
    }
    moteur->active_seqs.prev = &moteur->active_seqs;
    moteur->active_seqs.next = &moteur->active_seqs;
    return moteur;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    Sequence *s;
    int besoin, k, b;
    if (initial_kv_len <= 0)
        return NULL;
    if (chercher(engine, seq_id) != NULL)
        return NULL;
    /* au-delà de 4096 enregistrements il faudrait plus de 256 blocs */
    if (initial_kv_len > 256 * KV_PER_BLOCK)
        return NULL;
    besoin = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (besoin > engine->free_local_blocks)
        return NULL;
    s = sequence_vide(seq_id);
    if (s == NULL)
        return NULL;
    for (k = 0; k < besoin; k++) {
        if (s->block_table[k / L2_PT_SIZE] == NULL)
            s->block_table[k / L2_PT_SIZE] = table_vide();
        if (s->block_table[k / L2_PT_SIZE] == NULL)
            goto annuler;
        b = premier_libre(engine);
        if (b < 0)
            goto annuler;
        prendre(engine, b);
        s->block_table[k / L2_PT_SIZE][k % L2_PT_SIZE] = b;
    }
    s->kv_count = initial_kv_len;
    ajouter_en_queue(engine, s);
    return s;
annuler:
    liberer(engine, s);
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = chercher(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    liberer(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *pere, *fils;
    int i, j, b;
    pere = chercher(engine, parent_seq_id);
    if (pere == NULL)
        return NULL;
    if (chercher(engine, new_seq_id) != NULL)
        return NULL;
    fils = sequence_vide(new_seq_id);
    if (fils == NULL)
        return NULL;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (pere->block_table[i] == NULL)
            continue;
        fils->block_table[i] = table_vide();
        if (fils->block_table[i] == NULL) {
            liberer(engine, fils);
            return NULL;
        }
        for (j = 0; j < L2_PT_SIZE; j++) {
            b = pere->block_table[i][j];
            if (b == -1)
                continue;
            fils->block_table[i][j] = b;
            engine->ref_count[b] = engine->ref_count[b] + 1;
        }
    }
    fils->kv_count = pere->kv_count;
    ajouter_en_queue(engine, fils);
    return fils;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s;
    int indice, decalage, i, j, ancien, bloc;
    char *base = engine->pool_base_ptr;
    s = chercher(engine, seq_id);
    if (s == NULL)
        return -1;
    indice = s->kv_count / KV_PER_BLOCK;
    decalage = s->kv_count % KV_PER_BLOCK;
    if (indice >= 256)
        return -1;
    i = indice / L2_PT_SIZE;
    j = indice % L2_PT_SIZE;

    ancien = -1;
    if (s->block_table[i] != NULL)
        ancien = s->block_table[i][j];
    bloc = ancien;
    if (ancien == -1)
        goto nouveau;
    if (engine->ref_count[ancien] > 1)
        goto nouveau;
    goto ecrire;

nouveau:
    if (engine->free_local_blocks == 0)
        return -1;
    if (s->block_table[i] == NULL)
        s->block_table[i] = table_vide();
    if (s->block_table[i] == NULL)
        return -1;
    bloc = premier_libre(engine);
    if (ancien != -1) {
        memcpy(base + (size_t)bloc * BLOCK_SIZE, base + (size_t)ancien * BLOCK_SIZE, BLOCK_SIZE);
        rendre(engine, ancien);
    }
    prendre(engine, bloc);
    s->block_table[i][j] = bloc;

ecrire:
    ((int *)(base + (size_t)bloc * BLOCK_SIZE))[decalage] = kv_data;
    s->kv_count = s->kv_count + 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *p = engine->active_seqs.next;
    struct list_node *q;
tour:
    if (p != &engine->active_seqs) {
        q = p->next;
        liberer(engine, SEQUENCE(p));
        p = q;
        goto tour;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
