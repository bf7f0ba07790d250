"""vLLM V1's KV-cache manager and scheduler, by way of libllm_cache.

A Cache hands out blocks of key-value memory by number; the memory and the model
are the caller's::

    with Cache(num_gpu_blocks=4096, block_size=16, max_num_seqs=64,
               max_num_batched_tokens=2048, max_model_len=4096) as cache:
        cache.add(prompt, max_tokens=100)
        while step := cache.schedule():
            sampled = run_model(step)      # one list of tokens for each row
            outcome = cache.update(sampled)

All lengths and positions are tokens. llm_cache.h, beside the library, is the full
reference, and has the same names. The dynamic linker looks for libllm_cache.so.3;
the environment variable LLM_CACHE_LIBRARY names another file.

A call raises TypeError if an argument has the wrong type, ValueError if a number does
not fit the field of llm_cache.h (tokens, blocks, lengths and most others are int32_t,
ids and user_data uint64_t) or a text has a NUL, and CacheError if the library refuses
it. None of them changes anything. Lists of numbers may be numpy arrays.

The module has no llm_cache_plan_memory and llm_cache_plan_workers, no llm_cache_drain
(the events as arrays; drain_msgpack has them as vLLM sends them) and no
llm_cache_set_log. llm_attention, the module beside it, has attention and a store for keys and values.
"""

from __future__ import annotations

import ctypes as c
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

VERSION = 3

# What a group of layers attends to.
FULL, SLIDING_WINDOW, CHUNKED_LOCAL, MAMBA = range(4)
# The order of waiting requests.
FCFS, PRIORITY = range(2)
# What steps do not do.
PAUSE_NONE, PAUSE_NEW, PAUSE_ALL = range(3)
# Hash function for blocks.
HASH_SHA256, HASH_XXH3, HASH_NONE = range(3)
# Flags of a cache.
EVENTS, WHOLE_PREFILLS, ADMIT_CHUNKS, RETURN_DRAFTS = 1, 2, 4, 8
EAGLE, AS_VLLM, ASYNC = 32, 64, 128
KV_CONSUMER, KV_PRODUCER, KV_BEST_EFFORT, WHOLE_ITEMS, ZERO_BLOCKS = 256, 512, 1024, 2048, 4096
# Flags of a group.
GROUP_ALIGN, GROUP_EAGLE = 1, 2
# Flags of a request.
NO_READ, REPORT, HOLD, LOAD_ASYNC, ASK, SEND = 1, 2, 4, 8, 16, 32
# What the worker knows of a row's request.
ROW_RUNNING, ROW_NEW, ROW_RESUMED = range(3)
# Why a request has finished.
STOPPED, LENGTH = 1, 2

_SMALL = -6  # LLM_CACHE_E_SMALL


class CacheError(Exception):
    """A call that failed; it has changed nothing. code is LLM_CACHE_E_..."""

    def __init__(self, code: int, text: str, detail: str) -> None:
        super().__init__(f"{text}: {detail}" if detail else text)
        self.code = code


_RANGES = {
    c.c_int32: (-(2**31), 2**31 - 1), c.c_uint32: (0, 2**32 - 1),
    c.c_int64: (-(2**63), 2**63 - 1), c.c_uint64: (0, 2**64 - 1),
}  # ctypes silently truncates numbers that do not fit


def _number(name: str, value: int, kind: type) -> int:
    least, most = _RANGES[kind]
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: want a whole number") from None
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}: want {least} to {most}")
    return value


def _real(name: str, value: float) -> float:
    try:
        return c.c_double(value).value
    except TypeError:
        raise TypeError(f"{name} is {value!r}: want a number") from None
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None


def _text(name: str, value: str | None) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}: want a str")
    at = value.find("\0")
    if at >= 0:
        raise ValueError(f"{name} has a NUL after {at} characters")
    return value.encode()


