package attention

import (
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// ErrArgument is wrapped by every error about a cache, a batch or a slot. A call that returns such an error has
// computed and written nothing.
var ErrArgument = errors.New("bad argument")

func badArgument(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrArgument, fmt.Errorf(format, args...))
}

// ErrOverlap is wrapped, together with ErrArgument, if the output memory of a call overlaps with other memory of the
// call.
var ErrOverlap = errors.New("memory overlaps")

// Limits of a shape. They keep every product of sizes far from overflow.
const (
	MaxHeadSize  = 512
	maxInt8Size  = 256 // of a head of Int8: the sum of so many products fits into 32 bits
	MaxKeySize   = 576 // of a head with latent values
	MaxBlockSize = 1 << 16
	MaxHeads     = 1 << 12
)

// A Shape describes the keys and values of one layer.
type Shape struct {
	BlockSize  int // tokens per block
	NumKVHeads int
	HeadSize   int // elements; 8 to 512, with Int8 to 256, a multiple of 8
	DType      DType
	Layout     Layout

	// Latent is not 0 if only keys are stored (MLA, multi-head latent attention). The value of a token is then the first
	// Latent elements of its key, a multiple of 8. There is one KV head with HeadSize up to 576, in LayoutFlash, and the
	// type is not Int8.
	Latent int
}

// ValueSize returns the number of elements of a value.
func (s *Shape) ValueSize() int {
	if s.Latent > 0 {
		return s.Latent
	}
	return s.HeadSize
}

// A Cache describes the blocks of one layer in the caller's memory. Strides are in bytes.
type Cache struct {
	Shape
	NumBlocks int

	// In Key and in Value, block b and KV head h start at byte b·BlockStride + h·HeadStride. Layout determines the
	// order of the elements from there on.
	Key, Value              []byte
	BlockStride, HeadStride int

	// KeyScales and ValueScales have a float32 scale for each token and head. They are used only with Int8. The scale
	// of a token of block b and head h is at byte b·ScaleBlockStride + h·ScaleHeadStride + 4·token.
	KeyScales, ValueScales            []byte
	ScaleBlockStride, ScaleHeadStride int

	// Stored keys are multiplied by KeyScale, stored values by ValueScale; 0 means 1. Both are ignored with Int8.
	KeyScale, ValueScale float32
}

// Check returns an error if this package cannot compute with the shape.
func (s *Shape) Check() error {
	switch {
	case s.BlockSize < 1 || s.BlockSize > MaxBlockSize:
		return badArgument("blocks of %d tokens; 1 to %d are possible", s.BlockSize, MaxBlockSize)
	case s.NumKVHeads < 1 || s.NumKVHeads > MaxHeads:
		return badArgument("%d KV heads; 1 to %d are possible", s.NumKVHeads, MaxHeads)
	case s.Latent != 0:
		return s.checkLatent()
	case s.HeadSize < 8 || s.HeadSize > MaxHeadSize || s.HeadSize%8 != 0:
		return badArgument("heads of %d elements; multiples of 8 up to %d are possible", s.HeadSize, MaxHeadSize)
	case s.DType == Int8 && s.HeadSize > maxInt8Size:
		return badArgument("heads of %d elements of type int8; multiples of 8 up to %d are possible", s.HeadSize, maxInt8Size)
	case s.DType >= dtypes:
		return badArgument("keys and values of type %d; %d to %d are possible", s.DType, F32, dtypes-1)
	case s.Layout >= layouts:
		return badArgument("layout %d; %d to %d are possible", s.Layout, LayoutTile, layouts-1)
	case s.Layout == LayoutVLLM && s.HeadSize%(16/s.DType.Size()) != 0:
		return badArgument("vLLM's layout takes vectors of 16 bytes, which do not divide heads of %d %v", s.HeadSize,
			s.DType)
	}
	return nil
}

func (s *Shape) checkLatent() error {
	switch {
	case s.HeadSize < 8 || s.HeadSize > MaxKeySize || s.HeadSize%8 != 0:
		return badArgument("latent keys of %d elements; multiples of 8 up to %d are possible", s.HeadSize, MaxKeySize)
	case s.Latent < 8 || s.Latent > s.HeadSize || s.Latent%8 != 0:
		return badArgument("values that are %d elements of keys of %d; multiples of 8 up to %d are possible", s.Latent, s.HeadSize,
			s.HeadSize)
	case s.NumKVHeads != 1 || s.Layout != LayoutFlash:
		return badArgument("%d latent heads in layout %v; one head in layout %v is possible", s.NumKVHeads, s.Layout, LayoutFlash)
	case s.DType >= Int8:
		return badArgument("latent keys of type %v; f32, f16, bf16 and the 8-bit floats are possible", s.DType)
	}
	return nil
}

