// One tile of attention over paged blocks, for decoding and for prefill.
//
// The arithmetic of a row (a query head of a token) depends on the row and on the keys and values that it reaches, on
// nothing else. Keys are cut into partitions of PARTITION, counted from position 0, and partitions into steps of STEP
// keys. In a step
//
//	s = the sum of q k: mma after mma over the elements of the head, 16 at a time, from 0 on
//	m = the largest logit so far, in units of log2(e)
//	p = 2^(logit - m), rounded to the type of the values
//	l = l 2^(m before - m) + the sum of p
//	o = o 2^(m before - m) + the sum of p v, 16 keys an mma, in ascending order
//
// and the (m, l, o) of partitions are merged in ascending order by merge. l is a sum of rounded weights, so their
// rounding cancels where one key has nearly all of the weight. A step or a partition in which a row reaches no key
// leaves the row's numbers as they are, so a row may share a tile with any others.
//
// Keys and values of 8 bits (fp8) become F16 when a step is in shared memory, and what follows is the arithmetic of
// F16. Queries of BF16 are rounded to F16 for them.
//
// Memory outside of [first, end) of a tile is not read. A row multiplies values that it does not reach by 0 if another
// row of its tile reaches them; they are its own sequence's.
#pragma once
#include "tile.h"

const int PARTITION = 256, STEP = 64, CHUNK = 16, CHUNKS = STEP / CHUNK, TILE = 16; // keys; TILE is rows of queries
const float LOG2E = 1.44269504f, NONE = -1e30f, NOT_REACHED = -__builtin_inff();

// What a launch passes to every kernel of attention. Sequence s has seq_lens[s] tokens in the blocks of tables[s *
// table_stride] and what follows; the last ones are its queries, tokens query_start[s] to query_start[s + 1] - 1 of the
// batch.
struct Attention {
  void *out; // of the type of the queries
  const void *query, *keys, *values; // [token of the batch][stride in elements]; keys and values as device.h has them
  const int *tables, *seq_lens, *query_start;
  const int *tiles;    // sequence, first row, first part, parts: see paged_attention.h
  const int *work;     // tile, partition
  float *parts;        // [part][key head][TILE][head size + 2]
  u32 *arrived;        // [tile][key head], 0 before and after; or null: decoding does not merge
  const float *slopes; // ALiBi, for each head, or null
  const float *sinks;  // for each head, or null
  u64 query_stride, out_stride;
  int table_stride, block_size, heads, kv_heads;
  int window; // 0: all keys
  float scale, soft_cap;
  int head_size;
  int bf16;          // queries and outputs are BF16, not F16
  int fp8_shift;     // E4M3: 1, E5M2: 0
  float value_scale; // what values lack. Those of E4M3 lack 2^8, and so do keys, which is part of scale
};

// An fp8 is a key's or value's element of 8 bits, E4M3 or E5M2.
struct fp8 { u8 bits; };

// A Cached is a type of keys and values. Products are computed in the type Product.
template <class C> struct Cached { typedef C Product; };
template <> struct Cached<fp8> { typedef half Product; };

// Which tokens of a sequence a block of threads reads: from first to end - 1.
struct Range {
  int first, end;
};

// The grid of decoding and of prefill has a block of threads for each tile (or part of one) and key head. Those of the
// heads follow each other: they read the same block of keys and values, and the tiles with the most keys come first.
DEVICE int kv_head_of_block(const Attention &a) { return (u32)block_x() % (u32)a.kv_heads; }
DEVICE int tile_of_block(const Attention &a) { return (u32)block_x() / (u32)a.kv_heads; }

// places_of returns where each lane's chunk of a step begins: lane i has that of chunk i % CHUNKS. A place is a row
// of D elements, counted from the first block on. A chunk lies in one block.
DEVICE u32 places_of(const Attention &a, int kv_head, int sequence, Range tokens, int key0) {
  int key = key0 + lane() % CHUNKS * CHUNK;
  key = key < tokens.first ? tokens.first : key < tokens.end ? key : tokens.end - 1;
  const u32 entry = (u32)key / (u32)a.block_size, block = a.tables[(u64)sequence * a.table_stride + entry];
  return (block * a.kv_heads + kv_head) * a.block_size + (key - entry * a.block_size) / CHUNK * CHUNK;
}

