/*
 * rearranged - a tester renames, unlinks and moves sequences, one or two between
 * two looks, in a list long enough for hints; the library finds what a walk of
 * the list finds.
 */
#include "check.h"

enum { SEQUENCES = 60, BLOCKS = 256 };

static int pool[BLOCKS * KV_PER_BLOCK], other_pool[BLOCKS * KV_PER_BLOCK];
static LLMEngine *engine, *other;
static Sequence *seqs[SEQUENCES];

static void unlink_node(Sequence *seq) {
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
}

static void link_before(struct list_node *next, Sequence *seq) {
    seq->node.prev = next->prev;
    seq->node.next = next;
    next->prev->next = &seq->node;
    next->prev = &seq->node;
}

/* Each id must be found, or not, as a walk finds it; and the record goes there. */
static void check_finds(LLMEngine *where) {
    for (int id = -2; id < SEQUENCES + 200; id++) {
        Sequence *expected = plain_find(where, id);
        int kv_count = expected == NULL ? 0 : expected->kv_count;
        CHECK(append_kv(where, id, id) == (expected == NULL ? -1 : 0));
        CHECK(expected == NULL || expected->kv_count == kv_count + 1);
        CHECK(expected == NULL || record_at(where, expected, kv_count) == id);
    }
}

static void check_both(void) {
    check_finds(engine);
    check_finds(other);
    check_finds(engine);
}

static void rename_some(void) {
    seqs[40]->seq_id = 140;
    check_both();
    seqs[41]->seq_id = 40; /* the id of another, which no longer has it */
    check_both();
    int swap = seqs[50]->seq_id;
    seqs[50]->seq_id = seqs[51]->seq_id;
    seqs[51]->seq_id = swap;
    check_both();
}

static void unlink_some(void) {
    unlink_node(seqs[45]);
    check_both();
    unlink_node(seqs[46]);
    check_both();
    unlink_node(seqs[59]);
    check_both();
    link_before(&engine->active_seqs, seqs[46]);
    link_before(&seqs[20]->node, seqs[45]);
    link_before(engine->active_seqs.next, seqs[59]);
    check_both();
}

static void move_within(void) {
    for (int i = 0; i < 10; i++) {
        unlink_node(seqs[20 + i]);
        link_before(&seqs[55 - i]->node, seqs[20 + i]);
        if (i % 3 == 0) {
            check_both();
        }
    }
    check_both();
}

/* The blocks stay in the first engine's pool, so the other gets its own ones. */
static void give_away(Sequence *seq, LLMEngine *from, LLMEngine *to) {
    unlink_node(seq);
    for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++) {
        int *l2 = seq->block_table[i / L2_PT_SIZE];
        if (l2 == NULL || l2[i % L2_PT_SIZE] == -1) {
            continue;
        }
        from->ref_count[l2[i % L2_PT_SIZE]] = 0;
        from->free_local_blocks++;
        int fresh = 0;
        while (to->ref_count[fresh] != 0) {
            fresh++;
        }
        l2[i % L2_PT_SIZE] = fresh;
        to->ref_count[fresh] = 1;
        to->free_local_blocks--;
    }
    link_before(&to->active_seqs, seq);
}

static void move_to_the_other(void) {
    give_away(seqs[30], engine, other);
    check_both();
    give_away(seqs[31], engine, other);
    CHECK(free_sequence(other, seqs[30]->seq_id) == 0); /* freed where it went */
    check_both();
    CHECK(free_sequence(engine, 30) == -1);
    CHECK(create_sequence(engine, 30, 1) != NULL); /* likely at the freed address */
    check_both();
    give_away(seqs[31], other, engine);
    check_both();
    for (int i = 32; i < 36; i++) {
        give_away(seqs[i], engine, other);
        check_finds(engine);
    }
}

int main(void) {
    engine = llm_init(pool, sizeof pool);
    other = llm_init(other_pool, sizeof other_pool);
    CHECK(engine != NULL && other != NULL);
    for (int i = 0; i < SEQUENCES; i++) {
        CHECK((seqs[i] = create_sequence(engine, i, 1)) != NULL);
        CHECK(create_sequence(other, i + 200, 1) != NULL);
    }
    check_both();
    rename_some();
    unlink_some();
    move_within();
    move_to_the_other();
    check_conserved(engine);
    check_conserved(other);
    CHECK(llm_destroy(other) == 0); /* with sequences that were the first one's */
    check_finds(engine);
    check_conserved(engine);
    CHECK(llm_destroy(engine) == 0);
    return 0;
}
