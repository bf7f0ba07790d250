package memplan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// A grouping has the groups and the layers of a model. The layers have the block sizes and pages that the plan has
// chosen.
type grouping struct {
	groups []Group
	layers []Layer
	packed bool // groups have pages of different sizes (see Tensor)
}

// errPages is wrapped if the pages of layers cannot be made equally large.
var errPages = errors.New("pages cannot be made alike")

func group(layers []Layer, fullAllocation bool) (g grouping, err error) {
	if err := check(layers); err != nil || len(layers) == 0 {
		return grouping{layers: layers}, err
	}
	if fullAllocation {
		if layers, err = promote(layers); err != nil {
			return g, err
		}
	}
	switch {
	case oneType(layers):
		return grouping{groups: together(layers), layers: layers}, nil
	case packs(layers):
		groups, err := splitPacked(layers)
		return grouping{groups: groups, layers: layers, packed: true}, err
	}
	g, err = alike(layers)
	if errors.Is(err, errPages) && canPromote(layers) {
		if promoted, failed := promote(layers); failed == nil {
			return grouping{groups: together(promoted), layers: promoted}, nil
		}
	}
	return g, err
}

// alike groups the layers if their pages can be made equally large. Each layer of hidden states has its own group;
// these groups come after the others.
func alike(layers []Layer) (grouping, error) {
	var rest, hidden []int
	for i := range layers {
		if layers[i].Hidden {
			hidden = append(hidden, i)
		} else {
			rest = append(rest, i)
		}
	}
	layers = slices.Clone(layers)
	pages, err := unifyPages(layers, rest)
	if err != nil {
		return grouping{}, err
	}
	groups := split(layers, rest)
	blocks := 0 // the greatest common divisor
	for _, g := range groups {
		blocks = kvcache.GCD(blocks, g.BlockSize)
	}
	for _, i := range hidden {
		l := &layers[i]
		limit := max(pages/(l.content()/l.BlockSize), 1)
		l.BlockSize = largestDivisor(blocks, limit)
		if l.content() > pages {
			return grouping{}, fmt.Errorf("%w: a hidden state of layer %d takes %d bytes, and a block %d", ErrLayers, i, l.content(), pages)
		}
		l.Page = pages
		groups = append(groups, Group{Group: l.Group, Layers: []int{i}})
	}
	return grouping{groups: groups, layers: layers}, nil
}

func together(layers []Layer) []Group {
	all := Group{Group: layers[0].Group}
	for i := range layers {
		all.Layers = append(all.Layers, i)
		all.Eagle = all.Eagle || layers[i].Eagle
	}
	return []Group{all}
}

// oneType reports whether all layers need blocks for the same tokens, so that they can share one block table (vLLM's
// UniformTypeKVCacheSpecs).
func oneType(layers []Layer) bool {
	return !slices.ContainsFunc(layers, func(l Layer) bool { return !sameSlots(l.Group, layers[0].Group) })
}

func sameSlots(a, b kvcache.Group) bool {
	a.Eagle, b.Eagle = false, false
	return a == b
}

// unifyPages makes the pages of the layers in list as large as the largest page, and returns its size. It increases
// the number of tokens in a block, or pads the page.
func unifyPages(layers []Layer, list []int) (int, error) {
	largest := 0
	for _, i := range list {
		largest = max(largest, layers[i].pageBytes())
	}
	for _, i := range list {
		l := &layers[i]
		page := l.pageBytes()
		switch {
		case l.Kind == kvcache.Mamba:
			l.StateBytes = largest
		case largest%page == 0:
			if l.BlockSize > maxBlockSize/(largest/page) {
				return 0, fmt.Errorf("%w: a block of layer %d, of %d tokens, takes %d bytes, and the largest %d: a block as large would have more than %d tokens",
					ErrLayers, i, l.BlockSize, page, largest, maxBlockSize)
			}
			l.BlockSize *= largest / page
			l.Page *= largest / page
		case !l.Strided:
			return 0, fmt.Errorf("%w: %w: a block of layer %d takes %d bytes, which do not divide the %d of the largest, and cannot be padded",
				ErrLayers, errPages, i, page, largest)
		default:
			l.Page = largest
		}
	}
	return largest, nil
}

