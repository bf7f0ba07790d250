// Package matrix multiplies rows of activations by packed weight matrices. The weights of 64 outputs are interleaved;
// they are f32, f16, bf16, or have 4 to 8 bits. The products of an output are added in the order of the inputs of a
// slice (see Matrix.Slice). All AVX2 and AVX-512 kernels do this with one fused multiply-add each; the portable code,
// for other processors, also rounds the products. The order does not depend on the number of rows. The result of a row
// therefore never depends on the other rows or on how the work is divided.
//
// W16A16 rounds weights and activations to BF16 first; with AVX512_BF16, an instruction does two of these
// multiply-adds, unless a short measurement shows that this is slower. With AMX, tiles add the products in an order of
// their own, which does not depend on the number of rows either (see Tiles). The types from W8A8 to FP4A8 round
// activations to 8 bits first. Within a block, the products of integers are added exactly. The sums of blocks are then
// added in the order of the blocks. Their bits are the same with AMX.
package matrix

//go:generate go run ./asm -o .
