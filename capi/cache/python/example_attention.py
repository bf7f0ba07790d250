"""Serves 24 requests with llm_cache and llm_attention. The "model" has queries of zeros, so attention is the mean
of the values of all tokens up to each, which is known beforehand."""

from array import array

import llm_attention
import llm_cache

BLOCKS, BLOCK_SIZE, HEADS, KV_HEADS, HEAD_SIZE, LAYERS = 20, 16, 4, 2, 8, 2


def value(token: int, layer: int, element: int) -> float:
    return float((token * 7 + layer * 3 + element) % 32)


def check(step, tokens, layer: int, outputs: array) -> None:
    """Every output must be the mean of the values before it."""
    at = 0
    for row in step.rows:
        for position in range(row.computed, row.computed + row.tokens):
            seen = tokens[row.id][: position + 1]
            for element in (0, HEAD_SIZE + 3):  # of query heads 0 and 1, which share KV head 0
                want = sum(value(t, layer, element % HEAD_SIZE) for t in seen) / len(seen)
                assert abs(outputs[at * HEADS * HEAD_SIZE + element] - want) < 1e-4, (row, position, layer)
            at += 1


def run(store, step, tokens) -> list[list[int]]:
    """Computes the rows of a step and returns what each samples."""
    new = [t for row in step.rows for t in tokens[row.id][row.computed : row.computed + row.tokens]]
    for layer in range(LAYERS):
        values = array("f", (value(t, layer, e) for t in new for _ in range(KV_HEADS) for e in range(HEAD_SIZE)))
        store.write(layer, array("f", bytes(4 * len(values))), values)
        outputs = array("f", bytes(4 * len(new) * HEADS * HEAD_SIZE))
        store.attend(layer, HEADS, outputs, outputs)  # queries of zeros, in place
        check(step, tokens, layer, outputs)
    return [[tokens[row.id][-1] + 1] if row.samples else [] for row in step.rows]


def main() -> None:
    tokens, done = {}, 0
    with llm_cache.Cache(num_gpu_blocks=BLOCKS, block_size=BLOCK_SIZE, max_num_seqs=8, max_num_batched_tokens=128,
                         max_model_len=200) as cache, \
            llm_attention.Store(layers=LAYERS, blocks=BLOCKS, block_size=BLOCK_SIZE, kv_heads=KV_HEADS, head_size=HEAD_SIZE,
                                host_blocks=2, threads=1) as store:
        for i in range(24):
            prompt = [i % 3] * 36 + [1000 + i] * (10 + i)
            tokens[cache.add(prompt, max_tokens=10 + i)] = prompt
        while step := cache.schedule():
            store.begin(cache)
            sampled = run(store, step, tokens)
            outcome = cache.update(sampled)
            for row, new, kept in zip(step.rows, sampled, outcome.kept):
                tokens[row.id] = tokens[row.id] + new[:kept]
            done += len(outcome.done)
        stats = cache.statistics()
        assert done == 24 and stats.hits > 0 and stats.preemptions > 0 and store.blocks == BLOCKS
        store.swap_out([(1, 0)])
        store.swap_in([(0, 2)])
        for wrong, text in [(lambda: store.copy([(0, BLOCKS)]), "to block 20, where there are 20"),
                            (lambda: store.write(0, array("d", [0]), array("d", [0])), "format 'd'"),
                            (lambda: store.attend(0, 4, array("f", [0]), array("f", [0])), "rows of 32"),
                            (lambda: store.attend(2, 4, array("f"), array("f")), "no layer 2")]:
            try:
                wrong()
            except (llm_cache.CacheError, ValueError) as error:
                assert text in str(error), error
            else:
                raise AssertionError(text)
    print(f"24 requests, {stats.hits} tokens hit, {stats.preemptions} preemptions: all means are right")


if __name__ == "__main__":
    main()
