/*
 * cache_flat CYCLES OPENS - requests that come and finish, with salts, forks and
 * aborts among them, and caches that come and go: memory does not grow with
 * their number.
 */
#include "cache_check.h"

static double resident_mb(void) {
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL && fscanf(f, "%ld %ld", &pages, &resident) == 2);
    fclose(f);
    return (double)resident * 4096 / 1e6;
}

static void cycles(llm_cache cache, llm_cache_step *step, llm_cache_outcome *outcome, long n) {
    int32_t tokens[20] = {0}, counts[8], sampled[8];
    char salt[32];
    for (long done = 0; done < n;) {
        for (int i = 0; i < 8; i++) {
            tokens[0] = (int32_t)((done + i) % 100000);
            snprintf(salt, sizeof salt, "user %ld", (done + i) % 1000);
            llm_cache_spec spec = {.size = sizeof spec, .tokens = {tokens, 20}, .max_tokens = 1, .salt = salt};
            llm_request id;
            OK(llm_cache_add(cache, &spec, &id));
        }
        OK(llm_cache_schedule(cache, step));
        CHECK(step->rows.len == 8);
        for (int i = 0; i < 8; i++) {
            counts[i] = 1;
            sampled[i] = i;
        }
        OK(llm_cache_update(cache, counts, 8, sampled, 8, outcome));
        CHECK(outcome->done.len == 8);
        done += outcome->done.len;
        if (done % 80 == 0) {
            llm_request id = request(cache, 0, 40, 5), child;
            int64_t aborted;
            OK(llm_cache_fork(cache, id, -1, 0, &child));
            const llm_request both[] = {id, child};
            OK(llm_cache_abort(cache, both, 2, &aborted));
            CHECK(aborted == 2);
        }
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    long n = atol(argv[1]), opens = atol(argv[2]);
    llm_cache_config config = config_small();
    llm_cache_step step = step_new();
    llm_cache_outcome outcome = outcome_new();
    llm_cache cache = opened(&config);
    cycles(cache, &step, &outcome, n / 4 + 8); /* until the collector has found its pace */
    double before = resident_mb();
    cycles(cache, &step, &outcome, n);
    double after = resident_mb();
    printf("%ld requests: %.1f MB, then %.1f MB\n", n, before, after);
    CHECK(after - before < 4); /* 4 bytes a request */
    OK(llm_cache_close(cache));

    config.num_gpu_blocks = 200000;
    for (long i = 0; i < opens; i++) {
        cache = opened(&config);
        cycles(cache, &step, &outcome, 80);
        OK(llm_cache_close(cache));
        if (i == opens / 4) {
            before = resident_mb();
        }
    }
    after = resident_mb();
    printf("%ld caches of 200,000 blocks: %.1f MB, then %.1f MB\n", opens, before, after);
    CHECK(after - before < 40);
    step_free(&step);
    outcome_free(&outcome);
    return 0;
}