class _Checked(c.Structure):
    """A struct that refuses numbers that its fields cannot hold."""

    def __init_subclass__(cls) -> None:
        cls._kinds = dict(cls._fields_)

    def __setattr__(self, name: str, value: object) -> None:
        kind = self._kinds.get(name)
        if kind in _RANGES:
            value = _number(name, value, kind)
        elif kind in (c.c_float, c.c_double):
            value = _real(name, value)
        super().__setattr__(name, value)


class Group(_Checked):
    """Layers that share a block table."""

    _fields_ = [
        ("kind", c.c_int32), ("block_size", c.c_int32), ("window", c.c_int32), ("retained", c.c_int32),
        ("chunk", c.c_int32), ("num_speculative_blocks", c.c_int32), ("flags", c.c_int32), ("reserved", c.c_int32),
    ]


class _Config(_Checked):
    _fields_ = [
        ("size", c.c_uint32), ("num_gpu_blocks", c.c_int32), ("block_size", c.c_int32), ("max_num_seqs", c.c_int32),
        ("max_num_batched_tokens", c.c_int32), ("max_model_len", c.c_int32), ("policy", c.c_int32), ("hash", c.c_int32),
        ("hash_seed", c.c_char_p), ("flags", c.c_uint32), ("long_prefill_token_threshold", c.c_int32),
        ("num_lookahead_tokens", c.c_int32), ("num_speculative_tokens", c.c_int32), ("watermark", c.c_double),
        ("groups", c.POINTER(Group)), ("groups_len", c.c_int64), ("retention_interval", c.c_int32),
        ("scheduler_block_size", c.c_int32), ("pipeline_parallel_size", c.c_int32), ("max_concurrent_batches", c.c_int32),
        ("max_in_flight_tokens", c.c_int32), ("max_loras", c.c_int32), ("encoder_cache_size", c.c_int32),
        ("max_num_encoder_input_tokens", c.c_int32),
    ]


class _Tokens(c.Structure):
    _fields_ = [("at", c.POINTER(c.c_int32)), ("len", c.c_int64)]


class _Item(_Checked):
    _fields_ = [("hash", c.c_char_p), ("offset", c.c_int32), ("length", c.c_int32)]


class _Spec(_Checked):
    _fields_ = [
        ("size", c.c_uint32), ("flags", c.c_uint32), ("tokens", _Tokens), ("max_tokens", c.c_int32), ("min_tokens", c.c_int32),
        ("stop", _Tokens), ("salt", c.c_char_p), ("lora", c.c_char_p), ("lora_id", c.c_int64), ("arrival", c.c_double),
        ("priority", c.c_int32), ("external", c.c_int32), ("user_data", c.c_uint64), ("items", c.POINTER(_Item)),
        ("items_len", c.c_int64), ("is_embed", c.c_char_p),
    ]


class _Row(c.Structure):
    _fields_ = [
        ("id", c.c_uint64), ("user_data", c.c_uint64), ("kind", c.c_int32), ("computed", c.c_int32), ("tokens", c.c_int32),
        ("drafts", c.c_int32), ("samples", c.c_int32), ("external", c.c_int32),
    ]


class _Copy(c.Structure):
    _fields_ = [("src", c.c_int32), ("dst", c.c_int32), ("group", c.c_int32), ("index", c.c_int32), ("id", c.c_uint64)]


class _Done(c.Structure):
    _fields_ = [("id", c.c_uint64), ("user_data", c.c_uint64), ("reason", c.c_int32), ("reserved", c.c_int32)]


class _Load(c.Structure):
    _fields_ = [("id", c.c_uint64), ("user_data", c.c_uint64), ("computed", c.c_int32), ("external", c.c_int32)]


class _Query(c.Structure):
    _fields_ = [("id", c.c_uint64), ("user_data", c.c_uint64), ("computed", c.c_int32), ("reserved", c.c_int32)]


class _EncoderInput(c.Structure):
    _fields_ = [("id", c.c_uint64), ("user_data", c.c_uint64), ("row", c.c_int32), ("item", c.c_int32)]


