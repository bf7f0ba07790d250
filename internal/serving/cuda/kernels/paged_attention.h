// Attention over paged blocks. Decoding computes the partitions of a sequence side by side and merges them; prefill
// computes them one after the other and merges as it goes. Which of the two computes a token changes nothing in its
// bits.
//
// A row is a token's query head among those that share a key head: row i of a sequence is token i / group and head i %
// group of the group. A tile is 16 rows (decoding) or those of a block (prefill). Its entry in tiles is: sequence,
// first row, and for decoding its first element of parts and how many there are, in the order of partitions. The
// sequence of a tile that pads a graph is -1.
#pragma once
#include "attention.h"

DEVICE int window_of(const Attention &a) { return a.window > 0 ? a.window : 0x7fffffff; }
DEVICE int above(int end, int window) { return end > window ? end - window : 0; } // the first key that is reached

// reach_of is what rows of a tile reach, from row0 on.
DEVICE Reach reach_of(const Attention &a, const Tile &t, int row0, int rows) {
  int window = window_of(a), first = Tile::end_of(t, row0), last = Tile::end_of(t, row0 + rows - 1);
  return {window, above(last, window), first, above(first, window), row0 < t.rows ? last : 0};
}

// load_queries begins to copy rows of queries to shared memory, in the order in which products takes them. Those behind
// the last become 0.
template <class C, int D> DEVICE void load_queries(u32 to, const Attention &a, const Tile &t, int row0, int rows) {
  for (int i = thread(); i < rows * (D / 8); i += threads()) {
    const int row = i / (D / 8), unit = i % (D / 8);
    const bool there = row0 + row < t.rows;
    const int at = there ? row0 + row : t.rows - 1;
    const u16 *from =
        (const u16 *)a.query + Tile::token_of(t, at) * a.query_stride + Tile::head_of(t, at) * D + unit * 8;
    const bool last = unit >= D / 32 * 4; // of the last 16 elements two lanes have four each
    const int mma = last ? D / 32 * 2 : unit / 4 * 2, lane = row % 8 * 4 + (last ? unit % 4 * 2 : unit % 4);
    const u32 place = to + row / TILE * TILE * Rows<D>::BYTES + mma * 512 + lane * 16 + row / 8 % 2 * 4;
    u32 x[4];
    if (sizeof(C) == 1 && a.bf16) {
      bytes16 y = {0, 0, 0, 0};
      if (there) y = load16(from);
      x[0] = half_of_bfloat(y.x), x[1] = half_of_bfloat(y.y), x[2] = half_of_bfloat(y.z), x[3] = half_of_bfloat(y.w);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
      const u32 word = place + j / 2 * (last ? 16 : 512) + j % 2 * 8;
      if (sizeof(C) == 1 && a.bf16) store4_shared(word, 0, x[j]);
      else cp_async4(word, from + j * 2, there ? 4 : 0);
    }
  }
}

// weights_of makes weights of products. What few steps use is computed again by those, so that it takes no registers.
template <class T, int D, int R> DEVICE void weights_of(State<T, D, R> &st, float (&s)[R][STEP / 8][4],
                                                        const Attention &a, const Reach &reach, int tile, int kv_head,
                                                        int row0, int key0) {
  float factor = mul_rn(a.scale, LOG2E);
  if (a.soft_cap != 0) cap<R>(s, a.scale, a.soft_cap), factor = 1;
  bool biased = a.slopes || !(factor > 0), partial = key0 < reach.all_from || key0 + STEP > reach.all_to;
  if (biased || partial) {
    Tile t = Tile::of(a, opaque(tile), kv_head);
    int end[R][2];
    float slope[R][2];
    UNROLL
    for (int i = 0; i < R * 2; i++) {
      int row = opaque(row0) + i * 8 + lane() / 4;
      end[i / 2][i % 2] = Tile::end_of(t, row);
      slope[i / 2][i % 2] = a.slopes ? mul_rn(a.slopes[Tile::head_of(t, row)], LOG2E) : 0;
    }
    if (biased) slope_down<R>(s, end, slope, factor, key0), factor = 1;
    if (partial) leave_out<R>(s, end, reach.window, key0);
  }
  weigh<T, D, R>(st, s, factor);
}

const int MAX_MERGED = 16; // partitions of a tile that decoding merges, at most

template <int D> struct DecodeMemory {
  static const int TENSOR = STEP * Rows<D>::BYTES, QUERIES = TILE * Rows<D>::BYTES, BYTES = QUERIES + 2 * TENSOR;
};

