package v0

import (
	"fmt"
	"math"
)

// A Model is what the size of a block depends on. KVHeads are those of one
// worker: with tensor parallelism each holds its part.
type Model struct {
	Layers, KVHeads, HeadSize int
	ElemBytes                 int // of a key or value: 2 for fp16, 1 for fp8
}

// BlockBytes is the size of a block of so many tokens over all layers, keys and
// values (§7).
func (m Model) BlockBytes(tokens int) int64 {
	return 2 * int64(m.Layers) * m.elements(tokens) * int64(m.ElemBytes)
}

// elements of the keys of a block in one layer.
func (m Model) elements(tokens int) int64 {
	return int64(tokens) * int64(m.KVHeads) * int64(m.HeadSize)
}

// Memory is what a profiling run found on a GPU, in bytes.
type Memory struct {
	Total       int64
	Utilization float64 // part of Total that may be used; vLLM's default is 0.9
	TorchPeak   int64
	NonTorch    int64 // counts if it is above 0
	Swap        int64 // of the CPU; vLLM's default is 4 GiB
	Pipeline    int   // stages that share the blocks; 0 means 1
}

// Blocks is how many blocks fit, on the GPU and on the CPU; 0 if none does (§7).
func (m Memory) Blocks(blockBytes int64) (gpu, cpu int) {
	stages := max(1, m.Pipeline)
	peak := m.TorchPeak + max(0, m.NonTorch)
	left := float64(m.Total)*m.Utilization - float64(peak)
	gpu = max(0, int(math.Floor(left/float64(blockBytes))))
	cpu = max(0, int(m.Swap/blockBytes))
	return gpu / stages, cpu / stages
}

// A Layout is where an element is in the cache of one layer and device, whose
// shape is (2, blocks, tokens × heads × head size): keys first, then values.
type Layout struct {
	Model
	Blocks, Tokens int // on the device; in a block
}

// NewLayout checks that vectors of 16 bytes divide the heads.
func NewLayout(m Model, blocks, tokens int) (Layout, error) {
	if m.ElemBytes < 1 || 16%m.ElemBytes != 0 || m.HeadSize%(16/m.ElemBytes) != 0 {
		return Layout{}, fmt.Errorf("%w: heads of %d elements of %d bytes are no whole vectors of 16 bytes", ErrConfig, m.HeadSize, m.ElemBytes)
	}
	return Layout{m, blocks, tokens}, nil
}

// Elements is the length of the tensor.
func (l Layout) Elements() int64 { return 2 * int64(l.Blocks) * l.elements(l.Tokens) }

// Key is the index of an element of a key: [block][head][size/x][token][x] with
// vectors of x elements, which are 16 bytes (§7).
func (l Layout) Key(block, head, token, element int) int64 {
	x := 16 / l.ElemBytes
	at := int64(block)*int64(l.KVHeads) + int64(head)
	at = at*int64(l.HeadSize/x) + int64(element/x)
	at = at*int64(l.Tokens) + int64(token)
	return at*int64(x) + int64(element%x)
}

// Value is the index of an element of a value: [block][head][size][token].
func (l Layout) Value(block, head, token, element int) int64 {
	at := int64(block)*int64(l.KVHeads) + int64(head)
	at = at*int64(l.HeadSize) + int64(element)
	return l.Elements()/2 + at*int64(l.Tokens) + int64(token)
}

// BlockElements is the range of a block in the keys, and, moved by half the
// tensor, in the values: what a swap or a copy of a block moves in each layer.
func (l Layout) BlockElements(block int) (start, end int64) {
	n := l.elements(l.Tokens)
	return int64(block) * n, (int64(block) + 1) * n
}