class _Tail(c.Structure):
    _fields_ = [
        ("id", c.c_uint64), ("user_data", c.c_uint64), ("group", c.c_int32), ("block", c.c_int32), ("tokens", c.c_int32),
        ("reserved", c.c_int32),
    ]


def _array(kind: type) -> type:
    fields = [("at", c.POINTER(kind)), ("cap", c.c_int64), ("len", c.c_int64)]
    return type("_Array_" + kind.__name__, (c.Structure,), {"_fields_": fields, "kind": kind})


_I32s, _I64s, _IDs, _Bytes = _array(c.c_int32), _array(c.c_int64), _array(c.c_uint64), _array(c.c_uint8)


class _Step(c.Structure):
    _fields_ = [
        ("size", c.c_uint32), ("tokens", c.c_int32), ("rows", _array(_Row)), ("drafts", _I32s), ("blocks", _I32s),
        ("block_starts", _I64s), ("block_ends", _I64s), ("slots", _I64s), ("copies", _array(_Copy)), ("common", _I32s),
        ("preempted", _IDs), ("finished", _IDs), ("loads", _array(_Load)), ("queries", _array(_Query)),
        ("encoder_inputs", _array(_EncoderInput)), ("freed_encoder_outputs", _Bytes),
        ("zero", _I32s), ("tails", _array(_Tail)),
    ]


class _Outcome(c.Structure):
    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32), ("kept", _I32s), ("done", _array(_Done))]


class _VoidRow(c.Structure):
    _fields_ = [("step", c.c_int32), ("row", c.c_int32)]


class _LoadFailure(c.Structure):
    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32), ("affected", _IDs), ("void_rows", _array(_VoidRow))]


class Statistics(c.Structure):
    """running to blocks, in_flight and loading to encoder_referenced are now; the rest is since the last call."""

    _fields_ = [
        ("size", c.c_uint32), ("reset", c.c_int32), ("running", c.c_int64), ("waiting", c.c_int64), ("free_blocks", c.c_int64),
        ("blocks", c.c_int64), ("requests", c.c_int64), ("queries", c.c_int64), ("hits", c.c_int64), ("resumed", c.c_int64),
        ("resumed_queries", c.c_int64), ("resumed_hits", c.c_int64), ("in_flight", c.c_int64), ("preemptions", c.c_int64),
        ("sampled", c.c_int64), ("drafts", c.c_int64), ("drafts_accepted", c.c_int64), ("admitted", c.c_int64),
        ("queue_ns", c.c_int64), ("external_requests", c.c_int64), ("external_queries", c.c_int64), ("external_hits", c.c_int64),
        ("resumed_external_requests", c.c_int64), ("resumed_external_queries", c.c_int64), ("resumed_external_hits", c.c_int64),
        ("loading", c.c_int64), ("kept", c.c_int64), ("deferred_blocks", c.c_int64), ("encoder_taken", c.c_int64),
        ("encoder_referenced", c.c_int64),
    ]


@dataclass(frozen=True)
class Row:
    """A scheduled request. blocks[g] goes into its table in group g from entry starts[g] on;
    slots[g] is where the keys and values of each of its tokens go (block x block size + offset; -1: nowhere).
    The last external tokens of computed are to be loaded first."""

    id: int
    user_data: int
    kind: int
    computed: int
    tokens: int
    samples: bool
    external: int
    drafts: list[int]
    blocks: list[list[int]]
    starts: list[int]
    slots: list[list[int]]


@dataclass(frozen=True)
class Copy:
    """A pair of blocks to copy before the rows are computed. index is the entry
    of the worker's table of the request id where dst goes, or -1."""

    src: int
    dst: int
    group: int
    index: int
    id: int


@dataclass(frozen=True)
class Load:
    """A request whose tokens from computed on are to be loaded into the blocks of Cache.table, until Cache.received."""

    id: int
    user_data: int
    computed: int
    external: int


