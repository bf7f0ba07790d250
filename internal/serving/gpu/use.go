package gpu

// A MemoryUse says what uses the memory of a GPU, in bytes. The rest of Total is used by other programs, and by
// the driver for what Open made.
type MemoryUse struct {
	Weights, KVCache, Free, Total int

	// Batches is the decrease of free memory since Open, without the memory in Weights and KVCache. It contains buffers of
	// batches, compiled kernels and graphs. It also contains what other programs have allocated since Open.
	Batches int
}

// MemoryUse returns what uses the GPU's memory now. The parameter kvCache is the memory for keys and values.
func (m *Model) MemoryUse(kvCache int) (MemoryUse, error) {
	u := MemoryUse{Weights: m.Bytes(), KVCache: kvCache}
	var err error
	u.Free, u.Total, err = m.device.context.MemoryLeft()
	u.Batches = max(0, m.device.free-u.Free-u.Weights-u.KVCache)
	return u, err
}
