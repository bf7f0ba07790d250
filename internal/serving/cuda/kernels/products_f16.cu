#include "products.h"
PRODUCTS_OF_TYPE(half, f16)
PRODUCTS_OF_GGUF(half, f16, Q8_0, q8_0)
PRODUCTS_OF_GGUF(half, f16, Q4_0, q4_0)
PRODUCTS_OF_GGUF(half, f16, MXFP4, mxfp4)
PRODUCTS_OF_GGUF(half, f16, Q4_K, q4_k)
PRODUCTS_OF_GGUF(half, f16, Q5_K, q5_k)
PRODUCTS_OF_GGUF(half, f16, Q6_K, q6_k)
