package scenario

// DefaultMemoryUtilization is vLLM's default (EngineArgs.gpu_memory_utilization). The paper's setups have
// 0.95, as its artifact.
const DefaultMemoryUtilization = 0.9

// PoolShare returns the part of each GPU's memory that the pool was sized by; 0 if the number of blocks was
// given instead.
func (p *Plan) PoolShare() float64 {
	v := &p.Scenario.Server
	if gpu, _, err := p.Setup.Pool(v.BlockSize); err != nil || gpu != v.NumGPUBlocks {
		return 0
	}
	return p.Setup.Memory.Utilization
}

// SortingPool returns how many blocks there would be with a sampler that sorts all logits (cost.Setup); 0 if the
// number of blocks was given, or is the same with it.
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
