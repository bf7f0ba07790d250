// Packs weights once, when a model is loaded: from rows as files have them to the order of weights.h.
#include "weights.h"

// Rows of a file: the bytes of a row lie together. Outputs and columns beyond the last are zeros.
struct Unpacked {
  const u8 *rows;
  u64 row_bytes;
  int outputs, columns;
  int first_tile; // of the matrix
  int gate_tiles; // 0, or how many tiles gates have: tiles of gates and of what they multiply are packed in turn
};

// Where a thread writes: it has one lane of a tile and slab.
struct Place {
  char *slab;
  int output, column; // of the slab's first integer
  DEVICE Place of(char *to, const Unpacked &from, int bytes) {
    int slabs = (from.columns + SLAB - 1) / SLAB, tile = from.first_tile + block_y();
    int slab = block_x() * (threads() / 32) + warp();
    if (slab >= slabs) return {nullptr, 0, 0};
    if (tile < from.gate_tiles) tile = 2 * tile;
    else if (tile < 2 * from.gate_tiles) tile = 2 * (tile - from.gate_tiles) + 1;
    return {to + ((u64)tile * slabs + slab) * bytes, block_y() * 16 + lane() / 4, slab * SLAB};
  }
};

// Grid: warps of slabs, tiles. The address and the bytes of a row are multiples of 16.
KERNEL LAUNCH_BOUNDS(256) void pack_weights_plain(char *to, Unpacked from) {
  Place at = Place::of(to, from, Plain::BYTES);
  if (!at.slab) return;
  UNROLL
  for (int j = 0; j < 4; j++) {
    bytes16 x[2];
    UNROLL
    for (int i = 0; i < 2; i++) {
      int output = at.output + i * 8, column = at.column + j * 32 + lane() % 4 * 8;
      x[i] = {0, 0, 0, 0};
      if (output < from.outputs && column < from.columns)
        x[i] = load16(from.rows + output * from.row_bytes + column * 2);
    }
    store16(at.slab + j * 1024 + lane() * 16, {x[0].x, x[1].x, x[0].y, x[1].y});
    store16(at.slab + j * 1024 + 512 + lane() * 16, {x[0].z, x[1].z, x[0].w, x[1].w});
  }
}

