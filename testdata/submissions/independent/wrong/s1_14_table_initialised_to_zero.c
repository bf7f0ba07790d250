/* MISTAKE: L2 tables are initialised to 0 instead of -1, task 2, shows in the unused entries and on later appends */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>
#include <stddef.h>

#define VUOTO (-1)

/* dal nodo alla sequenza */
static Sequence *
contenitore (struct list_node *nodo)
{
  return (Sequence *) ((char *) nodo - offsetof (Sequence, node));
}

static Sequence *
cerca (LLMEngine *motore, int id)
{
  struct list_node *testa = &motore->active_seqs;
  struct list_node *corrente = testa->next;

  for (;;)
    {
      if (corrente == testa)
        return NULL;
      if (contenitore (corrente)->seq_id == id)
        return contenitore (corrente);
      corrente = corrente->next;
    }
}

/* il primo blocco libero; si suppone che ce ne sia uno */
static int
prendi_blocco (LLMEngine *motore)
{
  for (int b = 0; b < motore->total_local_blocks; b++)
    if (motore->ref_count[b] == 0)
      {
        motore->ref_count[b] = 1;
        motore->free_local_blocks -= 1;
        return b;
      }
  return VUOTO;
}

static void
lascia_blocco (LLMEngine *motore, int b)
{
  motore->ref_count[b] -= 1;
  if (motore->ref_count[b] == 0)
    motore->free_local_blocks += 1;
}

static int *
nuova_tabella (void)
{
  int *tabella = malloc (L2_PT_SIZE * sizeof (int));

  if (tabella == NULL)
    return NULL;
  for (int k = 0; k < L2_PT_SIZE; k++)
    tabella[k] = 0;
  return tabella;
}

static Sequence *
nuova_sequenza (int id, int lunghezza)
{
  Sequence *seq = malloc (sizeof (Sequence));

  if (seq == NULL)
    return NULL;
  seq->block_table = malloc (L1_PT_SIZE * sizeof (int *));
  if (seq->block_table == NULL)
    {
      free (seq);
      return NULL;
    }
  for (int k = 0; k < L1_PT_SIZE; k++)
    seq->block_table[k] = NULL;
  seq->seq_id = id;
  seq->kv_count = lunghezza;
  return seq;
}

static void
butta (LLMEngine *motore, Sequence *seq)
{
  for (int r = 0; r < L1_PT_SIZE; r++)
    if (seq->block_table[r] != NULL)
      {
        for (int c = 0; c < L2_PT_SIZE; c++)
          if (seq->block_table[r][c] != VUOTO)
            lascia_blocco (motore, seq->block_table[r][c]);
        free (seq->block_table[r]);
      }
  free (seq->block_table);
  free (seq);
}

static void
accoda (LLMEngine *motore, Sequence *seq)
{
  struct list_node *testa = &motore->active_seqs;
  struct list_node *ultimo = testa->prev;

  ultimo->next = &seq->node;
  seq->node.prev = ultimo;
  seq->node.next = testa;
  testa->prev = &seq->node;
}

static char *
indirizzo (LLMEngine *motore, int b)
{
  return (char *) motore->pool_base_ptr + (size_t) BLOCK_SIZE * (size_t) b;
}

/* le tre strade di append: ognuna restituisce il blocco in cui scrivere, o VUOTO */
static int
strada_pagina_nuova (LLMEngine *motore, Sequence *seq, int r, int c)
{
  if (motore->free_local_blocks == 0)
    return VUOTO;
  if (seq->block_table[r] == NULL)
    {
      seq->block_table[r] = nuova_tabella ();
      if (seq->block_table[r] == NULL)
        return VUOTO;
    }
  return seq->block_table[r][c] = prendi_blocco (motore);
}

static int
strada_copia (LLMEngine *motore, Sequence *seq, int r, int c)
{
  int vecchio = seq->block_table[r][c];
  int nuovo;

  if (motore->free_local_blocks == 0)
    return VUOTO;
  nuovo = prendi_blocco (motore);
  memcpy (indirizzo (motore, nuovo), indirizzo (motore, vecchio), BLOCK_SIZE);
  lascia_blocco (motore, vecchio);
  seq->block_table[r][c] = nuovo;
  return nuovo;
}

static int
strada_diretta (LLMEngine *motore, Sequence *seq, int r, int c)
{
  (void) motore;
  return seq->block_table[r][c];
}

