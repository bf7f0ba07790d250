//go:build amd64 && !purego

package matrix

import (
	"unsafe"

	"llmmemory/internal/serving/amx"
)

// Products of W16A16, and products of many rows with types that round activations to 8 bits, can use the tiles of AMX.
//
// With 8-bit activations, the bits of a result are the same with and without tiles: the products of a block are added
// exactly, and the sums of blocks in the order of the blocks. The bits of W16A16 differ. There, a product of tiles adds
// the products of even inputs and those of odd inputs apart, then the two sums, and then the result to the sum of
// earlier inputs. Therefore all products of W16A16 use tiles, for any number of rows, or none does.

const (
	tileOfRows     = 16 // rows of a tile
	tileOfInputs   = 32 // inputs of a tile of W16A16
	tileOfOutputs  = 16 // outputs of a tile
	tileLine       = 64 // bytes of a row of a tile
	pairGroupRows  = 2 * tileOfRows
	dotBufferBytes = tileOfRows*Panel*4 + 2*tileLine // with what alignment takes
)

// usableTiles returns which products can use tiles. The first call asks Linux for permission; see amx.Usable. Tests
// replace it.
var usableTiles = func() (usable amx.Features) {
	if isa != avx512 {
		return usable
	}
	usable = amx.Usable()
	usable.Int8 = usable.Int8 && hasVNNI
	return usable
}

// Tiles returns those of the forms Rounded and Pairs whose products use tiles. If the form is Rounded, products of few
// rows may be without tiles. The first call, or the first matrix of one of these forms, asks Linux for permission to use
// tiles.
func Tiles() (forms Form) {
	usable := usableTiles()
	if usable.Int8 {
		forms |= Rounded
	}
	if usable.BF16 {
		forms |= Pairs
	}
	return forms
}

// chooseKernels decides whether products with the matrix use tiles, and how weights of W16A16 are packed.
func (m *Matrix) chooseKernels() {
	switch {
	case m.Type == W16A16:
		m.tiled = usableTiles().BF16
		m.pairs = m.tiled || paired()
	case m.Type.rounds():
		if m.tiled = usableTiles().Int8; m.tiled {
			m.tiledRows = fewestTiledRows(m.Type, m.Block)
		}
	}
}

type dotTilesKernel func(dst *float32, dstStride uintptr, initial, addend1, addend2 *float32, offset, rows uintptr,
	config, buffer *byte, x *int8, xStride uintptr, steps *uint64, stepsStride uintptr, w *byte, wStride uintptr, scales *byte,
	scalesStride, prefetchAddr, prefetchStep, blocks, block, minima uintptr)

type pairTilesKernel func(config *byte, dst *float32, dstStride uintptr, initial, x *float32, xStride uintptr, w *byte,
	prefetchAddr, prefetchStep, tiles uintptr)

// Tests replace the kernels by plain Go.
var (
	dotTiles  dotTilesKernel = dotAMX
	pairTiles                = [...]pairTilesKernel{pairsAMXx16, pairsAMXx32} // for up to 16 and up to 32 rows
)

// usesTiles reports whether the product of the given number of rows uses tiles.
func (m *Matrix) usesTiles(rows int) bool { return m.tiled && rows >= m.tiledRows }

// dotConfig returns the configuration of dotTiles for blocks of the given number of inputs: a tile of sums, one of
// activations and one of weights.
func dotConfig(block int) (c amx.Config) {
	c.Configure(0, tileOfRows, tileLine)
	c.Configure(1, tileOfRows, block)
	c.Configure(2, block/4, tileLine)
	return c
}

var dotConfigs = [...]amx.Config{16: dotConfig(16), 32: dotConfig(32)}

// dotTiles sets sums to the products of the group's rows and the inputs [k, k+n).
func (g *rowGroup) dotTiles(sums sumAddresses, k, n int) {
	m, offset := g.m, 0
	if g.groups > 1 {
		offset = k * Panel
	}
	d := m.dotPart(g.x, g.p, k, n, g.s, offset, g.index == 0)
	g.signed(&d, offset)
	_, minima := d.offset()
	q, steps, stride := d.rows(g.start)
	rows, blocks := g.end-g.start, n/m.Block
	prefetchAddr, prefetched := g.prefetched(k, n)
	const perBlock = tileOfRows / 4 * Panel / tileOfOutputs // prefetches of 16 rows
	times := (rows + tileOfRows - 1) / tileOfRows * blocks * perBlock
	dotTiles(sums.dst, sums.stride, sums.initial, sums.addend1, sums.addend2, 0, uintptr(rows), &dotConfigs[m.Block][0],
		g.s.dotBuffer(), q, uintptr(g.x.rounded.stride), steps, stride, d.w, uintptr(m.Block*Panel), d.scales, uintptr(d.size),
		prefetchAddr, uintptr(prefetched/times+1), uintptr(blocks), uintptr(m.Block), minima)
}

