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
	"slices"

	"llmmemory/internal/vllm/v1/kvcache"
)

// ErrLayers is wrapped by every complaint about layers.
var ErrLayers = errors.New("no plan for these layers")

// A Layer is what one layer keeps. BlockSize is in tokens.
type Layer struct {
	kvcache.Group

	KVHeads      int
	HeadSize     int  // numbers of a head
	ElementBytes int  // of a number
	KeysOnly     bool // keys and values are the same numbers (MLA)
	StateBytes   int  // Mamba: of a state, in place of the four above

	// Strided says that the layer's kernel finds a block by a stride, so that its
	// page can be padded (vLLM's indexes_kv_by_block_stride).
	Strided bool
}

// PageBytes is what a block of the layer takes.
func (l *Layer) PageBytes() int {
	if l.Kind == kvcache.Mamba {
		return l.StateBytes
	}
	n := l.BlockSize * l.KVHeads * l.HeadSize * l.ElementBytes
	if l.KeysOnly {
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

// A Group is layers with a block table of their own.
type Group struct {
	kvcache.Group
	Layers []int
}

// A Tensor is memory that one layer of each group shares: layers of different
// groups use different blocks of it.
type Tensor struct {
	Bytes  int
	Layers []int
}

// Make plans for the given bytes. blocks above 0 is the number of blocks to
// use instead (vLLM's num_gpu_blocks_override).
func Make(layers []Layer, bytes, blocks int) (*Plan, error) {
	all := make([]int, len(layers))
	for i := range all {
		all[i] = i
	}
	plans, err := MakeForWorkers(layers, []Worker{{bytes, all}}, blocks)
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

func check(layers []Layer) error {
	for i := range layers {
		l := &layers[i]
		mamba := l.Kind == kvcache.Mamba
		switch {
		case mamba && l.StateBytes < 1:
			return fmt.Errorf("%w: layer %d has states of %d bytes", ErrLayers, i, l.StateBytes)
		case !mamba && (l.KVHeads < 1 || l.HeadSize < 1 || l.ElementBytes < 1):
			return fmt.Errorf("%w: layer %d has %d heads of %d numbers of %d bytes", ErrLayers, i, l.KVHeads, l.HeadSize, l.ElementBytes)
		}
		if err := l.Group.Check(); err != nil {
			return fmt.Errorf("%w: layer %d: %w", ErrLayers, i, err)
		}
	}
	return nil
}

// oneType reports whether all layers need the same slots, so that one block table
// does for all (UniformTypeKVCacheSpecs).
func oneType(layers []Layer) bool {
	for i := range layers {
		if layers[i].Group != layers[0].Group {
			return false
		}
	}
	return true
}

// unifyPages makes the pages of all layers as large as the largest: by more tokens
// in a block, or by padding.
func unifyPages(layers []Layer) (int, []Layer, error) {
	largest := 0
	for i := range layers {
		largest = max(largest, layers[i].PageBytes())
	}
	layers = slices.Clone(layers)
	for i := range layers {
		l := &layers[i]
		page := l.PageBytes()
		switch {
		case l.Kind == kvcache.Mamba:
			l.StateBytes = largest
		case largest%page == 0:
			l.BlockSize *= largest / page
		case !l.Strided:
			return 0, nil, fmt.Errorf("%w: a block of layer %d takes %d bytes, which do not divide the %d of the largest, and cannot be padded", ErrLayers, i, page, largest)
		}
	}
	return largest, layers, nil
}

// split makes groups of equal layers, all of the same number of layers but for
// padding: that of the kind with the fewest, or that with the most if it is
// less than half as many again.
func split(layers []Layer) []Group {
	var kinds []Group
	for i := range layers {
		at := slices.IndexFunc(kinds, func(g Group) bool { return g.Group == layers[i].Group && layers[g.Layers[0]] == layers[i] })
		if at < 0 {
			kinds = append(kinds, Group{Group: layers[i].Group})
			at = len(kinds) - 1
		}
		kinds[at].Layers = append(kinds[at].Layers, i)
	}
	fewest, most := len(layers), 0
	for _, k := range kinds {
		fewest, most = min(fewest, len(k.Layers)), max(most, len(k.Layers))
	}
	size := fewest
	if 2*most < 3*fewest {
		size = most
	}
	var groups []Group
	for _, k := range kinds {
		n := (len(k.Layers) + size - 1) / size
		for first := range n { // every n-th layer, so that stages of a pipeline get some of each
			g := Group{Group: k.Group}
			for at := first; at < len(k.Layers); at += n {
				g.Layers = append(g.Layers, k.Layers[at])
			}
			groups = append(groups, g)
		}
	}
	return groups
}

func orElse(v, otherwise int) int {
	if v > 0 {
		return v
	}
	return otherwise
}
