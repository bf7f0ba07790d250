/* STYLE: Russian comments (translit names), for(;;) with break, conditions split over flags */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

/* из узла в последовательность */
static Sequence *iz_uzla(struct list_node *uzel) {
    return (Sequence *)((char *)uzel - offsetof(Sequence, node));
}

/* поиск по номеру */
static Sequence *naiti(LLMEngine *d, int nomer) {
    struct list_node *u = d->active_seqs.next;
    for (;;) {
        if (u == &d->active_seqs) break;
        Sequence *s = iz_uzla(u);
        if (s->seq_id == nomer) return s;
        u = u->next;
    }
    return NULL;
}

/* первый свободный блок */
static int svobodnyi(LLMEngine *d) {
    int i;
    for (i = 0; i < d->total_local_blocks; i++) {
        if (d->ref_count[i] == 0) break;
    }
    return i;
}

static int zanyat(LLMEngine *d) {
    int i = svobodnyi(d);
    d->ref_count[i] = 1;
    d->free_local_blocks--;
    return i;
}

static void otpustit(LLMEngine *d, int blok) {
    d->ref_count[blok]--;
    if (d->ref_count[blok] == 0) {
        d->free_local_blocks++;
    }
}

static int *tablica(void) {
    int *t = (int *)malloc(sizeof(int) * L2_PT_SIZE);
    if (t == NULL) return NULL;
    for (int i = 0; i < L2_PT_SIZE; i++) t[i] = -1;
    return t;
}

static Sequence *sozdat(int nomer, int dlina) {
    Sequence *s = (Sequence *)malloc(sizeof(Sequence));
    if (s == NULL) return NULL;
    s->seq_id = nomer;
    s->kv_count = dlina;
    s->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) s->block_table[i] = NULL;
    return s;
}

/* освободить всё, что есть; список не трогаем */
static void unichtozhit(LLMEngine *d, Sequence *s) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] != NULL) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                if (s->block_table[i][j] != -1) otpustit(d, s->block_table[i][j]);
            }
            free(s->block_table[i]);
        }
    }
    free(s->block_table);
    free(s);
}

static void v_konec(LLMEngine *d, Sequence *s) {
    struct list_node *golova = &d->active_seqs;
    struct list_node *hvost = golova->prev;
    s->node.prev = hvost;
    s->node.next = golova;
    hvost->next = &s->node;
    golova->prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL) return NULL;
    if (pool_size < BLOCK_SIZE) return NULL;
    LLMEngine *d = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (d == NULL) return NULL;
    d->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    d->free_local_blocks = d->total_local_blocks;
    d->pool_base_ptr = pool_addr;
    d->ref_count = (int *)calloc((size_t)d->total_local_blocks, sizeof(int));
    if (d->ref_count == NULL) {
        free(d);
        return NULL;
    }
    d->active_seqs.prev = &d->active_seqs;
    d->active_seqs.next = &d->active_seqs;
    return d;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (naiti(engine, seq_id) != NULL) return NULL;
    /* сначала предел, потом сложение: иначе переполнение */
    if (initial_kv_len > 4096) return NULL;
    int nado = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (nado > engine->free_local_blocks) return NULL;

    Sequence *s = sozdat(seq_id, initial_kv_len);
    if (s == NULL) return NULL;
    int sdelano = 0;
    int oshibka = 0;
    for (int i = 0; i < L1_PT_SIZE && sdelano < nado && !oshibka; i++) {
        s->block_table[i] = tablica();
        if (s->block_table[i] == NULL) {
            oshibka = 1;
            break;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (sdelano == nado) break;
            s->block_table[i][j] = zanyat(engine);
            sdelano++;
        }
    }
    if (oshibka) {
        unichtozhit(engine, s);
        return NULL;
    }
    v_konec(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;
    Sequence *s = naiti(engine, seq_id);
    if (s == NULL) return -1;
    struct list_node *sleva = s->node.prev;
    struct list_node *sprava = s->node.next;
    sleva->next = sprava;
    sprava->prev = sleva;
    unichtozhit(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;
    Sequence *otec = naiti(engine, parent_seq_id);
    if (otec == NULL) return NULL;
    if (naiti(engine, new_seq_id) != NULL) return NULL;
    Sequence *syn = sozdat(new_seq_id, otec->kv_count);
    if (syn == NULL) return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *iz = otec->block_table[i];
        if (iz == NULL) continue;
        int *v = tablica();
        if (v == NULL) {
            unichtozhit(engine, syn);
            return NULL;
        }
        syn->block_table[i] = v;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (iz[j] == -1) continue;
            v[j] = iz[j];
            engine->ref_count[iz[j]]++;
        }
    }
    v_konec(engine, syn);
    return syn;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;
    Sequence *s = naiti(engine, seq_id);
    if (s == NULL) return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE) return -1;
    int i = logical_idx / L2_PT_SIZE;
    int j = logical_idx % L2_PT_SIZE;

    int net_tablicy = s->block_table[i] == NULL;
    int staryi = net_tablicy ? -1 : s->block_table[i][j];
    int net_bloka = staryi == -1;
    int obshchii = 0;
    if (!net_bloka) obshchii = engine->ref_count[staryi] > 1;

    if (net_bloka || obshchii) {
        if (engine->free_local_blocks == 0) return -1;
    }
    if (net_tablicy) {
        int *t = tablica();
        if (t == NULL) return -1;
        s->block_table[i] = t;
    }
    char *osnova = (char *)engine->pool_base_ptr;
    if (net_bloka) {
        s->block_table[i][j] = zanyat(engine);
    }
    if (obshchii) {
        int novyi = zanyat(engine);
        memcpy(osnova + (size_t)novyi * BLOCK_SIZE, osnova + (size_t)staryi * BLOCK_SIZE, BLOCK_SIZE);
        otpustit(engine, staryi);
        s->block_table[i][j] = novyi;
    }
    int *mesto = (int *)(osnova + (size_t)s->block_table[i][j] * BLOCK_SIZE) + offset;
    *mesto = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;
    struct list_node *u = engine->active_seqs.next;
    for (;;) {
        if (u == &engine->active_seqs) break;
        Sequence *s = iz_uzla(u);
        u = u->next;
        unichtozhit(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