@dataclass(frozen=True)
class Query:
    """A request added with ASK that waits for Cache.match; computed of its tokens are in the cache."""

    id: int
    user_data: int
    computed: int


@dataclass(frozen=True)
class EncoderInput:
    """An item to encode before the rows are computed: number item of the request of rows[row]."""

    id: int
    user_data: int
    row: int
    item: int


@dataclass(frozen=True)
class Tail:
    """With KV_PRODUCER: a block that has, once copies are made, the Mamba state before token number tokens of a prompt."""

    id: int
    user_data: int
    group: int
    block: int
    tokens: int


@dataclass(frozen=True)
class Step:
    """What to compute. A step without rows is false: nothing can run before another call. Its loads,
    queries, zero and freed_encoder_outputs (hashes of items) are to be looked at all the same. zero, with
    ZERO_BLOCKS, is blocks whose bytes are to be zeroed before copies and rows."""

    rows: list[Row]
    copies: list[Copy]
    common: list[int]
    preempted: list[int]
    finished: list[int]
    loads: list[Load]
    queries: list[Query]
    encoder_inputs: list[EncoderInput]
    freed_encoder_outputs: list[str]
    zero: list[int]
    tails: list[Tail]

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True)
class Done:
    """A request that has finished, and why: STOPPED or LENGTH."""

    id: int
    user_data: int
    reason: int


@dataclass(frozen=True)
class Outcome:
    """kept[i] is the number of sampled tokens of row i that count."""

    kept: list[int]
    done: list[Done]


@dataclass(frozen=True)
class LoadFailure:
    """affected are requests that have to compute tokens again. void_rows are the rows of steps in flight
    that read what did not come, or what another such row writes: pairs of a step (0 is the oldest) and an index
    in its rows. Cache.update ignores what is sampled for them."""

    affected: list[int]
    void_rows: list[tuple[int, int]]


_library: c.CDLL | None = None


def _load() -> c.CDLL:
    global _library
    if _library is None:
        _library = c.CDLL(os.environ.get("LLM_CACHE_LIBRARY", "libllm_cache.so.3"))
        _library.llm_cache_error_text.restype = c.c_char_p
        _library.llm_cache_error_detail.restype = c.c_char_p
    return _library


# What numbers of a buffer are, if they need no conversion.
_FORMATS = {c.c_int32: ("i",), c.c_int64: ("l", "q"), c.c_uint64: ("L", "Q")}


def _view(values: object) -> memoryview | None:
    """The buffer of an array, or None if values is none."""
    try:
        return memoryview(values)
    except (TypeError, ValueError, BufferError):  # numpy raises the latter for elements that are no numbers
        return None


def _numbers(name: str, values: Iterable[int], kind: type) -> c.Array:
    view, (least, most) = _view(values), _RANGES[kind]
    if view is not None and view.ndim == 1 and view.format in _FORMATS[kind] and view.itemsize == c.sizeof(kind):
        return (kind * len(view)).from_buffer_copy(view if view.c_contiguous else view.tobytes())
    values = list(values)
    try:
        fit = not values or (least <= min(values) and max(values) <= most)
        numbers = (kind * len(values))(*values) if fit else None
    except TypeError:
        fit = False
    if not fit:
        numbers = (kind * len(values))(*[_number(f"{name}[{i}]", value, kind) for i, value in enumerate(values)])
    return numbers


def _i32s(name: str, values: Iterable[int]) -> c.Array:
    return _numbers(name, values, c.c_int32)


def _i32(name: str, value: int) -> c.c_int32:
    return c.c_int32(_number(name, value, c.c_int32))


def _ids(ids: Iterable[int]) -> c.Array:
    return _numbers("ids", ids, c.c_uint64)


def _id(id: int) -> c.c_uint64:
    return c.c_uint64(_number("id", id, c.c_uint64))


