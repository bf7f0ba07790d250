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
	Rotation   *Rotation        // of the keys on their way; nil: none
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
	workers []line

	cache  *attention.Cache
	tokens *Tokens
}

// A line is scratch memory of a worker: a key or a value.
type line [attention.MaxHeadSize]float32

// NewWriter makes a Writer on a pool.
func NewWriter(pool *parallel.Pool) *Writer {
	return &Writer{pool: pool, workers: make([]line, pool.Size())}
}

// Write puts each token's key and value into its slot (vLLM's
// reshape_and_cache). Of tokens with the same slot the last one stays. Heads are
// rotated and rounded, in this order. The error wraps attention.ErrArgument or
// ErrArgument; nothing has been written then.
func (w *Writer) Write(c *attention.Cache, t *Tokens) error {
	if err := t.check(c); err != nil {
		return err
	}
	w.cache, w.tokens = c, t
	w.pool.Run(c.NumKVHeads, w)
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
		return fmt.Errorf("%w: %w: keys or values to be written overlap with the blocks", ErrArgument, attention.ErrOverlap)
	}
	slots := int64(c.NumBlocks) * int64(c.BlockSize)
	for i, slot := range t.Slots {
		if slot < -1 || slot >= slots {
			return fmt.Errorf("%w: token %d goes to slot %d; there are %d, and -1 is none", ErrArgument, i, slot, slots)
		}
	}
	return t.Rotation.check(n, c.HeadSize)
}

func (r *Rotation) check(tokens, headSize int) error {
	if r == nil {
		return nil
	}
	switch {
	case r.Size < 2 || r.Size%2 != 0 || r.Size > headSize:
		return fmt.Errorf("%w: a rotation of %d elements of heads of %d", ErrArgument, r.Size, headSize)
	case len(r.Positions) != tokens:
		return fmt.Errorf("%w: %d positions for %d tokens", ErrArgument, len(r.Positions), tokens)
	}
	known := min(len(r.Cos), len(r.Sin)) / (r.Size / 2)
	for i, p := range r.Positions {
		if p < 0 || int(p) >= known {
			return fmt.Errorf("%w: token %d is at position %d; cosines and sines end at %d", ErrArgument, i, p, known)
		}
	}
	return nil
}

// Do writes all tokens of a head; see parallel.Task.
func (w *Writer) Do(worker, head int) {
	c, t := w.cache, w.tokens
	x := w.workers[worker][:c.HeadSize]
	for i, slot := range t.Slots {
		if slot < 0 {
			continue
		}
		block, place := int(slot)/c.BlockSize, int(slot)%c.BlockSize
		t.Key.Load(x, i, head*c.HeadSize)
		if t.Rotation != nil {
			t.Rotation.apply(x, i)
		}
		scale := storedScale(c, x, c.KeyScale, c.KeyScales, block, head, place)
		for j, v := range x {
			c.DType.Store(unsafe.Pointer(&c.Key[c.KeyOffset(block, head, place, j)]), v*scale)
		}
		t.Value.Load(x, i, head*c.HeadSize)
		scale = storedScale(c, x, c.ValueScale, c.ValueScales, block, head, place)
		for j, v := range x {
			c.DType.Store(unsafe.Pointer(&c.Value[c.ValueOffset(block, head, place, j)]), v*scale)
		}
	}
}

// storedScale is what the numbers of a head are multiplied with before they are
// stored. For Int8 it is found from the largest of them, and its inverse is
// stored.
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
	if largest == 0 {
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