// Elements of 8 bits arrive at the end of the memory of a step, from RAW on, and are then spread over all of it.
template <int D> struct Raw { static const int AT = STEP * (Rows<D>::BYTES - D); };

// load begins to copy the keys or values of a step. Those not to read become 0. Warps take chunks in turn.
template <class C, int D>
DEVICE void load(u32 to, const void *cache, Range tokens, u32 places, int key0, int warp, int warps) {
  for (int chunk = warp; chunk < CHUNKS; chunk += warps) {
    const int SIZE = sizeof(C), IN_ROW = D * SIZE / 16, UNITS = CHUNK * IN_ROW; // of 16 bytes
    const u32 me = (u32)opaque(lane()), key = key0 + chunk * CHUNK,
              place = to + (SIZE == 1 ? Raw<D>::AT + chunk * CHUNK * D : chunk * CHUNK * Rows<D>::BYTES);
    const char *at = (const char *)cache + (u64)shfl(places, chunk) * (D * SIZE) + me * 16;
    UNROLL
    for (int i = 0; i < (UNITS + 31) / 32; i++) {
      u32 unit = i * 32 + me, row = unit / IN_ROW;
      if (UNITS % 32 && unit >= UNITS) continue;
      bool read = key + row - tokens.first < (u32)(tokens.end - tokens.first);
      cp_async16(place + (SIZE == 1 ? unit * 16 : Rows<D>::at(row, unit % IN_ROW)), at + i * 512, read ? 16 : 0);
    }
  }
}

// spread puts the two lower or upper bytes of a register into the upper bytes of its halves.
DEVICE u32 spread(u32 x, bool upper) { return byte_perm(x, 0, upper ? 0x3424 : 0x1404); }

// widen makes F16 of two fp8 that are the upper bytes of the halves of x. E4M3 has the fraction of F16 after a shift by
// 1, and an exponent that lacks 2^8. Its NaN, the largest magnitude, becomes one by the sum; no magnitude of E5M2 is
// changed by it.
DEVICE u32 widen(u32 x, int shift) {
  u32 magnitude = (x & 0x7f007f00) >> shift;
  return (x & 0x80008000) | magnitude | ((magnitude + 0x00800080) & 0x40004000);
}

// unpack makes F16 of the elements of a step that load copied. All threads of the block call it. The memory of a row
// that is written has at most raw elements of itself and of rows before it: those of the same round, which all threads
// have read, and of earlier ones.
template <int D> DEVICE void unpack(u32 tensor, int shift, int threads) {
  const int AHEAD = 4, UNITS = STEP * D / 8; // units of 8 elements
  static_assert(Rows<D>::BYTES >= 2 * D && AHEAD * 32 >= 2 * D / 8 && UNITS % (AHEAD * 32) == 0);
  for (int first = 0; first < UNITS; first += AHEAD * threads) {
    bytes8 raw[AHEAD];
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
      int unit = first + i * threads + thread();
      if (unit < UNITS) raw[i] = load8_shared(tensor + Raw<D>::AT + unit * 8, 0);
    }
    if (threads == 32) warp_barrier();
    else barrier();
    UNROLL
    for (int i = 0; i < AHEAD; i++) {
      int unit = first + i * threads + thread();
      if (unit >= UNITS) continue;
      store16_shared(tensor + Rows<D>::at(unit / (D / 8), unit % (D / 8)), 0,
                     {widen(spread(raw[i].x, false), shift), widen(spread(raw[i].x, true), shift),
                      widen(spread(raw[i].y, false), shift), widen(spread(raw[i].y, true), shift)});
    }
  }
}

