package kvstore

import (
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/parallel"
)

// Tokens are keys and values to write.
type Tokens struct {
	Key, Value attention.Tensor // [tokens, KV heads, head size]; Value is ignored if values are latent
	Slots      []int64          // for each token, block × block size + offset in the block, or -1 to skip it
	Rotation   *Rotation        // applied to the keys before they are written, unless nil
}

// A Rotation is rotary position embedding.
type Rotation struct {
	Positions []int32 // of each token

	// Cos and Sin are [positions][Size/2], as in vLLM's cos_sin_cache.
	Cos, Sin []float32
	Size     int // rotated elements of a head: even, at most the head size

	// Interleaved says which two elements of a head are rotated together: if true, 2i and 2i+1 (GPT-J); if false, i and
	// i + Size/2 (GPT-NeoX, Llama).
	Interleaved bool
}

// A Writer writes keys and values into caches, on the workers of a pool. One goroutine may use it at a time.
type Writer struct {
	pool    *parallel.Pool
	workers []scratch

	cache      *attention.Cache
	slots      []int64
	key, value side
	keysOnly   bool // values are parts of keys
	parts      int  // tasks into which the heads are divided
	bypass     bool // bypass the processor's caches
}

// A side holds the arguments of Write for keys, or those for values.
type side struct {
	tensor     *attention.Tensor
	values     bool
	data       []byte    // of the cache
	scales     []byte    // of the cache, with Int8
	factor     float32   // by which stored numbers are multiplied when read; 0 means 1
	rotation   *Rotation // of keys, or nil
	asIs       bool      // numbers are stored unchanged
	contiguous int       // elements
}

// bypassBytes is the number of bytes of a Write from which on tiles that are stored unchanged may bypass the
// processor's caches. The processor then does not read the memory before it writes.
const bypassBytes = 4 << 20

// A scratch is the memory in which a worker transposes and converts 16 keys or values.
type scratch struct {
	rows, turned [attention.TileTokens * attention.MaxHeadSize]float32
}

// NewWriter returns a Writer that writes on pool.
func NewWriter(pool *parallel.Pool) *Writer {
	return &Writer{pool: pool, workers: make([]scratch, pool.Size())}
}

// Write writes each token's key and value into its slot (vLLM's reshape_and_cache). If several tokens have
// the same slot, the slot keeps the last one. A key is rotated first. Then the numbers are divided by the
// scale and rounded. If Write returns an error, it has written nothing. The error wraps
// attention.ErrArgument.
func (w *Writer) Write(c *attention.Cache, t *Tokens) error {
	if err := t.check(c); err != nil {
		return err
	}
	w.cache, w.slots = c, t.Slots
	w.key = side{tensor: &t.Key, data: c.Key, scales: c.KeyScales, factor: c.KeyScale, rotation: t.Rotation}
	w.value = side{tensor: &t.Value, data: c.Value, scales: c.ValueScales, factor: c.ValueScale, values: true}
	sides := []*side{&w.key, &w.value}
	if w.keysOnly = c.Latent > 0; w.keysOnly {
		sides = sides[:1]
	}
	for _, x := range sides {
		x.asIs = x.rotation == nil && x.tensor.DType == c.DType && (x.factor == 0 || x.factor == 1)
		x.contiguous = c.HeadSize
		switch {
		case c.Layout == attention.LayoutVLLM && !x.values:
			x.contiguous = 16 / c.DType.Size()
		case c.Layout == attention.LayoutVLLM || c.Layout == attention.LayoutTile && !x.values:
			x.contiguous = 1
		}
	}
	w.parts = min(c.NumKVHeads, w.pool.Size())
	w.bypass = 2*len(t.Slots)*c.NumKVHeads*c.HeadSize*c.DType.Size() >= bypassBytes
	w.pool.Run(w.parts, w)
	w.cache, w.slots, w.key, w.value = nil, nil, side{}, side{}
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
	if c.Latent == 0 {
		if err := t.Value.Check("values", n, width); err != nil {
			return err
		}
	}
	if c.Overlaps(&t.Key) || c.Latent == 0 && c.Overlaps(&t.Value) {
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

// Do writes all tokens of some heads, as a parallel.Task. Only one task writes a head, so tokens with the same slot
// are written in order.
func (w *Writer) Do(worker, part int) {
	s, heads := &w.workers[worker], w.cache.NumKVHeads
	h0, h1 := heads*part/w.parts, heads*(part+1)/w.parts
	for i := 0; i < len(w.slots); {
		n := 1
		if w.cache.Tiled() && wholeTile(w.slots[i:]) {
			n = attention.TileTokens
		}
		block, offset := int(w.slots[i])/w.cache.BlockSize, int(w.slots[i])%w.cache.BlockSize
		for head := h0; head < h1 && w.slots[i] >= 0; head++ {
			if n == 1 {
				w.put(s, &w.key, head, i, block, offset)
				if !w.keysOnly {
					w.put(s, &w.value, head, i, block, offset)
				}
			} else {
				w.putTile(s, head, i, block, offset)
			}
		}
		i += n
	}
}

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

func (w *Writer) putTile(s *scratch, head, i, block, offset int) {
	const n = attention.TileTokens
	c, size := w.cache, w.cache.HeadSize
	if w.key.asIs {
		c.CopyKeys(block, head, offset, w.key.tensor, i, w.bypass)
	} else {
		for j := range n {
			w.load(s.rows[j*size:][:size], &w.key, head, i+j, block, offset+j)
		}
		c.StoreTile(block, head, offset, s.rows[:n*size], s.turned[:n*size])
	}
	if w.value.asIs {
		c.CopyValues(block, head, offset, w.value.tensor, i, w.bypass)
		return
	}
	for j := range n {
		w.put(s, &w.value, head, i+j, block, offset+j)
	}
}

// put writes the key or value of token i.
func (w *Writer) put(s *scratch, x *side, head, i, block, offset int) {
	c, size := w.cache, w.cache.DType.Size()
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&s.turned)), c.HeadSize*size)
	if x.asIs {
		bytes = unsafe.Slice((*byte)(x.tensor.At(i, head*c.HeadSize)), c.HeadSize*size)
	} else {
		row := s.rows[:c.HeadSize]
		w.load(row, x, head, i, block, offset)
		c.DType.StoreAll(unsafe.Pointer(&bytes[0]), row)
	}
	start := w.elementOffset(x, block, head, offset, 0)
	if x.contiguous == c.HeadSize {
		copy(x.data[start:], bytes)
		return
	}
	spread(x.data[start:], w.elementOffset(x, block, head, offset, x.contiguous)-start, bytes, x.contiguous*size)
}

