package kvstore

import (
	"fmt"
	"unsafe"

	"llmmemory/internal/attention"
	"llmmemory/internal/parallel"
)

// Tokens are keys and values to be written.
type Tokens struct {
	Key, Value attention.Tensor // [tokens, KV heads, head size]
	Slots      []int64          // of each token: block × block size + place; -1: it is not written
	Rotation   *Rotation        // of the keys before they are written; nil: none
}

// A Rotation is rotary position embedding.
type Rotation struct {
	Positions []int32 // of each token

	// Cos and Sin are [positions][Size/2], as in vLLM's cos_sin_cache.
	Cos, Sin []float32
	Size     int // elements of a head that are rotated: even, at most the head size

	// Interleaved pairs elements 2i and 2i+1 (GPT-J); otherwise i and i+Size/2
	// are a pair (GPT-NeoX, Llama).
	Interleaved bool
}

// A Writer writes keys and values into caches, by the workers of a pool. It is
// for one goroutine at a time.
type Writer struct {
	pool    *parallel.Pool
	workers []scratch

	cache  *attention.Cache
	tokens *Tokens
	parts  int  // of the heads
	past   bool // written past the processor's caches
}

// large is a size in bytes above that of the caches of a core. Keys and values of that size or
// more are written past the processor's caches, which saves reading the memory first.
const large = 4 << 20

// A scratch is memory of a worker for 16 keys or values, twice.
type scratch struct {
	rows, turned [attention.TileTokens * attention.MaxHeadSize]float32
}

// NewWriter makes a Writer on a pool.
func NewWriter(pool *parallel.Pool) *Writer {
	return &Writer{pool: pool, workers: make([]scratch, pool.Size())}
}

// Write writes each token's key and value into its slot (vLLM's
// reshape_and_cache). If tokens have the same slot, it keeps the last one. Keys are
// rotated first, then divided by their scale and rounded. The error wraps
// attention.ErrArgument; nothing has been written then.
func (w *Writer) Write(c *attention.Cache, t *Tokens) error {
	if err := t.check(c); err != nil {
		return err
	}
	w.cache, w.tokens = c, t
	w.parts = min(c.NumKVHeads, w.pool.Size())
	w.past = 2*len(t.Slots)*c.NumKVHeads*c.HeadSize*c.DType.Size() >= large
	w.pool.Run(w.parts, w)
	w.cache, w.tokens = nil, nil
	return nil
}

func (t *Tokens) check(c *attention.Cache) error {
	if err := c.Check(); err != nil {
		return err
	}
	n, width := len(t.Slots), c.NumKVHeads*c.HeadSize
	if err := t.Key.Check("keys", n, width); err != nil {
		return err
	}
	if err := t.Value.Check("values", n, width); err != nil {
		return err
	}
	if c.Overlaps(&t.Key) || c.Overlaps(&t.Value) {
		return fmt.Errorf("%w: %w: keys or values to be written overlap with the blocks", attention.ErrArgument,
			attention.ErrOverlap)
	}
	if err := checkSlots(t.Slots, int64(c.NumBlocks)*int64(c.BlockSize)); err != nil {
		return err
	}
	return t.Rotation.check(n, c.HeadSize)
}

func (r *Rotation) check(tokens, headSize int) error {
	if r == nil {
		return nil
	}
	switch {
	case r.Size < 2 || r.Size%2 != 0 || r.Size > headSize:
		return fmt.Errorf("%w: a rotation of %d elements; even numbers from 2 to %d are possible", attention.ErrArgument,
			r.Size, headSize)
	case len(r.Positions) != tokens:
		return fmt.Errorf("%w: %d positions for %d tokens", attention.ErrArgument, len(r.Positions), tokens)
	}
	known := min(len(r.Cos), len(r.Sin)) / (r.Size / 2)
	for i, p := range r.Positions {
		if p < 0 || int(p) >= known {
			return fmt.Errorf("%w: token %d is at position %d; there are cosines and sines of %d positions",
				attention.ErrArgument, i, p, known)
		}
	}
	return nil
}

