package amx

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
)

func randomTile(rnd *rand.Rand) (t Tile) {
	for r := range t {
		for i := range t[r] {
			t[r][i] = byte(rnd.Uint32())
		}
	}
	return t
}

// Ensure that a product adds, to each number of c in the shape and to no other, what the definition of the
// instruction says.
func TestProductInt8IsTheSumOfTheProducts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, s := range []Shape{{16, 16, 16}, {1, 16, 16}, {16, 1, 16}, {5, 8, 3}, {16, 4, 16}} {
		a, b, c := randomTile(rnd), randomTile(rnd), randomTile(rnd)
		old := c
		ProductInt8(&c, &a, &b, s)
		for r := range 16 {
			for n := range 16 {
				before, sum := big.NewInt(int64(int32(binary.LittleEndian.Uint32(old[r][4*n:])))), new(big.Int)
				for k := 0; k < 4*s.Words && r < s.Rows && n < s.Columns; k++ {
					sum.Add(sum, big.NewInt(int64(int8(a[r][k]))*int64(int8(b[k/4][4*n+k%4]))))
				}
				want := int32(before.Add(before, sum).Int64())
				require.Equal(t, want, int32(binary.LittleEndian.Uint32(c[r][4*n:])), "%v, row %d, column %d", s, r, n)
			}
		}
	}
}

// numbers fills a tile with pairs of BF16 from a list.
func numbers(rnd *rand.Rand, list []float32) (t Tile) {
	for r := range t {
		for i := 0; i < 64; i += 2 {
			binary.LittleEndian.PutUint16(t[r][i:], half.ToBF16(list[rnd.IntN(len(list))]))
		}
	}
	return t
}

// rounded returns the float32 that is nearest to x, which is exact.
func rounded(x *big.Float) float32 {
	f, _ := x.Float32()
	return f
}

// Ensure that products of BF16 are added as Intel's manual says: with one rounding for each product, those of low and of
// high halves apart.
func TestProductBF16AddsLowAndHighHalvesApart(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	list := []float32{1, -1, 3.140625, 1.0 / 1024, -255, 1 << 20, 1.0 / (1 << 30)}
	exact := func(v float32) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(float64(v)) }
	for _, s := range []Shape{{16, 16, 16}, {3, 16, 16}, {16, 5, 16}, {2, 1, 7}} {
		a, b := numbers(rnd, list), numbers(rnd, list)
		var c Tile
		for r := range c {
			for n := range 16 {
				binary.LittleEndian.PutUint32(c[r][4*n:], math.Float32bits(float32(rnd.NormFloat64())))
			}
		}
		old := c
		ProductBF16(&c, &a, &b, s)
		for r := range 16 {
			for n := range 16 {
				want := math.Float32frombits(binary.LittleEndian.Uint32(old[r][4*n:]))
				if r < s.Rows && n < s.Columns {
					var sums [2]float32
					for k := range 2 * s.Words {
						x, y := half.FromBF16(binary.LittleEndian.Uint16(a[r][2*k:])), half.FromBF16(binary.LittleEndian.Uint16(b[k/2][4*n+k%2*2:]))
						sums[k%2] = rounded(exact(0).Add(exact(sums[k%2]), exact(0).Mul(exact(x), exact(y))))
					}
					want += sums[0] + sums[1]
				}
				require.Equal(t, want, math.Float32frombits(binary.LittleEndian.Uint32(c[r][4*n:])), "%v, row %d, column %d", s, r, n)
			}
		}
	}
}

func TestProductBF16TakesDenormalsForZeros(t *testing.T) {
	tests := []struct {
		name    string
		x, y, c uint32 // x and y: pairs of BF16
		want    uint32
	}{
		{"an operand", 0x0001_0001, 0x7f00_7f00, 0, 0},
		{"a product", 0x1000, 0x1000, 0, 0},
		{"the sum before", 0, 0, 0x00000001, 0},
		{"a difference", 0x0081, 0x3f80, 0x80800000, 0},
		{"the smallest that counts", 0x0080, 0x3f80, 0, 0x00800000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var a, b, c Tile
			binary.LittleEndian.PutUint32(a[0][:], test.x)
			binary.LittleEndian.PutUint32(b[0][:], test.y)
			binary.LittleEndian.PutUint32(c[0][:], test.c)
			ProductBF16(&c, &a, &b, Shape{1, 1, 1})
			require.Equal(t, test.want, binary.LittleEndian.Uint32(c[0][:])&0x7fffffff)
		})
	}
}

func TestAConfigIsWhatLDTILECFGReads(t *testing.T) {
	var c Config
	c.Configure(0, 16, 64)
	c.Configure(7, 3, 20)
	want := Config{0: 1, 16: 64, 30: 20, 48: 16, 55: 3}
	require.Equal(t, want, c)
}
