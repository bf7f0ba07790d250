"""Attention over paged blocks, and memory for their keys and values, by way of libllm_cache.

A Store holds the keys and values of all layers and the block tables of requests. With the Cache of
llm_cache a step is::

    step = cache.schedule()
    store.begin(cache)                  # even if the step has no rows
    for layer in range(layers):
        store.write(layer, keys, values)
        store.attend(layer, heads, queries, outputs)
    cache.update(sampled)

Blocks are the blocks of one layer in the caller's memory, for callers that keep block tables themselves::

    blocks = Blocks(blocks=100, block_size=16, kv_heads=8, head_size=128)
    blocks.copy(pairs)
    blocks.write(keys, values, slots)
    blocks.forward(heads, queries, outputs, query_start, seq_lens, block_tables, table_stride)

keys, values, queries and outputs are contiguous buffers, for example array.array or numpy arrays. They
have [heads, head size] numbers for each token of the step, in the order of its rows. Format "f" is float32,
"e" float16; "H" is the bits of bfloat16 numbers. llm_attention.h, beside the library, is the full
reference, and has the same names. Calls raise the same errors as those of llm_cache.

The module has no llm_kvstore_layer. Rows of numbers and blocks have no gaps between them.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import llm_cache
from llm_cache import CacheError

# Types of elements.
F32, F16, BF16, E4M3, E5M2, INT8 = range(6)
# Where the elements of a block are.
LAYOUT_TILE, LAYOUT_VLLM, LAYOUT_FLASH = range(3)

_FORMATS = {"f": F32, "e": F16, "H": BF16}


class _Tensor(c.Structure):
    _fields_ = [("at", c.c_void_p), ("rows", c.c_int64), ("stride", c.c_int64), ("dtype", c.c_int32), ("reserved", c.c_int32)]


class _Config(llm_cache._Checked):
    _fields_ = [
        ("size", c.c_uint32), ("layers", c.c_int32), ("dtype", c.c_int32), ("layout", c.c_int32), ("blocks", c.c_int32),
        ("host_blocks", c.c_int32), ("block_size", c.c_int32), ("kv_heads", c.c_int32), ("head_size", c.c_int32),
        ("threads", c.c_int32), ("bytes", c.c_int64), ("groups", c.c_int32), ("reserved", c.c_int32),
        ("layer_group", c.POINTER(c.c_int32)), ("key_scales", c.POINTER(c.c_float)), ("value_scales", c.POINTER(c.c_float)),
    ]


class _Options(llm_cache._Checked):
    _fields_ = [
        ("size", c.c_uint32), ("scale", c.c_float), ("alibi", c.POINTER(c.c_float)), ("sinks", c.POINTER(c.c_float)),
        ("soft_cap", c.c_float), ("window", c.c_int32), ("common_prefix", c.c_int32), ("version", c.c_int32),
        ("reserved", c.c_int32 * 6),
    ]


class _Cache(llm_cache._Checked):
    _fields_ = [
        ("size", c.c_uint32), ("dtype", c.c_int32), ("layout", c.c_int32), ("blocks", c.c_int32), ("block_size", c.c_int32),
        ("kv_heads", c.c_int32), ("head_size", c.c_int32), ("key_scale", c.c_float), ("value_scale", c.c_float),
        ("reserved", c.c_int32), ("key", c.c_void_p), ("value", c.c_void_p), ("key_bytes", c.c_int64), ("value_bytes", c.c_int64),
        ("block_stride", c.c_int64), ("head_stride", c.c_int64), ("key_scales", c.c_void_p), ("value_scales", c.c_void_p),
        ("key_scales_bytes", c.c_int64), ("value_scales_bytes", c.c_int64), ("scale_block_stride", c.c_int64),
        ("scale_head_stride", c.c_int64),
    ]


class _Rotation(llm_cache._Checked):
    _fields_ = [
        ("size", c.c_uint32), ("rotated", c.c_int32), ("interleaved", c.c_int32), ("reserved", c.c_int32),
        ("positions", c.POINTER(c.c_int32)), ("cos", c.POINTER(c.c_float)), ("sin", c.POINTER(c.c_float)), ("entries", c.c_int64),
    ]


class _Batch(llm_cache._Checked):
    _fields_ = [
        ("size", c.c_uint32), ("heads", c.c_int32), ("queries", _Tensor), ("outputs", _Tensor),
        ("query_start", c.POINTER(c.c_int32)), ("seq_lens", c.POINTER(c.c_int32)), ("block_tables", c.POINTER(c.c_int32)),
        ("seqs", c.c_int64), ("table_stride", c.c_int64), ("options", c.POINTER(_Options)),
    ]


class _Pair(c.Structure):
    _fields_ = [("src", c.c_int32), ("dst", c.c_int32)]


def _floats(name: str, values: Sequence[float] | None, n: int | None = None) -> c.Array | None:
    """n numbers, or as many as there are; an array of float32 may have any shape."""
    if values is None:
        return None
    view = llm_cache._view(values)
    if view is not None and view.format == "f" and view.c_contiguous:
        numbers = (c.c_float * (view.nbytes // 4)).from_buffer_copy(view)
    else:
        numbers = (c.c_float * len(values))(*[llm_cache._real(f"{name}[{i}]", v) for i, v in enumerate(values)])
    if n is not None and len(numbers) != n:
        raise ValueError(f"{name} has {len(numbers)} entries: want {n}")
    return numbers


def _instance(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}: want a {kind.__name__}")


def _options(
    heads: int, *, scale: float = 0.0, alibi: Sequence[float] | None = None, sinks: Sequence[float] | None = None,
    soft_cap: float = 0.0, window: int = 0, common_prefix: int = 0, version: int = 0,
) -> _Options:
    """What changes the logits, as in llm_attention_options."""
    return _Options(
        size=c.sizeof(_Options), scale=scale, alibi=_floats("alibi", alibi, heads), sinks=_floats("sinks", sinks, heads),
        soft_cap=soft_cap, window=window, common_prefix=common_prefix, version=version,
    )


def _check(code: int) -> None:
    if code:
        lib = llm_cache._load()
        raise CacheError(code, lib.llm_cache_error_text(code).decode(), lib.llm_cache_error_detail().decode())


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[object, c.c_int64]:
    flat = llm_cache._i32s("pairs", (block for src, dst in pairs for block in (src, dst)))
    return c.cast(flat, c.POINTER(_Pair)), c.c_int64(len(flat) // 2)


@dataclass
class Rotation:
    """Rotary embedding of keys before they are written: cos and sin have a row of rotated/2 for each position."""

    positions: Sequence[int]  # of each token
    cos: Sequence[float]
    sin: Sequence[float]
    rotated: int  # the first elements of a head
    interleaved: bool = False  # pairs 2i and 2i+1 (GPT-J), not i and i + rotated/2

    def _struct(self, tokens: int) -> _Rotation:
        positions, cos = llm_cache._i32s("positions", self.positions), _floats("cos", self.cos) or (c.c_float * 0)()
        if len(positions) != tokens:
            raise ValueError(f"rotation has {len(positions)} positions for {tokens} tokens")
        return _Rotation(
            size=c.sizeof(_Rotation), rotated=self.rotated, interleaved=int(bool(self.interleaved)), positions=positions,
            cos=cos, sin=_floats("sin", self.sin, len(cos)), entries=len(cos),
        )


def _rotation(rotation: Rotation | None, tokens: int) -> object:
    if rotation is None:
        return None
    _instance("rotation", rotation, Rotation)
    return c.byref(rotation._struct(tokens))


def _tensor(name: str, buffer, width: int, written: bool = False) -> tuple[_Tensor, c.Array]:
    """A tensor over a buffer, and the object that keeps its memory."""
    view = memoryview(buffer)
    if view.format not in _FORMATS:
        raise ValueError(f"{name} has numbers of format {view.format!r}: want 'f', 'e' or 'H'")
    if view.readonly and written:
        raise ValueError(f"{name} is read-only")
    if not view.c_contiguous:
        raise ValueError(f"{name} is not contiguous")
    if view.nbytes % (width * view.itemsize):
        raise ValueError(f"{name} has {view.nbytes // view.itemsize} numbers: want rows of {width}")
    kind = c.c_char * view.nbytes
    memory = kind.from_buffer_copy(buffer) if view.readonly else kind.from_buffer(buffer)
    rows = view.nbytes // (width * view.itemsize)
    return _Tensor(c.addressof(memory), rows, width, _FORMATS[view.format], 0), memory


class Store:
    """The blocks of all layers. Close it, or use it in a with statement."""

    def __init__(
        self, *, layers: int, block_size: int, kv_heads: int, head_size: int, blocks: int = 0, bytes: int = 0, host_blocks: int = 0,
        dtype: int = F16, layout: int = LAYOUT_TILE, threads: int = 0, groups: int = 0, layer_group: Sequence[int] | None = None,
        key_scales: Sequence[float] | None = None, value_scales: Sequence[float] | None = None,
    ) -> None:
        self._lib, self._handle, self._closed = llm_cache._load(), c.c_uint64(0), False
        if layer_group is not None and len(layer_group) != layers:
            raise ValueError(f"layer_group has {len(layer_group)} entries: want {layers}")
        config = _Config(
            size=c.sizeof(_Config), layers=layers, dtype=dtype, layout=layout, blocks=blocks, host_blocks=host_blocks,
            block_size=block_size, kv_heads=kv_heads, head_size=head_size, threads=threads, bytes=bytes, groups=groups,
            layer_group=None if layer_group is None else llm_cache._i32s("layer_group", layer_group),
            key_scales=_floats("key_scales", key_scales, layers), value_scales=_floats("value_scales", value_scales, layers),
        )
        _check(self._lib.llm_kvstore_open(c.byref(config), c.byref(self._handle)))
        self._head_size, self._kv_width = head_size, kv_heads * head_size

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps the memory. A second call does nothing."""
        if not self._closed:
            _check(self._lib.llm_kvstore_close(self._handle))
            self._closed = True

    @property
    def blocks(self) -> int:
        """How many blocks the device has."""
        n = c.c_int32(0)
        _check(self._lib.llm_kvstore_blocks(self._handle, c.byref(n)))
        return n.value

    def begin(self, cache: llm_cache.Cache) -> None:
        """Begins the step that the cache has just scheduled: copies blocks and enters new blocks into tables."""
        _instance("cache", cache, llm_cache.Cache)
        _check(self._lib.llm_kvstore_begin(self._handle, c.byref(cache._step)))

    def write(self, layer: int, keys, values, rotation: Rotation | None = None) -> None:
        """Writes the keys and values of the step's tokens into a layer."""
        (k, memory), (v, more) = _tensor("keys", keys, self._kv_width), _tensor("values", values, self._kv_width)
        rotary = _rotation(rotation, k.rows)
        _check(self._lib.llm_kvstore_write(self._handle, llm_cache._i32("layer", layer), c.byref(k), c.byref(v), rotary))
        del memory, more

    def attend(self, layer: int, heads: int, queries, outputs, **options) -> None:
        """Computes attention of the step's tokens in a layer. outputs can be the buffer of queries. The options are
        those of llm_attention_options: scale, alibi, sinks, soft_cap, window, common_prefix, version."""
        width = max(1, heads) * self._head_size
        (q, memory), (o, more) = _tensor("queries", queries, width), _tensor("outputs", outputs, width, written=True)
        _check(self._lib.llm_kvstore_attend(
            self._handle, llm_cache._i32("layer", layer), llm_cache._i32("heads", heads), c.byref(q), c.byref(o),
            c.byref(_options(heads, **options))))
        del memory, more

    def copy(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Copies blocks (source, destination) in all layers, pair after pair."""
        self._move(self._lib.llm_kvstore_copy, pairs)

    def swap_out(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Copies blocks of the device to blocks of the host."""
        self._move(self._lib.llm_kvstore_swap_out, pairs)

    def swap_in(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Copies blocks of the host to blocks of the device."""
        self._move(self._lib.llm_kvstore_swap_in, pairs)

    def _move(self, call, pairs: Iterable[tuple[int, int]]) -> None:
        _check(call(self._handle, *_pairs(pairs)))


class Blocks:
    """The blocks of one layer. memory is a writable buffer, aligned to 64 bytes; if it is None, memory is allocated."""

    def __init__(
        self, *, blocks: int, block_size: int, kv_heads: int, head_size: int, dtype: int = F16, layout: int = LAYOUT_TILE,
        memory=None, key_scale: float = 0.0, value_scale: float = 0.0, threads: int = 0,
    ) -> None:
        self._lib, self._threads = llm_cache._load(), llm_cache._i32("threads", threads)
        self._cache = _Cache(
            size=c.sizeof(_Cache), dtype=dtype, layout=layout, blocks=blocks, block_size=block_size, kv_heads=kv_heads,
            head_size=head_size, key_scale=key_scale, value_scale=value_scale,
        )
        _check(self._lib.llm_attention_describe(c.byref(self._cache), None, c.c_int64(0)))
        need = self._cache.key_bytes
        if memory is None:
            self._memory = (c.c_char * (need + 63))()
            at, size = (c.addressof(self._memory) + 63) & ~63, need
        else:
            view = memoryview(memory)
            if view.readonly or not view.c_contiguous:
                raise ValueError("memory is read-only" if view.readonly else "memory is not contiguous")
            self._memory = (c.c_char * view.nbytes).from_buffer(memory)
            at, size = c.addressof(self._memory), view.nbytes
        _check(self._lib.llm_attention_describe(c.byref(self._cache), c.c_void_p(at), c.c_int64(size)))
        self._head_size, self._kv_width = head_size, kv_heads * head_size

    def write(self, keys, values, slots: Iterable[int], rotation: Rotation | None = None) -> None:
        """Writes the key and value of token i into slots[i], or nowhere if that is -1."""
        (k, memory), (v, more) = _tensor("keys", keys, self._kv_width), _tensor("values", values, self._kv_width)
        at = llm_cache._numbers("slots", slots, c.c_int64)
        rotary = _rotation(rotation, len(at))
        _check(self._lib.llm_attention_write(
            c.byref(self._cache), c.byref(k), c.byref(v), at, c.c_int64(len(at)), rotary, self._threads))
        del memory, more

    def forward(
        self, heads: int, queries, outputs, query_start: Iterable[int], seq_lens: Iterable[int], block_tables: Iterable[int],
        table_stride: int, **options,
    ) -> None:
        """Computes attention of query tokens, the last ones of each sequence. block_tables has table_stride entries for
        each sequence; an array may have a row for each. outputs can be the buffer of queries. The options are those of Store.attend."""
        width = max(1, heads) * self._head_size
        (q, memory), (o, more) = _tensor("queries", queries, width), _tensor("outputs", outputs, width, written=True)
        starts, lens = llm_cache._i32s("query_start", query_start), llm_cache._i32s("seq_lens", seq_lens)
        view = llm_cache._view(block_tables)
        if view is not None and view.ndim == 2:
            block_tables = (block for table in block_tables for block in table)
        tables = llm_cache._i32s("block_tables", block_tables)
        if len(starts) != len(lens) + 1 or len(tables) != len(lens) * table_stride:
            raise ValueError(
                f"query_start has {len(starts)} entries and block_tables {len(tables)}: want {len(lens) + 1} and "
                f"{len(lens) * table_stride} for {len(lens)} sequences")
        batch = _Batch(
            size=c.sizeof(_Batch), heads=heads, queries=q, outputs=o, query_start=starts, seq_lens=lens, block_tables=tables,
            seqs=len(lens), table_stride=table_stride, options=c.pointer(_options(heads, **options)),
        )
        _check(self._lib.llm_attention_forward(c.byref(self._cache), c.byref(batch), self._threads))
        del memory, more

    def copy(self, pairs: Iterable[tuple[int, int]], source: Blocks | None = None) -> None:
        """Copies blocks (source, destination), pair after pair, from source, which by default are these blocks."""
        source = self if source is None else source
        _instance("source", source, Blocks)
        _check(self._lib.llm_attention_copy(c.byref(self._cache), c.byref(source._cache), *_pairs(pairs), self._threads))

    def convert(self, source: Blocks) -> None:
        """Copies all blocks of source, whose layout, type and scales can differ."""
        _instance("source", source, Blocks)
        _check(self._lib.llm_attention_convert(c.byref(self._cache), c.byref(source._cache)))