// split divides the layers in list into groups. Layers are of the same kind if they are equal in all fields except
// Eagle. All layers of a group are of one kind. Usually a group has at most as many layers as the kind with the fewest
// layers, so other kinds are divided into several groups.
//
// But if every kind has less than 1.5 times as many layers as the kind with the fewest, each kind is one group. With
// the usual limit, each kind with more layers than the fewest would be divided into two groups that are not full.
func split(layers []Layer, list []int) []Group {
	var kinds []Group
	for _, i := range list {
		k := slices.IndexFunc(kinds, func(g Group) bool { return equal(layers[g.Layers[0]], layers[i]) })
		if k < 0 {
			kinds = append(kinds, Group{Group: layers[i].Group})
			k = len(kinds) - 1
		}
		kinds[k].Layers = append(kinds[k].Layers, i)
	}
	smallest, largest := len(layers), 0
	for _, kind := range kinds {
		smallest, largest = min(smallest, len(kind.Layers)), max(largest, len(kind.Layers))
	}
	size := smallest
	if 2*largest < 3*smallest {
		size = largest
	}
	var groups []Group
	for _, kind := range kinds {
		groups = append(groups, deal(layers, kind.Layers, ceil(len(kind.Layers), size))...)
	}
	return groups
}

// deal makes n groups. Each group gets every n-th layer of list, so that each stage of a pipeline has layers of every
// group. A group with a layer of the draft model is an EAGLE group.
func deal(layers []Layer, list []int, n int) []Group {
	var groups []Group
	for first := range n {
		g := Group{Group: layers[list[0]].Group}
		g.Eagle = false
		for k := first; k < len(list); k += n {
			g.Layers = append(g.Layers, list[k])
			g.Eagle = g.Eagle || layers[list[k]].Eagle
		}
		groups = append(groups, g)
	}
	return groups
}

// equal reports whether two layers are equal, except that one may be of the draft model.
func equal(a, b Layer) bool {
	a.Eagle, b.Eagle = false, false
	return a == b
}

func largestDivisor(n, limit int) int {
	for d := min(n, limit); d > 1; d-- {
		if n%d == 0 {
			return d
		}
	}
	return 1
}

func ceil(a, b int) int { return (a + b - 1) / b }

// promote turns layers with windows and chunks into layers with full attention for the cache, if some layer has full
// attention. The cache then keeps all their tokens, and all layers can share one block table. The layers compute the
// same results as before (vLLM's _promote_local_kv_cache_specs). promote returns an error if the layers then still need
// different blocks.
func promote(layers []Layer) ([]Layer, error) {
	if oneType(layers) {
		return layers, nil
	}
	blockSize, full := 0, false // blockSize is the block size of all full attention, or 0 if there are several
	for i := range layers {
		switch l := &layers[i]; {
		case l.Kind != kvcache.Full:
		case !full:
			full, blockSize = true, l.BlockSize
		case l.BlockSize != blockSize:
			blockSize = 0
		}
	}
	layers = slices.Clone(layers)
	for i := range layers {
		l := &layers[i]
		if full && (l.Kind == kvcache.SlidingWindow || l.Kind == kvcache.ChunkedLocal) {
			l.Kind, l.Window, l.Retained, l.Chunk = kvcache.Full, 0, 0, 0
			l.resize(cmp.Or(blockSize, l.BlockSize))
		}
	}
	if !oneType(layers) {
		return nil, fmt.Errorf("%w: windows and chunks as full attention do not make all layers need the same blocks", ErrLayers)
	}
	return layers, nil
}

// resize sets the block size of a layer to n tokens. A padded page grows only if the content does not fit.
func (l *Layer) resize(n int) {
	padded := l.Page > 0 && l.content() > 0 && l.content() <= l.Page
	page := l.Page * n / l.BlockSize
	l.BlockSize = n
	switch {
	case padded:
		l.Page = max(l.Page, l.content())
	case l.Page > 0:
		l.Page = max(page, 1)
	}
}

// canPromote reports whether promote may be applied to layers although FullAllocation is false. group asks this only if
// the pages of the layers cannot be made equally large. Some layer with full attention must store only keys. Some layer
// must have a sliding window. All layers with sliding windows must store keys and values, as those of a draft model do.
// No layer may have chunks or hidden states (vLLM's _try_get_full_allocation_fallback_groups).
func canPromote(layers []Layer) bool {
	keys, window := false, false
	for i := range layers {
		switch l := &layers[i]; {
		case l.Hidden, l.Kind == kvcache.ChunkedLocal, l.Kind == kvcache.SlidingWindow && l.KeysOnly:
			return false
		case l.Kind == kvcache.SlidingWindow:
			window = true
		case l.Kind == kvcache.Full && l.KeysOnly:
			keys = true
		}
	}
	return keys && window
}
