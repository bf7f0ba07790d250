"""Numbers that do not fit their field, and texts with a NUL, are errors: ctypes would cut them off in silence. So is what
is no number or text. A cache can be closed twice."""

import sys

import llm_cache
from llm_cache import Cache, Group

SIZES = dict(num_gpu_blocks=8, block_size=16, max_num_seqs=2, max_num_batched_tokens=64, max_model_len=64)
bad = []


def refused(want, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if str(error) != want:
            bad.append(f"{want!r}: the message is {str(error)!r}")
    except Exception as error:
        bad.append(f"{want!r}: {error!r}")
    else:
        bad.append(f"{want!r}: accepted")


I32 = "want -2147483648 to 2147483647"
U32 = "want 0 to 4294967295"
I64 = "want -9223372036854775808 to 9223372036854775807"
U64 = "want 0 to 18446744073709551615"
over = 2**32

numbers = {
    "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks", "policy", "hash",
    "long_prefill_token_threshold", "num_lookahead_tokens", "num_speculative_tokens", "retention_interval",
    "scheduler_block_size", "pipeline_parallel_size", "max_concurrent_batches", "max_in_flight_tokens", "max_loras",
    "encoder_cache_size", "max_num_encoder_input_tokens",
}
for name in sorted(numbers):
    value = SIZES.get(name, 0) + over
    refused(f"{name} is {value}: {I32}", Cache, **{**SIZES, name: value})
refused(f"flags is {over}: {U32}", Cache, **SIZES, flags=over)
refused(f"flags is -1: {U32}", Cache, **SIZES, flags=-1)
refused("hash_seed has a NUL after 1 characters", Cache, **SIZES, hash_seed="a\0b")
for name in ["kind", "block_size", "window", "retained", "chunk", "num_speculative_blocks", "flags", "reserved"]:
    refused(f"{name} is {over}: {I32}", Group, **{name: over})
    refused(f"{name} is {over}: {I32}", setattr, Group(), name, over)

with Cache(**SIZES, flags=llm_cache.KV_CONSUMER) as cache:
    for name, value, want in [
        ("max_tokens", over + 1, I32), ("min_tokens", over, I32), ("priority", 2**40, I32), ("external", over, I32), ("flags", over, U32),
        ("lora_id", 2**64, I64), ("user_data", -1, U64), ("user_data", 2**64, U64),
    ]:
        refused(f"{name} is {value}: {want}", cache.add, [1, 2], **{"max_tokens": 1, name: value})
    refused("max_tokens is 1.5: want a whole number", cache.add, [1], max_tokens=1.5)
    refused("tokens[1] is 'b': want a whole number", cache.add, [1, "b"], max_tokens=1)
    refused("tokens[0] is 'a': want a whole number", cache.add, "ab", max_tokens=1)
    refused("tokens[1] is None: want a whole number", cache.add, [1, None], max_tokens=1)
    refused("salt is 5: want a str", cache.add, [1], max_tokens=1, salt=5)
    cache.abort(cache.add(bytes([1, 2]), max_tokens=1, salt=None, lora=None))
    refused(f"tokens[1] is {over + 5}: {I32}", cache.add, [1, over + 5], max_tokens=1)
    refused(f"stop[0] is {over}: {I32}", cache.add, [1], max_tokens=1, stop=[over])
    for name in ["salt", "lora"]:
        refused(f"{name} has a NUL after 1 characters", cache.add, [1], max_tokens=1, **{name: "a\0b"})
    refused("the hash of an item has a NUL after 0 characters", cache.add, [1], max_tokens=1, items=[("\0", 0, 1)])
    refused(f"offset is {over}: {I32}", cache.add, [1], max_tokens=1, items=[("a", over, 1)])
    refused(f"length is {over + 1}: {I32}", cache.add, [1], max_tokens=1, items=[("a", 0, over + 1)])
    id = cache.add([1, 2, 3], max_tokens=4, user_data=2**64 - 1, lora_id=-(2**63), salt="a", lora="b")
    for call in [cache.abort, cache.release, cache.received, cache.sent]:
        refused(f"ids[0] is {2**64 + id}: {U64}", call, 2**64 + id)
    for call, args in [(cache.fork, ()), (cache.match, (1,)), (cache.table, ()), (cache.progress, ())]:
        refused(f"id is -1: {U64}", call, -1, *args)
    refused(f"external is {over}: {I32}", cache.match, id, over)
    refused(f"last is {over}: {I32}", cache.fork, id, last=over)
    refused(f"group is {over}: {I32}", cache.table, id, over)
    refused(f"rank is {over}: {I32}", cache.drain_msgpack, 0.0, over)
    refused(f"pause is {over}: {I32}", cache.pause, over)
    refused(f"blocks[0] is {over + 1}: {I32}", cache.load_failed, over + 1)
    step = cache.schedule()
    if [row.user_data for row in step.rows] != [2**64 - 1]:
        bad.append("the greatest user_data did not come back")
    refused(f"sampled[0] is {over + 7}: {I32}", cache.update, [[over + 7]])
    refused(f"drafts[0] is {over}: {I32}", cache.set_drafts, {id: [over]})
    refused(f"ids[0] is {2**64 + id}: {U64}", cache.set_drafts, {2**64 + id: []})
    cache.update([[7]])
    cache.close()  # and again at the end of the with statement
try:
    cache.schedule()
except llm_cache.CacheError:
    pass
else:
    bad.append("a closed cache schedules")

for line in bad:
    print(line)
sys.exit(1 if bad else 0)
