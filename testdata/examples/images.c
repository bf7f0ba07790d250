/*
 * images - serves prompts with images with libllm_cache. An encoder turns each image into
 * embeddings; it computes few in a step and the worker keeps few, so the cache says when to
 * encode which image, and which outputs to drop. The "model" computes, for every position, a
 * number that depends on all tokens and images up to it, and checks that it finds what it needs.
 *
 *   cc -std=c11 images.c -lllm_cache -o images
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm_cache.h"

enum {
    REQUESTS = 48,
    IMAGES = 6,
    IMAGE_TOKENS = 27, /* of an image: 3 lines of 8 embeddings and a line break, which is text */
    IMAGE_EMBEDS = 24,
    ENCODER_CACHE = 3 * IMAGE_EMBEDS, /* embeddings that the worker keeps */
    ENCODER_BUDGET = 2 * IMAGE_EMBEDS, /* embeddings in a step */
    PLACEHOLDER = 7, /* the token of all images: it does not tell them apart */
    LINE_BREAK = 8,
    BLOCKS = 80,
    BLOCK_SIZE = 16,
    MAX_SEQS = 8,
    MAX_TOKENS = 64, /* of a step, so an image can be in two */
    MODEL_LEN = 192
};

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n%s\n", __FILE__, __LINE__, #condition, llm_cache_error_detail()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* What the worker knows of a request. Its items are its images, at first[0] and first[1]. */
struct request {
    int n, most, images;
    int image[2], first[2];
    int32_t tokens[MODEL_LEN];
    int32_t table[MODEL_LEN / BLOCK_SIZE];
};

static struct request requests[REQUESTS];
static const char *const names[IMAGES] = {"cat.png", "dog.png", "hen.png", "fox.png", "owl.png", "bee.png"}; /* a hash of the content, really */
static int encoded[IMAGES];                /* images whose embeddings the worker has */
static uint64_t memory[BLOCKS][BLOCK_SIZE]; /* the keys and values */

/* Request i: one or two images among text. user_data of the request is i. */
static void add(llm_cache cache, int i) {
    struct request *r = &requests[i];
    uint8_t is_embed[MODEL_LEN] = {0};
    llm_cache_item items[2];
    r->images = 1 + i % 2;
    r->most = 4 + i % 9;
    for (int k = 0; k < r->images; k++) {
        for (int text = 0; text < 10; text++) {
            r->tokens[r->n++] = 100 + text;
        }
        r->image[k] = (i / 3 + 2 * k) % IMAGES;
        r->first[k] = r->n;
        items[k] = (llm_cache_item){.hash = names[r->image[k]], .offset = r->n, .length = IMAGE_TOKENS};
        for (int t = 0; t < IMAGE_TOKENS; t++) {
            is_embed[r->n] = t % 9 < 8;
            r->tokens[r->n++] = t % 9 < 8 ? PLACEHOLDER : LINE_BREAK;
        }
    }
    r->tokens[r->n++] = 1000 + i;
    llm_cache_spec spec = {
        .size = sizeof spec, .tokens = {r->tokens, r->n}, .max_tokens = r->most, .arrival = i, .user_data = (uint64_t)i,
        .items = items, .items_len = r->images, .is_embed = is_embed,
    };
    llm_request id;
    CHECK(llm_cache_add(cache, &spec, &id) == LLM_CACHE_OK);
}

/* The image that position p takes an embedding from, or -1. */
static int image_at(const struct request *r, int p) {
    for (int k = 0; k < r->images; k++) {
        int t = p - r->first[k];
        if (t >= 0 && t < IMAGE_TOKENS && t % 9 < 8) {
            return r->image[k];
        }
    }
    return -1;
}

/* The number of position p, from that of the position before. */
static uint64_t next(const struct request *r, int p, uint64_t before) {
    uint64_t input = image_at(r, p) < 0 ? (uint64_t)r->tokens[p] : 1000000u + (uint64_t)image_at(r, p);
    return (before ^ input) * 0x9e3779b97f4a7c15u + 1;
}

static int image_named(const char *hash) {
    for (int i = 0; i < IMAGES; i++) {
        if (strcmp(names[i], hash) == 0) {
            return i;
        }
    }
    fprintf(stderr, "no image is %s\n", hash);
    exit(1);
}

/* Drops outputs first, then encodes. Returns the number of images encoded. */
static int run_encoder(const llm_cache_step *step) {
    const llm_cache_bytes *freed = &step->freed_encoder_outputs;
    for (int64_t at = 0; at < freed->len; at += (int64_t)strlen((const char *)freed->at + at) + 1) {
        encoded[image_named((const char *)freed->at + at)] = 0;
    }
    int kept = 0;
    for (int64_t i = 0; i < step->encoder_inputs.len; i++) {
        const llm_cache_encoder_input *in = &step->encoder_inputs.at[i];
        int image = requests[in->user_data].image[in->item];
        CHECK(step->rows.at[in->row].id == in->id);
        encoded[image] = 1; /* maybe again: its output had been evicted, and then it was needed after all */
    }
    for (int i = 0; i < IMAGES; i++) {
        kept += encoded[i];
    }
    CHECK(kept * IMAGE_EMBEDS <= ENCODER_CACHE && step->encoder_inputs.len * IMAGE_EMBEDS <= ENCODER_BUDGET);
    return (int)step->encoder_inputs.len;
}

