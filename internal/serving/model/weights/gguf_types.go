package weights

import (
	"encoding/binary"
	"math"
	"sync"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model/matrix"
)

// Quantized writes the integers of row i to q, and the scales of the row to scales. A scale is for t.Block() integers.
// Quantized implements matrix.Quantized. The integers of types with up to 4 bits are from 0 to 15. Those of IQ4_NL,
// IQ4_XS, MXFP4 and FP8 are indices of a table.
func (t *Tensor) Quantized(i int, q []int8, scales []matrix.Scale) {
	if t.source != nil {
		t.source.(matrix.Quantized).Quantized(i, q, scales)
		return
	}
	l := layouts[t.DType]
	l.blocks(t.Raw(i), t.Cols, q, scales)
}

func (l *layout) blocks(row []byte, cols int, q []int8, scales []matrix.Scale) {
	each := l.elements / l.scaled
	for b := range cols / l.elements {
		s := scales[b*each : (b+1)*each]
		for j := range s {
			s[j] = matrix.Scale{Factor: 1, MinFactor: 1}
		}
		l.read(row[b*l.bytes:(b+1)*l.bytes], q[b*l.elements:(b+1)*l.elements], s)
	}
}

func (l *layout) dequantize(row []byte, cols int, dst []float32) {
	buffer := blockBuffers.Get().(*blockBuffer)
	defer blockBuffers.Put(buffer)
	q, scales := buffer.q[:l.elements], buffer.scales[:l.elements/l.scaled]
	for b := range cols / l.elements {
		l.blocks(row[b*l.bytes:(b+1)*l.bytes], l.elements, q, scales)
		for k, v := range q {
			dst[b*l.elements+k] = scales[k/l.scaled].Weight(v, l.packed.Table())
		}
	}
}

// A blockBuffer has memory for the integers and scales of the largest block. Buffers are reused, because a row of
// the embeddings is read for each token of a step.
type blockBuffer struct {
	q      [256]int8
	scales [16]matrix.Scale
}

var blockBuffers = sync.Pool{New: func() any { return &blockBuffer{} }}

func f16(b []byte) float32 { return half.FromF16(binary.LittleEndian.Uint16(b)) }

// read4Bits reads 4-bit integers. Each n bytes have 2·n integers: first the low halves of the bytes, then the high
// halves.
func read4Bits(packed []byte, n int, q []int8) {
	for k := 0; k < len(q); k += 2 * n {
		for i, b := range packed[k/2:][:n] {
			q[k+i], q[k+n+i] = int8(b&15), int8(b>>4)
		}
	}
}

func readQ8_0(block []byte, q []int8, s []matrix.Scale) {
	s[0].D = f16(block)
	for k, v := range block[2:] {
		q[k] = int8(v)
	}
}

func readQ4_0(block []byte, q []int8, s []matrix.Scale) {
	s[0].D, s[0].Min = f16(block), -8*f16(block)
	read4Bits(block[2:], 16, q)
}

func readQ4_1(block []byte, q []int8, s []matrix.Scale) {
	s[0].D, s[0].Min = f16(block), f16(block[2:])
	read4Bits(block[4:], 16, q)
}

func readFifthBits(bits []byte, q []int8) {
	for k := range q {
		q[k] |= int8(bits[k/8] >> (k % 8) & 1 << 4)
	}
}

func readQ5_0(block []byte, q []int8, s []matrix.Scale) {
	s[0].D = f16(block)
	read4Bits(block[6:], 16, q)
	readFifthBits(block[2:], q)
	for k := range q {
		q[k] -= 16
	}
}

func readQ5_1(block []byte, q []int8, s []matrix.Scale) {
	s[0].D, s[0].Min = f16(block), f16(block[2:])
	read4Bits(block[8:], 16, q)
	readFifthBits(block[4:], q)
}

// mxScale returns half the scale of MXFP4 with this exponent. The exponent's bias is 127. The scale is halved because
// the numbers in matrix.FP4's table are twice those of the format.
func mxScale(exponent byte) float32 { return float32(math.Ldexp(1, int(exponent)-128)) }

func readMXFP4(block []byte, q []int8, s []matrix.Scale) {
	s[0].D = mxScale(block[0])
	read4Bits(block[1:], 16, q)
}

func readIQ4NL(block []byte, q []int8, s []matrix.Scale) {
	s[0].D = f16(block)
	read4Bits(block[2:], 16, q)
}