// last_warp_to_arrive reports whether all other warps of a group of n have stored their parts. It resets the counter.
DEVICE bool last_warp_to_arrive(u32 *arrived, int n) {
  fence();
  warp_barrier();
  u32 before = 0;
  if (lane() == 0) {
    before = atomic_add(arrived, 1);
    if (before == (u32)n - 1) *arrived = 0;
  }
  const bool last = shfl(before, 0) == (u32)n - 1;
  if (last) fence();
  return last;
}

// merge_parts merges the partitions of a tile as paged_attention_merge does. A warp has four rows at a time, eight
// lanes each, and the results of their partitions in shared memory.
template <class C, int D> DEVICE void merge_parts(const Attention &a, const Tile &t, u32 memory, int first, int parts) {
  typedef Format<typename Cached<C>::Product> Output;
  const int ROW = (D + 2) * 4, UNITS = 4 * ROW / 8; // bytes; of a partition, 8 bytes each
  static_assert(MAX_MERGED * UNITS * 8 <= DecodeMemory<D>::BYTES);
  for (int row0 = 0; row0 < TILE && t.first_row + row0 < t.rows; row0 += 4) {
    const char *from = (const char *)a.parts + (((u64)first * a.kv_heads + t.kv_head) * TILE + row0) * ROW;
    warp_barrier(); // the memory is used
    for (int i = lane(); i < parts * UNITS; i += 32)
      cp_async8(memory + i * 8, from + (u64)(i / UNITS) * a.kv_heads * TILE * ROW + i % UNITS * 8, 8);
    cp_async_commit();
    cp_async_wait<0>();
    warp_barrier();
    const int row = t.first_row + row0 + lane() / 8;
    u32 at = memory + lane() / 8 * ROW + lane() % 8 * 8, ml_at = memory + lane() / 8 * ROW + D * 4;
    float m, l, o[D / 16][2];
    begin(m, l, a.sinks, Tile::head_of(t, row));
    UNROLL
    for (int i = 0; i < D / 16; i++) o[i][0] = o[i][1] = 0;
    for (int p = 0; p < parts; p++, at += 4 * ROW, ml_at += 4 * ROW) {
      const bytes8 ml = load8_shared(ml_at, 0);
      float before, part;
      merge(m, l, float_of(ml.x), float_of(ml.y), before, part);
      UNROLL
      for (int i = 0; i < D / 16; i++) {
        const bytes8 x = load8_shared(at, i * 64);
        o[i][0] = merged(o[i][0], before, float_of(x.x), part), o[i][1] = merged(o[i][1], before, float_of(x.y), part);
      }
    }
    if (row >= t.rows) continue;
    const float by = mul_rn(inverse(l), a.value_scale);
    u16 *out = (u16 *)a.out + Tile::token_of(t, row) * a.out_stride + Tile::head_of(t, row) * D + lane() % 8 * 2;
    UNROLL
    for (int i = 0; i < D / 16; i++) {
      const float low = result(o[i][0], by), high = result(o[i][1], by);
      *(u32 *)(out + i * 16) = sizeof(C) == 1 && a.bf16 ? pack_bfloat(low, high) : Output::pack(low, high);
    }
  }
}

