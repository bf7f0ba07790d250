/*
 * cache_transfer - an engine with two steps in flight, priorities, adapters and a
 * connector whose loads fail. Written from llm_cache.h. Its "model" computes for each
 * position a number that depends on the adapter and all tokens up to it, and checks
 * that each row finds its own numbers through its block table.
 */
#include <stddef.h>

#include "cache_check.h"

enum { REQUESTS = 300, MOST = 256, BLOCKS = 40, SIZE = 16, AT_ONCE = 8 };

typedef struct request_state {
    llm_request id;
    int32_t tokens[MOST], table[MOST / SIZE + 1];
    int n, table_len, adapter, live, send;
    int spoiled; /* rows in flight that were computed from what did not come */
} request_state;

static request_state all[REQUESTS];
static uint64_t memory[BLOCKS * SIZE];
static llm_cache cache;
static llm_cache_step steps[2];
static llm_cache_outcome outcome;
static int in_flight, oldest, live, added;
static int64_t failures, sent, loaded, asked;
static llm_cache_load loads[REQUESTS]; /* under way */
static int num_loads;
static int sends[REQUESTS], num_sends;
static uint32_t seed = 1;

static uint32_t roll(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static uint64_t value(const request_state *r, int position) {
    uint64_t v = 1469598103934665603u + (uint64_t)r->adapter;
    for (int i = 0; i <= position; i++) {
        v = (v ^ (uint64_t)r->tokens[i]) * 1099511628211u;
    }
    return v;
}

static void add(void) {
    static const char *adapters[] = {NULL, "ada", "bob"};
    request_state *r = &all[added];
    int n = 1 + (int)roll(90);
    int family = (int)roll(4);
    for (int i = 0; i < n; i++) {
        r->tokens[i] = i < 64 ? family : (int32_t)roll(50);
    }
    r->n = n, r->live = 1, r->adapter = (int)roll(3), r->send = roll(3) == 0;
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {r->tokens, n}, .max_tokens = 1 + (int)roll(30), .user_data = (uint64_t)added,
                           .priority = (int)roll(3), .arrival = added, .lora = adapters[r->adapter], .external = (int)roll((uint32_t)n + 1)};
    spec.flags = (r->send ? LLM_CACHE_SEND : 0u) | (roll(2) ? LLM_CACHE_LOAD_ASYNC : 0u) | (roll(4) == 0 ? LLM_CACHE_ASK : 0u);
    OK(llm_cache_add(cache, &spec, &r->id));
    added++, live++;
}

/* Loads positions of a request; some blocks fail. The failed ones are appended to bad. */
static int load(const request_state *r, const int32_t *table, int from, int to, int32_t *bad) {
    int n = 0, fails = roll(4) == 0;
    for (int p = from; p < to; p++) {
        int32_t block = table[p / SIZE];
        if ((p % SIZE == 0) && fails && roll(2)) {
            bad[n++] = block;
        }
        memory[block * SIZE + p % SIZE] = n > 0 && bad[n - 1] == block ? 7 : value(r, p);
    }
    return n;
}

/* Says which blocks did not come, and marks the rows that are void. */
static void tell(const int32_t *bad, int n) {
    static llm_request ids[REQUESTS];
    static llm_cache_void_row rows[2 * AT_ONCE];
    llm_cache_load_failure failure = {.size = sizeof failure, .affected = {.at = ids, .cap = REQUESTS}, .void_rows = {.at = rows, .cap = 2 * AT_ONCE}};
    OK(llm_cache_load_failed(cache, bad, n, &failure));
    CHECK(n == 0 || failure.affected.len > 0);
    failures += failure.affected.len;
    for (int64_t i = 0; i < failure.void_rows.len; i++) {
        CHECK(rows[i].step < in_flight);
        const llm_cache_step *t = &steps[(oldest + rows[i].step) % 2];
        CHECK(rows[i].row < t->rows.len);
        all[t->rows.at[rows[i].row].user_data].spoiled++;
    }
}

static void take_table(const llm_cache_step *t, int64_t i, request_state *r) {
    int64_t at = i == 0 ? 0 : t->block_ends.at[i - 1], start = t->block_starts.at[i];
    for (r->table_len = (int)start; at < t->block_ends.at[i]; at++) {
        r->table[r->table_len++] = t->blocks.at[at];
    }
}

