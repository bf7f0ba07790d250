// Package attention computes attention of queries over keys and values that lie
// in blocks of memory, found through block tables: vLLM's paged_attention_v1 and
// _v2, chunked prefill over a cached prefix, and cascade attention, on the CPU.
//
// The arithmetic is fixed for each row, a row being one query head of one query
// token. The context is cut into partitions of partitionSize tokens, counted
// from token 0. In a partition
//
//	logit t = scale · (q·k), the product summed over the head's elements in order;
//		with keys in float32, 32 elements at a time, and then these sums in order;
//		if that makes a logit with a magnitude above 8, again in float64, as a sum of
//		even elements and one of odd elements; with keys in int8, q rounded to integers
//		of 16 bits, whose largest is 32512, and the sum of integers exact
//	m = the largest logit
//	p = exp(logit - m)
//	l = the sum of p: lane i of 16 sums tokens i, i+16, ..., then the lanes pairwise
//	o = the sum of p·v over the tokens in order; with values in float32, from one
//		multiple of 16 to the next, and then these sums in order
//
// and (m, l, o) of the partitions are merged in the order of their index. Every
// path through the package does exactly these operations for a row: decoding
// and prefill, partitions one after the other (V1) or separately (V2), alone or in
// a batch, with or without a shared prefix, on any number of cores. So none of
// these changes a bit of a row's output. AVX2 and AVX-512, with or without VNNI,
// also give the same bits. The portable code, which has no fused multiply-add, rounds differently.
//
// With keys in float32, a row that has a logit computed in float64, ALiBi, a soft cap or a
// scale that is not positive also keeps the rounding errors of its logits in float32 and of
// their differences from m. A float32 near 30 is rounded by up to 0.95e-6, and its weight
// would have the same relative error.
//
// Against float64 the error for keys in float32 is below 2e-6 of the sum of |p·v| for logits up
// to 30, if their products do not cancel. The tests find at most 0.9e-6 (in 200 problems 1.5e-6) for
// normally distributed numbers, 0.9e-6 for logits that are all or nearly equal, one that is
// huge, one element that makes the logit, and outputs that cancel, and 1.4e-6 with ALiBi, sinks and soft
// caps. Where products cancel, S being the largest scale · sum of |q·k|, it is below 1.5e-7·S,
// thus below 2e-6 for S up to 13. These are measurements. Proved bounds are: a logit above 8 is
// within 2^-45·S of the exact value; one below 8 is within (32 + head size/32)·2^-24·S, which it
// reaches only if all its roundings go the same way.
//
// Narrower types, whose products are one sum and whose logits are float32, stay below 4e-6 for
// normally distributed numbers with logits up to 27, not counting the error of rounding keys and values
// to the type. With keys in int8, rounding q adds up to 4.4e-5; the rounding of the keys is 250 times
// as coarse.
//
// Tokens that a row does not reach (after it, before its window, outside its sparse
// pattern) are left out, not multiplied by 0. So what is stored there has no
// effect, even if it is NaN. Tokens with a logit of -inf have no weight; a row
// without any weight is 0.
//
// The interface of the inner loops is in kernels.go. There is portable Go, and assembly for
// AVX2, AVX-512, and AVX-512 with VNNI and GFNI, which gen generates. A set has its own functions
// only where they are faster: AVX-512 uses AVX2's for int8 keys and E4M3, unless the
// processor has VNNI and GFNI.
//
// A call allocates nothing once its Runner has grown to the batch. Package kvstore has
// the memory of the blocks and writes to it; which request has which block is for the
// scheduler to decide.
package attention

//go:generate go run ./gen -o .
