package memplan

import (
	"fmt"
	"math"
	"slices"
)

// A Worker is a process with some layers of a model. It is a stage of a pipeline, or one of several workers with the
// same layers and different heads.
type Worker struct {
	Bytes  int   // memory for keys and values
	Layers []int // indexes of the model's layers, ascending
}

// Make returns a plan for each worker. The workers use the same block tables, because the groups are made from the
// layers of the whole model. Each worker has its own layers of each group, and may have none. All workers get the same
// number of blocks: options.Blocks if it is above 0, and otherwise as many as fit into the memory of every worker
// (vLLM's get_kv_cache_configs). Plans name layers by their index in layers.
func Make(layers []Layer, workers []Worker, options Options) ([]*Plan, error) {
	order, err := modelOrder(layers, workers)
	if err != nil {
		return nil, err
	}
	used := make([]Layer, len(order)) // in the order in which vLLM merges them
	for i, l := range order {
		used[i] = layers[l]
	}
	g, err := group(used, options.FullAllocation)
	if err != nil {
		return nil, err
	}
	for k := range g.groups {
		for i, l := range g.groups[k].Layers {
			g.groups[k].Layers[i] = order[l]
		}
	}
	sizes := make([]int, len(layers)) // of a block of each layer
	for i, l := range order {
		sizes[l] = g.layers[i].pageBytes()
	}
	packed := g.packed || options.CrossLayers && len(g.groups) > 1
	var plans []*Plan
	fewest := -1
	for _, w := range workers {
		p, err := project(g.groups, w, sizes, packed, options.Blocks)
		if err != nil {
			return nil, err
		}
		if fewest < 0 || p.NumGPUBlocks < fewest {
			fewest = p.NumGPUBlocks
		}
		plans = append(plans, p)
	}
	for _, p := range plans {
		p.shrink(fewest)
	}
	return plans, nil
}

func modelOrder(layers []Layer, workers []Worker) ([]int, error) {
	if len(workers) == 0 {
		return nil, fmt.Errorf("%w: there are no workers", ErrLayers)
	}
	var order []int
	seen := make([]bool, len(layers))
	for i, w := range workers {
		if len(w.Layers) == 0 && len(layers) > 0 {
			return nil, fmt.Errorf("%w: worker %d has no layers", ErrLayers, i)
		}
		for k, l := range w.Layers {
			switch {
			case l < 0 || l >= len(layers):
				return nil, fmt.Errorf("%w: worker %d has layer %d of %d", ErrLayers, i, l, len(layers))
			case k > 0 && l <= w.Layers[k-1]:
				return nil, fmt.Errorf("%w: worker %d has layer %d after %d: want them in ascending order", ErrLayers, i, l, w.Layers[k-1])
			case !seen[l]:
				seen[l] = true
				order = append(order, l)
			}
		}
	}
	return order, nil
}

// project returns the plan of worker w. In this plan, each group has only those of its layers that w computes (vLLM's
// _project_kv_cache_groups_to_worker and get_kv_cache_config_from_groups).
func project(groups []Group, w Worker, sizes []int, packed bool, blocks int) (*Plan, error) {
	if len(groups) == 0 {
		return &Plan{NumGPUBlocks: 1}, nil // there is always a null block
	}
	p := &Plan{}
	for _, g := range groups {
		local := Group{Group: g.Group}
		for _, l := range g.Layers {
			if _, found := slices.BinarySearch(w.Layers, l); found {
				local.Layers = append(local.Layers, l)
			}
		}
		local.Eagle = g.Eagle && len(local.Layers) > 0
		p.Groups = append(p.Groups, local)
	}
	perBlock := 0
	if packed {
		p.Tensors, perBlock = pack(p.Groups, sizes)
		for i := range p.Tensors {
			p.Tensors[i].Bytes = perBlock
		}
	} else {
		p.Tensors, perBlock = share(p.Groups, sizes)
	}
	if blocks > math.MaxInt/perBlock {
		return nil, fmt.Errorf("%w: %d blocks of %d bytes do not fit into the address space", ErrLayers, blocks, perBlock)
	}
	p.NumGPUBlocks = blocks
	if blocks <= 0 {
		p.NumGPUBlocks = max(w.Bytes, 0) / perBlock
	}
	for i := range p.Tensors {
		p.Tensors[i].Bytes *= p.NumGPUBlocks
	}
	return p, nil
}

// share makes a tensor for the first layers of all groups, one for their second layers, and so on. It sets Bytes of
// each tensor to the size of one block, and returns the sum of these sizes as perBlock.
func share(groups []Group, sizes []int) (tensors []Tensor, perBlock int) {
	largest := 0
	for _, g := range groups {
		largest = max(largest, len(g.Layers))
	}
	for i := range largest {
		t := Tensor{}
		for _, g := range groups {
			if i < len(g.Layers) {
				t.Layers = append(t.Layers, g.Layers[i])
			}
		}
		t.Bytes = sizes[t.Layers[0]]
		perBlock += t.Bytes
		tensors = append(tensors, t)
	}
	return tensors, perBlock
}

func (p *Plan) shrink(n int) {
	for i := range p.Tensors {
		if p.NumGPUBlocks > 0 {
			p.Tensors[i].Bytes = p.Tensors[i].Bytes / p.NumGPUBlocks * n
		}
	}
	p.NumGPUBlocks = n
}
