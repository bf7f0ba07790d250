// Package attention computes attention of queries over keys and values that lie
// in blocks of memory, found through block tables: vLLM's paged_attention_v1 and
// _v2, chunked prefill over a cached prefix, and cascade attention, on the CPU.
//
// The arithmetic is fixed for each row, a row being one query head of one query
// token. The context is cut into partitions of PartitionSize tokens, counted
// from token 0. In a partition
//
//	logit t = scale · (q·k), the product summed over the head's elements in order;
//		with keys in float32, 16 elements at a time, and then these sums in order;
//		with keys in int8, q rounded to integers of 16 bits, whose largest is 32512,
//		and the sum of integers exact
//	m = the largest logit
//	p = exp(logit - m)
//	l = the sum of p: lane i of 16 sums tokens i, i+16, ..., then the lanes pairwise
//	o = the sum of p·v over the tokens in order
//
// and (m, l, o) of the partitions are merged in the order of their index. Every
// path through the package does exactly these operations for a row: decoding
// and prefill, with or without partitions of their own (V1 and V2), alone or in
// a batch, with a shared prefix or without, on any number of cores. So none of
// these changes a bit of a row's output. AVX2 and AVX-512, with VNNI or without,
// agree to the bit, too; the portable code, without fused multiply-add, differs in rounding.
//
// Against float64 the error for keys in float32 is below 2e-6 of the sum of |p·v|
// for normally distributed numbers with logits up to 27, and below 6e-6 where the
// largest logit is just 30 and heads have 256 elements: a logit of that size is
// rounded by up to 0.95e-6, four times on its way into a weight. Narrower types,
// whose products are one sum, stay below 4e-6 on the first; what they lost when
// they were stored is not counted. Beside keys in int8, rounding q adds up to
// 4.4e-5; the keys' own rounding is 250 times as coarse. Tests measure all of these.
//
// Tokens outside a row's reach (after it, before its window, outside its sparse
// pattern) are not multiplied by 0 but left out, so what lies there, NaN and
// poison included, never shows. Tokens with a logit of -inf weigh nothing; a row
// that reaches nothing is 0.
//
// The inner loops are in kernels.go: portable Go, and assembly for AVX2, AVX-512 and
// AVX-512 with VNNI, which gen generates.
//
// A call allocates nothing once its Runner has grown to the batch. Who owns the
// blocks' memory, and what is written there, is kvstore's business; which block
// belongs to whom is the scheduler's.
package attention

//go:generate go run ./gen -o .
