/* STYLE: Turkish names; create consumes remaining records instead of counting blocks; nested whiles */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define BOS (-1)

static Sequence *dizi(struct list_node *dugum)
{
    return (Sequence *)((char *)dugum - offsetof(Sequence, node));
}

static Sequence *bul(LLMEngine *motor, int kimlik)
{
    struct list_node *d = motor->active_seqs.next;
    while (d != &motor->active_seqs) {
        if (dizi(d)->seq_id == kimlik) {
            return dizi(d);
        }
        d = d->next;
    }
    return NULL;
}

static int ilk_bos_blok(LLMEngine *motor)
{
    for (int b = 0; b <= motor->total_local_blocks - 1; b++) {
        if (motor->ref_count[b] == 0) {
            motor->ref_count[b] = 1;
            motor->free_local_blocks = motor->free_local_blocks - 1;
            return b;
        }
    }
    return BOS;
}

static void birak(LLMEngine *motor, int b)
{
    if (b != BOS) {
        motor->ref_count[b] = motor->ref_count[b] - 1;
        if (motor->ref_count[b] == 0) {
            motor->free_local_blocks = motor->free_local_blocks + 1;
        }
    }
}

static int *yeni_tablo(void)
{
    int *t = (int *)malloc(L2_PT_SIZE * sizeof(int));
    int i = 0;
    while (t != NULL && i < L2_PT_SIZE) {
        t[i] = BOS;
        i++;
    }
    return t;
}

static void yok_et(LLMEngine *motor, Sequence *s)
{
    int i = 0;
    while (i < L1_PT_SIZE) {
        if (s->block_table[i] != NULL) {
            int j = 0;
            while (j < L2_PT_SIZE) {
                birak(motor, s->block_table[i][j]);
                j++;
            }
            free(s->block_table[i]);
        }
        i++;
    }
    free(s->block_table);
    free(s);
}

static Sequence *yeni_dizi(int kimlik)
{
    Sequence *s = (Sequence *)malloc(sizeof(Sequence));
    if (s == NULL) {
        return NULL;
    }
    s->block_table = (int **)malloc(L1_PT_SIZE * sizeof(int *));
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    int i = 0;
    while (i < L1_PT_SIZE) {
        s->block_table[i] = NULL;
        i++;
    }
    s->seq_id = kimlik;
    s->kv_count = 0;
    return s;
}

static void sona_ekle(LLMEngine *motor, Sequence *s)
{
    struct list_node *son = motor->active_seqs.prev;
    s->node.prev = son;
    s->node.next = &motor->active_seqs;
    son->next = &s->node;
    motor->active_seqs.prev = &s->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }
    LLMEngine *motor = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (motor == NULL) {
        return NULL;
    }
    motor->pool_base_ptr = pool_addr;
    motor->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    motor->free_local_blocks = motor->total_local_blocks;
    motor->ref_count = (int *)calloc((size_t)motor->total_local_blocks, sizeof(int));
    if (motor->ref_count == NULL) {
        free(motor);
        return NULL;
    }
    motor->active_seqs.prev = &motor->active_seqs;
    motor->active_seqs.next = &motor->active_seqs;
    return motor;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }
    if (bul(engine, seq_id) != NULL) {
        return NULL;
    }
    if (initial_kv_len > 256 * KV_PER_BLOCK) {
        return NULL;
    }
    if ((initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK > engine->free_local_blocks) {
        return NULL;
    }
    Sequence *s = yeni_dizi(seq_id);
    if (s == NULL) {
        return NULL;
    }
    int kalan = initial_kv_len;
    int satir = 0;
    while (kalan > 0) {
        s->block_table[satir] = yeni_tablo();
        if (s->block_table[satir] == NULL) {
            yok_et(engine, s);
            return NULL;
        }
        int sutun = 0;
        while (kalan > 0 && sutun < L2_PT_SIZE) {
            s->block_table[satir][sutun] = ilk_bos_blok(engine);
            kalan = kalan - KV_PER_BLOCK;
            sutun++;
        }
        satir++;
    }
    s->kv_count = initial_kv_len;
    sona_ekle(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) {
        return -1;
    }
    Sequence *s = bul(engine, seq_id);
    if (s == NULL) {
        return -1;
    }
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    yok_et(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) {
        return NULL;
    }
    Sequence *anne = bul(engine, parent_seq_id);
    if (anne == NULL) {
        return NULL;
    }
    if (bul(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *cocuk = yeni_dizi(new_seq_id);
    if (cocuk == NULL) {
        return NULL;
    }
    int i = 0;
    while (i < L1_PT_SIZE) {
        if (anne->block_table[i] != NULL) {
            int *t = yeni_tablo();
            if (t == NULL) {
                yok_et(engine, cocuk);
                return NULL;
            }
            cocuk->block_table[i] = t;
            int j = 0;
            while (j < L2_PT_SIZE) {
                int b = anne->block_table[i][j];
                if (b != BOS) {
                    t[j] = b;
                    engine->ref_count[b] = engine->ref_count[b] + 1;
                }
                j++;
            }
        }
        i++;
    }
    cocuk->kv_count = anne->kv_count;
    sona_ekle(engine, cocuk);
    return cocuk;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) {
        return -1;
    }
    Sequence *s = bul(engine, seq_id);
    if (s == NULL) {
        return -1;
    }
    int sira = s->kv_count / KV_PER_BLOCK;
    int ofset = s->kv_count % KV_PER_BLOCK;
    if (sira >= 256) {
        return -1;
    }
    int satir = sira / L2_PT_SIZE;
    int sutun = sira % L2_PT_SIZE;
    int eski = BOS;
    if (s->block_table[satir] != NULL) {
        eski = s->block_table[satir][sutun];
    }
    int gerekli = 0;
    if (eski == BOS) {
        gerekli = 1;
    } else if (engine->ref_count[eski] > 1) {
        gerekli = 1;
    }
    int blok = eski;
    char *havuz = (char *)engine->pool_base_ptr;
    if (gerekli) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
        if (s->block_table[satir] == NULL) {
            int *t = yeni_tablo();
            if (t == NULL) {
                return -1;
            }
            s->block_table[satir] = t;
        }
        blok = ilk_bos_blok(engine);
        s->block_table[satir][sutun] = blok;
        if (eski != BOS) {
            memcpy(&havuz[(size_t)blok * BLOCK_SIZE], &havuz[(size_t)eski * BLOCK_SIZE], BLOCK_SIZE);
            birak(engine, eski);
        }
    }
    int *yer = (int *)&havuz[(size_t)blok * BLOCK_SIZE];
    yer[ofset] = kv_data;
    s->kv_count = s->kv_count + 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) {
        return -1;
    }
    struct list_node *d = engine->active_seqs.next;
    while (d != &engine->active_seqs) {
        struct list_node *sonraki = d->next;
        yok_et(engine, dizi(d));
        d = sonraki;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