// signed subtracts the offset from weights that are bytes in the matrix or at d.w, and writes them to
// g.s.bytes[offset:], without gaps. The group that is first does this for all.
func (g *rowGroup) signed(d *dotPart, offset int) {
	kind, block, n := g.m.Type, g.m.Block*Panel, d.n*Panel
	if kind.hasMinimum() {
		return // there is no offset, and weights of at most 5 bits are no negative bytes
	}
	stride := block
	if kind.bits() == 8 {
		g.s.bytes = grow(g.s.bytes, offset+n)
		stride = d.size
	}
	dst := &g.s.bytes[offset]
	if g.index == 0 {
		signedAVX2(dst, d.w, uintptr(stride), uintptr(n/block), uintptr(block), uintptr(kinds[kind].offset))
	}
	d.w, d.skip = dst, 0
}

// dotBuffer returns memory for the sums of two blocks of 16 rows, with the alignment that the kernel needs.
func (s *Scratch) dotBuffer() *byte {
	s.tiles = grow(s.tiles, dotBufferBytes)
	address := uintptr(unsafe.Pointer(&s.tiles[0]))
	return &s.tiles[-address&(2*tileLine-1)]
}

// pairConfig returns the configuration of the kernels in pairTiles, for the given number of rows of the group and of
// inputs of a tile.
func pairConfig(rows, inputs int) (c amx.Config) {
	first, second := min(rows, tileOfRows), rows-tileOfRows
	weights, activations := inputs/2, inputs*2
	if second <= 0 {
		for t := range 4 {
			c.Configure(t, first, tileLine)
		}
		c.Configure(4, first, activations)
		c.Configure(5, weights, tileLine)
	} else {
		for t := range 2 {
			c.Configure(t, first, tileLine)
			c.Configure(2+t, second, tileLine)
		}
		c.Configure(4, first, activations)
		c.Configure(5, second, activations)
	}
	c.Configure(6, weights, tileLine)
	c.Configure(7, weights, tileLine)
	return c
}

// pairTiles sets sums to the products of the group's rows and the inputs [k, k+n). If n is not a multiple of
// tileOfInputs, the last tile has fewer inputs.
func (g *rowGroup) pairTiles(sums sumAddresses, k, n int) {
	to := sums
	if sums.addend1 != nil || sums.addend2 != nil {
		to.dst, to.stride = &g.s.sums[2][0], Panel*4
	}
	rest := n % tileOfInputs
	if whole := n - rest; whole > 0 {
		into := to
		if rest > 0 {
			into.dst, into.stride = &g.s.sums[2][0], Panel*4
		}
		g.pairTilesOf(into, k, tileOfInputs, whole/tileOfInputs)
		to.initial = into.dst
	}
	if rest > 0 {
		g.pairTilesOf(to, k+n-rest, rest, 1)
	}
	if to.dst == sums.dst {
		return
	}
	for r := range g.end - g.start {
		row := unsafe.Slice(add(to.dst, r*Panel), Panel)
		for _, addend := range []*float32{sums.addend1, sums.addend2} {
			if addend != nil {
				addTo(row, unsafe.Slice(add(addend, r*Panel), Panel))
			}
		}
		copy(unsafe.Slice(add(sums.dst, r*int(sums.stride)/4), Panel), row)
	}
}

// pairTilesOf is pairTiles for a number of tiles that have the same number of inputs. It does not add the addends.
func (g *rowGroup) pairTilesOf(sums sumAddresses, k, inputs, tiles int) {
	m, x, rows := g.m, &g.x.shorts, g.end-g.start
	w := &m.data[g.p*m.panelBytes+m.bytesOf(k)]
	const tileBytes = tileOfInputs * Panel * 2
	prefetchAddr, prefetchStep := uintptr(unsafe.Pointer(w))+2*tileBytes, tileBytes
	kernel := pairTiles[0]
	if rows > tileOfRows {
		var prefetched int
		prefetchAddr, prefetched = g.prefetched(k, inputs*tiles)
		kernel, prefetchStep = pairTiles[1], prefetched/(2*tiles) // the kernel has two passes
	}
	g.s.config = pairConfig(rows, inputs)
	kernel(&g.s.config[0], sums.dst, sums.stride, sums.initial, &x.x[g.start*x.stride+k/2], uintptr(x.stride*4), w,
		prefetchAddr, uintptr(prefetchStep), uintptr(tiles))
}
