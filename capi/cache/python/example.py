"""Serves 24 requests with llm_cache and no model: the "model" computes, for every position,
a number that depends on all tokens up to it, and keeps it where the cache says. After every
step each request must find exactly its own numbers through its block table."""

import llm_cache
from llm_cache import Cache

BLOCKS, BLOCK_SIZE = 20, 16


def number(before: int, token: int) -> int:
    return (before * 31 + token + 1) % (1 << 61)


def values(tokens: list[int]) -> list[int]:
    out, last = [], 0
    for token in tokens:
        last = number(last, token)
        out.append(last)
    return out


def run(step, tokens, tables, memory) -> list[list[int]]:
    """Computes the rows of a step and returns what each samples."""
    for pair in step.copies:
        memory[pair.dst] = list(memory[pair.src])
    sampled = []
    for row in step.rows:
        table = [] if row.kind != llm_cache.ROW_RUNNING else tables[row.id]
        tables[row.id] = table[: row.starts[0]] + row.blocks[0]
        mine = values(tokens[row.id])
        for k, slot in enumerate(row.slots[0]):
            memory[slot // BLOCK_SIZE][slot % BLOCK_SIZE] = mine[row.computed + k]
    for row in step.rows:
        mine, table = values(tokens[row.id]), tables[row.id]
        for p in range(row.computed + row.tokens):
            assert memory[table[p // BLOCK_SIZE]][p % BLOCK_SIZE] == mine[p], (row, p)
        sampled.append([mine[-1] % 5000] if row.samples else [])
    return sampled


def main() -> None:
    memory = [[0] * BLOCK_SIZE for _ in range(BLOCKS)]
    tokens, tables, done = {}, {}, 0
    with Cache(num_gpu_blocks=BLOCKS, block_size=BLOCK_SIZE, max_num_seqs=8, max_num_batched_tokens=128,
               max_model_len=200, policy=llm_cache.PRIORITY, flags=llm_cache.EVENTS) as cache:
        for i in range(24):
            prompt = [i % 3] * 36 + [1000 + i] * (10 + i)
            tokens[cache.add(prompt, max_tokens=10 + i, priority=i % 2, arrival=i, user_data=i)] = prompt
        steps = 0
        while step := cache.schedule():
            if steps == 5:
                cache.step_failed()  # as if the model had failed: the step comes again
                steps += 1
                continue
            sampled = run(step, tokens, tables, memory)
            outcome = cache.update(sampled)
            for row, new, kept in zip(step.rows, sampled, outcome.kept):
                tokens[row.id] = tokens[row.id] + new[:kept]
            done += len(outcome.done)
            steps += 1
        stats = cache.statistics()
        assert done == 24 and stats.free_blocks == stats.blocks and stats.hits > 0 and stats.preemptions > 0
        batch = cache.drain_msgpack(1.5, 0)
        assert batch[0] == 0x93 and b"BlockStored" in batch and cache.drain_msgpack(1.5) == b""
        try:
            cache.add([1], max_tokens=1, min_tokens=2)
        except llm_cache.CacheError as error:
            assert error.code == -5 and "min_tokens is 2" in str(error), error
        else:
            raise AssertionError("min_tokens above max_tokens is accepted")
    print(f"{done} requests in {steps} steps, {stats.hits} of {stats.queries} prompt tokens hit, {stats.preemptions} preemptions")


def put(memory, table, mine, positions, missing=()) -> None:
    """Writes what is loaded; blocks that are missing get something else."""
    for p in positions:
        block = table[p // BLOCK_SIZE]
        memory[block][p % BLOCK_SIZE] = -1 if block in missing else mine[p]


def transfers() -> None:
    """Loads prompts from elsewhere, of which every third comes with a block missing, and sends what is finished."""
    memory = [[0] * BLOCK_SIZE for _ in range(BLOCKS)]
    tokens, tables, done, failed = {}, {}, 0, 0
    flags = llm_cache.KV_CONSUMER | llm_cache.KV_PRODUCER
    with Cache(num_gpu_blocks=BLOCKS, block_size=BLOCK_SIZE, max_num_seqs=8, max_num_batched_tokens=128,
               max_model_len=200, flags=flags) as cache:
        for i in range(12):
            prompt = [100 * i + k for k in range(50)]
            how = [llm_cache.LOAD_ASYNC, 0, llm_cache.ASK][i % 3]
            tokens[cache.add(prompt, max_tokens=4, lora=["", "ada"][i % 2], external=32, flags=how | llm_cache.SEND)] = prompt
        while (step := cache.schedule()) or step.loads or step.queries:
            for query in step.queries:
                cache.match(query.id, 40)
            for load in step.loads:
                table = cache.table(load.id)
                missing = table[1:2] if load.id % 3 == 0 else []
                put(memory, table, values(tokens[load.id]), range(load.computed, load.computed + load.external), missing)
                failed += len(cache.load_failed(*missing).affected)
                cache.received(load.id)
            if not step:
                continue
            for row in step.rows:
                if row.external:
                    put(memory, row.blocks[0], values(tokens[row.id]), range(row.computed - row.external, row.computed))
            sampled = run(step, tokens, tables, memory)
            outcome = cache.update(sampled)
            for row, new, kept in zip(step.rows, sampled, outcome.kept):
                tokens[row.id] = tokens[row.id] + new[:kept]
            for end in outcome.done:
                table, mine = cache.table(end.id), values(tokens[end.id])
                computed, _ = cache.progress(end.id)
                assert all(memory[table[p // BLOCK_SIZE]][p % BLOCK_SIZE] == mine[p] for p in range(computed))
                cache.sent(end.id)
                done += 1
        stats = cache.statistics()
        assert done == 12 and failed > 0 and stats.external_hits > 300 and stats.free_blocks == stats.blocks, (done, failed)
    print(f"{done} requests with {stats.external_hits} tokens loaded, {failed} of them in part")


def images() -> None:
    """Serves prompts with images for which the encoder cache has little memory, and checks that each row finds its output."""
    outputs, images_of, encoded, done = set(), {}, 0, 0
    with Cache(num_gpu_blocks=BLOCKS, block_size=BLOCK_SIZE, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=200,
               encoder_cache_size=60, max_num_encoder_input_tokens=40) as cache:
        for i in range(10):
            item = (f"image {i % 4}", 10, 20 + i % 4)
            images_of[cache.add([i] * 40, max_tokens=3, items=[item])] = item
        while step := cache.schedule():
            outputs -= set(step.freed_encoder_outputs)
            for new in step.encoder_inputs:
                outputs.add(images_of[new.id][0])
                encoded += 1
            for row in step.rows:
                name, offset, length = images_of[row.id]
                assert name in outputs or row.computed >= offset + length or row.computed + row.tokens <= offset
            done += len(cache.update([[7] if row.samples else [] for row in step.rows]).done)
        stats = cache.statistics()
        assert done == 10 and 4 <= encoded <= 10 and stats.encoder_referenced == 0 < stats.encoder_taken <= 60, (done, encoded)
    print(f"{done} requests with images, {encoded} of them encoded")


if __name__ == "__main__":
    main()
    transfers()
    images()
