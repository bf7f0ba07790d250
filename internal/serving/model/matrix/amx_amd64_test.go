//go:build amd64 && !purego

package matrix

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/amx"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/testkit/level"
)

// offset returns the address that is the given number of bytes after p.
func offset[T any](p *T, bytes uintptr) *T { return (*T)(unsafe.Add(unsafe.Pointer(p), bytes)) }

// loadTile loads a tile with the given number of rows, stride bytes apart, of n bytes each.
func loadTile[T any](p *T, stride uintptr, rows, n int) (t amx.Tile) {
	for r := range rows {
		copy(t[r][:n], unsafe.Slice((*byte)(unsafe.Pointer(offset(p, uintptr(r)*stride))), n))
	}
	return t
}

func word32(t *amx.Tile, r, c int) uint32 { return *(*uint32)(unsafe.Pointer(&t[r][4*c])) }

// rowsAndBytes returns the size of tile t.
func rowsAndBytes(config *byte, t int) (rows, bytes int) {
	c := (*amx.Config)(unsafe.Pointer(config))
	return int(c[48+t]), int(c[16+2*t]) | int(c[17+2*t])<<8
}

// fusedFloat returns a×b + c with one rounding. The product is exact in float64. The sum in float64 is rounded to odd, so
// that rounding it again has the same result as one rounding.
func fusedFloat(a, b, c float32) float32 {
	p, d := float64(a)*float64(b), float64(c)
	sum := p + d
	part := sum - p
	rest := (p - (sum - part)) + (d - part)
	if bits := math.Float64bits(sum); rest != 0 && bits&1 == 0 && rest == rest {
		if (rest > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}

// emulatedDot computes what dotAMX computes, in plain Go.
func emulatedDot(dst *float32, dstStride uintptr, initial, addend1, addend2 *float32, _, rows uintptr, config, _ *byte,
	x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, wStride uintptr, scales *byte, scalesStride, _, _, blocks,
	block, minima uintptr) {
	aRows, aBytes := rowsAndBytes(config, 1)
	bRows, bBytes := rowsAndBytes(config, 2)
	sum := func(p *float32, r, c int) float32 {
		if p == nil {
			return 0
		}
		return *add(p, r*Panel+c)
	}
	for r0 := 0; r0 < int(rows); r0 += aRows {
		for c0 := 0; c0 < Panel; c0 += bBytes / 4 {
			var total [16][16]float32
			for r := range total {
				for c := range total[r] {
					total[r][c] = sum(initial, r0+r, c0+c)
				}
			}
			for b := range blocks {
				a := loadTile(offset(x, uintptr(r0)*xStride+b*block), xStride, aRows, aBytes)
				weights := loadTile(offset(w, b*wStride+uintptr(c0)*4), Panel*4, bRows, bBytes)
				var product amx.Tile
				amx.ProductInt8(&product, &a, &weights, amx.Shape{Rows: aRows, Words: aBytes / 4, Columns: bBytes / 4})
				head := unsafe.Slice((*uint16)(unsafe.Pointer(offset(scales, b*scalesStride))), 2*Panel)
				for r := range total {
					s := (*step)(unsafe.Pointer(offset(steps, uintptr(r0+r)*stepsStride+b*unsafe.Sizeof(step{}))))
					for c := range total[r] {
						total[r][c] = fusedFloat(float32(int32(word32(&product, r, c)))*half.FromF16(head[c0+c]), s.scale, total[r][c])
						if minima != 0 {
							total[r][c] = fusedFloat(-s.scaledNegSum, half.FromF16(head[Panel+c0+c]), total[r][c])
						}
					}
				}
			}
			for r := range min(16, int(rows)-r0) {
				for c := range 16 {
					v := total[r][c]
					if addend1 != nil {
						v += sum(addend1, r0+r, c0+c)
					}
					if addend2 != nil {
						v += sum(addend2, r0+r, c0+c)
					}
					*add(offset(dst, uintptr(r0+r)*dstStride), c0+c) = v
				}
			}
		}
	}
}

// emulatedPairs returns a function that computes what a kernel of pairTiles computes, in plain Go.
func emulatedPairs(rowTiles int) pairTilesKernel {
	return func(config *byte, dst *float32, dstStride uintptr, initial, x *float32, xStride uintptr, w *byte, _, _, tiles uintptr) {
		columnTiles := 4 / rowTiles
		for c0 := 0; c0 < Panel; c0 += columnTiles * 16 {
			for t := range 4 {
				r, c := t/columnTiles*16, c0+t%columnTiles*16
				rows, bytes := rowsAndBytes(config, t)
				aRows, aBytes := rowsAndBytes(config, 4+t/columnTiles)
				bRows, bBytes := rowsAndBytes(config, 7)
				var sums amx.Tile
				if initial != nil {
					sums = loadTile(add(initial, r*Panel+c), Panel*4, rows, bytes)
				}
				for i := range tiles {
					a := loadTile(offset(x, uintptr(r)*xStride+i*64), xStride, aRows, aBytes)
					b := loadTile(offset(w, i*16*Panel*4+uintptr(c)*4), Panel*4, bRows, bBytes)
					amx.ProductBF16(&sums, &a, &b, amx.Shape{Rows: rows, Words: aBytes / 4, Columns: bytes / 4})
				}
				for row := range rows {
					copy(unsafe.Slice((*byte)(unsafe.Pointer(add(offset(dst, uintptr(r+row)*dstStride), c))), bytes), sums[row][:bytes])
				}
			}
		}
	}
}

// eachTiles calls f with tiles that are emulated in plain Go, and with those of the processor if it has them. In
// products with 8-bit activations, all rows use tiles.
func eachTiles(t *testing.T, f func(name string)) {
	usable, fewest, dot, pairs := usableTiles, fewestTiledRows, dotTiles, pairTiles
	defer func() { usableTiles, fewestTiledRows, dotTiles, pairTiles = usable, fewest, dot, pairs }()
	fewestTiledRows = func(Type, int) int { return 1 }
	for _, l := range levels() {
		if l == portable {
			continue // it has no kernels that round and unpack
		}
		setLevel(t, l)
		usableTiles = func() amx.Features { return amx.Features{Int8: true, BF16: true} }
		dotTiles, pairTiles = emulatedDot, [...]pairTilesKernel{emulatedPairs(1), emulatedPairs(2)}
		f(Kernels() + " with emulated tiles")
		has := amx.Usable()
		has.Int8 = has.Int8 && l == avx512 // the kernel also needs AVX-512
		if has == (amx.Features{}) {
			continue
		}
		usableTiles = func() amx.Features { return has }
		dotTiles, pairTiles = dot, pairs
		f(Kernels() + " with tiles")
	}
}

// guarded is product, and requires that nothing after the rows of the result is written.
func guarded(t *testing.T, m *Matrix, x []float32, rows int) []float32 {
	const after = 20
	dst := make([]float32, (rows+after)*m.Out)
	for i := range dst {
		dst[i] = 0.5
	}
	m.Product(dst, m.Out, input(x, rows, m), 0, m.Panels(), NewScratch())
	for _, v := range dst[rows*m.Out:] {
		require.EqualValues(t, 0.5, v, "%v, %d rows", m.Type, rows)
	}
	return dst[:rows*m.Out]
}

// Ensure that products of 8-bit activations have the same bits with tiles as without.
func TestRoundedProductsHaveTheSameBitsWithTiles(t *testing.T) {
	withoutTiles(t)
	all := []shape{{W8A8, 64, 288, 32}, {W6A8, 64, 32, 16}, {W4A8, 70, 64, 32}, {W4A8Min, 64, 64, 32}, {W5A8, 64, 32, 32}, {NL4A8, 64, 32, 32}}
	for i, s := range level.First(6, append(all, append(dotShapes, shape{W8A8, 64, 1056, 32}, shape{W6A8, 64, 544, 16})...)) {
		want := map[int][]float32{}
		rows := level.First(3, []int{1, 17, 49, 15, 16, 33, 48, 53, 97})
		const maxRows = 97
		m := s.packed(t)
		require.False(t, m.tiled)
		x := activations(maxRows, s.inputs)
		slices := 1
		if i%2 == 0 {
			slices = Slices(s.inputs, m.Unit())
		}
		require.NoError(t, m.Slice(slices))
		if !fuses() {
			t.Skip("the portable code rounds differently")
		}
		for _, n := range rows {
			want[n] = product(m, x, n)
		}
		eachTiles(t, func(name string) {
			tiled := s.packed(t)
			require.NoError(t, tiled.Slice(slices))
			for _, n := range rows {
				if usableTiles().Int8 {
					require.True(t, tiled.usesTiles(n))
					require.Equal(t, want[n], guarded(t, tiled, x, n), "%s, %v, %d rows, %d slices", name, s.kind, n, slices)
				}
			}
		})
	}
}

// inTiles returns the sum of the products of BF16 as tiles add them: in each tile of 32 inputs, those of even inputs, those
// of odd inputs, and both.
func inTiles(x, w []float32) float32 {
	sum := float32(0)
	for k := 0; k < len(x); k += 32 {
		var parts [2]float32
		for i := k; i < min(k+32, len(x)); i++ {
			p := &parts[i%2]
			*p = float32(float64(*p) + float64(half.FromBF16(short(x[i])))*float64(half.FromBF16(short(w[i]))))
		}
		sum += parts[0] + parts[1]
	}
	return sum
}

// Ensure that products of W16A16 with tiles have the bits of sums in the order of tiles, for any number of rows, slice by
// slice.
func TestShortProductsAreSumsInTheOrderOfTiles(t *testing.T) {
	for _, s := range level.First(2, append([]shape{{W16A16, 64, 300, 0}, {W16A16, 70, 96, 0}, {W16A16, 64, 544, 0}}, shortShapes...)) {
		for name, src := range map[string]Source{"normal": random{}, "extreme": extremes{1}} {
			const maxRows = 65
			w, x, want := make([]float32, s.inputs), make([]float32, maxRows*s.inputs), make([]float32, maxRows*s.outputs)
			for r := range maxRows {
				src.Row(1000+r, x[r*s.inputs:][:s.inputs])
			}
			slices := Slices(s.inputs, 2)
			n := s.inputs / slices
			for i := range s.outputs {
				src.Row(i, w)
				for r := range maxRows {
					var parts [4]float32
					for p := range slices {
						parts[p] = inTiles(x[r*s.inputs+p*n:][:n], w[p*n:][:n])
					}
					want[r*s.outputs+i] = parts[0] + parts[1] + (parts[2] + parts[3])
				}
			}
			eachTiles(t, func(kernels string) {
				m := zeros(t, s.kind, s.outputs, s.inputs, s.block)
				if !m.tiled {
					return
				}
				require.NoError(t, m.Slice(slices))
				require.NoError(t, m.Pack(src, 0, m.Panels()))
				for _, rows := range level.First(3, []int{1, 17, 33, 2, 15, 16, 32, 50, maxRows}) {
					require.Equal(t, bitsOf(want[:rows*s.outputs]), bitsOf(guarded(t, m, x, rows)), "%s, %s, %d × %d, %d rows", kernels,
						name, s.outputs, s.inputs, rows)
				}
			})
		}
	}
}

// Ensure that groups of rows begin with whole tiles, have all rows, and are not larger than the memory for their sums.
func TestGroupsOfRowsHaveWholeTiles(t *testing.T) {
	for _, test := range []struct {
		m    Matrix
		size int
	}{{Matrix{Type: W8A8, tiled: true}, 48}, {Matrix{Type: W16A16, tiled: true, pairs: true}, 32}} {
		for rows := range 200 {
			d := test.m.division(rows)
			for i := range d.groups {
				require.Equal(t, i*test.size, d.firstRow(i), "%v, %d rows", test.m.Type, rows)
			}
			require.Equal(t, (rows+test.size-1)/test.size, d.groups)
			require.Equal(t, rows, d.firstRow(d.groups))
		}
	}
}

func TestSlicesOfProductsWithTilesAddUp(t *testing.T) {
	eachTiles(t, func(level string) {
		requireSlicesAddUp(t, W16A16, 0, level)
		requireSlicesAddUp(t, W4A8Min, 32, level)
	})
}

// Ensure that products with tiles allocate no memory after the first.
func TestProductsWithTilesAllocateNothing(t *testing.T) {
	eachTiles(t, func(name string) {
		for _, s := range []shape{{W8A8, 70, 64, 32}, {W16A16, 70, 96, 0}} {
			m := s.packed(t)
			require.NoError(t, m.Slice(2))
			const rows = 50
			x, dst, scratch := input(activations(rows, s.inputs), rows, m), make([]float32, rows*s.outputs), NewScratch()
			require.Zero(t, testing.AllocsPerRun(1, func() { m.Product(dst, s.outputs, x, 0, m.Panels(), scratch) }), "%s, %v", name, s.kind)
		}
	})
}

// Ensure that few rows of 8-bit activations are multiplied without tiles, and all rows of W16A16 with them.
func TestTheNumberOfRowsDecidesAboutTiles(t *testing.T) {
	eachTiles(t, func(name string) {
		fewestTiledRows = func(kind Type, block int) int { return int(kind)*100 + block }
		for _, test := range []struct {
			shape
			rows int
			want bool
		}{
			{shape{W8A8, 64, 32, 32}, int(W8A8)*100 + 31, false}, {shape{W8A8, 64, 32, 32}, int(W8A8)*100 + 32, true},
			{shape{W6A8, 64, 32, 16}, int(W6A8)*100 + 15, false}, {shape{W6A8, 64, 32, 16}, int(W6A8)*100 + 16, true},
			{shape{W16A16, 64, 32, 0}, 1, true}, {shape{F16, 64, 32, 0}, 512, false}, {shape{Int8, 64, 32, 32}, 512, false},
		} {
			m := zeros(t, test.kind, test.outputs, test.inputs, test.block)
			if usable := usableTiles(); test.kind == W16A16 && usable.BF16 || test.kind != W16A16 && usable.Int8 {
				require.Equal(t, test.want, m.usesTiles(test.rows), fmt.Sprint(name, test))
			}
		}
		fewestTiledRows = func(Type, int) int { return 1 }
	})
}
