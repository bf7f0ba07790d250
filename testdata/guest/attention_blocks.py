"""Blocks in the caller's memory, from Python: written with and without rotation, attended, copied, swapped, converted."""

import math
from array import array

from llm_attention import BF16, F32, LAYOUT_FLASH, LAYOUT_VLLM, Blocks, Rotation
from llm_cache import CacheError

BLOCK, HEADS, KV, SIZE, TOKENS = 16, 4, 2, 32, 20
SHAPE = {"block_size": BLOCK, "kv_heads": KV, "head_size": SIZE, "dtype": F32, "threads": 2}


def numbers(n: int, seed: int) -> array:
    return array("f", (math.sin(i * 12.9898 + seed) for i in range(n)))


keys, values, query = numbers(TOKENS * KV * SIZE, 1), numbers(TOKENS * KV * SIZE, 2), numbers(HEADS * SIZE, 3)


def attend(blocks: Blocks, table: list[int], **options) -> array:
    outputs = array("f", bytes(4 * len(query)))
    blocks.forward(HEADS, query, outputs, [0, 1], [TOKENS], table, len(table), **options)
    return outputs


def reference(k: array) -> list[float]:
    """The last query token's output in float64."""
    out = []
    for head in range(HEADS):
        at = [(t * KV + head // (HEADS // KV)) * SIZE for t in range(TOKENS)]
        logits = [sum(query[head * SIZE + i] * k[a + i] for i in range(SIZE)) / math.sqrt(SIZE) for a in at]
        weights = [math.exp(x - max(logits)) for x in logits]
        out += [sum(w * values[a + i] for w, a in zip(weights, at)) / sum(weights) for i in range(SIZE)]
    return out


def near(got: array, want: list[float]) -> None:
    assert len(got) == len(want) and all(abs(g - w) < 1e-5 for g, w in zip(got, want)), (got, want)


def refused(call, error: type, text: str) -> None:
    try:
        call()
    except error as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)


blocks = Blocks(blocks=6, **SHAPE)
slots = [(3 if t < BLOCK else 1) * BLOCK + t % BLOCK for t in range(TOKENS)]
blocks.write(keys, values, slots)
first = attend(blocks, [3, 1])
near(first, reference(keys))
assert attend(blocks, [3, 1], window=5) != first

# Copies on write, blocks of a host, and other layouts.
blocks.copy([(3, 0), (1, 2)])
assert attend(blocks, [0, 2]) == first
host = Blocks(blocks=2, **SHAPE)
host.copy([(0, 1), (2, 0)], blocks)
assert attend(host, [1, 0]) == first
for layout in (LAYOUT_VLLM, LAYOUT_FLASH):
    other = Blocks(blocks=6, layout=layout, **SHAPE)
    other.convert(blocks)
    assert attend(other, [3, 1]) == first
narrow = Blocks(blocks=6, **{**SHAPE, "dtype": BF16})
narrow.convert(blocks)
assert all(abs(a - b) < 1e-2 for a, b in zip(attend(narrow, [3, 1]), first))

# Keys that are rotated on their way: elements i and i + 4 of the first 8 of each head.
positions = [(t * 3) % 50 for t in range(TOKENS)]
angles = [p / 100 ** (i / 4) for p in range(50) for i in range(4)]
turn = Rotation(positions, [math.cos(a) for a in angles], [math.sin(a) for a in angles], 8)
rotated = array("f", keys)
for t, p in enumerate(positions):
    for head in range(KV):
        for i in range(4):
            at, a = (t * KV + head) * SIZE + i, angles[p * 4 + i]
            x, y = keys[at], keys[at + 4]
            rotated[at], rotated[at + 4] = x * math.cos(a) - y * math.sin(a), y * math.cos(a) + x * math.sin(a)
blocks.write(keys, values, slots, turn)
near(attend(blocks, [3, 1]), reference(rotated))

refused(lambda: blocks.write(keys, values, slots, Rotation([0], turn.cos, turn.sin, 8)), ValueError, "1 positions for 20 tokens")
refused(lambda: blocks.write(keys, values, [96] + slots[1:]), CacheError, "slot 96")
refused(lambda: attend(blocks, [3, 6]), CacheError, "block 6")
refused(lambda: blocks.copy([(0, 6)]), CacheError, "to block 6, where there are 6")
refused(lambda: blocks.copy([(0, 1)], narrow), CacheError, "same type")
refused(lambda: blocks.forward(HEADS, query, query, [0, 1], [TOKENS], [3, 1], 3), ValueError, "block_tables 2")
refused(lambda: Blocks(blocks=1, memory=b"x" * 100000, **SHAPE), ValueError, "read-only")
refused(lambda: Blocks(blocks=1, memory=bytearray(64), **SHAPE), CacheError, "")
near(attend(blocks, [3, 1]), reference(rotated))