// Do writes all tokens of some heads; see parallel.Task. A head is written by one
// worker, so tokens with the same slot are written in order.
func (w *Writer) Do(worker, part int) {
	x, slots, heads := &w.workers[worker], w.tokens.Slots, w.cache.NumKVHeads
	h0, h1 := heads*part/w.parts, heads*(part+1)/w.parts
	for i := 0; i < len(slots); {
		if w.cache.Tiled() && wholeTile(slots[i:]) {
			for head := h0; head < h1; head++ {
				w.putTile(x, head, i)
			}
			i += attention.TileTokens
			continue
		}
		for head := h0; head < h1 && slots[i] >= 0; head++ {
			w.put(x, head, i)
		}
		i++
	}
}

// wholeTile reports whether the next tokens fill a tile.
func wholeTile(slots []int64) bool {
	const n = attention.TileTokens
	if len(slots) < n || slots[0] < 0 || slots[0]%n != 0 {
		return false
	}
	for i, slot := range slots[:n] {
		if slot != slots[0]+int64(i) {
			return false
		}
	}
	return true
}

// place is the block of a slot, and its place in the block.
func (w *Writer) place(slot int64) (block, place int) {
	return int(slot) / w.cache.BlockSize, int(slot) % w.cache.BlockSize
}

// putTile writes 16 tokens from token i on, which fill a tile.
func (w *Writer) putTile(s *scratch, head, i int) {
	c, t := w.cache, w.tokens
	block, place := w.place(t.Slots[i])
	if t.Rotation == nil && asIs(c, &t.Key, c.KeyScale) {
		c.CopyKeys(block, head, place, &t.Key, i, w.past)
	} else {
		w.convertKeys(s, head, i, block, place)
	}
	if asIs(c, &t.Value, c.ValueScale) {
		c.CopyValues(block, head, place, &t.Value, i, w.past)
		return
	}
	for j := range attention.TileTokens {
		w.putValue(s, head, i+j, block, place+j)
	}
}

// asIs reports whether numbers are stored unchanged.
func asIs(c *attention.Cache, t *attention.Tensor, scale float32) bool {
	return t.DType == c.DType && (scale == 0 || scale == 1)
}

// convertKeys writes keys of 16 tokens that are rotated, scaled or of another type.
func (w *Writer) convertKeys(s *scratch, head, i, block, place int) {
	c, size := w.cache, w.cache.HeadSize
	for j := range attention.TileTokens {
		x := s.rows[j*size:][:size]
		w.loadKey(x, head, i+j)
		w.divide(x, c.KeyScale, c.KeyScales, block, head, place+j)
	}
	c.StoreTile(block, head, place, s.rows[:attention.TileTokens*size], s.turned[:attention.TileTokens*size])
}

// put writes token i.
func (w *Writer) put(s *scratch, head, i int) {
	block, place := w.place(w.tokens.Slots[i])
	w.putKey(s, head, i, block, place)
	w.putValue(s, head, i, block, place)
}

// putKey writes the key of token i.
func (w *Writer) putKey(s *scratch, head, i, block, place int) {
	c, t := w.cache, w.tokens
	size := c.DType.Size()
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&s.turned)), c.HeadSize*size)
	if t.Rotation == nil && asIs(c, &t.Key, c.KeyScale) {
		bytes = unsafe.Slice((*byte)(t.Key.At(i, head*c.HeadSize)), c.HeadSize*size)
	} else {
		x := s.rows[:c.HeadSize]
		w.loadKey(x, head, i)
		w.divide(x, c.KeyScale, c.KeyScales, block, head, place)
		c.DType.StoreAll(unsafe.Pointer(&bytes[0]), x)
	}
	if c.Layout == attention.LayoutFlash {
		copy(c.Key[c.KeyOffset(block, head, place, 0):], bytes)
		return
	}
	if c.Layout == attention.LayoutTile {
		at := c.KeyOffset(block, head, place, 0)
		spread(c.Key[at:], c.KeyOffset(block, head, place, 1)-at, bytes, size)
		return
	}
	for j := range c.HeadSize {
		copyElement(c.Key[c.KeyOffset(block, head, place, j):], bytes[j*size:], size)
	}
}