// Grid: work, each for the key heads. A warp computes one partition. The last one of a tile merges them, if the launch
// says so.
template <class C, int D> DEVICE void decode(const Attention &a) {
  typedef typename Cached<C>::Product T;
  const int kv_head = kv_head_of_block(a), work = tile_of_block(a), tile = a.work[work * 2],
            partition = a.work[work * 2 + 1];
  if (tile < 0) return; // it pads a graph
  const Tile t = Tile::of(a, tile, kv_head);
  const int row0 = t.first_row;
  const Reach reach = reach_of(a, t, t.first_row, TILE);
  int from = partition * PARTITION, to = from + PARTITION;
  if (to > reach.any_to) to = reach.any_to;
  if (from < reach.any_from) from = reach.any_from / STEP * STEP;
  const Range tokens = {reach.any_from, reach.any_to};
  const u32 q = shared_address(dynamic_shared()), k = q + DecodeMemory<D>::QUERIES, v = k + DecodeMemory<D>::TENSOR;
  load_queries<C, D>(q, a, t, t.first_row, TILE);
  State<T, D, 1> st;
  reset(st);
  for (int key0 = from - STEP; key0 < to; key0 += STEP) { // in the first round, keys and values are only loaded
    const bool loaded = key0 >= from, more = key0 + STEP < to;
    u32 places = 0;
    float s[1][STEP / 8][4];
    if (more) places = places_of(a, kv_head, t.sequence, tokens, key0 + STEP);
    if (loaded) {
      cp_async_wait<1>();
      warp_barrier();
      if (sizeof(C) == 1) {
        unpack<D>(k, a.fp8_shift, 32);
        warp_barrier();
      }
      products<T, D, 1>(s, q, k);
      warp_barrier();
    }
    if (more) load<C, D>(k, a.keys, tokens, places, key0 + STEP, 0, 1);
    cp_async_commit();
    if (loaded) {
      weights_of<T, D, 1>(st, s, a, reach, tile, kv_head, row0, key0);
      cp_async_wait<1>();
      warp_barrier();
      if (sizeof(C) == 1) {
        unpack<D>(v, a.fp8_shift, 32);
        warp_barrier();
      }
      add_values<T, D, 1>(st, s, v);
      warp_barrier();
    }
    if (more) load<C, D>(v, a.values, tokens, places, key0 + STEP, 0, 1);
    cp_async_commit();
  }
  const Tile again = Tile::of(a, opaque(tile), kv_head);
  UNROLL
  for (int i = 0; i < 2; i++) {
    int row = lane() / 4 + i * 8, c = lane() % 4;
    if (row0 + row >= again.rows) continue;
    float *part = a.parts + ((u64)block_x() * TILE + row) * (D + 2);
    UNROLL
    for (int u = 0; u < D / 8; u++)
      store8(part + u * 8 + c * 2, {bits_of(st.o[0][u][i * 2]), bits_of(st.o[0][u][i * 2 + 1])});
    if (c == 0) store8(part + D, {bits_of(st.m[0][i]), bits_of(st.l[0][i * 2])});
  }
  if (!a.arrived) return;
  const int first = a.tiles[tile * 4 + 2], parts = a.tiles[tile * 4 + 3];
  cp_async_wait<0>();
  if (last_warp_to_arrive(a.arrived + tile * a.kv_heads + kv_head, parts)) merge_parts<C, D>(a, again, q, first, parts);
}

// Bytes of shared memory of prefill: queries and sums are a warp's, the others the block's.
template <int D, int R> struct PrefillMemory {
  static const int TENSOR = STEP * Rows<D>::BYTES, QUERIES = R * TILE * Rows<D>::BYTES, SUMS = R * TILE * (D + 2) * 4;
};

// What a warp has of the partitions before this one, in shared memory: o, where a lane reads what it wrote, and m and l
// of each row.
template <int D, int R> struct Merged {
  static const int ML = R * TILE * D * 4;
  u32 o, ml;
  DEVICE Merged at(u32 memory) { return {memory + lane() * 16, memory + ML + lane() / 4 * 8}; }
};

// add merges a partition and begins the next. The last one leaves o in the state.
template <class T, int D, int R> DEVICE void add(const Merged<D, R> &all, State<T, D, R> &st, bool first, bool last) {
  UNROLL
  for (int t = 0; t < R; t++) {
    float before[2], part[2], m[2], l[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
      bytes8 ml = load8_shared(all.ml, (t * 2 + i) * 64);
      m[i] = float_of(ml.x), l[i] = float_of(ml.y);
      merge(m[i], l[i], st.m[t][i], st.l[t][i * 2], before[i], part[i]);
    }
    warp_barrier(); // the four lanes of a row have read m and l
    UNROLL
    for (int i = 0; i < 2; i++) store8_shared(all.ml, (t * 2 + i) * 64, {bits_of(m[i]), bits_of(l[i])});
    UNROLL
    for (int u = 0; u < D / 8; u++) {
      const int place = (t * (D / 8) + u) * 512;
      float(&o)[4] = st.o[t][u];
      UNROLL
      for (int i = 0; i < 4; i++) o[i] = mul_rn(o[i], part[i / 2]);
      if (!first) {
        bytes16 x = load16_shared(all.o, place);
        o[0] = fma_rn(float_of(x.x), before[0], o[0]), o[1] = fma_rn(float_of(x.y), before[0], o[1]);
        o[2] = fma_rn(float_of(x.z), before[1], o[2]), o[3] = fma_rn(float_of(x.w), before[1], o[3]);
      }
      if (!last) store16_shared(all.o, place, {bits_of(o[0]), bits_of(o[1]), bits_of(o[2]), bits_of(o[3])});
    }
  }
  if (!last) reset(st);
}