/* Runs and updates the oldest step. */
static void process(void) {
    const llm_cache_step *t = &steps[oldest];
    int32_t counts[AT_ONCE], sampled[AT_ONCE], bad[MOST];
    int64_t total = 0, slot = 0;
    int failed = 0;
    for (int64_t i = 0; i < t->rows.len; i++) {
        const llm_cache_row *row = &t->rows.at[i];
        request_state *r = &all[row->user_data];
        take_table(t, i, r);
        failed += load(r, r->table, row->computed - row->external, row->computed, bad + failed);
        loaded += row->external;
    }
    if (failed) {
        tell(bad, failed);
    }
    for (int64_t i = 0; i < t->rows.len; i++) {
        const llm_cache_row *row = &t->rows.at[i];
        request_state *r = &all[row->user_data];
        int end = row->computed + row->tokens, known = r->live && end <= r->n && r->spoiled == 0;
        for (int p = row->computed; p < end; p++, slot++) {
            CHECK(t->slots.at[slot] == r->table[p / SIZE] * SIZE + p % SIZE);
            memory[t->slots.at[slot]] = p < r->n && r->spoiled == 0 ? value(r, p) : 9;
        }
        for (int p = 0; known && p < end; p++) {
            CHECK(memory[r->table[p / SIZE] * SIZE + p % SIZE] == value(r, p));
        }
        counts[i] = row->samples;
        if (row->samples) {
            sampled[total++] = known ? (int32_t)(value(r, end - 1) % 50) : 0;
            if (known) {
                r->tokens[r->n++] = sampled[total - 1];
            }
        }
        r->spoiled -= r->spoiled > 0;
        counts[i] |= known ? 0 : 2 * counts[i]; /* remembered below */
    }
    int32_t given[AT_ONCE];
    for (int64_t i = 0; i < t->rows.len; i++) {
        given[i] = counts[i] & 1;
    }
    OK(llm_cache_update(cache, given, t->rows.len, sampled, total, &outcome));
    for (int64_t i = 0; i < t->rows.len; i++) {
        if (counts[i] == 1 && outcome.kept.at[i] == 0) {
            all[t->rows.at[i].user_data].n--; /* its request has lost its blocks meanwhile */
        }
    }
    for (int64_t i = 0; i < outcome.done.len; i++) {
        request_state *r = &all[outcome.done.at[i].user_data];
        CHECK(r->id == outcome.done.at[i].id && r->live);
        r->live = 0, live--;
        if (r->send) {
            sends[num_sends++] = (int)outcome.done.at[i].user_data;
        }
    }
    oldest = (oldest + 1) % 2, in_flight--;
}

static int schedule(void) {
    llm_cache_step *t = &steps[(oldest + in_flight) % 2];
    OK(llm_cache_schedule(cache, t));
    for (int64_t i = 0; i < t->loads.len; i++) {
        loads[num_loads++] = t->loads.at[i];
    }
    for (int64_t i = 0; i < t->queries.len; i++, asked++) {
        request_state *r = &all[t->queries.at[i].user_data];
        OK(llm_cache_match(cache, r->id, (int)roll((uint32_t)r->n), roll(2) ? LLM_CACHE_LOAD_ASYNC : 0u));
    }
    in_flight += t->rows.len > 0;
    return t->rows.len > 0;
}

static void finish_load(void) {
    llm_cache_load l = loads[0];
    memmove(loads, loads + 1, (size_t)--num_loads * sizeof *loads);
    request_state *r = &all[l.user_data];
    int32_t at[MOST / SIZE + 1], bad[MOST];
    llm_cache_i32s table = {.at = at, .cap = MOST / SIZE + 1};
    if (r->live) {
        OK(llm_cache_table(cache, l.id, 0, &table));
        int failed = load(r, at, l.computed, l.computed + l.external, bad);
        if (failed) {
            tell(bad, failed);
        }
        loaded += l.external;
    }
    OK(llm_cache_received(cache, &l.id, 1));
    EXPECT(LLM_CACHE_E_REQUEST, llm_cache_received(cache, &l.id, 1));
}

