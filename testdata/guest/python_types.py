"""Arguments of the wrong type are a TypeError, a ValueError or a CacheError, for every argument of every public method,
and nothing changes. Numpy arrays are taken wherever lists, bytes or buffers are."""

import inspect
import sys

import llm_attention
import llm_cache
import numpy as np
from llm_attention import F32, INT8, LAYOUT_FLASH, Blocks, Rotation, Store
from llm_cache import Cache, CacheError, Group

SIZES = dict(num_gpu_blocks=8, block_size=16, max_num_seqs=2, max_num_batched_tokens=64, max_model_len=64)
SHAPE = dict(block_size=16, kv_heads=2, head_size=32)
bad = []


class Other:
    def __len__(self):
        return 1


wrong = [
    None, 1, -1, 2**70, 10**400, 1.5, float("nan"), True, "", "x", "\ud800", b"x", bytearray(b"xy"), [], (1,), [1], [None],
    ["x"], [[1]], [(1, 2)], [(1, 2, 3)], [1.5], [10**400], {}, {1: 2}, {1: [2]}, {"x": ["y"]}, set(), Other, Other(), object(),
    print, range(3),
    Group(), np.int64(1), np.float32(1.5), np.array(1), np.array([1, 2]), np.array([[1, 2]]), np.array([1.5]), np.array(["x"]),
    np.array([None]), np.array([1], ">i4"), np.array([], "f"), np.zeros((2, 2), "f").T[::2], np.zeros(0, "datetime64[s]"),
    memoryview(b"xyz")[::2], Rotation([0], [1.0] * 16, [0.0] * 16, 32), Rotation(1, 2, 3, 4), Rotation([0], None, None, "x"),
    Rotation(np.zeros(1), Other(), [1], None),
]


def calls(function, given):
    """The arguments that are right, with one of them wrong in every way."""
    for name in given:
        for value in wrong:
            yield {**given, name: value}


def check(what, function, given):
    parameters = inspect.signature(function).parameters
    for name in parameters:
        if parameters[name].kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL) and name not in given:
            bad.append(f"{what}: {name} is not tried")
    for arguments in calls(function, given):
        try:
            result = function(**arguments)
        except (TypeError, ValueError, CacheError):
            continue
        except Exception as error:
            changed = [name for name in given if arguments[name] is not given[name]]
            bad.append(f"{what}({changed[0]}={arguments[changed[0]]!r}): {error!r}" if changed else f"{what}: {error!r}")
            continue
        if isinstance(result, (Cache, Store)):
            result.close()


def check_all(thing, right):
    """Every public method; right has the arguments of each."""
    for name, function in inspect.getmembers(thing, callable):
        if name.startswith("_") or name == "close":
            continue
        if name not in right:
            bad.append(f"{type(thing).__name__}.{name} is not tried")
        elif isinstance(right[name], dict):
            check(f"{type(thing).__name__}.{name}", function, right[name])
        else:  # arguments of any number
            for value in wrong:
                check(f"{type(thing).__name__}.{name}", lambda one: function(one), {"one": value})


def check_range():
    cache_options = {name: p.default for name, p in inspect.signature(Cache).parameters.items() if p.default is not p.empty}
    check("Cache", Cache, {**cache_options, **SIZES})
    store = dict(layers=1, **SHAPE)
    store_options = {name: p.default for name, p in inspect.signature(Store).parameters.items() if p.default is not p.empty}
    check("Store", Store, {**store_options, **store, "blocks": 4})
    blocks_options = {name: p.default for name, p in inspect.signature(Blocks).parameters.items() if p.default is not p.empty}
    check("Blocks", Blocks, {**blocks_options, **SHAPE, "blocks": 4})


