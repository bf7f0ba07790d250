// Package amx asks Linux for the tiles of Intel AMX, and says which of their products this process can use. It also has
// these products in plain Go, for tests on processors without AMX.
package amx

import (
	"encoding/binary"
	"math"

	"llmmemory/internal/serving/half"
)

// Features says which products of tiles this process can use.
type Features struct {
	Int8 bool // TDPBSSD
	BF16 bool // TDPBF16PS
}

// Environment is the environment variable that can forbid AMX. Its only value is WithoutAMX.
const (
	Environment = "LLMSERVE_CPU"
	WithoutAMX  = "avx512"
)

// A Tile is the content of a tile register: rows of bytes.
type Tile [16][64]byte

// A Shape is the size of the tiles of a product c + a × b. Rows is the number of rows of a and c, at most 16. Words is
// the number of 32-bit words in a row of a, at most 16; b has as many rows. Columns is the number of 32-bit words in a
// row of b and c, at most 16. Tiles may contain more; a product does not read it.
type Shape struct{ Rows, Words, Columns int }

// A Config is the operand of LDTILECFG.
type Config [64]byte

// Configure sets the rows of tile t and the bytes of each row.
func (c *Config) Configure(t, rows, rowBytes int) {
	c[0] = 1 // the palette with 8 tiles
	binary.LittleEndian.PutUint16(c[16+2*t:], uint16(rowBytes))
	c[48+t] = byte(rows)
}

// ProductInt8 computes TDPBSSD. It adds the products of 8-bit integers to the 32-bit integers of c. Word i of a row of a
// has the integers 4i to 4i+3 of this row; row i of b has the integers 4i to 4i+3 of each column.
func ProductInt8(c, a, b *Tile, s Shape) {
	for r := range s.Rows {
		for n := range s.Columns {
			sum := binary.LittleEndian.Uint32(c[r][4*n:])
			for w := range s.Words {
				for i := range 4 {
					sum += uint32(int32(int8(a[r][4*w+i])) * int32(int8(b[w][4*n+i])))
				}
			}
			binary.LittleEndian.PutUint32(c[r][4*n:], sum)
		}
	}
}

// ProductBF16 computes TDPBF16PS. It adds the products of BF16 to the float32 numbers of c. A word of a or b has a pair
// of BF16. The products of the low halves are added in order, with one rounding each, and so are those of the high
// halves. The two sums are added, and their sum is added to the number of c. Denormal operands and results are 0. Intel's
// manual gives this order in the operation of TDPBF16PS.
func ProductBF16(c, a, b *Tile, s Shape) {
	for r := range s.Rows {
		for n := range s.Columns {
			var low, high float32
			for w := range s.Words {
				x, y := binary.LittleEndian.Uint32(a[r][4*w:]), binary.LittleEndian.Uint32(b[w][4*n:])
				low = multiplyAdd(low, uint16(x), uint16(y))
				high = multiplyAdd(high, uint16(x>>16), uint16(y>>16))
			}
			old := normal(math.Float32frombits(binary.LittleEndian.Uint32(c[r][4*n:])))
			binary.LittleEndian.PutUint32(c[r][4*n:], math.Float32bits(normal(old+normal(low+high))))
		}
	}
}

// multiplyAdd returns sum + x × y with one rounding. The product has at most 16 bits, so it is exact in float64. If two
// numbers of at most 24 bits are added in float64, and the sum is rounded to float32, the result is the correctly
// rounded float32.
func multiplyAdd(sum float32, x, y uint16) float32 {
	return normal(float32(float64(sum) + float64(normal(half.FromBF16(x)))*float64(normal(half.FromBF16(y)))))
}

// normal returns x, or 0 with the sign of x if x is denormal.
func normal(x float32) float32 {
	if bits := math.Float32bits(x); bits&0x7f800000 == 0 {
		return math.Float32frombits(bits & 0x80000000)
	}
	return x
}
