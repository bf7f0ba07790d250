// Products of rows of activations with packed weights: out[row][output] = the sum over columns of in[row][column] *
// weight[output][column].
//
// The sum is in parts: part p of P has slabs p * S / P to (p + 1) * S / P - 1 of the S slabs of weights.h, summed mma
// after mma in ascending order. Parts are added in ascending order. P depends on the shape of the weights alone. So the
// arithmetic of an element depends on its row and its weights, on nothing else; how rows and parts are shared out among
// threads changes no bit.
#pragma once
#include "activation.h"
#include "weights.h"

struct Product {
  void *out;
  const void *in, *weights;
  float *parts;  // sums of parts that other blocks add
  u32 *arrived;  // for each group of blocks that add their parts, 0 before and after
  u64 in_stride, out_stride; // elements from row to row
  int rows, outputs, columns, parts_of_sum;
  int wide;     // not 0: outputs are float32
  int function; // of gates and what they multiply: 1 is silu, 2 gelu_tanh; 0: outputs are the sums
};

DEVICE int slabs_of(const Product &a) { return (a.columns + SLAB - 1) / SLAB; }
DEVICE int part_begins(const Product &a, int part) { return (int)((u64)slabs_of(a) * part / a.parts_of_sum); }

// load_unit begins to copy 16 bytes of a row of activations to shared memory. Rows and columns beyond the last become
// 0.
template <class T> DEVICE void load_unit(u32 to, const Product &a, int row, int column) {
  bool there = row < a.rows && column < a.columns;
  cp_async16(to, (const T *)a.in + (there ? row * a.in_stride + column : 0), there ? 16 : 0);
}

// last_to_arrive reports whether all other blocks of a group of n have stored their parts. It resets the counter.
DEVICE bool last_to_arrive(u32 *arrived, int n) {
  SHARED(last, u32);
  fence();
  barrier();
  if (thread() == 0) {
    last = atomic_add(arrived, 1) == (u32)n - 1;
    if (last) *arrived = 0;
  }
  barrier();
  if (last) fence();
  return last;
}

// Rows of float32 outputs in shared memory, which are written 16 bytes or more of a row at a time.
template <class T> struct OutputTile {
  u32 memory;
  int pitch; // in elements: those that a warp puts are in different banks
  DEVICE OutputTile of(int outputs) { return {shared_address(dynamic_shared()), outputs + 4}; }

  // put stores a lane's sums of mma with 16 outputs and 8 rows.
  DEVICE void put(const OutputTile &t, int row, int output, const float *sum) {
    const u32 at = t.memory + ((row + lane() % 4 * 2) * t.pitch + output + lane() / 4) * 4;
    UNROLL
    for (int i = 0; i < 4; i++) store4_shared(at + i % 2 * t.pitch * 4, i / 2 * 32, bits_of(sum[i]));
  }

  // write writes rows of a number of outputs to where row0 and output0 are in the product.
  DEVICE void write(const OutputTile &t, const Product &a, int row0, int output0, int rows, int outputs) {
    if (a.function) write_activated(t, a, row0, output0, rows, outputs);
    else write_sums(t, a, row0, output0, rows, outputs);
  }

  DEVICE float activated(int function, u32 gate, u32 up) {
    T g, u;
    from_float(g, float_of(gate)), from_float(u, float_of(up));
    return function == 1 ? silu::of(to_float(g), to_float(u)) : gelu_tanh::of(to_float(g), to_float(u));
  }

  // Of 32 outputs, the first 16 are gates of the others. A thread writes two elements at a time.
  DEVICE void write_activated(const OutputTile &t, const Product &a, int row0, int output0, int rows, int outputs) {
    const u32 pairs = outputs / 4;
    for (u32 i = thread(); i < rows * pairs; i += threads()) {
      const int r = i / pairs, o = i % pairs * 2, row = row0 + r, output = output0 / 2 + o;
      if (row >= a.rows || output >= a.outputs / 2) continue;
      const u32 from = t.memory + (r * t.pitch + o / 16 * 32 + o % 16) * 4;
      const bytes8 gate = load8_shared(from, 0), up = load8_shared(from, 64);
      *(u32 *)((T *)a.out + row * a.out_stride + output) =
          Format<T>::pack(activated(a.function, gate.x, up.x), activated(a.function, gate.y, up.y));
    }
  }

  DEVICE void write_sums(const OutputTile &t, const Product &a, int row0, int output0, int rows, int outputs) {
    const bool whole = a.outputs % 8 == 0 && a.out_stride % 8 == 0;
    const u32 units = outputs / 8;
    for (u32 i = thread(); i < rows * units; i += threads()) {
      const int r = i / units, o = i % units * 8, row = row0 + r, output = output0 + o;
      if (row >= a.rows || output >= a.outputs) continue;
      const u32 from = t.memory + (r * t.pitch + o) * 4;
      const u64 to = row * a.out_stride + output;
      if (!whole) {
        for (int e = 0; e < 8 && output + e < a.outputs; e++) {
          const float x = float_of(load4_shared(from + e * 4, 0));
          if (a.wide) ((float *)a.out)[to + e] = x;
          else from_float(((T *)a.out)[to + e], x);
        }
        continue;
      }
      const bytes16 x = load16_shared(from, 0), y = load16_shared(from, 16);
      if (a.wide) {
        store16((float *)a.out + to, x), store16((float *)a.out + to + 4, y);
      } else {
        store16((T *)a.out + to,
                {Format<T>::pack(float_of(x.x), float_of(x.y)), Format<T>::pack(float_of(x.z), float_of(x.w)),
                 Format<T>::pack(float_of(y.x), float_of(y.y)), Format<T>::pack(float_of(y.z), float_of(y.w))});
      }
    }
  }
};