static void finish_send(void) {
    request_state *r = &all[sends[--num_sends]];
    int32_t at[MOST / SIZE + 1];
    llm_cache_i32s table = {.at = at, .cap = MOST / SIZE + 1};
    int64_t computed = 0, n = 0;
    OK(llm_cache_progress(cache, r->id, &computed, &n));
    OK(llm_cache_table(cache, r->id, 0, &table));
    for (int p = 0; p < computed; p++) {
        CHECK(memory[at[p / SIZE] * SIZE + p % SIZE] == value(r, p));
    }
    sent += computed;
    EXPECT(LLM_CACHE_E_REQUEST, llm_cache_match(cache, r->id, 0, 0));
    OK(llm_cache_sent(cache, &r->id, 1));
    EXPECT(LLM_CACHE_E_REQUEST, llm_cache_sent(cache, &r->id, 1));
}

static void abort_one(void) {
    int i = (int)roll((uint32_t)added);
    if (all[i].live) {
        int64_t n = 0;
        OK(llm_cache_abort(cache, &all[i].id, 1, &n));
        CHECK(n == 1);
        all[i].live = 0, live--;
        if (all[i].send) {
            OK(llm_cache_sent(cache, &all[i].id, 1)); /* it is not sent */
        }
    }
}

/*
 * A load fails whose request has a second row in flight: the request goes back to its
 * first token. The row is void, and another load can fail before its update.
 */
static void a_load_fails_after_a_request_went_back(void) {
    llm_cache_config config = config_small();
    config.num_gpu_blocks = 200, config.block_size = 1, config.flags = LLM_CACHE_ASYNC | LLM_CACHE_KV_CONSUMER;
    llm_cache c = opened(&config);
    int32_t prompt[85] = {0}, other[20] = {1}, block = 0, count = 1, token = 5;
    llm_cache_spec row = {.size = sizeof row, .tokens = {prompt, 85}, .max_tokens = 9, .external = 44};
    llm_cache_spec load = {.size = sizeof load, .tokens = {other, 20}, .max_tokens = 9, .external = 16, .flags = LLM_CACHE_LOAD_ASYNC};
    llm_request a = 0, b = 0, at[2];
    llm_cache_void_row rows[2];
    llm_cache_load_failure failure = {.size = sizeof failure, .affected = {at, 2, 0}, .void_rows = {rows, 1, 0}};
    llm_cache_step s = step_new();
    llm_cache_outcome o = outcome_new();
    llm_cache_i32s table = {0};
    GIVE(table);
    OK(llm_cache_add(c, &row, &a));
    OK(llm_cache_add(c, &load, &b));
    OK(llm_cache_schedule(c, &s));
    CHECK(s.rows.len == 1 && s.rows.at[0].external == 44 && s.loads.len == 1);
    block = s.blocks.at[0];
    OK(llm_cache_schedule(c, &s));
    CHECK(s.rows.len == 1 && s.rows.at[0].id == a);
    EXPECT(LLM_CACHE_E_SMALL, llm_cache_load_failed(c, &block, 1, &failure));
    CHECK(failure.affected.len == 1 && failure.void_rows.len == 2);
    failure.void_rows.cap = 2;
    OK(llm_cache_load_failed(c, &block, 1, &failure));
    CHECK(failure.affected.len == 1 && at[0] == a && failure.void_rows.len == 2);
    CHECK(rows[0].step == 0 && rows[0].row == 0 && rows[1].step == 1 && rows[1].row == 0);
    OK(llm_cache_update(c, &count, 1, &token, 1, &o));
    CHECK(o.kept.at[0] == 0);
    OK(llm_cache_table(c, b, 0, &table));
    OK(llm_cache_load_failed(c, table.at, 1, &failure));
    CHECK(failure.affected.len == 1 && at[0] == b && failure.void_rows.len == 0);
    OK(llm_cache_update(c, &count, 1, &token, 1, &o));
    CHECK(o.kept.at[0] == 0);
    OK(llm_cache_close(c));
    TAKE(table), step_free(&s), outcome_free(&o);
}

/*
 * A request would copy a block that it shares with its fork, and is preempted in the same step for a more important
 * one. The step has no copy, and the fork runs. With vLLM's rules the copy stays, and takes the fork's block. A
 * worker, which drops tables of preempted requests first, then has no table for it.
 */