/* Computes the rows, and returns the number of sampled tokens. */
static int64_t run_model(const llm_cache_step *step, int32_t *counts, int32_t *sampled) {
    int64_t block = 0, slot = 0, n = 0;
    for (int64_t i = 0; i < step->rows.len; i++) {
        struct request *r = &requests[step->rows.at[i].user_data];
        for (int64_t entry = step->block_starts.at[i]; block < step->block_ends.at[i]; block++) {
            r->table[entry++] = step->blocks.at[block];
        }
    }
    for (int64_t i = 0; i < step->rows.len; i++) {
        const llm_cache_row *row = &step->rows.at[i];
        struct request *r = &requests[row->user_data];
        uint64_t value = 0;
        for (int p = 0; p < row->computed + row->tokens; p++) {
            value = next(r, p, value);
            if (p >= row->computed) { /* the embedding of an image is only needed where its token is computed */
                CHECK(image_at(r, p) < 0 || encoded[image_at(r, p)]);
                memory[step->slots.at[slot] / BLOCK_SIZE][step->slots.at[slot] % BLOCK_SIZE] = value;
                slot++;
            }
            CHECK(memory[r->table[p / BLOCK_SIZE]][p % BLOCK_SIZE] == value);
        }
        counts[i] = row->samples;
        if (row->samples) {
            sampled[n++] = (int32_t)(value >> 40) % 5000;
        }
    }
    return n;
}

/* An array with space for len entries at least. */
static void *grown(void *at, int64_t *cap, int64_t len, size_t size) {
    if (*cap < len) {
        *cap = 2 * len;
        at = realloc(at, (size_t)*cap * size);
        CHECK(at != NULL);
    }
    return at;
}

#define GROW(a) ((a).at = grown((a).at, &(a).cap, (a).len, sizeof *(a).at))

static void schedule(llm_cache cache, llm_cache_step *s) {
    int error;
    while ((error = llm_cache_schedule(cache, s)) == LLM_CACHE_E_SMALL) {
        GROW(s->rows), GROW(s->drafts), GROW(s->blocks), GROW(s->block_starts), GROW(s->block_ends), GROW(s->slots);
        GROW(s->copies), GROW(s->common), GROW(s->preempted), GROW(s->finished), GROW(s->loads), GROW(s->queries);
        GROW(s->encoder_inputs), GROW(s->freed_encoder_outputs), GROW(s->zero), GROW(s->tails);
    }
    CHECK(error == LLM_CACHE_OK);
}

static void free_step(llm_cache_step *s) {
    free(s->rows.at), free(s->drafts.at), free(s->blocks.at), free(s->block_starts.at), free(s->block_ends.at), free(s->slots.at);
    free(s->copies.at), free(s->common.at), free(s->preempted.at), free(s->finished.at), free(s->loads.at), free(s->queries.at);
    free(s->encoder_inputs.at), free(s->freed_encoder_outputs.at), free(s->zero.at), free(s->tails.at);
}

int main(void) {
    llm_cache_config config = {
        .size = sizeof config, .num_gpu_blocks = BLOCKS, .block_size = BLOCK_SIZE, .max_num_seqs = MAX_SEQS,
        .max_num_batched_tokens = MAX_TOKENS, .max_model_len = MODEL_LEN,
        .encoder_cache_size = ENCODER_CACHE, .max_num_encoder_input_tokens = ENCODER_BUDGET,
    };
    llm_cache cache;
    CHECK(llm_cache_open(&config, &cache) == LLM_CACHE_OK);

    int32_t counts[MAX_SEQS], sampled[MAX_SEQS], kept[MAX_SEQS];
    llm_cache_done done[MAX_SEQS];
    llm_cache_outcome outcome = {.size = sizeof outcome, .kept = {.at = kept, .cap = MAX_SEQS}, .done = {.at = done, .cap = MAX_SEQS}};
    llm_cache_step step = {.size = sizeof step};
    int arrived = 0, finished = 0, runs = 0, steps = 0, images = 0;
    for (;; steps++) {
        for (int most = 2; arrived < REQUESTS && most > 0; most--) { /* two arrive in each step */
            add(cache, arrived++);
        }
        schedule(cache, &step);
        runs += run_encoder(&step); /* outputs are to be dropped also in a step without rows */
        if (step.rows.len == 0) {
            break;
        }
        int64_t n = run_model(&step, counts, sampled), at = 0;
        CHECK(llm_cache_update(cache, counts, step.rows.len, sampled, n, &outcome) == LLM_CACHE_OK);
        for (int64_t i = 0; i < step.rows.len; i++) {
            struct request *r = &requests[step.rows.at[i].user_data];
            for (int32_t k = 0; k < outcome.kept.at[i]; k++) {
                r->tokens[r->n++] = sampled[at++];
            }
        }
        for (int64_t i = 0; i < outcome.done.len; i++, finished++) {
            images += requests[outcome.done.at[i].user_data].images;
        }
    }
    llm_cache_stats stats = {.size = sizeof stats};
    CHECK(llm_cache_statistics(cache, &stats) == LLM_CACHE_OK);
    CHECK(finished == REQUESTS && stats.encoder_referenced == 0 && stats.encoder_taken <= ENCODER_CACHE && stats.hits > 0);
    CHECK(runs >= IMAGES && runs < images);
    printf("%d requests with %d images: %d steps, %d images encoded, %lld of %lld prompt tokens hit\n", REQUESTS, images, steps, runs,
           (long long)stats.hits, (long long)stats.queries);
    CHECK(llm_cache_close(cache) == LLM_CACHE_OK);
    free_step(&step);
    return 0;
}
