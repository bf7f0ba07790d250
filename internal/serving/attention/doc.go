// Package attention computes attention on the CPU. The keys and values are in blocks of memory, which it finds through
// block tables. It has the functions of vLLM's paged_attention_v1 and _v2, chunked prefill over a cached prefix, and
// cascade attention.
//
// A row is one query head of one query token. The arithmetic of a row is fixed. Its context is cut into partitions of
// partitionSize tokens, counted from token 0. The result of a partition is (m, l, o):
//
//	logit = scale · (q·k), for each token
//	m     = the largest logit
//	p     = exp(logit - m), for each token
//	l     = the sum of p
//	o     = the sum of p·v
//
// The order of the additions is fixed, too:
//
//   - In q·k, products are added in the order of the elements. If keys are float32, 32 products are summed at a time,
//     and then these sums are added. If the magnitude of such a logit is finite and exceeds 8, q·k is computed again
//     in float64, as the sum of the even elements plus the sum of the odd elements. If keys are int8, q is rounded to
//     integers of 16 bits, of which the largest is 32512, and the sum of the integer products is exact.
//
//   - In l, lane i of 16 lanes sums tokens i, i+16 and so on. Then the lanes are added in pairs.
//
//   - In o, tokens are added in their order. If values are float32, the tokens from each multiple of 16 to the next are
//     summed first, and then these sums are added.
//
// The results of the partitions are merged in the order of their index. Every path through the package does exactly
// these operations for a row, on any number of cores. It does not matter whether a row is decoded or prefilled, alone
// or in a batch, with or without a shared prefix, with V1 (partitions one after the other) or V2 (partitions
// separately). A row's output is therefore always the same bit for bit. AVX2 and AVX-512, with or without VNNI, also
// give the same bits. There is one exception to both: if E4M3 blocks are read in place, sums are kept as 2^-8 of their
// value, and float32 rounds sums below 2^-118 as denormals. Whether blocks are read in place depends on the instruction
// set and the batch. The portable code rounds differently: it sums q·k in float64, and has no fused multiply-add.
//
// With keys in float32, some partitions of a row also keep the rounding errors of the logits and of their differences
// from m. These partitions have a logit computed in float64, ALiBi, a soft cap, or a scale of at most 0. A logit near
// 30 is rounded to float32 with an error of up to 0.95e-6. If this error were not kept, the weight exp(logit - m) would
// have a relative error of the same size.
//
// With keys in float32 and logits up to 30 whose products do not cancel, the error against float64
// is below 2e-6 of the sum of |p·v|. The largest errors in the tests are
//
//	normally distributed numbers                          0.9e-6 (in 200 problems 1.5e-6)
//	logits that are equal, or nearly so                   0.9e-6
//	one huge logit, or one element dominates the logit    0.9e-6
//	outputs that cancel                                   0.9e-6
//	ALiBi, sinks and soft caps                            1.4e-6
//
// Let S be the largest sum of the magnitudes of the products of one logit. Where products cancel, the error is below
// 1.5e-7·S, thus below 2e-6 for S up to 13. These are measurements. The following bounds are proved. A logit above 8 is
// within 2^-45·S of the exact value. A logit below 8 is within
//
//	(32 + head size/32) · 2^-24 · S
//
// of the exact value. It reaches this bound only if all roundings have the same direction.
//
// With keys in narrower types, all elements of a product are summed in one pass, and logits are in float32. For
// normally distributed numbers with logits up to 27, the error of the output stays below 4e-6, apart from the error of
// rounding keys and values to the type. With keys in int8, rounding q adds an error of up to 4.4e-5. Rounding the keys
// adds far more: the steps between int8 keys are about 250 times as large as those between the integers of q.
//
// Tokens to which a row does not attend (after it, or before its window) have no effect on the row, even if their keys
// or values are NaN. Tokens with a logit of -inf have no weight. A row without any weight is 0.
//
// The interface of the inner loops is in kernels.go. Its implementations are portable Go, and assembly for AVX2,
// AVX-512, and AVX-512 with VNNI. Command gen generates the assembly. An instruction set has its own functions only
// where they are faster: AVX-512 uses AVX2's for int8 keys, unless the processor has VNNI. A call allocates nothing
// once its Runner has grown to the size of the batch. Package kvstore has the memory of the blocks and writes to it.
// The scheduler decides which request has which block.
package attention

//go:generate go run ./gen -o .