DEVICE void add_to(float *sum, bytes16 x) {
  sum[0] = add_rn(sum[0], float_of(x.x)), sum[1] = add_rn(sum[1], float_of(x.y));
  sum[2] = add_rn(sum[2], float_of(x.z)), sum[3] = add_rn(sum[3], float_of(x.w));
}
DEVICE bytes16 bytes_of(const float *x) { return {bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])}; }

// Few rows: up to 8 * FEW. Grid: blocks of outputs, parts. A warp has 16 outputs and a part. Weights go to the warp's
// own shared memory as they lie in memory, activations to the block's, F::STAGES slabs at a time.
const int FEW = 4;

template <class T, class F> struct Few {
  DEVICE int stage_bytes(int rows) { return threads() / 32 * F::BYTES + (rows + 7) / 8 * 8 * SLAB * 2; }

  // load begins to copy a slab of the warp's weights and of the rows.
  DEVICE void load(const Product &a, u32 stage, const char *weights, int slab) {
    load_slab<F>(stage + warp() * F::BYTES, weights);
    const u32 rows = stage + threads() / 32 * F::BYTES;
    for (int i = thread(); i < (a.rows + 7) / 8 * 8 * (SLAB / 8); i += threads()) {
      int row = i / (SLAB / 8), unit = i % (SLAB / 8);
      load_unit<T>(rows + Rows<SLAB>::at(row, unit), a, row, slab * SLAB + unit * 8);
    }
  }

  DEVICE void add_slab(const Product &a, float (&sum)[FEW][4], u32 stage) {
    const Units<SLAB, 4> in = Units<SLAB, 4>::of(stage + threads() / 32 * F::BYTES, lane() / 4, lane() % 4);
    typename F::Raw raw;
    F::read(raw, stage + warp() * F::BYTES);
    UNROLL
    for (int j = 0; j < SLAB / 32; j++) {
      u32 w[2][4];
      fragment<T, F>(w[0], raw, j * 2);
      fragment<T, F>(w[1], raw, j * 2 + 1);
      UNROLL
      for (int n = 0; n < FEW; n++) {
        if (n * 8 >= a.rows) continue;
        bytes16 x = load16_shared(in.at[j % 2], j / 2 * 128 + n * 8 * Rows<SLAB>::BYTES);
        u32 b[2][2] = {{x.x, x.y}, {x.z, x.w}};
        Format<T>::mma(sum[n], w[0], b[0]);
        Format<T>::mma(sum[n], w[1], b[1]);
      }
    }
  }

  DEVICE void clear(float (&sum)[FEW][4]) {
    UNROLL
    for (int n = 0; n < FEW; n++) sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
  }

  DEVICE void store(const Product &a, const float (&sum)[FEW][4]) {
    const int outputs = threads() / 2;
    const OutputTile<T> tile = OutputTile<T>::of(outputs);
    barrier(); // all warps have used the last stage
    UNROLL
    for (int n = 0; n < FEW; n++) {
      if (n * 8 < a.rows) OutputTile<T>::put(tile, n * 8, warp() * 16, sum[n]);
    }
    barrier();
    OutputTile<T>::write(tile, a, 0, block_x() * outputs, a.rows, outputs);
  }

  DEVICE void run(const Product &a) {
    const int warps = threads() / 32, tile = block_x() * warps + warp(), part = block_y(), first = part_begins(a, part),
              end = part_begins(a, part + 1);
    const int bytes = stage_bytes(a.rows);
    const char *weights = (const char *)a.weights + ((u64)tile * slabs_of(a) + first) * F::BYTES;
    const u32 memory = shared_address(dynamic_shared()), memory_end = memory + F::STAGES * bytes;
    for (int i = 0; i < F::STAGES - 1; i++, weights += F::BYTES) {
      if (first + i < end) load(a, memory + i * bytes, weights, first + i);
      cp_async_commit();
    }
    float sum[FEW][4];
    clear(sum);
    u32 stage = memory, free = memory_end - bytes;
    for (int slab = first; slab < end; slab++, weights += F::BYTES) {
      cp_async_wait<F::STAGES - 2>();
      barrier(); // the stage is there, and the one before is used
      if (slab + F::STAGES - 1 < end) load(a, free, weights, slab + F::STAGES - 1);
      cp_async_commit();
      add_slab(a, sum, stage);
      free = stage, stage += bytes;
      if (stage == memory_end) stage = memory;
    }
    cp_async_wait<0>();
    if (a.parts_of_sum > 1) {
      const u64 stride = (u64)grid_x() * warps * FEW * 512; // bytes of a part
      char *mine = (char *)a.parts + (u64)tile * FEW * 512 + lane() * 16;
      UNROLL
      for (int n = 0; n < FEW; n++) {
        if (n * 8 < a.rows) store16(mine + part * stride + n * 512, bytes_of(sum[n]));
      }
      if (!last_to_arrive(a.arrived + block_x(), a.parts_of_sum)) return;
      clear(sum);
      for (int p = 0; p < a.parts_of_sum; p++) {
        UNROLL
        for (int n = 0; n < FEW; n++) {
          if (n * 8 < a.rows) add_to(sum[n], load16(mine + p * stride + n * 512));
        }
      }
    }
    store(a, sum);
  }
};