template <class C, class T, int D, int R>
DEVICE void store(const State<T, D, R> &st, const Merged<D, R> &all, const Attention &a, const Tile &t, int row0) {
  UNROLL
  for (int i = 0; i < R * 2; i++) {
    int row = row0 + i * 8 + lane() / 4;
    float by = mul_rn(inverse(float_of(load8_shared(all.ml, i * 64).y)), a.value_scale);
    if (row >= t.rows) continue;
    u16 *out = (u16 *)a.out + Tile::token_of(t, row) * a.out_stride + Tile::head_of(t, row) * D + lane() % 4 * 2;
    UNROLL
    for (int u = 0; u < D / 8; u++) {
      float low = result(st.o[i / 2][u][i % 2 * 2], by), high = result(st.o[i / 2][u][i % 2 * 2 + 1], by);
      *(u32 *)(out + u * 8) = sizeof(C) == 1 && a.bf16 ? pack_bfloat(low, high) : Format<T>::pack(low, high);
    }
  }
}

// Grid: tiles, each for the key heads. A warp has R * TILE rows, and all warps share keys and values. While products are
// computed, values are on their way; while values are added, the next keys.
template <class C, int D, int R> DEVICE void prefill(const Attention &a) {
  typedef typename Cached<C>::Product T;
  typedef PrefillMemory<D, R> Memory;
  const int warps = threads() / 32;
  const int kv_head = kv_head_of_block(a), tile = tile_of_block(a);
  const Tile t = Tile::of(a, tile, kv_head);
  const int row0 = t.first_row + warp() * R * TILE;
  const Reach reach = reach_of(a, t, row0, R * TILE);
  const int first = above(Tile::end_of(t, t.first_row), reach.window),
            end = Tile::end_of(t, t.first_row + warps * R * TILE - 1);
  const Range tokens = {first, end};
  const u32 q = shared_address(dynamic_shared()), k = q + warps * Memory::QUERIES, v = k + Memory::TENSOR;
  const Merged<D, R> all = Merged<D, R>::at(v + Memory::TENSOR + warp() * Memory::SUMS);
  const int from = first / STEP * STEP;
  u32 places = places_of(a, kv_head, t.sequence, tokens, from);
  load_queries<C, D>(q, a, t, t.first_row, warps * R * TILE);
  load<C, D>(k, a.keys, tokens, places, from, warp(), warps);
  cp_async_commit();
  UNROLL
  for (int i = 0; i < R * 2; i++) {
    float m, l;
    begin(m, l, a.sinks, Tile::head_of(t, row0 + i * 8 + lane() / 4));
    store8_shared(all.ml, i * 64, {bits_of(m), bits_of(l)});
  }
  State<T, D, R> st;
  reset(st);
  bool none = true;
  for (int key0 = from; key0 < end; key0 += STEP) {
    const bool more = key0 + STEP < end, reached = key0 < reach.any_to && key0 + STEP > reach.any_from;
    float s[R][STEP / 8][4];
    cp_async_wait<0>();
    barrier(); // the keys are there, and the values of the step before are used
    load<C, D>(v, a.values, tokens, places, key0, warp(), warps);
    cp_async_commit();
    if (more) places = places_of(a, kv_head, t.sequence, tokens, key0 + STEP);
    if (sizeof(C) == 1) {
      unpack<D>(k, a.fp8_shift, threads());
      barrier();
    }
    if (reached) products<T, D, R>(s, q + warp() * Memory::QUERIES, k);
    barrier();
    if (more) load<C, D>(k, a.keys, tokens, places, key0 + STEP, warp(), warps);
    cp_async_commit();
    if (reached) weights_of<T, D, R>(st, s, a, reach, tile, kv_head, row0, key0);
    cp_async_wait<1>();
    barrier();
    if (sizeof(C) == 1) {
      unpack<D>(v, a.fp8_shift, threads());
      barrier();
    }
    if (reached) add_values<T, D, R>(st, s, v);
    if (!more || (key0 + STEP) % PARTITION == 0) {
      add<T, D, R>(all, st, none, !more);
      none = false;
    }
  }
  store<C, T, D, R>(st, all, a, Tile::of(a, opaque(tile), kv_head), opaque(row0));
}

#define PAGED_ATTENTION(C, type, D)                                                                                    \
  KERNEL LAUNCH_BOUNDS(32) void paged_attention_decode_##type##_##D(Attention a) { decode<C, D>(a); }                  \
  KERNEL LAUNCH_BOUNDS(256, 1) void paged_attention_prefill_##type##_##D(Attention a) {                                \
    prefill<C, D, D == 256 ? 1 : 2>(a);                                                                                \
  }
