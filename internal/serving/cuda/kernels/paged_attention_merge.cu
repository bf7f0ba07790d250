// The partitions of decoding, merged by a kernel of its own if a tile has many.
#include "attention.h"

const int MERGED = 256, AHEAD = 32; // partitions at a time, at most; partitions that are loaded ahead

// Grid: tiles, each for the key heads; rows of a tile. A thread has an element of the head.
KERNEL LAUNCH_BOUNDS(MERGED) void paged_attention_merge(Attention a) {
  SHARED(ms, float[MERGED]);
  SHARED(ls, float[MERGED]);
  SHARED(befores, float[MERGED]);
  SHARED(weights, float[MERGED]);
  const int tile = tile_of_block(a), first = a.tiles[tile * 4 + 2], parts = a.tiles[tile * 4 + 3], i = thread(),
            size = a.head_size;
  if (a.tiles[tile * 4] < 0) return; // it pads a graph
  const Tile t = Tile::of(a, tile, kv_head_of_block(a));
  const int row = t.first_row + block_y();
  if (row >= t.rows) return;
  const u64 stride = (u64)a.kv_heads * TILE * (size + 2);
  const float *part = a.parts + (((u64)first * a.kv_heads + t.kv_head) * TILE + block_y()) * (size + 2);
  float m, l, o = 0;
  begin(m, l, a.sinks, Tile::head_of(t, row));
  for (int at = 0; at < parts; at += threads(), part += stride * threads()) {
    int n = parts - at < threads() ? parts - at : threads();
    barrier();
    if (i < n) ms[i] = part[i * stride + size], ls[i] = part[i * stride + size + 1];
    barrier();
    float before_m = m; // the largest m before this thread's partition
    for (int j = 0; j < n; j++) {
      if (j < i) before_m = max_of(before_m, ms[j]);
      m = max_of(m, ms[j]);
    }
    if (i < n) {
      float none = 0;
      merge(before_m, none, ms[i], ls[i], befores[i], weights[i]);
    }
    barrier();
    for (int j0 = 0; j0 < n; j0 += AHEAD) {
      float x[AHEAD];
      UNROLL
      for (int j = 0; j < AHEAD; j++) x[j] = j0 + j < n && i < size ? part[(j0 + j) * stride + i] : 0;
      UNROLL
      for (int j = 0; j < AHEAD; j++) {
        if (j0 + j >= n) break;
        float before = befores[j0 + j], weight = weights[j0 + j];
        l = merged(l, before, ls[j0 + j], weight);
        o = merged(o, before, x[j], weight);
      }
    }
  }
  if (i >= size) return;
  const u64 at = Tile::token_of(t, row) * a.out_stride + Tile::head_of(t, row) * size + i;
  const float out = result(o, mul_rn(inverse(l), a.value_scale));
  if (a.bf16) from_float(((bfloat *)a.out)[at], out);
  else from_float(((half *)a.out)[at], out);
}