// Check returns an error if the shape, the number of blocks, a scale or a stride is invalid, if the blocks do not fit
// into the memory with the given strides, or if the memory is not aligned to its elements.
func (c *Cache) Check() error {
	if err := c.Shape.Check(); err != nil {
		return err
	}
	if c.NumBlocks < 1 || c.NumBlocks > math.MaxInt32 {
		return badArgument("%d blocks; 1 to %d are possible", c.NumBlocks, math.MaxInt32)
	}
	if err := CheckScales(c.KeyScale, c.ValueScale); err != nil {
		return err
	}
	span := c.headSpan()
	for i, part := range [...]struct {
		name        string
		data        []byte
		block, head int
		span, align int
	}{
		{"keys", c.Key, c.BlockStride, c.HeadStride, span, c.DType.Size()},
		{"values", c.Value, c.BlockStride, c.HeadStride, span, c.DType.Size()},
		{"scales of keys", c.KeyScales, c.ScaleBlockStride, c.ScaleHeadStride, 4 * c.BlockSize, 4},
		{"scales of values", c.ValueScales, c.ScaleBlockStride, c.ScaleHeadStride, 4 * c.BlockSize, 4},
	} {
		if i == 2 && c.DType != Int8 {
			break // no scales
		}
		if err := c.checkPart(part.name, part.data, part.block, part.head, part.span, part.align); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) checkPart(name string, data []byte, block, head, span, align int) error {
	const maxStride = 1 << 40
	if block < 0 || head < 0 || block > maxStride || head > maxStride || block%align != 0 || head%align != 0 {
		return badArgument("the %s have strides of %d and %d bytes; multiples of %d up to %d are possible", name, block,
			head, align, maxStride)
	}
	if block > 0 && c.NumBlocks-1 > 1<<60/block {
		return badArgument("%d blocks of %d bytes", c.NumBlocks, block)
	}
	need := (c.NumBlocks-1)*block + (c.NumKVHeads-1)*head + span
	switch {
	case need > len(data):
		return badArgument("the %s of %d blocks take %d bytes; there are %d", name, c.NumBlocks, need, len(data))
	case uintptr(unsafe.Pointer(&data[0]))%uintptr(align) != 0:
		return badArgument("the %s are not aligned to %d bytes", name, align)
	}
	return nil
}

// CheckScales returns an error if one of the two scales, or its inverse, is NaN or infinite. A scale of 0 means 1.
// Numbers are multiplied by the inverse when they are stored.
func CheckScales(key, value float32) error {
	for _, x := range [...]float32{key, value} {
		if !isFinite(x) || x != 0 && !isFinite(1/x) {
			return badArgument("scales of %v for keys and %v for values; each must be 0, or finite with a finite inverse",
				key, value)
		}
	}
	return nil
}

// CheckStrides returns an error if blocks or heads, or with Int8 their scales, share memory with each other. It accepts
// only two arrangements: all heads of a block are together, or all blocks of a head are together. It refuses other
// strides even if no memory is shared. Call it only after Check has succeeded.
func (c *Cache) CheckStrides() error {
	row, pitch := c.headSpan(), 0 // bytes of a row, and the distance in bytes from one row to the next in LayoutFlash
	if c.Layout == LayoutFlash {
		row, pitch = c.HeadSize*c.DType.Size(), c.NumKVHeads*c.HeadSize*c.DType.Size()
	}
	if !disjoint(c.BlockStride, c.NumBlocks, c.HeadStride, c.NumKVHeads, row, c.headSpan(), pitch) {
		return badArgument("blocks or heads overlap: %d bytes from block to block, %d from head to head", c.BlockStride,
			c.HeadStride)
	}
	scales := 4 * c.BlockSize
	if c.DType == Int8 && !disjoint(c.ScaleBlockStride, c.NumBlocks, c.ScaleHeadStride, c.NumKVHeads, scales, scales, 0) {
		return badArgument("scales overlap: %d bytes from block to block, %d from head to head", c.ScaleBlockStride,
			c.ScaleHeadStride)
	}
	return nil
}

// disjoint reports whether pieces of memory are arranged so that they cannot overlap. For each i < n and each j < m, a
// piece of span bytes begins at the offset
//
//	i·a + j·b
//
// If pitch is 0, a piece is contiguous. Otherwise a piece consists of several rows. The parameter row is the number of
// bytes in a row, and pitch is the number of bytes from the beginning of one row to the beginning of the next. The gaps
// between the rows do not belong to the piece. Rows of other pieces with the same i may be in these gaps.
//
// disjoint accepts only two arrangements: all pieces with the same i are together, or all pieces with the same j are
// together. It returns false for all other arrangements, even if no pieces overlap.
func disjoint(a, n, b, m, row, span, pitch int) bool {
	if pitch > 0 && b < span {
		fits := m == 1 || b >= row && (m-1)*b+row <= pitch
		return fits && (n == 1 || a >= span+(m-1)*b)
	}
	inner := (m == 1 || b >= span) && (n == 1 || a >= (m-1)*b+span)
	outer := (n == 1 || a >= span) && (m == 1 || b >= (n-1)*a+span)
	return inner || outer
}

// CheckApart returns an error if keys share memory with values, or scales of keys with scales of values. Call it only
// after CheckStrides has succeeded.
func (c *Cache) CheckApart() error {
	if c.Latent != 0 {
		return nil // values are parts of keys
	}
	heads, span := c.NumKVHeads, c.headSpan()
	if c.Layout == LayoutFlash { // treat the heads of a block as one piece
		heads, span = 1, span+(heads-1)*c.HeadStride
	}
	if c.overlapping(c.Key, c.Value, c.BlockStride, c.HeadStride, heads, span) {
		return badArgument("%w: keys and values share memory", ErrOverlap)
	}
	if c.DType == Int8 && c.overlapping(c.KeyScales, c.ValueScales, c.ScaleBlockStride, c.ScaleHeadStride, c.NumKVHeads,
		4*c.BlockSize) {
		return badArgument("%w: scales of keys and of values share memory", ErrOverlap)
	}
	return nil
}

// overlapping reports whether keys and values, or the scales of keys and of values, share memory. In both a and b,
// block i and head j have a piece of span bytes at the offset
//
//	i·block + j·head
//
// A piece of a and a piece of b overlap if they begin less than span bytes apart. How far apart they begin depends only
// on the difference of their heads and the difference of their blocks. If keys and values do not alternate head by
// head, overlapping tries every difference of heads. For each of them, it computes the difference of blocks for which
// the pieces would begin at the same address. If this is not an integer, the integers below and above it give the
// closest pieces. overlapping checks no others.
func (c *Cache) overlapping(a, b []byte, block, head, heads, span int) bool {
	distance := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&a[0])))
	if distance >= span && distance+span <= head && block >= heads*head {
		return false // keys and values alternate, head by head, as in LayoutTile
	}
	for h := 1 - heads; h < heads; h++ {
		separation := distance + h*head
		if c.NumBlocks > 1 {
			blocks := min(max(separation/block, 1-c.NumBlocks), c.NumBlocks-1)
			separation -= blocks * block
			if n := block - max(separation, -separation); n > 0 && n < span && max(blocks, -blocks) < c.NumBlocks-1 {
				separation = n
			}
		}
		if separation < span && separation > -span {
			return true
		}
	}
	return false
}

// Factors returns the numbers by which stored keys and stored values are multiplied: KeyScale and ValueScale, or 1. For
// latent values, both are KeyScale.
func (c *Cache) Factors() (key, value float32) {
	key, value = c.KeyScale, c.ValueScale
	if c.Latent > 0 {
		value = key
	}
	if key == 0 || c.DType == Int8 {
		key = 1
	}
	if value == 0 || c.DType == Int8 {
		value = 1
	}
	return key, value
}

func (c *Cache) parts() [4][]byte { return [...][]byte{c.Key, c.Value, c.KeyScales, c.ValueScales} }

// Overlaps reports whether t shares memory with the blocks.
func (c *Cache) Overlaps(t *Tensor) bool { return c.overlaps(t.Data) }

// OverlapsBlocks reports whether the blocks share memory with the blocks of another cache.
func (c *Cache) OverlapsBlocks(other *Cache) bool {
	for _, part := range other.parts() {
		if c.overlaps(part) {
			return true
		}
	}
	return false
}

func (c *Cache) overlaps(data []byte) bool {
	for _, part := range c.parts() {
		if overlap(data, part) {
			return true
		}
	}
	return false
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	startA, startB := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return startA < startB+uintptr(len(b)) && startB < startA+uintptr(len(a))
}
