// Writes the test data beside it: NAME.bin has blocks of a type, and then the numbers that ggml makes of them.
//
// Some blocks are random numbers as ggml quantizes them, some are random bytes with scales of any finite size, and
// some of these have the largest, the smallest and negative scales. ggml's sources are those of the npm package
// llama.rn 0.12.9, prepared as internal/bench/llamacpp.sh does, in the folder SRC:
//
//   gcc -O1 -ffp-contract=off -DNDEBUG -D_GNU_SOURCE '-DGGML_VERSION="x"' '-DGGML_COMMIT="x"' -ISRC -ISRC/ggml-cpu \
//     -o dequantize dequantize.c SRC/ggml.c SRC/ggml-quants.c SRC/ggml-backend.cpp SRC/ggml-backend-meta.cpp \
//     SRC/ggml-alloc.c SRC/ggml-threading.cpp -lm -lstdc++ -lpthread && ./dequantize
#include "ggml.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint32_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static float normal(void) {
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += (float)next() / 2147483648.0f;
    return sum;
}

// A scale of a block: halves at the offset, or an exponent.
static const struct {
    enum ggml_type type;
    int halves[2], exponent;
} types[] = {
    {GGML_TYPE_Q8_0, {0, -1}, -1}, {GGML_TYPE_Q4_0, {0, -1}, -1}, {GGML_TYPE_Q4_1, {0, 2}, -1},
    {GGML_TYPE_Q5_0, {0, -1}, -1}, {GGML_TYPE_Q5_1, {0, 2}, -1}, {GGML_TYPE_Q2_K, {80, 82}, -1},
    {GGML_TYPE_Q3_K, {108, -1}, -1}, {GGML_TYPE_Q4_K, {0, 2}, -1}, {GGML_TYPE_Q5_K, {0, 2}, -1},
    {GGML_TYPE_Q6_K, {208, -1}, -1}, {GGML_TYPE_IQ4_NL, {0, -1}, -1}, {GGML_TYPE_IQ4_XS, {0, -1}, -1},
    {GGML_TYPE_MXFP4, {-1, -1}, 0},
};

int main(void) {
    static const uint16_t extremes[] = {0x7bff, 0xfbff, 0x0001, 0x8001, 0x03ff, 0x0400, 0x0000, 0x3c01};
    static const uint8_t exponents[] = {0, 1, 2, 127, 253, 254, 255, 128};
    struct ggml_init_params params = {1 << 20, NULL, true};
    ggml_init(params);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const enum ggml_type type = types[t].type;
        const int64_t elements = ggml_blck_size(type);
        const size_t bytes = ggml_type_size(type);
        const int quantized = elements == 32 ? 6 : 2, blocks = 2 * quantized + 4;
        uint8_t *data = malloc(blocks * bytes);
        float *x = malloc(blocks * elements * sizeof *x), *importance = malloc(elements * sizeof *x);
        for (int i = 0; i < quantized * elements; i++) x[i] = normal() * 0.02f;
        for (int i = 0; i < elements; i++) importance[i] = 1;
        ggml_quantize_chunk(type, x, data, 0, quantized, elements, importance);
        for (int b = quantized; b < blocks; b++) {
            uint8_t *block = data + b * bytes;
            for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)next();
            for (int h = 0; h < 2; h++) {
                if (types[t].halves[h] < 0) continue;
                uint16_t half = (uint16_t)next();
                if ((half & 0x7c00) == 0x7c00) half &= 0xbfff; // finite
                if (b >= 2 * quantized) half = extremes[(2 * (b - 2 * quantized) + 3 * h) % 8];
                memcpy(block + types[t].halves[h], &half, 2);
            }
            if (types[t].exponent >= 0 && b >= 2 * quantized)
                block[0] = exponents[(b - 2 * quantized) * 2], block[1] = (uint8_t)next();
        }
        ggml_get_type_traits(type)->to_float(data, x, blocks * elements);
        char name[64];
        snprintf(name, sizeof name, "%s.bin", ggml_type_name(type));
        for (char *c = name; *c != '.'; c++)
            if (*c >= 'a' && *c <= 'z') *c -= 32;
        FILE *f = fopen(name, "wb");
        if (!f || fwrite(data, bytes, blocks, f) != (size_t)blocks ||
            fwrite(x, sizeof *x, blocks * elements, f) != (size_t)(blocks * elements) || fclose(f)) {
            perror(name);
            return 1;
        }
    }
    return 0;
}