// spread copies elements to places that are step bytes apart.
func spread(to []byte, step int, from []byte, size int) {
	for j, at := 0, 0; j < len(from); j, at = j+size, at+step {
		copyElement(to[at:], from[j:], size)
	}
}

// copyElement copies 1, 2 or 4 bytes.
func copyElement(to, from []byte, size int) {
	switch size {
	case 4:
		*(*[4]byte)(to) = *(*[4]byte)(from)
	case 2:
		*(*[2]byte)(to) = *(*[2]byte)(from)
	default:
		to[0] = from[0]
	}
}

// loadKey reads the key of token i and rotates it.
func (w *Writer) loadKey(x []float32, head, i int) {
	w.tokens.Key.Load(x, i, head*len(x))
	if w.tokens.Rotation != nil {
		w.tokens.Rotation.apply(x, i)
	}
}

// putValue writes the value of token i.
func (w *Writer) putValue(s *scratch, head, i, block, place int) {
	c, v := w.cache, &w.tokens.Value
	size := c.DType.Size()
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&s.turned)), c.HeadSize*size)
	if asIs(c, v, c.ValueScale) {
		bytes = unsafe.Slice((*byte)(v.At(i, head*c.HeadSize)), c.HeadSize*size)
	} else {
		x := s.rows[:c.HeadSize]
		v.Load(x, i, head*c.HeadSize)
		w.divide(x, c.ValueScale, c.ValueScales, block, head, place)
		c.DType.StoreAll(unsafe.Pointer(&bytes[0]), x)
	}
	if c.Layout != attention.LayoutVLLM {
		copy(c.Value[c.ValueOffset(block, head, place, 0):], bytes)
		return
	}
	for j := range c.HeadSize {
		copyElement(c.Value[c.ValueOffset(block, head, place, j):], bytes[j*size:], size)
	}
}

// divide divides the numbers of a head by their scale, and stores the scale with Int8.
func (w *Writer) divide(x []float32, factor float32, scales []byte, block, head, place int) {
	scale := storedScale(w.cache, x, factor, scales, block, head, place)
	if scale == 1 {
		return
	}
	for j := range x {
		x[j] *= scale
	}
}

// storedScale returns the factor by which the numbers of a head are multiplied before they are
// stored. With Int8 it is computed from the largest of them, and its inverse is stored. If all
// are below 2^-120, where it would be infinite, they become 0.
func storedScale(c *attention.Cache, x []float32, factor float32, scales []byte, block, head, place int) float32 {
	if c.DType != attention.Int8 {
		if factor == 0 {
			return 1
		}
		return 1 / factor
	}
	largest := float32(0)
	for _, v := range x {
		if v < 0 {
			v = -v
		}
		if v > largest || v != v {
			largest = v
		}
	}
	c.Scales(scales, block, head)[place] = largest / 127
	if largest < 0x1p-120 {
		return 0
	}
	return 127 / largest
}

// apply rotates a key.
func (r *Rotation) apply(x []float32, token int) {
	half := r.Size / 2
	at := int(r.Positions[token]) * half
	cos, sin := r.Cos[at:at+half], r.Sin[at:at+half]
	for i := range half {
		a, b := i, i+half
		if r.Interleaved {
			a, b = 2*i, 2*i+1
		}
		x[a], x[b] = x[a]*cos[i]-x[b]*sin[i], x[b]*cos[i]+x[a]*sin[i]
	}
}