static void a_preempted_request_copies_nothing(int32_t flags) {
    llm_cache_config config = config_small();
    config.flags = flags;
    config.num_gpu_blocks = 6, config.block_size = 4, config.max_model_len = 20, config.policy = LLM_CACHE_PRIORITY;
    llm_cache c = opened(&config);
    int32_t prompt[14] = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 17, 18}, counts[2] = {1, 1}, tokens[2] = {7, 9};
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {prompt, 6}, .max_tokens = 10, .priority = 5, .arrival = 5};
    llm_request parent, other, child;
    llm_cache_step s = step_new();
    llm_cache_outcome o = outcome_new();
    OK(llm_cache_add(c, &spec, &parent));
    OK(llm_cache_schedule(c, &s));
    OK(llm_cache_update(c, counts, 1, tokens, 1, &o));
    spec.tokens = (llm_cache_tokens){prompt + 6, 8}, spec.priority = 0, spec.arrival = 1;
    OK(llm_cache_add(c, &spec, &other));
    OK(llm_cache_schedule(c, &s));
    OK(llm_cache_update(c, counts, 2, tokens, 2, &o));
    OK(llm_cache_fork(c, parent, -1, 0, &child));
    OK(llm_cache_schedule(c, &s));
    CHECK(s.rows.at[0].id == other && s.preempted.at[0] == parent);
    if (flags == 0) {
        CHECK(s.rows.len == 2 && s.rows.at[1].id == child && s.preempted.len == 1 && s.copies.len == 0);
    } else {
        CHECK(s.rows.len == 1 && s.preempted.len == 2);
        CHECK(s.copies.len == 1 && s.copies.at[0].id == parent && s.copies.at[0].index == -1);
    }
    OK(llm_cache_close(c));
    step_free(&s), outcome_free(&o);
}

/*
 * The first request computes on a block that did not come. The second has hit blocks of the first in the same step, but not
 * that one: it has an older one with the same tokens. Both rows are void.
 */
static void who_reads_a_void_row_is_void(void) {
    llm_cache_config config = config_small();
    config.num_gpu_blocks = 200, config.block_size = 2, config.flags = LLM_CACHE_KV_CONSUMER;
    llm_cache c = opened(&config);
    int32_t prompt[38], other[35], count = 1, token = 5, counts[2] = {1, 1}, tokens[2] = {5, 5};
    for (int i = 0; i < 38; i++) {
        prompt[i] = i + 1;
    }
    for (int i = 0; i < 35; i++) {
        other[i] = i < 30 ? prompt[i] : 500 + i;
    }
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {prompt, 13}, .max_tokens = 1};
    llm_request ids[3], affected[2];
    llm_cache_void_row rows[2];
    llm_cache_load_failure failure = {.size = sizeof failure, .affected = {affected, 2, 0}, .void_rows = {rows, 2, 0}};
    llm_cache_step s = step_new();
    llm_cache_outcome o = outcome_new();
    OK(llm_cache_add(c, &spec, &ids[0]));
    OK(llm_cache_schedule(c, &s));
    OK(llm_cache_update(c, &count, 1, &token, 1, &o));
    spec.tokens.len = 38, spec.max_tokens = 9, spec.external = 3, spec.flags = LLM_CACHE_NO_READ;
    OK(llm_cache_add(c, &spec, &ids[1]));
    spec.tokens = (llm_cache_tokens){other, 35}, spec.external = 0, spec.flags = 0;
    OK(llm_cache_add(c, &spec, &ids[2]));
    OK(llm_cache_schedule(c, &s));
    CHECK(s.rows.len == 2 && s.rows.at[1].id == ids[2] && s.rows.at[1].computed == 30);
    int32_t failed = s.blocks.at[0];
    for (int64_t i = s.block_ends.at[0]; i < s.block_ends.at[1]; i++) {
        CHECK(s.blocks.at[i] != failed);
    }
    OK(llm_cache_load_failed(c, &failed, 1, &failure));
    CHECK(failure.affected.len == 2 && affected[0] == ids[1] && affected[1] == ids[2]);
    CHECK(failure.void_rows.len == 2 && rows[0].step == 0 && rows[0].row == 0 && rows[1].step == 0 && rows[1].row == 1);
    OK(llm_cache_update(c, counts, 2, tokens, 2, &o));
    CHECK(o.kept.at[0] == 0 && o.kept.at[1] == 0);
    OK(llm_cache_close(c));
    step_free(&s), outcome_free(&o);
}

