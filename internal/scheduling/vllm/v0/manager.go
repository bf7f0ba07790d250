package v0

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/reqtable"
)

// Errors of the package. Unless its comment says otherwise, a function that returns one of them has changed nothing.
var (
	ErrConfig       = errors.New("bad configuration")
	ErrNoFreeBlocks = errors.New("not enough free blocks")
	ErrSequence     = errors.New("bad sequence") // misuse, or what vLLM gets wrong
)

// Config describes a Manager.
type Config struct {
	BlockSize                  int // tokens in a block
	NumGPUBlocks, NumCPUBlocks int // blocks
	Watermark                  float64
	SlidingWindow              int  // tokens that a sequence attends to; if 0, all
	EnablePrefixCaching        bool // keep full blocks for later requests with the same prefix
}

// A Manager keeps the block tables of sequences (SelfAttnBlockSpaceManager).
type Manager struct {
	View      View
	config    Config
	watermark int // GPU blocks that admission leaves free
	gpu, cpu  device.Device
	prefix    *prefix // nil without prefix caching
	null      int32   // the null block, for entries before the window; None before it is needed
	logical   int     // entries of tables on the GPU
	tables    device.Tables
}

// New makes a manager whose blocks are all free.
func New(config Config) (*Manager, error) {
	switch {
	case config.BlockSize < 1:
		return nil, fmt.Errorf("%w: blocks of %d tokens: want at least 1", ErrConfig, config.BlockSize)
	case config.NumGPUBlocks < 0 || config.NumCPUBlocks < 0 || config.NumGPUBlocks+config.NumCPUBlocks >= math.MaxInt32:
		return nil, fmt.Errorf("%w: %d GPU and %d CPU blocks", ErrConfig, config.NumGPUBlocks, config.NumCPUBlocks)
	case !(config.Watermark >= 0 && config.Watermark <= 1):
		return nil, fmt.Errorf("%w: a watermark of %v: want 0 to 1", ErrConfig, config.Watermark)
	case config.SlidingWindow < 0:
		return nil, fmt.Errorf("%w: a window of %d tokens", ErrConfig, config.SlidingWindow)
	case config.SlidingWindow > 0 && config.EnablePrefixCaching:
		return nil, fmt.Errorf("%w: prefix caching does not work with a sliding window", ErrConfig)
	}
	m := &Manager{
		config:    config,
		watermark: device.Watermark(config.Watermark, config.NumGPUBlocks),
		gpu:       device.Ascending(0, config.NumGPUBlocks),
		cpu:       device.Ascending(int32(config.NumGPUBlocks), config.NumCPUBlocks),
		null:      block.None,
	}
	m.View = View{m}
	if config.EnablePrefixCaching {
		m.prefix = &prefix{
			hash: blockhash.NewFast(), cached: map[blockhash.Hash]int32{},
			blocks: make([]cachedBlock, config.NumGPUBlocks), evictor: reqtable.NewQueues(config.NumGPUBlocks, 1)[0],
		}
	}
	return m, nil
}

// take returns a GPU block. If no unused block is left, it evicts a cached block (vllm/v0/RULES.md §1, §6). The caller
// must have checked that a block is unused or evictable.
func (m *Manager) take() int32 {
	id := m.gpu.Take()
	if m.prefix == nil {
		if id == block.None {
			panic(fmt.Sprintf("none of the %d GPU blocks is free", m.config.NumGPUBlocks))
		}
		return id
	}
	if id == block.None {
		id = m.prefix.evict()
		m.gpu.Ref(id)
	}
	m.prefix.track(id, false)
	return id
}

// ceil returns a/b, rounded up, also for a negative a.
func ceil(a, b int) int {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