// A block of a format in GGUF has ELEMENTS weights in SIZE bytes; integer returns a weight's integer as weights.h
// stores it.
struct FileQ8_0 {
  static const int ELEMENTS = 32, SIZE = 34;
  DEVICE u32 integer(const u8 *b, int i) { return b[2 + i] ^ 0x80; }
};
struct FileQ4_0 {
  static const int ELEMENTS = 32, SIZE = 18;
  DEVICE u32 integer(const u8 *b, int i) { return b[2 + i % 16] >> i / 16 * 4 & 15; }
};
struct FileMXFP4 {
  static const int ELEMENTS = 32, SIZE = 17;
  DEVICE u32 integer(const u8 *b, int i) { return b[1 + i % 16] >> i / 16 * 4 & 15; }
};
struct FileQ4_K {
  static const int ELEMENTS = 256, SIZE = 144;
  DEVICE u32 integer(const u8 *b, int i) { return b[16 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15; }
};
struct FileQ5_K {
  static const int ELEMENTS = 256, SIZE = 176;
  DEVICE u32 integer(const u8 *b, int i) {
    return (b[48 + i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15) | (b[16 + i % 32] >> i / 32 & 1) << 4;
  }
};
struct FileQ6_K {
  static const int ELEMENTS = 256, SIZE = 210;
  DEVICE u32 integer(const u8 *b, int i) {
    int part = i / 128, quarter = i % 128 / 32, l = i % 32;
    return (b[part * 64 + quarter % 2 * 32 + l] >> quarter / 2 * 4 & 15) | (b[128 + part * 32 + l] >> quarter * 2 & 3)
                                                                               << 4;
  }
};

// block_of is a column's block, or null beyond the last output or column.
template <class F> DEVICE const u8 *block_of(const Unpacked &from, int output, int column) {
  if (output >= from.outputs || column >= from.columns) return nullptr;
  return from.rows + output * from.row_bytes + (u64)(column / F::ELEMENTS) * F::SIZE;
}

// integers are those of register p of mma i.
template <class F> DEVICE void integers(const Unpacked &from, const Place &at, int i, int p, u32 &low, u32 &high) {
  int column = at.column + i / 2 * 32 + lane() % 4 * 8 + i % 2 * 4 + p / 2 * 2;
  const u8 *b = block_of<F>(from, at.output + p % 2 * 8, column);
  low = b ? F::integer(b, column % F::ELEMENTS) : 0, high = b ? F::integer(b, column % F::ELEMENTS + 1) : 0;
}

// nibbles stores the lower 4 bits of all integers, as two times 16 bytes.
template <class F> DEVICE void nibbles(const Unpacked &from, const Place &at) {
  for (int i = 0; i < 8; i++) {
    u32 word = 0;
    for (int p = 0; p < 4; p++) {
      u32 low, high;
      integers<F>(from, at, i, p, low, high);
      word |= (low & 15) << 4 * p | (high & 15) << (16 + 4 * p);
    }
    ((u32 *)(at.slab + i / 4 * 512 + lane() * 16))[i % 4] = word;
  }
}

DEVICE u32 two_bytes(const u8 *b) { return b[0] | b[1] << 8; }

// each_scale stores a number for each block of a lane's two outputs: number(block) of BYTES bytes for each 32 columns.
template <class F, int BYTES, class N>
DEVICE void each_scale(const Unpacked &from, const Place &at, char *to, N number) {
  if (lane() % 4) return;
  for (int row = 0; row < 2; row++) {
    for (int j = 0; j < SLAB / 32; j++) {
      const u8 *b = block_of<F>(from, at.output + row * 8, at.column + j * 32);
      u32 x = b ? number(b) : 0;
      for (int byte = 0; byte < BYTES; byte++)
        to[lane() / 4 * 8 * BYTES + (row * 4 + j) * BYTES + byte] = x >> 8 * byte;
    }
  }
}

KERNEL LAUNCH_BOUNDS(256) void pack_weights_q8_0(char *to, Unpacked from) {
  Place at = Place::of(to, from, Q8_0::BYTES);
  if (!at.slab) return;
  for (int i = 0; i < 8; i++) {
    for (int p = 0; p < 4; p++) {
      u32 low, high;
      integers<FileQ8_0>(from, at, i, p, low, high);
      *(u16 *)(at.slab + i / 2 * 512 + lane() * 16 + p % 2 * 8 + i % 2 * 4 + p / 2 * 2) = low | high << 8;
    }
  }
  each_scale<FileQ8_0, 2>(from, at, at.slab + 2048, [] LAMBDA (const u8 *b) { return two_bytes(b); });
}

KERNEL LAUNCH_BOUNDS(256) void pack_weights_q4_0(char *to, Unpacked from) {
  Place at = Place::of(to, from, Q4_0::BYTES);
  if (!at.slab) return;
  nibbles<FileQ4_0>(from, at);
  each_scale<FileQ4_0, 2>(from, at, at.slab + 1024, [] LAMBDA (const u8 *b) { return two_bytes(b); });
}

KERNEL LAUNCH_BOUNDS(256) void pack_weights_mxfp4(char *to, Unpacked from) {
  Place at = Place::of(to, from, MXFP4::BYTES);
  if (!at.slab) return;
  nibbles<FileMXFP4>(from, at);
  each_scale<FileMXFP4, 1>(from, at, at.slab + 1024, [] LAMBDA (const u8 *b) { return (u32)b[0]; });
}

// scales_k stores what K reads. integer i of 8 is at 4 + i for scales and at 8 + i for minima if i < 4.
template <class F> DEVICE void scales_k(const Unpacked &from, const Place &at, char *to) {
  if (lane() % 4) return;
  for (int row = 0; row < 2; row++) {
    const u8 *b = block_of<F>(from, at.output + row * 8, at.column);
    char *integers = to + lane() / 4 * 16 + row * 8, *factors = to + 128 + lane() / 4 * 8 + row * 4;
    for (int j = 0; j < 4; j++) {
      int i = at.column / SLAB % 2 * 4 + j;
      u32 scale = 0, minimum = 0;
      if (b && i < 4) scale = b[4 + i] & 63, minimum = b[8 + i] & 63;
      if (b && i >= 4) scale = (b[8 + i] & 15) | b[i] >> 6 << 4, minimum = b[8 + i] >> 4 | b[4 + i] >> 6 << 4;
      integers[j] = scale, integers[4 + j] = minimum;
    }
    for (int i = 0; i < 4; i++) factors[i] = b ? b[i] : 0;
  }
}

KERNEL LAUNCH_BOUNDS(256) void pack_weights_q4_k(char *to, Unpacked from) {
  Place at = Place::of(to, from, Q4_K::BYTES);
  if (!at.slab) return;
  nibbles<FileQ4_K>(from, at);
  scales_k<FileQ4_K>(from, at, at.slab + 1024);
}

KERNEL LAUNCH_BOUNDS(256) void pack_weights_q5_k(char *to, Unpacked from) {
  Place at = Place::of(to, from, Q5_K::BYTES);
  if (!at.slab) return;
  nibbles<FileQ5_K>(from, at);
  for (int i = 0; i < 8; i++) {
    u32 bits = 0;
    for (int p = 0; p < 4; p++) {
      u32 low, high;
      integers<FileQ5_K>(from, at, i, p, low, high);
      bits |= low >> 4 << p | high >> 4 << (p + 4);
    }
    at.slab[1024 + lane() * 8 + i] = bits;
  }
  scales_k<FileQ5_K>(from, at, at.slab + 1280);
}

KERNEL LAUNCH_BOUNDS(256) void pack_weights_q6_k(char *to, Unpacked from) {
  Place at = Place::of(to, from, Q6_K::BYTES);
  if (!at.slab) return;
  nibbles<FileQ6_K>(from, at);
  for (int i = 0; i < 8; i++) {
    u32 bits = 0;
    for (int p = 0; p < 4; p++) {
      u32 low, high;
      integers<FileQ6_K>(from, at, i, p, low, high);
      bits |= low >> 4 << 2 * p | high >> 4 << (8 + 2 * p);
    }
    ((u16 *)(at.slab + 1024 + lane() * 16))[i] = bits;
  }
  if (lane() % 4) return;
  for (int row = 0; row < 2; row++) {
    const u8 *b = block_of<FileQ6_K>(from, at.output + row * 8, at.column);
    for (int j = 0; j < 8; j++)
      at.slab[1536 + lane() / 4 * 16 + row * 8 + j] = b ? b[192 + at.column / SLAB % 2 * 8 + j] ^ 0x80 : 0x80;
    ((u16 *)(at.slab + 1664 + lane() / 4 * 4))[row] = b ? two_bytes(b + 208) : 0;
  }
}