/*
 * From one cache to another, as from a prefill worker to a decode worker: 10 tokens in blocks of 4, so the last
 * block has 2 of them. They are sent as they are, and the row begins at the last token, inside that block.
 */
static void a_prompt_goes_from_one_cache_to_another(void) {
    llm_cache_config config = config_small();
    config.block_size = 4, config.flags = LLM_CACHE_KV_PRODUCER;
    llm_cache from = opened(&config);
    config.flags = LLM_CACHE_KV_CONSUMER;
    llm_cache to = opened(&config);
    int32_t prompt[10], ours[400] = {0}, theirs[400] = {0}, count = 1, token = 5;
    for (int i = 0; i < 10; i++) {
        prompt[i] = 100 + i;
    }
    llm_cache_spec spec = {.size = sizeof spec, .tokens = {prompt, 10}, .max_tokens = 1, .flags = LLM_CACHE_SEND};
    llm_request sender = 0, receiver = 0;
    llm_cache_step s = step_new();
    llm_cache_outcome o = outcome_new();
    llm_cache_i32s source = {0}, target = {0};
    GIVE(source), GIVE(target);
    OK(llm_cache_add(from, &spec, &sender));
    OK(llm_cache_schedule(from, &s));
    for (int64_t i = 0; i < s.slots.len; i++) {
        ours[s.slots.at[i]] = prompt[i];
    }
    OK(llm_cache_update(from, &count, 1, &token, 1, &o));
    CHECK(o.done.len == 1);
    int64_t computed = 0, n = 0;
    OK(llm_cache_progress(from, sender, &computed, &n));
    OK(llm_cache_table(from, sender, 0, &source));
    CHECK(computed == 10 && source.len == 3);
    spec.flags = LLM_CACHE_LOAD_ASYNC, spec.external = (int32_t)computed, spec.max_tokens = 4;
    request(to, 1, 3, 4); /* so that blocks have other numbers there */
    OK(llm_cache_add(to, &spec, &receiver));
    OK(llm_cache_schedule(to, &s));
    CHECK(s.loads.len == 1 && s.loads.at[0].id == receiver && s.loads.at[0].computed == 0 && s.loads.at[0].external == 10);
    OK(llm_cache_table(to, receiver, 0, &target));
    CHECK(target.len == 3 && target.at[0] != source.at[0]);
    for (int p = 0; p < 10; p++) {
        theirs[target.at[p / 4] * 4 + p % 4] = ours[source.at[p / 4] * 4 + p % 4];
    }
    sample(to, &s, &o);
    OK(llm_cache_received(to, &receiver, 1));
    OK(llm_cache_sent(from, &sender, 1));
    OK(llm_cache_schedule(to, &s));
    CHECK(s.rows.len == 2 && s.rows.at[1].id == receiver && s.rows.at[1].computed == 9 && s.rows.at[1].tokens == 1 && s.rows.at[1].samples);
    CHECK(s.slots.at[1] == target.at[2] * 4 + 1);
    for (int p = 0; p < 10; p++) {
        CHECK(theirs[target.at[p / 4] * 4 + p % 4] == prompt[p]);
    }
    sample(to, &s, &o);
    OK(llm_cache_schedule(to, &s));
    CHECK(s.rows.at[1].computed == 10 && s.slots.at[1] == target.at[2] * 4 + 2); /* the rest of the block is its own */
    OK(llm_cache_close(from));
    OK(llm_cache_close(to));
    TAKE(source), TAKE(target), step_free(&s), outcome_free(&o);
}

