package memplan

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// packs reports whether groups may have pages of different sizes. They may if the layers' pages have different sizes,
// and a layer with a sliding window stores only keys, as in DeepSeek V4 (vLLM's group_and_unify_kv_cache_specs).
func packs(layers []Layer) bool {
	window, differ := false, false
	for i := range layers {
		window = window || layers[i].Kind == kvcache.SlidingWindow && layers[i].KeysOnly
		differ = differ || layers[i].pageBytes() != layers[0].pageBytes()
	}
	return window && differ
}

// splitPacked divides layers into groups. All layers with full attention are one group. The other layers have sliding
// windows. All layers with the same window and block size form a set, which is divided into one or more groups. Each of
// these groups has the same number of layers of each page size. This number is about the same in all groups (vLLM's
// _get_kv_cache_groups_uniform_groups).
func splitPacked(layers []Layer) ([]Group, error) {
	var kinds []Group // the first is full attention
	for i := range layers {
		l := &layers[i]
		if !l.KeysOnly && !l.Hidden || l.Kind != kvcache.Full && l.Kind != kvcache.SlidingWindow {
			return nil, fmt.Errorf("%w: layer %d is not of keys only, beside windows of keys only with pages of other sizes", ErrLayers, i)
		}
		k := slices.IndexFunc(kinds, func(g Group) bool { return sameSlots(g.Group, l.Group) })
		switch {
		case k >= 0:
			kinds[k].Layers = append(kinds[k].Layers, i)
		case l.Kind == kvcache.Full && len(kinds) > 0 && kinds[0].Kind == kvcache.Full:
			return nil, fmt.Errorf("%w: layer %d has blocks of %d tokens, and one before it of %d: want the same for all full attention",
				ErrLayers, i, l.BlockSize, kinds[0].BlockSize)
		case l.Kind == kvcache.Full:
			kinds = slices.Insert(kinds, 0, Group{l.Group, []int{i}})
		default:
			kinds = append(kinds, Group{l.Group, []int{i}})
		}
	}
	if kinds[0].Kind != kvcache.Full {
		return nil, fmt.Errorf("%w: windows of keys only with pages of different sizes, and no full attention", ErrLayers)
	}
	tuples := make([]int, len(kinds))
	for k := range kinds {
		tuples[k] = maxOfOneSize(layers, kinds[k].Layers)
	}
	size := leastPadding(tuples, tuples[0])
	groups := deal(layers, kinds[0].Layers, 1)
	for k := 1; k < len(kinds); k++ {
		list, err := interleave(layers, kinds[k].Layers)
		if err != nil {
			return nil, err
		}
		sizes := len(kinds[k].Layers) / tuples[k]
		groups = append(groups, dealTuples(layers, list, sizes, ceil(tuples[k], size))...)
	}
	return groups, nil
}

// dealTuples divides list into tuples of tupleLen layers, and makes n groups. Each group gets every n-th tuple.
func dealTuples(layers []Layer, list []int, tupleLen, n int) []Group {
	var groups []Group
	for first := range n {
		var picked []int
		for k := first * tupleLen; k < len(list); k += n * tupleLen {
			picked = append(picked, list[k:k+tupleLen]...)
		}
		groups = append(groups, deal(layers, picked, 1)...)
	}
	return groups
}

// interleave orders layers so that the page sizes alternate.
func interleave(layers []Layer, list []int) ([]int, error) {
	var sizes [][]int
	for _, i := range list {
		k := slices.IndexFunc(sizes, func(sameSize []int) bool { return layers[sameSize[0]].pageBytes() == layers[i].pageBytes() })
		if k < 0 {
			sizes = append(sizes, []int{i})
			continue
		}
		sizes[k] = append(sizes[k], i)
	}
	var mixed []int
	for k := range sizes[0] {
		for _, sameSize := range sizes {
			if len(sameSize) != len(sizes[0]) {
				return nil, fmt.Errorf("%w: %d layers like layer %d have pages of %d bytes, and %d like layer %d of %d: want as many of each",
					ErrLayers, len(sizes[0]), sizes[0][0], layers[sizes[0][0]].pageBytes(), len(sameSize), sameSize[0], layers[sameSize[0]].pageBytes())
			}
			mixed = append(mixed, sameSize[k])
		}
	}
	return mixed, nil
}

func maxOfOneSize(layers []Layer, list []int) int {
	count, largest := map[int]int{}, 0
	for _, i := range list {
		count[layers[i].pageBytes()]++
		largest = max(largest, count[layers[i].pageBytes()])
	}
	return largest
}

// leastPadding returns a number d that is at least minimum, for rounding each of counts up to a multiple of d. It
// chooses the d that increases the sum of the counts by the smallest amount. Of several such numbers it returns the
// largest (vLLM's _approximate_gcd).
func leastPadding(counts []int, minimum int) int {
	best, fewest := minimum, -1
	for d := minimum; d <= slices.Max(counts); d++ {
		padding := 0
		for _, n := range counts {
			padding += ceil(n, d)*d - n
		}
		if fewest < 0 || padding <= fewest {
			best, fewest = d, padding
		}
	}
	return best
}

// pack puts the layers of each group one after the other in a block. The layers of every group start at offset 0,
// because a block belongs to one group at a time. sizes has, for each layer, the number of bytes of one block (vLLM's
// _get_packed_kv_cache_layout).
func pack(groups []Group, sizes []int) (tensors []Tensor, stride int) {
	for _, g := range groups {
		offset := 0
		for _, l := range g.Layers {
			k, found := slices.BinarySearchFunc(tensors, offset, func(t Tensor, offset int) int { return t.Offset - offset })
			if !found {
				tensors = slices.Insert(tensors, k, Tensor{Offset: offset})
			}
			tensors[k].Layers = append(tensors[k].Layers, l)
			offset += sizes[l]
		}
		stride = max(stride, offset)
	}
	for i := range tensors {
		tensors[i].Stride = stride
	}
	return tensors, stride
}