// half_of_bfloat rounds two BF16 in a register to F16. Finite ones that are too large for F16 become the largest.
DEVICE u32 half_of_bfloat(u32 x) {
  float y[2] = {float_of(x << 16), float_of(x & 0xffff0000)};
  UNROLL
  for (int i = 0; i < 2; i++) {
    u32 size = bits_of(y[i]) & 0x7fffffff;
    if (size > 0x477fe000 && size < 0x7f800000) y[i] = float_of((bits_of(y[i]) & 0x80000000) | 0x477fe000);
  }
  return pack_half(y[0], y[1]);
}

// What the rows of a warp reach. Each row reaches at most window keys, its own key is the last.
struct Reach {
  int window;
  int all_from, all_to; // all rows reach keys from all_from to all_to - 1
  int any_from, any_to; // no row reaches others than these
};

template <class T, int D, int R> struct State {
  float m[R][2], l[R][4], o[R][D / 8][4]; // l[.][0] and l[.][2] count
};

template <class T, int D, int R> DEVICE void reset(State<T, D, R> &st) {
  UNROLL
  for (int t = 0; t < R; t++) {
    st.m[t][0] = st.m[t][1] = NONE;
    UNROLL
    for (int i = 0; i < 4; i++) st.l[t][i] = 0;
    UNROLL
    for (int u = 0; u < D / 8; u++) {
      UNROLL
      for (int i = 0; i < 4; i++) st.o[t][u][i] = 0;
    }
  }
}

// products computes q k of a step. k are rows in shared memory. Of 32 elements a lane has 8 in a row, which are two
// mma: the order in which an mma adds them is the same for every row. q are operands in shared memory: 16 bytes of each
// lane for mma 0 of a tile of rows, then for mma 1, and so on.
template <class T, int D, int R> DEVICE void products(float (&s)[R][STEP / 8][4], u32 q, u32 k) {
  const int r = lane() / 4, c = lane() % 4, EIGHT = 8 * Rows<D>::BYTES;
  const Units<D, 4> ks = Units<D, 4>::of(k, r, c);
  const u32 mine = q + lane() * 16;
  UNROLL
  for (int t = 0; t < R; t++) {
    UNROLL
    for (int n = 0; n < STEP / 8; n++) s[t][n][0] = s[t][n][1] = s[t][n][2] = s[t][n][3] = 0;
  }
  UNROLL
  for (int j = 0; j < D / 32; j++) {
    const int offset = j / 2 * 128;
    u32 a[R][2][4];
    UNROLL
    for (int t = 0; t < R; t++) {
      UNROLL
      for (int i = 0; i < 2; i++) {
        bytes16 x = load16_shared(mine, t * TILE * Rows<D>::BYTES + (j * 2 + i) * 512);
        a[t][i][0] = x.x, a[t][i][1] = x.y, a[t][i][2] = x.z, a[t][i][3] = x.w;
      }
    }
    UNROLL
    for (int n = 0; n < STEP / 8; n++) {
      bytes16 x = load16_shared(ks.at[j % 2], offset + n * EIGHT);
      u32 b[2][2] = {{x.x, x.y}, {x.z, x.w}};
      UNROLL
      for (int t = 0; t < R; t++) {
        Format<T>::mma(s[t][n], a[t][0], b[0]);
        Format<T>::mma(s[t][n], a[t][1], b[1]);
      }
    }
  }
  if (D % 32 == 0) return;
  const u32 last = Rows<D>::at(r, D / 32 * 4 + c / 2) + c % 2 * 8; // of the last 16 elements a lane has 4
  u32 a[R][4];
  UNROLL
  for (int t = 0; t < R; t++) {
    bytes16 x = load16_shared(mine, t * TILE * Rows<D>::BYTES + (D / 16 - 1) * 512);
    a[t][0] = x.x, a[t][1] = x.y, a[t][2] = x.z, a[t][3] = x.w;
  }
  UNROLL
  for (int n = 0; n < STEP / 8; n++) {
    bytes8 x = load8_shared(k + last, n * EIGHT);
    u32 b[2] = {x.x, x.y};
    UNROLL
    for (int t = 0; t < R; t++) Format<T>::mma(s[t][n], a[t], b);
  }
}