// readIQ4XS reads a block of IQ4_XS. It begins with a float16, the factor of 8 scales. Then follow two bytes with the
// upper 2 bits of the scales, 4 bytes with their lower 4 bits, and the 4-bit integers.
func readIQ4XS(block []byte, q []int8, s []matrix.Scale) {
	d, high := f16(block), binary.LittleEndian.Uint16(block[2:])
	for j := range s {
		s[j].D, s[j].Factor = d, int8(block[4+j/2]>>(j%2*4)&15|byte(high>>(j*2)&3<<4))-32
	}
	read4Bits(block[8:], 16, q)
}

// read2Bits reads 2-bit integers. Each 32 bytes have 128 integers: first those in the lowest bits of the bytes, then
// those in the next higher bits.
func read2Bits(packed []byte, q []int8) {
	for k := range q {
		q[k] = int8(packed[k/128*32+k%32] >> (k % 128 / 32 * 2) & 3)
	}
}

// readQ2K reads a block of Q2_K. It begins with 16 bytes, each with a scale and a minimum of 4 bits. Then follow the
// integers and two float16, the factors of the scales and of the minima.
func readQ2K(block []byte, q []int8, s []matrix.Scale) {
	for j := range s {
		s[j] = matrix.Scale{D: f16(block[80:]), Min: -f16(block[82:]), Factor: int8(block[j] & 15), MinFactor: int8(block[j] >> 4)}
	}
	read2Bits(block[16:80], q)
}

// readQ3K reads a block of Q3_K, which has these parts:
//
//	32 bytes: the highest bits of the integers
//	64 bytes: the lower bits of the integers
//	12 bytes: the lower 4 bits of 16 scales, then the upper 2 bits of these scales
//	 2 bytes: a float16, the factor of the scales
//
// The integers in q are 4 larger than those of the format.
func readQ3K(block []byte, q []int8, s []matrix.Scale) {
	d, packed := f16(block[108:]), block[96:108]
	for j := range s {
		factor := int8(packed[j%8]>>(j/8*4)&15|packed[8+j%4]>>(j/4*2)&3<<4) - 32
		s[j] = matrix.Scale{D: d, Factor: factor, Min: -d, MinFactor: 4 * factor}
	}
	read2Bits(block[32:96], q)
	for k := range q {
		q[k] |= int8(block[k%32] >> (k / 32) & 1 << 2)
	}
}

// readScalesK reads the scales of a block of Q4_K or Q5_K. It reads two float16, the factors of scales and of minima,
// then 8 scales and 8 minima of 6 bits.
func readScalesK(block []byte, s []matrix.Scale) {
	d, dmin, packed := f16(block), f16(block[2:]), block[4:16]
	for j := range s {
		factor, minFactor := packed[j%4+j/4*8]&15|packed[j%4]>>6<<4, packed[j%4+8]>>4|packed[j%4+4]>>6<<4
		if j < 4 {
			factor, minFactor = packed[j]&63, packed[j+4]&63
		}
		s[j] = matrix.Scale{D: d, Min: -dmin, Factor: int8(factor), MinFactor: int8(minFactor)}
	}
}

func readQ4K(block []byte, q []int8, s []matrix.Scale) {
	readScalesK(block, s)
	read4Bits(block[16:], 32, q)
}

// readQ5K reads a block of Q5_K. It begins with the scales. Then follow 32 bytes with the highest bits of the integers;
// in these, bit j belongs to the j-th group of 32 integers. The lower 4 bits are last.
func readQ5K(block []byte, q []int8, s []matrix.Scale) {
	readScalesK(block, s)
	read4Bits(block[48:], 32, q)
	for k := range q {
		q[k] |= int8(block[16+k%32] >> (k / 32) & 1 << 4)
	}
}

// readQ6K reads a block of Q6_K. It begins with 128 bytes with the low 4 bits of the integers and 64 bytes with the two
// bits above them. Then follow 16 scales and a float16, their factor. Each half of the block has 4 quarters of 32
// integers, whose bits share bytes.
func readQ6K(block []byte, q []int8, s []matrix.Scale) {
	low, high, scales, d := block[:128], block[128:192], block[192:208], f16(block[208:])
	for j := range s {
		s[j].D, s[j].Factor = d, int8(scales[j])
	}
	for k := range q {
		part, quarter, l := k/128, k%128/32, k%32
		nibble := low[part*64+quarter%2*32+l] >> (quarter / 2 * 4) & 15
		bits := high[part*32+l] >> (quarter * 2) & 3
		q[k] = int8(nibble|bits<<4) - 32
	}
}
