package scenario

// DefaultMemoryUtilization is vLLM's default (EngineArgs.gpu_memory_utilization). The paper's setups have 0.95, as the
// paper's artifact does.
const DefaultMemoryUtilization = 0.9

// PoolShare returns the memory utilization by which the number of blocks was computed, or 0 if that number was given.
func (p *Plan) PoolShare() float64 {
	v := &p.Scenario.Server
	if gpu, _, err := p.Setup.Pool(v.BlockSize); err != nil || gpu != v.NumGPUBlocks {
		return 0
	}
	return p.Setup.Memory.Utilization
}

// SortingPool returns how many blocks there would be with a sampler that sorts all logits (see cost.Setup). It returns
// 0 if the number of blocks was given or if sorting does not reduce it.
func (p *Plan) SortingPool() int {
	if p.PoolShare() == 0 {
		return 0
	}
	s := p.Setup
	s.Sorts = true
	v := &p.Scenario.Server
	if gpu, _, err := s.Pool(v.BlockSize); err == nil && gpu < v.NumGPUBlocks {
		return gpu
	}
	return 0
}