// elementOffset returns the offset of an element in the memory of keys or values.
func (w *Writer) elementOffset(x *side, block, head, offset, element int) int {
	if x.values {
		return w.cache.ValueOffset(block, head, offset, element)
	}
	return w.cache.KeyOffset(block, head, offset, element)
}

// spread copies a piece of 16, 4, 2 or 1 bytes to each of several addresses. The addresses are step bytes apart.
func spread(dst []byte, step int, src []byte, size int) {
	for j, i := 0, 0; j < len(src); j, i = j+size, i+step {
		switch size {
		case 16:
			*(*[16]byte)(dst[i:]) = *(*[16]byte)(src[j:])
		case 4:
			*(*[4]byte)(dst[i:]) = *(*[4]byte)(src[j:])
		case 2:
			*(*[2]byte)(dst[i:]) = *(*[2]byte)(src[j:])
		default:
			dst[i] = src[j]
		}
	}
}

// load reads the key or value of token i, rotates it, and divides it by its scale. With Int8 it also stores the
// scale.
func (w *Writer) load(row []float32, x *side, head, i, block, offset int) {
	x.tensor.Load(row, i, head*len(row))
	if x.rotation != nil {
		x.rotation.apply(row, i)
	}
	scale := storedScale(w.cache, row, x.factor, x.scales, block, head, offset)
	if scale == 1 {
		return
	}
	for j := range row {
		row[j] *= scale
	}
}

// storedScale returns the factor by which the numbers x of a head are multiplied before they are stored. With Int8, it
// computes the factor, 127 divided by the largest magnitude in x, and stores the largest magnitude divided by 127 as
// the scale. If all magnitudes are below 2^-120, the factor might be infinite in float32, and storedScale returns 0
// instead.
func storedScale(c *attention.Cache, x []float32, factor float32, scales []byte, block, head, offset int) float32 {
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
	c.Scales(scales, block, head)[offset] = largest / 127
	if largest < 0x1p-120 {
		return 0
	}
	return 127 / largest
}

func (r *Rotation) apply(x []float32, token int) {
	half := r.Size / 2
	start := int(r.Positions[token]) * half
	cos, sin := r.Cos[start:start+half], r.Sin[start:start+half]
	for i := range half {
		a, b := i, i+half
		if r.Interleaved {
			a, b = 2*i, 2*i+1
		}
		x[a], x[b] = x[a]*cos[i]-x[b]*sin[i], x[b]*cos[i]+x[a]*sin[i]
	}
}
