/* The part of fuzz.c that writes from outside, the same in both worlds. */

#define BOTH(w) for (struct world *w = worlds; w < worlds + 2; w++)

/* The tester's free. */
static void drop(const struct world *w, void *p) {
    counting = w == ours;
    free(p);
    counting = 0;
    plain_live -= w == theirs;
}

static void drop_tables(const struct world *w, Sequence *s) {
    for (int i = 0; s->block_table != NULL && i < L1_PT_SIZE; i++) {
        if (s->block_table[i] != NULL) {
            drop(w, s->block_table[i]);
        }
    }
    if (s->block_table != NULL) {
        drop(w, s->block_table);
    }
    s->block_table = NULL;
}

static void swap_entries(int *a, int *b) {
    int was = *a;
    *a = *b;
    *b = was;
}

static void write_entry(LLMEngine *e, int *l2, int slot, int what, int value) {
    int entry = l2[slot];
    switch (what) {
    case 1: /* a hole, with the counts adjusted */
        if (entry >= 0 && entry < BLOCKS && --e->ref_count[entry] == 0) {
            e->free_local_blocks++;
        }
        l2[slot] = -1;
        break;
    case 2: /* a hole, without */
        l2[slot] = -1;
        break;
    case 3: /* far away */
        swap_entries(&l2[slot], &l2[(slot + 7) % L2_PT_SIZE]);
        break;
    default:
        l2[slot] = value;
    }
}

static void write_table(void) {
    int name = some(), from = next(L1_PT_SIZE), to = next(L1_PT_SIZE), slot = next(L2_PT_SIZE), what = next(6);
    int value = ONE_OF(-1, 0, 5, BLOCKS - 1, BLOCKS, BLOCKS + 9, -2, INT_MIN, INT_MAX);
    if (name < 0 || theirs->seqs[name]->block_table == NULL) {
        return;
    }
    for (int k = 0; k < L1_PT_SIZE && theirs->seqs[name]->block_table[from] == NULL; k++) {
        from = (from + 1) % L1_PT_SIZE;
    }
    BOTH(w) {
        int **table = w->seqs[name]->block_table, *l2 = table[from];
        if (l2 == NULL) {
            return;
        }
        if (what == 0) { /* another L1 entry */
            table[from] = table[to];
            table[to] = l2;
        } else if (what == 5) { /* freed by hand */
            drop(w, l2);
            table[from] = NULL;
        } else {
            write_entry(w->engine[home[name]], l2, slot, what, value);
        }
    }
}

static void write_count(void) {
    int engine = next(ENGINES), block = next(BLOCKS), value = ONE_OF(0, 0, 1, 2, 3, -1, INT_MIN), step = next(3) - 1;
    BOTH(w) {
        int *count = &w->engine[engine]->ref_count[block];
        *count = step != 0 ? (int)((unsigned)*count + (unsigned)step) : value;
    }
}

static int taken(int seq_id) {
    for (int i = 0; i < made; i++) {
        if (theirs->seqs[i] != NULL && theirs->seqs[i]->seq_id == seq_id) {
            return 1;
        }
    }
    return 0;
}

/* Ids stay unique, and those of loose sequences as they are, unless the writer is wild. */
static void rename_one(int name) {
    int seq_id = wild ? id() : new_id();
    if (wild || (!loose[name] && !taken(seq_id))) {
        BOTH(w) { w->seqs[name]->seq_id = seq_id; }
    }
}

static void write_fields(void) {
    int engine = next(ENGINES), name = some(), what = next(7), small = next(54) - 3, rarely = next(10) == 0;
    int position = ONE_OF(0, 15, 16, 255, 256, 4094, 4095, 4096, -1, INT_MIN, INT_MAX);
    int total = ONE_OF(BLOCKS, BLOCKS, BLOCKS - 5, 1, 0, -1);
    if (name >= 0 && what == 5) {
        rename_one(name);
    }
    BOTH(w) {
        LLMEngine *e = w->engine[engine];
        if (what == 0) {
            e->free_local_blocks = small;
        } else if (what == 1) {
            e->free_local_blocks += small % 2;
        } else if (what == 2) {
            e->total_local_blocks = total;
        } else if (name >= 0 && (what == 3 || what == 4)) {
            w->seqs[name]->kv_count = position;
        } else if (name >= 0 && what == 6 && rarely) {
            drop_tables(w, w->seqs[name]);
        }
    }
}

/* As list_del or list_del_init do. */
static void unlink_one(int name, int how) {
    const struct list_node *node = &theirs->seqs[name]->node;
    if (node->prev == NULL || node->next == NULL) {
        return;
    }
    BOTH(w) {
        struct list_node *n = &w->seqs[name]->node;
        n->prev->next = n->next;
        n->next->prev = n->prev;
        if (how < 2) {
            n->prev = n->next = n;
        } else if (how == 2) {
            n->prev = n->next = NULL;
        }
    }
    loose[name] = 1;
}

/*
 * Anywhere in either list. Two that came from the other list are not put side by side
 * unless the writer is wild: a stretch that moves as a whole is what the header excludes.
 */
static void relink(int name) {
    int list[MOST], engine = next(ENGINES), n = listed(engine, list), position = next(n + 1);
    for (int i = 0; !wild && i < n; i++) {
        if (theirs->seqs[list[i]]->seq_id == theirs->seqs[name]->seq_id) {
            return;
        }
    }
    if (!wild && engine != home[name]) {
        if ((position > 0 && migrant[list[position - 1]]) || (position < n && migrant[list[position]])) {
            return;
        }
        migrant[name] = 1;
    }
    BOTH(w) {
        struct list_node *before = position < n ? &w->seqs[list[position]]->node : &w->engine[engine]->active_seqs;
        struct list_node *node = &w->seqs[name]->node;
        node->prev = before->prev;
        node->next = before;
        before->prev->next = node;
        before->prev = node;
    }
    loose[name] = 0;
    home[name] = engine;
}

/* Frees a loose sequence by hand, once its id has been looked up, and those of the loose ones that stood beside it. */
static void dispose(int name) {
    const struct list_node *node = &theirs->seqs[name]->node;
    for (int i = 0; i < made; i++) {
        const Sequence *s = theirs->seqs[i];
        if (loose[i] && s != NULL && (i == name || s->node.prev == node || s->node.next == node)) {
            append(0, s->seq_id, 1);
            append(1, s->seq_id, 1);
        }
    }
    BOTH(w) {
        drop_tables(w, w->seqs[name]);
        drop(w, w->seqs[name]);
        w->seqs[name] = NULL;
    }
    loose[name] = 0;
}

/* Takes a stretch out as a whole. */
static void cut(int name) {
    int list[MOST], n = listed(home[name], list), at = 0, length = 1 + next(6);
    while (at < n && list[at] != name) {
        at++;
    }
    if (at == n) {
        return;
    }
    int last = at + length < n ? at + length - 1 : n - 1;
    BOTH(w) {
        struct list_node *before = w->seqs[list[at]]->node.prev, *after = w->seqs[list[last]]->node.next;
        before->next = after;
        after->prev = before;
    }
    for (; at <= last; at++) {
        loose[list[at]] = 1;
    }
}

static void write_list(void) {
    int name = some(), what = next(6);
    if (name < 0) {
        return;
    }
    if (!loose[name] && what == 5 && wild) {
        cut(name);
    } else if (!loose[name]) {
        unlink_one(name, what);
    } else if (what <= 3) {
        relink(name);
    } else {
        dispose(name);
    }
}