// each calls f(tile, half of the tile's rows, key of the step, number) for the lane's numbers of a step.
template <int R, class F> DEVICE void each(float (&s)[R][STEP / 8][4], F f) {
  UNROLL
  for (int t = 0; t < R; t++) {
    UNROLL
    for (int n = 0; n < STEP / 8; n++) {
      UNROLL
      for (int i = 0; i < 4; i++) f(t, i / 2, n * 8 + i % 2, s[t][n][i]);
    }
  }
}

// cap makes c tanh(s scale / c) of products, in units of log2(e). tanh(y) = 1 - 2 / (e^2y + 1).
template <int R> DEVICE void cap(float (&s)[R][STEP / 8][4], float scale, float c) {
  float in = div_rn(mul_rn(scale, 2 * LOG2E), c), out = mul_rn(c, LOG2E);
  each<R>(s, [&] LAMBDA (int, int, int, float &x) {
    x = mul_rn(out, fma_rn(-2, div_rn(1, add_rn(exp2_approx(mul_rn(x, in)), 1)), 1));
  });
}

// A row reaches keys before end[tile][half of the tile].
//
// slope_down adds ALiBi to s * factor: a slope times the distance from the row's own key, which is not positive.
template <int R> DEVICE void slope_down(float (&s)[R][STEP / 8][4], const int (&end)[R][2], const float (&slope)[R][2],
                                        float factor, int key0) {
  each<R>(s, [&] LAMBDA (int t, int i, int key, float &x) {
    float distance = add_rn((float)(key0 + lane() % 4 * 2 + 1 - end[t][i]), (float)key);
    x = fma_rn(slope[t][i], distance, mul_rn(x, factor));
  });
}

// leave_out sets the logits of keys that a row does not reach.
template <int R> DEVICE void leave_out(float (&s)[R][STEP / 8][4], const int (&end)[R][2], int window, int key0) {
  each<R>(s, [&] LAMBDA (int t, int i, int key, float &x) {
    int behind = end[t][i] - 1 - key0 - lane() % 4 * 2 - key; // 0 for the row's own key
    if ((u32)behind >= (u32)window) x = NOT_REACHED;
  });
}

DEVICE float largest_of_row(float x) { // of the four lanes of a row
  x = max_of(x, shfl_xor(x, 1));
  return max_of(x, shfl_xor(x, 2));
}

// weigh makes weights of logits, which are s * factor, and rescales the state where a logit is larger than all before
// it.
template <class T, int D, int R> DEVICE void weigh(State<T, D, R> &st, float (&s)[R][STEP / 8][4], float factor) {
  UNROLL
  for (int t = 0; t < R; t++) {
    float most[2] = {NOT_REACHED, NOT_REACHED}, less[2];
    UNROLL
    for (int n = 0; n < STEP / 8; n++) {
      most[0] = max_of(most[0], max_of(s[t][n][0], s[t][n][1]));
      most[1] = max_of(most[1], max_of(s[t][n][2], s[t][n][3]));
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
      float m = max_of(st.m[t][i], mul_rn(largest_of_row(most[i]), factor));
      less[i] = exp2_approx(add_rn(st.m[t][i], -m));
      st.m[t][i] = m;
    }
    if (warp_any(less[0] != 1 || less[1] != 1)) {
      UNROLL
      for (int i = 0; i < 4; i++) st.l[t][i] = mul_rn(st.l[t][i], less[i / 2]);
      UNROLL
      for (int u = 0; u < D / 8; u++) {
        UNROLL
        for (int i = 0; i < 4; i++) st.o[t][u][i] = mul_rn(st.o[t][u][i], less[i / 2]);
      }
    }
    UNROLL
    for (int n = 0; n < STEP / 8; n++) {
      UNROLL
      for (int i = 0; i < 4; i++) s[t][n][i] = exp2_approx(fma_rn(s[t][n][i], factor, -st.m[t][i / 2]));
    }
  }
}

