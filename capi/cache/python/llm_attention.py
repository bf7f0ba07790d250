"""Attention over paged blocks, and memory for their keys and values, by way of libllm_cache.

A Store holds the keys and values of all layers and the block tables of requests. With the Cache of
llm_cache a step is::

    step = cache.schedule()
    store.begin(cache)                  # even if the step has no rows
    for layer in range(layers):
        store.write(layer, keys, values)
        store.attend(layer, heads, queries, outputs)
    cache.update(sampled)

keys, values, queries and outputs are contiguous buffers, for example array.array or numpy arrays. They
have [heads, head size] numbers for each token of the step, in the order of its rows. Format "f" is float32,
"e" float16; "H" is the bits of bfloat16 numbers. llm_attention.h, beside the library, is the full
reference, and has the same names. Calls raise the same errors as those of llm_cache.

The module does not have llm_attention_write and llm_attention_forward (attention over the caller's own
memory), nor llm_kvstore_layer. Store.write does not rotate keys.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Sequence

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
        ("sparse_block", c.c_int32), ("sparse_local", c.c_int32), ("sparse_stride", c.c_int32), ("sparse_head_step", c.c_int32),
        ("sparse_rank", c.c_int32), ("reserved", c.c_int32),
    ]


class _Pair(c.Structure):
    _fields_ = [("src", c.c_int32), ("dst", c.c_int32)]


def _floats(name: str, values: Sequence[float] | None, n: int) -> c.Array | None:
    if values is None:
        return None
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} entries: want {n}")
    return (c.c_float * n)(*values)


def _tensor(name: str, buffer, width: int, written: bool = False) -> tuple[_Tensor, c.Array]:
    """A tensor over a buffer, and the object that keeps its memory."""
    view = memoryview(buffer)
    if view.format not in _FORMATS:
        raise ValueError(f"{name} has numbers of format {view.format!r}: want 'f', 'e' or 'H'")
    if view.readonly and written:
        raise ValueError(f"{name} is read-only")
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
        self._lib, self._handle = llm_cache._load(), c.c_uint64(0)
        if layer_group is not None and len(layer_group) != layers:
            raise ValueError(f"layer_group has {len(layer_group)} entries: want {layers}")
        config = _Config(
            size=c.sizeof(_Config), layers=layers, dtype=dtype, layout=layout, blocks=blocks, host_blocks=host_blocks,
            block_size=block_size, kv_heads=kv_heads, head_size=head_size, threads=threads, bytes=bytes, groups=groups,
            layer_group=None if layer_group is None else llm_cache._i32s("layer_group", layer_group),
            key_scales=_floats("key_scales", key_scales, layers), value_scales=_floats("value_scales", value_scales, layers),
        )
        self._check(self._lib.llm_kvstore_open(c.byref(config), c.byref(self._handle)))
        self._head_size, self._kv_width = head_size, kv_heads * head_size

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps the memory."""
        self._check(self._lib.llm_kvstore_close(self._handle))

    def _check(self, code: int) -> None:
        if code:
            raise CacheError(code, self._lib.llm_cache_error_text(code).decode(), self._lib.llm_cache_error_detail().decode())

    @property
    def blocks(self) -> int:
        """How many blocks the device has."""
        n = c.c_int32(0)
        self._check(self._lib.llm_kvstore_blocks(self._handle, c.byref(n)))
        return n.value

    def begin(self, cache: llm_cache.Cache) -> None:
        """Begins the step that the cache has just scheduled: copies blocks and enters new blocks into tables."""
        self._check(self._lib.llm_kvstore_begin(self._handle, c.byref(cache._step)))

    def write(self, layer: int, keys, values) -> None:
        """Writes the keys and values of the step's tokens into a layer."""
        (k, memory), (v, more) = _tensor("keys", keys, self._kv_width), _tensor("values", values, self._kv_width)
        self._check(self._lib.llm_kvstore_write(self._handle, llm_cache._i32("layer", layer), c.byref(k), c.byref(v), None))
        del memory, more

    def attend(
        self, layer: int, heads: int, queries, outputs, *, scale: float = 0.0, alibi: Sequence[float] | None = None,
        sinks: Sequence[float] | None = None, soft_cap: float = 0.0, window: int = 0, common_prefix: int = 0, version: int = 0,
        sparse_block: int = 0, sparse_local: int = 0, sparse_stride: int = 0, sparse_head_step: int = 0, sparse_rank: int = 0,
    ) -> None:
        """Computes attention of the step's tokens in a layer. outputs can be the buffer of queries."""
        width = max(1, heads) * self._head_size
        (q, memory), (o, more) = _tensor("queries", queries, width), _tensor("outputs", outputs, width, written=True)
        options = _Options(
            size=c.sizeof(_Options), scale=scale, alibi=_floats("alibi", alibi, heads), sinks=_floats("sinks", sinks, heads),
            soft_cap=soft_cap, window=window, common_prefix=common_prefix, version=version, sparse_block=sparse_block,
            sparse_local=sparse_local, sparse_stride=sparse_stride, sparse_head_step=sparse_head_step, sparse_rank=sparse_rank,
        )
        self._check(self._lib.llm_kvstore_attend(
            self._handle, llm_cache._i32("layer", layer), llm_cache._i32("heads", heads), c.byref(q), c.byref(o), c.byref(options)))
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
        flat = llm_cache._i32s("pairs", (block for src, dst in pairs for block in (src, dst)))
        self._check(call(self._handle, c.cast(flat, c.POINTER(_Pair)), c.c_int64(len(flat) // 2)))