def _grow(out: c.Structure) -> None:
    """Makes each array of a struct, or an array itself, as large as its len."""
    for a in [out] if hasattr(out, "kind") else [getattr(out, name) for name, kind in out._fields_ if hasattr(kind, "kind")]:
        if a.cap < a.len:
            array = (a.kind * (2 * a.len))()
            a.at, a.cap = c.cast(array, c.POINTER(a.kind)), len(array)


def _list(a: c.Structure) -> list:
    return a.at[: a.len] if a.len else []


class Cache:
    """A cache and its scheduler. Close it, or use it in a with statement. Its methods may be called
    from any thread; the steps belong to one thread."""

    def __init__(
        self, *, num_gpu_blocks: int, max_num_seqs: int, max_num_batched_tokens: int, max_model_len: int,
        block_size: int = 0, groups: Sequence[Group] = (), policy: int = FCFS, hash: int = HASH_SHA256,
        hash_seed: str | None = None, flags: int = 0, long_prefill_token_threshold: int = 0, num_lookahead_tokens: int = 0,
        num_speculative_tokens: int = 0, watermark: float = 0.0, retention_interval: int = 0, scheduler_block_size: int = 0,
        pipeline_parallel_size: int = 0, max_concurrent_batches: int = 0, max_in_flight_tokens: int = 0,
        max_loras: int = 0, encoder_cache_size: int = 0, max_num_encoder_input_tokens: int = 0,
    ) -> None:
        self._lib, self._handle, self._closed = _load(), c.c_uint64(0), False
        layers = (Group * len(groups))(*groups)
        config = _Config(
            size=c.sizeof(_Config), num_gpu_blocks=num_gpu_blocks, block_size=block_size, max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens, max_model_len=max_model_len, policy=policy, hash=hash,
            hash_seed=None if hash_seed is None else _text("hash_seed", hash_seed), flags=flags,
            long_prefill_token_threshold=long_prefill_token_threshold, num_lookahead_tokens=num_lookahead_tokens,
            num_speculative_tokens=num_speculative_tokens, watermark=watermark, groups=layers if groups else None,
            groups_len=len(groups), retention_interval=retention_interval, scheduler_block_size=scheduler_block_size,
            pipeline_parallel_size=pipeline_parallel_size, max_concurrent_batches=max_concurrent_batches,
            max_in_flight_tokens=max_in_flight_tokens, max_loras=max_loras, encoder_cache_size=encoder_cache_size,
            max_num_encoder_input_tokens=max_num_encoder_input_tokens,
        )
        self._check(self._lib.llm_cache_open(c.byref(config), c.byref(self._handle)))
        self._groups = len(groups) or 1
        self._step, self._outcome = _Step(size=c.sizeof(_Step)), _Outcome(size=c.sizeof(_Outcome))

    def _check(self, code: int) -> None:
        if code:
            lib = self._lib
            raise CacheError(code, lib.llm_cache_error_text(code).decode(), lib.llm_cache_error_detail().decode())

    def _call(self, name: str, *arguments: object) -> None:
        self._check(getattr(self._lib, "llm_cache_" + name)(self._handle, *arguments))

    def _fill(self, out: c.Structure, name: str, *arguments: object) -> None:
        """A call whose last argument is an array, or has arrays, for as much as there is."""
        function = getattr(self._lib, "llm_cache_" + name)
        while (code := function(self._handle, *arguments, c.byref(out))) == _SMALL:
            _grow(out)
        self._check(code)

    def close(self) -> None:
        """Ends the cache and all its requests. A second call does nothing."""
        if not self._closed:
            self._call("close")
            self._closed = True

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self, tokens: Iterable[int], *, max_tokens: int, min_tokens: int = 0, stop: Iterable[int] = (), salt: str = "",
        lora: str = "", lora_id: int = 0, arrival: float = 0.0, priority: int = 0, flags: int = 0, user_data: int = 0, external: int = 0,
        items: Sequence[tuple[str, int, int]] = (), is_embed: bytes | None = None,
    ) -> int:
        """Puts a request into the waiting queue and returns its id. items are images and the like: hash, offset, length;
        is_embed has a byte for each token, 0 for those of items that take no embedding; it may be an array of bytes."""
        parts = (_Item * len(items))(*[_Item(_text("the hash of an item", hash), offset, length) for hash, offset, length in items])
        prompt, ends, id = _i32s("tokens", tokens), _i32s("stop", stop), c.c_uint64(0)
        if is_embed is not None:
            view = memoryview(is_embed)
            if view.itemsize != 1 or view.nbytes != len(prompt):
                raise ValueError(f"is_embed has {view.nbytes} bytes for {len(prompt)} tokens")
            is_embed = view.tobytes()
        spec = _Spec(
            size=c.sizeof(_Spec), flags=flags, tokens=_Tokens(prompt, len(prompt)), max_tokens=max_tokens, min_tokens=min_tokens,
            stop=_Tokens(ends, len(ends)), salt=_text("salt", salt), lora=_text("lora", lora), lora_id=lora_id, arrival=arrival,
            priority=priority, user_data=user_data, external=external,
            items=parts if items else None, items_len=len(items), is_embed=is_embed,
        )
        self._call("add", c.byref(spec), c.byref(id))
        return id.value

    def fork(self, parent: int, *, last: int = -1, arrival: float = 0.0) -> int:
        """Makes a request with the tokens of another one; last replaces its last generated token."""
        child = c.c_uint64(0)
        self._call("fork", _id(parent), _i32("last", last), c.c_double(_real("arrival", arrival)), c.byref(child))
        return child.value

    def abort(self, *ids: int) -> int:
        """Ends requests, and returns how many had not finished."""
        aborted = c.c_int64(0)
        self._call("abort", _ids(ids), c.c_int64(len(ids)), c.byref(aborted))
        return aborted.value

    def release(self, *ids: int) -> None:
        """Lets requests run that were added with HOLD."""
        self._call("release", _ids(ids), c.c_int64(len(ids)))

    def match(self, id: int, external: int, *, load_async: bool = False) -> None:
        """Sets how many tokens of a request, from the first one on, can be loaded."""
        self._call("match", _id(id), _i32("external", external), LOAD_ASYNC if load_async else 0)

    def received(self, *ids: int) -> None:
        """Reports that the loads of requests are over."""
        self._call("received", _ids(ids), c.c_int64(len(ids)))

    def load_failed(self, *blocks: int) -> LoadFailure:
        """Reports blocks that were not loaded, before received and before the update of the step."""
        failure = _LoadFailure(size=c.sizeof(_LoadFailure))
        given = _i32s("blocks", blocks)
        self._fill(failure, "load_failed", given, c.c_int64(len(given)))
        return LoadFailure(_list(failure.affected), [(v.step, v.row) for v in _list(failure.void_rows)])

    def sent(self, *ids: int) -> None:
        """Reports that the blocks of finished requests were sent or will not be sent."""
        self._call("sent", _ids(ids), c.c_int64(len(ids)))

    def schedule(self) -> Step:
        """Schedules the next step."""
        t = self._step
        self._fill(t, "schedule")
        drafts, blocks, slots = _list(t.drafts), _list(t.blocks), _list(t.slots)
        starts, ends = _list(t.block_starts), _list(t.block_ends)
        rows, draft, slot, first = [], 0, 0, 0
        for i, r in enumerate(_list(t.rows)):
            parts = []
            for end in ends[i * self._groups : (i + 1) * self._groups]:
                parts.append(blocks[first:end])
                first = end
            rows.append(Row(
                r.id, r.user_data, r.kind, r.computed, r.tokens, bool(r.samples), r.external, drafts[draft : draft + r.drafts], parts,
                starts[i * self._groups : (i + 1) * self._groups],
                [slots[g * t.tokens + slot : g * t.tokens + slot + r.tokens] for g in range(self._groups)],
            ))
            draft, slot = draft + r.drafts, slot + r.tokens
        copies = [Copy(p.src, p.dst, p.group, p.index, p.id) for p in _list(t.copies)]
        loads = [Load(r.id, r.user_data, r.computed, r.external) for r in _list(t.loads)]
        queries = [Query(r.id, r.user_data, r.computed) for r in _list(t.queries)]
        inputs = [EncoderInput(r.id, r.user_data, r.row, r.item) for r in _list(t.encoder_inputs)]
        freed = bytes(_list(t.freed_encoder_outputs)).split(b"\0")[:-1]
        return Step(
            rows, copies, _list(t.common), _list(t.preempted), _list(t.finished), loads, queries, inputs,
            [hash.decode() for hash in freed], _list(t.zero), [Tail(r.id, r.user_data, r.group, r.block, r.tokens) for r in _list(t.tails)],
        )

    def update(self, sampled: Sequence[Sequence[int]]) -> Outcome:
        """Takes the tokens that the model sampled in the oldest step in flight: a list for each row."""
        counts, tokens = _i32s("counts", map(len, sampled)), _i32s("sampled", (t for row in sampled for t in row))
        o = self._outcome
        self._fill(o, "update", counts, c.c_int64(len(counts)), tokens, c.c_int64(len(tokens)))
        return Outcome(_list(o.kept), [Done(d.id, d.user_data, d.reason) for d in _list(o.done)])

    def step_failed(self) -> None:
        """Undoes all steps in flight, because they were not computed."""
        self._call("step_failed")

    def set_drafts(self, drafts: Mapping[int, Sequence[int]]) -> None:
        """Gives requests, by id, draft tokens to verify in their next step."""
        if not isinstance(drafts, Mapping):
            raise TypeError(f"drafts is {drafts!r}: want a dict")
        ids, counts = _ids(drafts), _i32s("counts", map(len, drafts.values()))
        tokens = _i32s("drafts", (t for d in drafts.values() for t in d))
        self._call("set_drafts", ids, counts, c.c_int64(len(ids)), tokens, c.c_int64(len(tokens)))

    def table(self, id: int, group: int = 0) -> list[int]:
        """The block table of a request in a group; empty while it waits."""
        t = _I32s()
        self._fill(t, "table", _id(id), _i32("group", group))
        return _list(t)

    def progress(self, id: int) -> tuple[int, int]:
        """How many tokens of a request are computed, and how many it has."""
        computed, tokens = c.c_int64(0), c.c_int64(0)
        self._call("progress", _id(id), c.byref(computed), c.byref(tokens))
        return computed.value, tokens.value

    def statistics(self) -> Statistics:
        """The current state, and what happened since the last call."""
        stats = Statistics(size=c.sizeof(Statistics))
        self._call("statistics", c.byref(stats))
        return stats

    def drain_msgpack(self, seconds: float, rank: int = 0, *, int_hashes: bool = False, arrays: bool = False) -> bytes:
        """The events since the last call as a batch in vLLM's encoding; empty if there are none. arrays: as
        arrays, for indexers that read fields by position."""
        time = c.c_double(_real("seconds", seconds))
        b, flags = _Bytes(), bool(int_hashes) + 2 * bool(arrays)
        self._fill(b, "drain_msgpack", time, _i32("rank", rank), flags)
        return bytes(_list(b))

    def pause(self, pause: int) -> None:
        """Sets what steps do not do: PAUSE_NONE, PAUSE_NEW (no waiting request is admitted) or PAUSE_ALL."""
        self._call("pause", _i32("pause", pause))

    def reset_encoder(self) -> None:
        """Forgets all outputs of the encoder; the worker must drop them, too."""
        self._call("reset_encoder")

    def reset(self, *, preempt: bool = False) -> None:
        """Forgets all cached prefixes; with preempt all running requests lose their blocks before."""
        self._call("reset", int(bool(preempt)))
