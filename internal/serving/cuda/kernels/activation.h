// The functions between the products of an MLP, of a gate and a factor up.
#pragma once
#include "device.h"

// sigmoid is 1 / (1 + e^-x).
DEVICE float sigmoid(float x) { return div_rn(1, add_rn(1, exp2_approx(mul_rn(x, -1.44269504f)))); }

struct silu { // x sigmoid(x) up
  DEVICE float of(float x, float up) { return mul_rn(mul_rn(x, sigmoid(x)), up); }
};
struct gelu_tanh { // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) up, where (1 + tanh(y)) / 2 is sigmoid(2 y)
  DEVICE float of(float x, float up) {
    float y = mul_rn(1.5957691f, mul_rn(x, fma_rn(0.044715f, mul_rn(x, x), 1)));
    return mul_rn(mul_rn(x, sigmoid(y)), up);
  }
};
struct swigluoai { // as in GPT-OSS
  DEVICE float of(float x, float up) {
    x = min_of(x, 7);
    up = max_of(min_of(up, 7), -7);
    return mul_rn(mul_rn(x, sigmoid(mul_rn(1.702f, x))), add_rn(up, 1));
  }
};
struct relu {
  DEVICE float of(float x, float up) { return mul_rn(max_of(x, 0), up); }
};