// Many rows: a block has 128 outputs and 32 rows for each warp, whose tiles are 64 outputs by 64 rows. Grid: blocks of
// rows, blocks of outputs, and 1 or parts: either a block computes all parts and adds them as it goes, or it has one
// and the last block adds them. Weights and activations go through shared memory, 32 columns at a time.
const int MANY_STAGES = 4, MANY_COLUMNS = 32, MANY_WEIGHTS = OUTPUTS * MANY_COLUMNS * 2;

template <class T> struct Many {
  typedef float Sums[4][8][4]; // of 16 outputs and 8 rows each

  DEVICE int rows_of_block() { return threads(); }
  DEVICE int stage_bytes() { return MANY_WEIGHTS + rows_of_block() * MANY_COLUMNS * 2; }

  // What a thread copies in the next step: of one, two or four tiles of 16 outputs 32 bytes each, and of four rows of
  // activations, which are 8 rows apart, 16 bytes each.
  struct Sources {
    const char *weights, *in;
    u64 next_tile, next_row; // bytes from one to the next
    u32 to_weights, to_in;   // in a stage
    int rows, column;        // of activations: rows from the thread's first one on
    DEVICE Sources of(const Product &a, int step) {
      const int tiles = 8 * 32 / threads(), tile = warp() * tiles, row = warp() * 32 + lane() / 4,
                row0 = block_x() * rows_of_block() + row;
      Sources s;
      s.next_tile = (u64)slabs_of(a) * Plain::BYTES, s.next_row = 8 * a.in_stride * 2;
      s.to_weights = tile * 1024 + lane() * 16, s.to_in = MANY_WEIGHTS + row / 32 * 2048 + lane() * 16;
      s.rows = a.rows - row0, s.column = step * MANY_COLUMNS + lane() % 4 * 8;
      s.weights = (const char *)a.weights + ((u64)block_y() * (OUTPUTS / 16) + tile) * s.next_tile + step * 1024 +
                  lane() * 16;
      s.in = (const char *)a.in + (row0 * a.in_stride + s.column) * 2;
      return s;
    }
  };

  // load begins to copy a step. Activations lie without gaps: two rows of 64 bytes meet in no bank. Rows and columns
  // beyond the last become 0, and nothing is read at their addresses.
  DEVICE void load(const Product &a, Sources &s, u32 to) {
    auto tile = [&] LAMBDA (int t) {
      const u32 at = to + s.to_weights + t * 1024;
      const char *from = s.weights + t * s.next_tile;
      cp_async16(at, from, 16), cp_async16(at + 512, from + 512, 16);
    };
    tile(0);
    if (threads() < 256) {
      tile(1);
      if (threads() < 128) tile(2), tile(3);
    }
    const int rows = opaque(s.column < a.columns ? s.rows : 0);
    const char *in = s.in;
    UNROLL
    for (int k = 0; k < 4; k++, in += s.next_row) cp_async16(to + s.to_in + k * 512, in, rows > k * 8 ? 16 : 0);
    s.weights += 1024, s.in += MANY_COLUMNS * 2, s.column += MANY_COLUMNS;
  }

  DEVICE void add_step(Sums &sum, u32 w, u32 in) {
    u32 a[4][2][4];
    UNROLL
    for (int i = 0; i < 4; i++) {
      bytes16 x = load16_shared(w, i * 1024), y = load16_shared(w, i * 1024 + 512);
      plain_fragment(a[i][0], x);
      plain_fragment(a[i][1], y);
    }
    UNROLL
    for (int n = 0; n < 8; n++) {
      bytes16 x = load16_shared(in, n * 512);
      u32 b[2][2] = {{x.x, x.y}, {x.z, x.w}};
      UNROLL
      for (int i = 0; i < 4; i++) {
        Format<T>::mma(sum[i][n], a[i][0], b[0]);
        Format<T>::mma(sum[i][n], a[i][1], b[1]);
      }
    }
  }

  template <class F> DEVICE void each(Sums &sum, F f) { // f(sum of 16 outputs and 8 rows, its number)
    UNROLL
    for (int i = 0; i < 4; i++) {
      UNROLL
      for (int n = 0; n < 8; n++) f(sum[i][n], i * 8 + n);
    }
  }
  DEVICE void clear(Sums &sum) {
    each(sum, [] LAMBDA (float(&s)[4], int) { s[0] = s[1] = s[2] = s[3] = 0; });
  }

  // store writes the tile, half of its rows at a time if it has more than 64.
  DEVICE void store(const Product &a, Sums &sum) {
    const OutputTile<T> tile = OutputTile<T>::of(OUTPUTS);
    const int rows = rows_of_block() > 64 ? rows_of_block() / 2 : 64, row0 = warp() / 2 * 64;
    for (int first = 0; first < rows_of_block(); first += rows) {
      barrier(); // all warps have used the last stage, or written the rows before
      if (row0 >= first && row0 < first + rows) {
        each(sum, [&] LAMBDA (float(&s)[4], int k) {
          OutputTile<T>::put(tile, row0 - first + k % 8 * 8, warp() % 2 * 64 + k / 8 * 16, s);
        });
      }
      barrier();
      OutputTile<T>::write(tile, a, block_x() * rows_of_block() + first, block_y() * OUTPUTS, rows, OUTPUTS);
    }
  }

  DEVICE void run(const Product &a) {
    const bool apart = grid_z() > 1, in_parts = !apart && a.parts_of_sum > 1;
    const int steps = SLAB / MANY_COLUMNS, first_part = block_z(), end_part = apart ? first_part + 1 : a.parts_of_sum;
    const int first = part_begins(a, first_part) * steps, end = part_begins(a, end_part) * steps;
    const u32 bytes = stage_bytes(), memory = shared_address(dynamic_shared()),
              stages_end = memory + MANY_STAGES * bytes, totals = stages_end + warp() * 32 * 512 + lane() * 16;
    const u32 w = warp() % 2 * 4096 + lane() * 16, in = MANY_WEIGHTS + warp() / 2 * 4096 + lane() * 16;
    const bool idle = block_x() * rows_of_block() + warp() / 2 * 64 >= a.rows; // the warp has no rows
    Sources from = Sources::of(a, first);
    for (int i = 0; i < MANY_STAGES - 1; i++) {
      if (first + i < end) load(a, from, memory + i * bytes);
      cp_async_commit();
    }
    Sums sum;
    clear(sum);
    int part = first_part, part_end = in_parts ? part_begins(a, part + 1) * steps : end + 1;
    u32 stage = memory, free = stages_end - bytes;
    for (int step = first; step < end; step++) {
      cp_async_wait<MANY_STAGES - 2>();
      barrier(); // the stage is there, and the one before is used
      if (step + MANY_STAGES - 1 < end) load(a, from, free);
      cp_async_commit();
      if (!idle) add_step(sum, w + stage, in + stage);
      free = stage, stage += bytes;
      if (stage == stages_end) stage = memory;
      if (step + 1 < part_end) continue;
      each(sum, [&] LAMBDA (float(&s)[4], int k) { // the part is complete
        if (part > 0) {
          bytes16 x = load16_shared(totals, k * 512);
          s[0] = add_rn(float_of(x.x), s[0]), s[1] = add_rn(float_of(x.y), s[1]), s[2] = add_rn(float_of(x.z), s[2]),
          s[3] = add_rn(float_of(x.w), s[3]);
        }
        if (step + 1 < end) store16_shared(totals, k * 512, bytes_of(s)), s[0] = s[1] = s[2] = s[3] = 0;
      });
      part++, part_end = part_begins(a, part + 1) * steps;
    }
    cp_async_wait<0>();
    if (apart) {
      const u64 block = (u64)block_y() * grid_x() + block_x(), stride = (u64)grid_x() * grid_y() * threads() * 512;
      char *mine = (char *)a.parts + block * threads() * 512 + warp() * 32 * 512 + lane() * 16;
      each(sum, [&] LAMBDA (float(&s)[4], int k) { store16(mine + first_part * stride + k * 512, bytes_of(s)); });
      if (!last_to_arrive(a.arrived + block, a.parts_of_sum)) return;
      clear(sum);
      for (int p = 0; p < a.parts_of_sum; p++) {
        each(sum, [&] LAMBDA (float(&s)[4], int k) { add_to(s, load16(mine + p * stride + k * 512)); });
      }
    }
    store(a, sum);
  }
};

