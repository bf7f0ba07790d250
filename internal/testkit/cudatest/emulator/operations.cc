// What the lanes of a warp compute together, copies to shared memory, and conversions.
#include "launch.h"
#include <device.h>
#include <math.h>
#include <vector>

namespace emulator {
// The same operations in the same order as power in testkit/ptx, so that both have the same bits on every machine.
float exp2_approx(float x) {
  static const double taylor[] = {1, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58fp-3, 0x1.c6b08d704a0cp-5, 0x1.3b2ab6fba4e77p-7,
                                  0x1.5d87fe78a6731p-10, 0x1.430912f86c787p-13, 0x1.ffcbfc588b0c7p-17, 0x1.62c0223a5c824p-20, 0x1.b5253d395e7c4p-24};
  if (x != x) return x;
  if (x >= 128) return INFINITY;
  if (x < -126) return 0;
  double n = floor(double(x) + 0.5), f = double(x) - n, sum = 0;
  for (int k = 9; k >= 0; k--) sum = sum * f + taylor[k];
  float r = float(ldexp(sum, int(n)));
  return r >= 0x1p-126f ? r : 0; // ftz
}

float half_to_float(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
  float x = fraction * 0x1p-24f;
  return sign ? -x : x;
}

uint16_t float_to_half(float x) {
  uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x47800000) return sign | 0x7c00;                                // 65536 and more
  if (magnitude < 0x38800000) return sign | uint16_t(lrintf(fabsf(x) * 0x1p24f)); // denormal
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return sign | (magnitude - 0x38000000) >> 13;
}

uint16_t float_to_bfloat(float x) {
  uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// The places of elements are those of "Matrix Fragments for mma.m16n8k16" in the PTX manual.
void multiply(const A *in, D *out, float (*convert)(uint16_t)) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < WARP; lane++) {
    int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < 8; i++) {
      int row = group + i / 2 % 2 * 8, column = in_group * 2 + i % 2 + i / 4 * 8;
      a[row][column] = convert(in[lane].a[i / 2] >> 16 * (i % 2));
    }
    for (int i = 0; i < 4; i++) b[in_group * 2 + i % 2 + i / 2 * 8][group] = convert(in[lane].b[i / 2] >> 16 * (i % 2));
  }
  for (int lane = 0; lane < WARP; lane++) {
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = 0;
      for (int k = 0; k < 16; k++) sum += double(a[row][k]) * b[k][column];
      out[lane].d[i] = float(sum + in[lane].c[i]);
    }
  }
}

Rows load_matrices(uint32_t address, bool transposed) {
  return together<Rows>(transposed ? "ldmatrix_x4_trans" : "ldmatrix_x4", address, [=](uint32_t *row, Rows *out) {
    uint16_t m[4][8][8];
    for (int i = 0; i < WARP; i++) memcpy(m[i / 8][i % 8], shared_at(row[i], 16, 16, "ldmatrix_x4"), 16);
    for (int lane = 0; lane < WARP; lane++) {
      for (int i = 0; i < 4; i++) {
        int r = lane / 4, c = lane % 4 * 2;
        uint16_t low = transposed ? m[i][c][r] : m[i][r][c], high = transposed ? m[i][c + 1][r] : m[i][r][c + 1];
        out[lane].r[i] = low | uint32_t(high) << 16;
      }
    }
  });
}
} // namespace emulator

namespace emulator {
namespace {
struct Copy {
  char *to;
  const char *from;
  int bytes, size; // copied, and with the zeros behind them
};
std::vector<std::vector<Copy>> groups[1024]; // of each thread; the last one is not committed yet
} // namespace

void forget_copies(const Thread *t) { groups[t->thread].assign(1, {}); }
bool all_copies_waited(const Thread *t) {
  for (const auto &g : groups[t->thread]) {
    if (!g.empty()) return false;
  }
  return true;
}

// The bytes are NaN until the thread waits for the copy.
static void begin_copy(const char *what, u32 to, const void *from, int bytes, int size) {
  if (bytes < 0 || bytes > size) fail("%s of %d bytes", what, bytes);
  if (bytes) emulated_aligned(from, size);
  char *at = shared_at(to, size, size, what);
  memset(at, 0xff, size);
  groups[thread()].back().push_back({at, (const char *)from, bytes, size});
}
} // namespace emulator

void cp_async16(u32 to, const void *from, int bytes) { emulator::begin_copy("cp_async16", to, from, bytes, 16); }
void cp_async4(u32 to, const void *from, int bytes) { emulator::begin_copy("cp_async4", to, from, bytes, 4); }
void cp_async8(u32 to, const void *from, int bytes) { emulator::begin_copy("cp_async8", to, from, bytes, 8); }

void cp_async_commit() { emulator::groups[thread()].emplace_back(); }

void emulated_cp_async_wait(int groups) {
  auto &all = emulator::groups[thread()];
  while (int(all.size()) - 1 > groups) {
    for (const emulator::Copy &c : all.front()) {
      memset(c.to, 0, c.size);
      memcpy(c.to, c.from, c.bytes);
    }
    all.erase(all.begin());
  }
}
