/*
 * cut_out gone|moved - of 40 sequences, five in a row leave the list as a whole,
 * to nowhere or, one by one but in their order, to another engine's list. With
 * LLM_MEMORY_STRICT=1 the library finds what a walk of the list finds.
 */
#include "check.h"

enum { SEQUENCES = 40, FIRST = 30, LAST = 34, BLOCKS = 128 };

static int pool[BLOCKS * KV_PER_BLOCK];

static void move_to_tail(struct list_node *head, struct list_node *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    LLMEngine *engine = llm_init(pool, sizeof pool), *other = llm_init(pool, sizeof pool);
    CHECK(engine != NULL && other != NULL);
    Sequence *seqs[SEQUENCES];
    for (int id = 0; id < SEQUENCES; id++) {
        CHECK((seqs[id] = create_sequence(engine, id, 1)) != NULL);
    }
    for (int id = 0; id < SEQUENCES; id++) {
        CHECK(append_kv(engine, id, id) == 0 && append_kv(engine, id, id) == 0);
    }
    struct list_node *before = seqs[FIRST]->node.prev, *after = seqs[LAST]->node.next;
    if (strcmp(argv[1], "gone") == 0) {
        before->next = after;
        after->prev = before;
    } else {
        for (int id = FIRST; id <= LAST; id++) {
            move_to_tail(&other->active_seqs, &seqs[id]->node);
        }
    }
    for (int id = 0; id < SEQUENCES; id++) {
        int inside = plain_find(engine, id) != NULL;
        CHECK(inside == (id < FIRST || id > LAST));
        int kv_count = seqs[id]->kv_count;
        CHECK(append_kv(engine, id, 7) == (inside ? 0 : -1));
        CHECK(seqs[id]->kv_count == kv_count + inside);
        CHECK(free_sequence(engine, 100 + id) == -1);
    }
    if (strcmp(argv[1], "gone") == 0) {
        before->next = &seqs[FIRST]->node;
        after->prev = &seqs[LAST]->node;
        check_conserved(engine);
    }
    CHECK(llm_destroy(other) == 0 && llm_destroy(engine) == 0);
    return 0;
}