LLMEngine *
llm_init (void *pool_addr, size_t pool_size)
{
  if (pool_addr == NULL || pool_size < BLOCK_SIZE)
    return NULL;

  LLMEngine *motore = malloc (sizeof (LLMEngine));
  if (motore == NULL)
    return NULL;
  motore->pool_base_ptr = pool_addr;
  motore->total_local_blocks = (int) (pool_size / BLOCK_SIZE);
  motore->free_local_blocks = motore->total_local_blocks;
  motore->ref_count = calloc ((size_t) motore->total_local_blocks, sizeof (int));
  if (motore->ref_count == NULL)
    {
      free (motore);
      return NULL;
    }
  motore->active_seqs.prev = &motore->active_seqs;
  motore->active_seqs.next = &motore->active_seqs;
  return motore;
}

Sequence *
create_sequence (LLMEngine *engine, int seq_id, int initial_kv_len)
{
  if (engine == NULL)
    return NULL;
  if (initial_kv_len <= 0 || cerca (engine, seq_id) != NULL)
    return NULL;

  int servono = initial_kv_len / KV_PER_BLOCK;
  if (initial_kv_len % KV_PER_BLOCK)
    servono++;
  if (servono > L1_PT_SIZE * L2_PT_SIZE || servono > engine->free_local_blocks)
    return NULL;

  Sequence *seq = nuova_sequenza (seq_id, initial_kv_len);
  if (seq == NULL)
    return NULL;
  for (int r = 0; r < L1_PT_SIZE && servono > 0; r++)
    {
      seq->block_table[r] = nuova_tabella ();
      if (seq->block_table[r] == NULL)
        {
          butta (engine, seq);
          return NULL;
        }
      for (int c = 0; c < L2_PT_SIZE && servono > 0; c++, servono--)
        seq->block_table[r][c] = prendi_blocco (engine);
    }
  accoda (engine, seq);
  return seq;
}

int
free_sequence (LLMEngine *engine, int seq_id)
{
  if (engine == NULL)
    return -1;

  Sequence *seq = cerca (engine, seq_id);
  if (seq == NULL)
    return -1;
  seq->node.next->prev = seq->node.prev;
  seq->node.prev->next = seq->node.next;
  butta (engine, seq);
  return 0;
}

Sequence *
fork_sequence (LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
  if (engine == NULL)
    return NULL;

  Sequence *padre = cerca (engine, parent_seq_id);
  if (padre == NULL || cerca (engine, new_seq_id) != NULL)
    return NULL;
  Sequence *figlio = nuova_sequenza (new_seq_id, padre->kv_count);
  if (figlio == NULL)
    return NULL;
  for (int r = 0; r < L1_PT_SIZE; r++)
    if (padre->block_table[r] != NULL)
      {
        figlio->block_table[r] = nuova_tabella ();
        if (figlio->block_table[r] == NULL)
          {
            butta (engine, figlio);
            return NULL;
          }
        for (int c = 0; c < L2_PT_SIZE; c++)
          {
            int b = padre->block_table[r][c];
            if (b != VUOTO)
              {
                figlio->block_table[r][c] = b;
                engine->ref_count[b] += 1;
              }
          }
      }
  accoda (engine, figlio);
  return figlio;
}

int
append_kv (LLMEngine *engine, int seq_id, int kv_data)
{
  if (engine == NULL)
    return -1;

  Sequence *seq = cerca (engine, seq_id);
  if (seq == NULL)
    return -1;
  int indice = seq->kv_count / KV_PER_BLOCK;
  int posto = seq->kv_count % KV_PER_BLOCK;
  if (indice >= L1_PT_SIZE * L2_PT_SIZE)
    return -1;
  int r = indice / L2_PT_SIZE;
  int c = indice % L2_PT_SIZE;
  int (*strada) (LLMEngine *, Sequence *, int, int);

  if (seq->block_table[r] == NULL || seq->block_table[r][c] == VUOTO)
    strada = strada_pagina_nuova;
  else if (engine->ref_count[seq->block_table[r][c]] > 1)
    strada = strada_copia;
  else
    strada = strada_diretta;

  int b = strada (engine, seq, r, c);
  if (b == VUOTO)
    return -1;
  ((int *) indirizzo (engine, b))[posto] = kv_data;
  seq->kv_count += 1;
  return 0;
}

int
llm_destroy (LLMEngine *engine)
{
  if (engine == NULL)
    return -1;
  for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; )
    {
      Sequence *seq = contenitore (n);
      n = n->next;
      butta (engine, seq);
    }
  free (engine->ref_count);
  free (engine);
  return 0;
}