// add_values adds p v of a step, and p to l: the sum of weights is a column of values that are 1.
template <class T, int D, int R> DEVICE void add_values(State<T, D, R> &st, const float (&p)[R][STEP / 8][4], u32 v) {
  const u32 ones[2] = {Format<T>::ONES, Format<T>::ONES};
  const Units<D, 2> units =
      Units<D, 2>::of(v, lane() % 16, lane() / 16); // lanes address keys 0 to 15, then the same with the next unit
  UNROLL
  for (int n = 0; n < STEP / 16; n++) {
    u32 a[R][4];
    UNROLL
    for (int t = 0; t < R; t++) {
      a[t][0] = Format<T>::pack(p[t][2 * n][0], p[t][2 * n][1]),
      a[t][1] = Format<T>::pack(p[t][2 * n][2], p[t][2 * n][3]);
      a[t][2] = Format<T>::pack(p[t][2 * n + 1][0], p[t][2 * n + 1][1]),
      a[t][3] = Format<T>::pack(p[t][2 * n + 1][2], p[t][2 * n + 1][3]);
      Format<T>::mma(st.l[t], a[t], ones);
    }
    UNROLL
    for (int u = 0; u < D / 8; u += 2) {
      u32 b[4];
      ldmatrix_x4_trans(b, units.at[u / 2 % 4], u / 8 * 128 + n * 16 * Rows<D>::BYTES);
      UNROLL
      for (int t = 0; t < R; t++) {
        Format<T>::mma(st.o[t][u], a[t], b);
        Format<T>::mma(st.o[t][u + 1], a[t], b + 2);
      }
    }
  }
}

// merged adds a sum of a partition to the sum of those before it.
DEVICE float merged(float sum, float before, float part_sum, float part) {
  return fma_rn(sum, before, mul_rn(part_sum, part));
}

// merge adds a partition to those before it. before and part are the factors of their sums.
DEVICE void merge(float &m, float &l, float part_m, float part_l, float &before, float &part) {
  float most = max_of(m, part_m);
  before = exp2_approx(add_rn(m, -most)), part = exp2_approx(add_rn(part_m, -most));
  m = most, l = merged(l, before, part_l, part);
}

// What the numbers of a row are before its first partition: those of its sink.
DEVICE void begin(float &m, float &l, const float *sinks, int head) {
  m = sinks ? mul_rn(sinks[head], LOG2E) : NONE, l = sinks ? 1 : 0;
}

// inverse is what o is multiplied by at the end. A row without any weight is 0. The sum makes 0 of -0.
DEVICE float inverse(float l) { return l == 0 ? 0 : div_rn(1, l); }
DEVICE float result(float o, float inverse) { return add_rn(mul_rn(o, inverse), 0); }

// Where a tile is, and what its rows are.
struct Tile {
  int sequence, first_row, rows; // rows of the sequence
  int group, kv_head, first_token, queries, length;
  DEVICE Tile of(const Attention &a, int tile, int kv_head) {
    Tile t;
    t.sequence = a.tiles[tile * 4], t.first_row = a.tiles[tile * 4 + 1];
    t.group = a.heads / a.kv_heads, t.kv_head = kv_head;
    t.first_token = a.query_start[t.sequence], t.queries = a.query_start[t.sequence + 1] - t.first_token;
    t.length = a.seq_lens[t.sequence], t.rows = t.queries * t.group;
    return t;
  }
  // end_of is the position behind a row's token: the row reaches keys before it. Rows behind the last are like the
  // last.
  DEVICE int end_of(const Tile &t, int row) {
    int token = (row < t.rows ? row : t.rows - 1) / t.group;
    return t.length - t.queries + token + 1;
  }
  DEVICE u64 token_of(const Tile &t, int row) { return t.first_token + row / t.group; }
  DEVICE int head_of(const Tile &t, int row) { return t.kv_head * t.group + row % t.group; }
};