check_range()
numbers = np.zeros((1, 2, 32), "f")
with Cache(**SIZES, flags=llm_cache.EVENTS) as cache, Store(layers=1, dtype=F32, blocks=8, host_blocks=2, **SHAPE) as store:
    blocks = Blocks(blocks=4, dtype=F32, **SHAPE)
    id = cache.add([1], max_tokens=4)
    add = {name: p.default for name, p in inspect.signature(cache.add).parameters.items() if p.default is not p.empty}
    check_all(cache, {
        "schedule": {}, "step_failed": {}, "statistics": {}, "reset_encoder": {}, "reset": dict(preempt=False),
        "add": {**add, "tokens": [1, 2], "max_tokens": 1}, "fork": dict(parent=id, last=1, arrival=0.0),
        "abort": None, "release": None, "received": None, "load_failed": None, "sent": None,
        "match": dict(id=id, external=0, load_async=False), "update": dict(sampled=[[1]]), "set_drafts": dict(drafts={id: [1]}),
        "table": dict(id=id, group=0), "progress": dict(id=id), "pause": dict(pause=0),
        "drain_msgpack": dict(seconds=0.0, rank=0, int_hashes=False, arrays=False),
    })
    options = dict(scale=0.0, alibi=[1.0, 2.0], sinks=[0.0, 0.0], soft_cap=0.0, window=0, common_prefix=0, version=0)
    rotation = Rotation([0], [1.0] * 16, [0.0] * 16, 32)
    check_all(store, {
        "begin": dict(cache=cache), "write": dict(layer=0, keys=numbers, values=numbers, rotation=rotation),
        "attend": dict(layer=0, heads=2, queries=numbers, outputs=numbers, **options),
        "copy": dict(pairs=[(1, 2)]), "swap_in": dict(pairs=[(1, 2)]), "swap_out": dict(pairs=[(1, 1)]),
    })
    check_all(blocks, {
        "write": dict(keys=numbers, values=numbers, slots=[1], rotation=rotation),
        "forward": dict(
            heads=2, queries=numbers, outputs=numbers, query_start=[0, 1], seq_lens=[1], block_tables=[1], table_stride=1, **options),
        "copy": dict(pairs=[(1, 2)], source=blocks), "convert": dict(source=Blocks(blocks=4, dtype=F32, layout=LAYOUT_FLASH, **SHAPE)),
    })


def play(array, real, table):
    """A few steps, with arrays made by array, real and table: what came out of them."""
    said = []
    with Cache(**SIZES, flags=llm_cache.EVENTS, num_speculative_tokens=2, hash_seed="0") as cache, Store(layers=1, dtype=F32, blocks=8, **SHAPE) as store:
        prompt = array([5, 6, 7] * 7)
        id = cache.add(prompt, max_tokens=8, stop=array([9]), is_embed=np.ones(21, bool) if array is not list else bytes([1] * 21))
        for sampled in [3, 4]:
            step = cache.schedule()
            store.begin(cache)
            n = sum(row.tokens for row in step.rows)
            x = np.sin(np.arange(n * 2 * 32, dtype="f")).reshape(n, 2, 32)
            angle = np.arange(64 * 16, dtype="f").reshape(64, 16)
            positions = range(step.rows[0].computed, step.rows[0].computed + n)
            store.write(0, x, x[:, ::-1].copy(), Rotation(array(positions), real(np.cos(angle)), real(np.sin(angle)), 32))
            out = np.zeros_like(x)
            store.attend(0, 2, x, out, alibi=real(np.array([0.5, 0.25], "f")))
            said.append(([(row.blocks, row.slots, row.drafts) for row in step.rows], out.tobytes()))
            kept = cache.update(table([[sampled, 1, 1][: 1 + len(step.rows[0].drafts)]]))
            said.append(kept.kept)
            cache.set_drafts({id: array([1, 1])})
        cache.abort(*np.array([id], "u8"))
        said.append(cache.drain_msgpack(1.0))
        blocks = Blocks(blocks=4, dtype=F32, **SHAPE)
        keys = np.cos(np.arange(2 * 64, dtype="f")).reshape(2, 2, 32)
        blocks.write(keys, keys, array([16, 17]))
        blocks.copy(table([[1, 2], [2, 3]]))
        out = np.zeros_like(keys)
        blocks.forward(2, keys, out, array([0, 1, 2]), array([2, 1]), table([[1, 0], [3, 0]]) if array is not list else [1, 0, 3, 0], 2)
        said.append(out.tobytes())
    return said


flat = lambda values: list(values.ravel().tolist())
want = play(list, flat, list)
for dtype in ["i4", "i8", "u8", "i2", ">i4", "u4"]:
    for stride in [1, 2]:
        strided = lambda values: np.repeat(np.array(list(values), dtype), stride)[::stride]
        got = play(strided, lambda values: values, lambda rows: np.array(rows, dtype))
        if got != want:
            bad.append(f"arrays of {dtype}, stride {stride}: another result")

# All bits of int8 are kept, -128 too.
memory = [np.zeros(1 << 16, np.uint8) for _ in range(3)]
aligned = [m[-m.ctypes.data % 64 :][: 4 * 4096 + 4096] for m in memory]
there = [Blocks(blocks=2, dtype=INT8, layout=layout, memory=m, **SHAPE) for layout, m in zip([0, LAYOUT_FLASH, 0], aligned)]
aligned[0][:] = np.arange(aligned[0].size) % 256
there[1].convert(there[0])
there[2].convert(there[1])
size = 2 * 2 * 16 * 2 * (32 + 4)
if not (aligned[0][:size] == aligned[2][:size]).all():
    bad.append("int8 converted to another layout and back is another")

for line in bad:
    print(line)
sys.exit(1 if bad else 0)