// unpack_weights makes a packed matrix of the type of the activations. Grid: warps of slabs, tiles. Shared memory: a
// slab a warp.
template <class T, class F> DEVICE void unpack_weights(char *to, const char *from, int slabs) {
  const int slab = block_x() * (threads() / 32) + warp();
  if (slab >= slabs) return;
  const u64 at = (u64)block_y() * slabs + slab;
  const u32 memory = shared_address(dynamic_shared()) + warp() * F::BYTES;
  load_slab<F>(memory, from + at * F::BYTES);
  cp_async_commit();
  cp_async_wait<0>();
  warp_barrier();
  typename F::Raw raw;
  F::read(raw, memory);
  UNROLL
  for (int j = 0; j < SLAB / 32; j++) {
    u32 a[2][4];
    fragment<T, F>(a[0], raw, j * 2);
    fragment<T, F>(a[1], raw, j * 2 + 1);
    char *unit = to + at * Plain::BYTES + j * 1024 + lane() * 16;
    store16(unit, {a[0][0], a[0][1], a[0][2], a[0][3]});
    store16(unit + 512, {a[1][0], a[1][1], a[1][2], a[1][3]});
  }
}

#define PRODUCTS_OF_FORMAT(T, type, F, format)                                                                         \
  KERNEL LAUNCH_BOUNDS(256) void product_##format##_##type(Product a) { Few<T, F>::run(a); }
#define UNPACK_OF_FORMAT(T, type, F, format)                                                                           \
  KERNEL LAUNCH_BOUNDS(256) void unpack_weights_##format##_##type(char *to, const char *from, int slabs) {             \
    unpack_weights<T, F>(to, from, slabs);                                                                             \
  }
#define PRODUCTS_OF_TYPE(T, type)                                                                                      \
  PRODUCTS_OF_FORMAT(T, type, Plain, plain)                                                                            \
  KERNEL LAUNCH_BOUNDS(256, 1) void product_plain_##type##_many(Product a) { Many<T>::run(a); }
#define PRODUCTS_OF_GGUF(T, type, F, format) PRODUCTS_OF_FORMAT(T, type, F, format) UNPACK_OF_FORMAT(T, type, F, format)
