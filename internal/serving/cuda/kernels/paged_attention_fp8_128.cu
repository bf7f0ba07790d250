#include "paged_attention.h"
PAGED_ATTENTION(fp8, fp8, 128)
