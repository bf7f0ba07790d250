// Package memplan divides the memory for keys and values among the layers of a
// model, as vLLM's get_kv_cache_configs does
// (vllm/v1/core/kv_cache_utils.py): from bytes to blocks, groups of layers and
// tensors (RULES.md §18).
//
// What is done with the blocks is kvcache's business.
package memplan

import (
	"errors"
	"fmt"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// ErrLayers is wrapped by every error about layers.
var ErrLayers = errors.New("no plan for these layers")

// maxBlockSize is the most tokens of a block that a plan has made larger. (vLLM has no bound.)
const maxBlockSize = 1 << 16

// A Layer is what one layer keeps. BlockSize is in tokens.
type Layer struct {
	kvcache.Group

	KVHeads      int
	HeadSize     int  // numbers of a head
	ElementBytes int  // of a number
	KeysOnly     bool // keys and values are the same numbers (MLA)
	StateBytes   int  // Mamba: of a state, in place of the four above

	// Page above 0 is what a block takes, in place of what the product of the
	// four says: more if it is padded (vLLM's page_size_padded, alignment), less
	// or more if tokens are compressed or quantized (compress_ratio,
	// state_content_bytes).
	Page int

	// Strided says that the layer's kernel finds a block by a stride, so that its
	// page can be padded (vLLM's indexes_kv_by_block_stride).
	Strided bool

	// Hidden says that the layer keeps hidden states, one vector a token, and no
	// keys and values (vLLM's HiddenStateCacheSpec). Its kind is full attention.
	Hidden bool
}

// pageBytes is what a block of the layer takes.
func (l *Layer) pageBytes() int {
	switch {
	case l.Kind == kvcache.Mamba:
		return l.StateBytes
	case l.Page > 0:
		return l.Page
	}
	return l.content()
}

// content returns the bytes of the keys and values of a block, without padding.
func (l *Layer) content() int {
	n := l.BlockSize * l.KVHeads * l.HeadSize * l.ElementBytes
	if l.KeysOnly || l.Hidden {
		return n
	}
	return 2 * n
}

// A Plan is how the memory is divided. Layers are numbers of the list given.
type Plan struct {
	NumGPUBlocks int // the null block included
	Groups       []Group
	Tensors      []Tensor
}

// A Group is layers that share a block table.
type Group struct {
	kvcache.Group
	Layers []int
}

// A Tensor is memory that one layer of each group shares: layers of different
// groups use different blocks of it.
//
// In a packed plan all tensors are views of the same Bytes: block b of a tensor begins
// at b x Stride + Offset.
type Tensor struct {
	Bytes  int
	Layers []int
	Offset int
	Stride int // from one block to the next; 0: not packed
}

// Options change a plan.
type Options struct {
	Blocks int // above 0: the number of blocks to use, whatever the bytes (vLLM's num_gpu_blocks_override)

	// CrossLayers puts the blocks of all layers of a group side by side, so that a
	// connector moves one piece a block (vLLM's enable_cross_layers_blocks). It has no effect
	// on a plan of one group.
	CrossLayers bool

	// FullAllocation keeps all tokens of windows and chunks, so that all layers
	// share a block table (vLLM's disable_hybrid_kv_cache_manager).
	FullAllocation bool
}

func check(layers []Layer) error {
	for i := range layers {
		l := &layers[i]
		mamba := l.Kind == kvcache.Mamba
		switch {
		case mamba && l.StateBytes < 1:
			return fmt.Errorf("%w: layer %d has states of %d bytes", ErrLayers, i, l.StateBytes)
		case l.Page < 0 || mamba && l.Page > 0:
			return fmt.Errorf("%w: layer %d, of kind %d, has a page of %d bytes", ErrLayers, i, l.Kind, l.Page)
		case l.Hidden && (l.Kind != kvcache.Full || l.Eagle || l.Page > 0):
			return fmt.Errorf("%w: layer %d keeps hidden states: want kind %d (full attention), no page and no drafts", ErrLayers, i, kvcache.Full)
		case !mamba && l.Page == 0 && (l.KVHeads < 1 || l.HeadSize < 1 || l.ElementBytes < 1):
			return fmt.Errorf("%w: layer %d has %d heads of %d numbers of %d bytes", ErrLayers, i, l.KVHeads, l.HeadSize, l.ElementBytes)
		}
		if err := l.Group.Check(); err != nil {
			return fmt.Errorf("%w: layer %d: %w", ErrLayers, i, err)
		}
	}
	return nil
}
