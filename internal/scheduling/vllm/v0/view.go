package v0

import (
	"slices"

	"llmmemory/internal/scheduling/device"
)

// A View reads the state of a Manager.
type View struct{ m *Manager }

// FreeGPU returns the number of free GPU blocks, including evictable ones.
func (v View) FreeGPU() int {
	n := v.m.gpu.NumFree()
	if v.m.prefix != nil {
		n += v.m.prefix.evictor.Len()
	}
	return n
}

// FreeCPU returns the number of free CPU blocks.
func (v View) FreeCPU() int { return v.m.cpu.NumFree() }

// Watermark returns the number of GPU blocks that admission leaves free.
func (v View) Watermark() int { return v.m.watermark }

// Config returns the manager's configuration.
func (v View) Config() Config { return v.m.config }

// Devices returns the pools of the GPU and of the CPU, which the caller must not change.
func (v View) Devices() (gpu, cpu *device.Device) { return &v.m.gpu, &v.m.cpu }

// WindowBlocks returns the maximum number of blocks of a sequence with a window (vllm/v0/RULES.md §5).
func (v View) WindowBlocks() int { return v.m.config.SlidingWindow/v.m.config.BlockSize + 2 }

// An Evictable is a cached block that no table names.
type Evictable struct {
	ID     int32
	Tokens int     // length of its prefix
	Access float64 // time of the last access, or -1
}

// Evictor lists the evictable blocks in the order of insertion.
func (v View) Evictor() []Evictable {
	list := []Evictable{}
	if p := v.m.prefix; p != nil {
		for id := range p.evictor.All() {
			b := &p.blocks[id]
			list = append(list, Evictable{id, b.tokens, b.access})
		}
	}
	return list
}

// Cached lists the blocks that hold a prefix, by id.
func (v View) Cached() []int32 {
	list := []int32{}
	if p := v.m.prefix; p != nil {
		for _, id := range p.cached {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}