/* A state inside a block is handed to a producer when it is copied; new blocks of full attention are to be zeroed. */
static void tails_and_zeros(void) {
    const llm_cache_group groups[] = {{.kind = LLM_CACHE_FULL, .block_size = 2},
                                      {.kind = LLM_CACHE_MAMBA, .block_size = 4, .flags = LLM_CACHE_GROUP_ALIGN}};
    llm_cache_config config = config_small();
    config.block_size = 0, config.groups = groups, config.groups_len = 2, config.flags = LLM_CACHE_KV_PRODUCER | LLM_CACHE_ZERO_BLOCKS;
    llm_cache c = opened(&config);
    llm_cache_step s = step_new();
    llm_cache_outcome o = outcome_new();
    int tails = 0, zeros = 0, steps_of = 0;
    const llm_request id = request(c, 1, 6, 4);
    s.size = offsetof(llm_cache_step, zero); /* of an older header: it lacks blocks to zero */
    EXPECT(LLM_CACHE_E_SIZE, llm_cache_schedule(c, &s));
    s.size = sizeof s;
    do {
        OK(llm_cache_schedule(c, &s));
        for (int64_t i = 0; i < s.tails.len; i++, tails++) {
            CHECK(s.tails.at[i].id == id && s.tails.at[i].group == 1 && s.tails.at[i].tokens == 6 && s.tails.at[i].reserved == 0);
            CHECK(s.copies.len == 1 && s.copies.at[0].dst == s.tails.at[i].block);
        }
        zeros += (int)s.zero.len;
        if (s.rows.len) {
            sample(c, &s, &o);
        }
    } while (s.rows.len && ++steps_of);
    CHECK(tails == 1 && zeros == 5); /* 9 tokens computed: 5 blocks of full attention, none of states */
    OK(llm_cache_close(c));

    config.flags = LLM_CACHE_KV_PRODUCER;
    c = opened(&config);
    request(c, 1, 6, 4);
    s.size = offsetof(llm_cache_step, zero);
    do {
        OK(llm_cache_schedule(c, &s)); /* tails are left out */
        if (s.rows.len) {
            sample(c, &s, &o);
        }
    } while (s.rows.len);
    OK(llm_cache_close(c));
    step_free(&s), outcome_free(&o);
}

int main(void) {
    a_load_fails_after_a_request_went_back();
    who_reads_a_void_row_is_void();
    a_preempted_request_copies_nothing(0);
    a_preempted_request_copies_nothing(LLM_CACHE_AS_VLLM);
    a_prompt_goes_from_one_cache_to_another();
    tails_and_zeros();
    llm_cache_config config = {.size = sizeof config, .num_gpu_blocks = BLOCKS, .block_size = SIZE, .max_num_seqs = AT_ONCE,
                               .max_num_batched_tokens = 64, .max_model_len = MOST, .policy = LLM_CACHE_PRIORITY,
                               .flags = LLM_CACHE_ASYNC | LLM_CACHE_KV_CONSUMER | LLM_CACHE_KV_PRODUCER};
    OK(llm_cache_open(&config, &cache));
    steps[0] = step_new(), steps[1] = step_new(), outcome = outcome_new();
    llm_cache_stats stats = {.size = sizeof stats};
    int64_t hits = 0, preempted = 0;
    while (added < REQUESTS || live || num_loads || num_sends || in_flight) {
        if (added < REQUESTS && live < 20) {
            add();
        }
        if (roll(40) == 0) {
            abort_one();
        }
        int some = in_flight < 2 && schedule();
        if (in_flight == 2 || (in_flight && !some)) {
            process();
        }
        if (num_loads && (!some || roll(3) == 0)) {
            finish_load();
        }
        if (num_sends && (!some || roll(3) == 0)) {
            finish_send();
        }
        OK(llm_cache_statistics(cache, &stats));
        CHECK(stats.loading + stats.kept >= num_loads && stats.in_flight == in_flight);
        hits += stats.external_hits + stats.resumed_external_hits, preempted += stats.preemptions;
    }
    OK(llm_cache_schedule(cache, &steps[0]));
    OK(llm_cache_statistics(cache, &stats));
    CHECK(stats.free_blocks == BLOCKS - 1 && stats.waiting == 0 && stats.kept == 0 && stats.deferred_blocks == 0);
    CHECK(failures > 10 && sent > 1000 && loaded > 1000 && hits >= loaded && asked > 10 && preempted > 5);
    printf("%lld tokens loaded, %lld loads failed, %lld tokens sent, %lld preemptions\n", (long long)loaded, (long long)failures,
           (long long)sent, (long long)preempted);
    OK(llm_cache_close(cache));
    step_free(&steps[0]), step_free(&steps[1]), outcome_free(&outcome);
    return 0;
}
