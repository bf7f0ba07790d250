// Package memplan divides the memory for keys and values among the layers of a model, as vLLM's get_kv_cache_configs
// does (vllm/v1/core/kv_cache_utils.py). From a number of bytes it computes a number of blocks, groups of layers, and
// tensors (RULES.md §18).
//
// Package kvcache then assigns the blocks to requests.
package memplan

import (
	"errors"
	"fmt"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// ErrLayers is wrapped by every error about layers.
var ErrLayers = errors.New("no plan for these layers")

// maxBlockSize is the largest number of tokens to which a plan may enlarge a block. (vLLM has no limit.)
const maxBlockSize = 1 << 16

// A Layer describes what one layer stores. BlockSize is in tokens.
type Layer struct {
	kvcache.Group

	KVHeads      int
	HeadSize     int  // numbers in a head
	ElementBytes int  // bytes of a number
	KeysOnly     bool // keys and values are the same numbers (MLA)
	StateBytes   int  // Mamba: bytes of a state; Mamba does not use the four fields above

	// Page is the number of bytes of a block. For Mamba it is 0, and a block has StateBytes. For other kinds, if Page
	// is 0, a block has the bytes of its keys:
	//
	//	BlockSize × KVHeads × HeadSize × ElementBytes
	//
	// The values take as many bytes again, unless KeysOnly or Hidden is true. A Page with padding is larger (vLLM's
	// page_size_padded, alignment). If tokens are compressed or quantized, Page can be smaller or larger
	// (compress_ratio, state_content_bytes).
	Page int

	// Strided means that the layer's kernel finds a block by a stride. The page of such a layer can be padded (vLLM's
	// indexes_kv_by_block_stride).
	Strided bool

	// Hidden means that the layer stores hidden states, one vector for each token, and no keys and values (vLLM's
	// HiddenStateCacheSpec). Its kind is full attention.
	Hidden bool
}

func (l *Layer) pageBytes() int {
	switch {
	case l.Kind == kvcache.Mamba:
		return l.StateBytes
	case l.Page > 0:
		return l.Page
	}
	return l.content()
}

// content returns the bytes of a block without padding.
func (l *Layer) content() int {
	n := l.BlockSize * l.KVHeads * l.HeadSize * l.ElementBytes
	if l.KeysOnly || l.Hidden {
		return n
	}
	return 2 * n
}

// A Plan says how the memory is divided. Layers are named by their index in the layers passed to Make.
type Plan struct {
	NumGPUBlocks int // including the null block
	Groups       []Group
	Tensors      []Tensor
}

// A Group has the layers that share a block table.
type Group struct {
	kvcache.Group
	Layers []int
}

// A Tensor is memory for at most one layer of each group. Layers of different groups use different blocks of the
// tensor.
//
// In a packed plan all tensors are views of the same memory, whose size is Bytes: block b of a tensor begins at b x
// Stride + Offset.
type Tensor struct {
	Bytes  int
	Layers []int
	Offset int
	Stride int // bytes from one block to the next; 0 if the plan is not packed
}

// Options change a plan.
type Options struct {
	Blocks int // if above 0, the number of blocks, whatever the bytes allow (vLLM's num_gpu_blocks_override)

	// CrossLayers puts the blocks of all layers of a group next to each other, so that a connector moves one range of
	// memory for each block (vLLM's enable_cross_layers_blocks). It has no effect if there is only one group.
	CrossLayers bool

	// FullAllocation keeps all tokens of layers with windows and chunks, so that all layers can share a block table
	// (vLLM's disable_hybrid_kv_cache_manager).
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
