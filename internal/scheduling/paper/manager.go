package paper

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/device"
)

// Errors of the package. Unless its comment says otherwise, a function that returns one of them has changed nothing.
var (
	ErrConfig       = errors.New("bad configuration")
	ErrNoFreeBlocks = errors.New("not enough free blocks")
	ErrGroup        = errors.New("bad group") // misuse
)

// Config describes a Manager.
type Config struct {
	BlockSize                  int // tokens in a block
	NumGPUBlocks, NumCPUBlocks int // blocks
	Watermark                  float64

	// Prefix is the length in tokens of a prefix that all prompts share (the paper's shared prefix). The keys and
	// values of its full blocks are computed before the first request, and these blocks are never freed.
	Prefix int
}

// A Manager keeps the block tables of groups of sequences (vllm/v0/RULES.md §9).
type Manager struct {
	config    Config
	watermark int
	gpu, cpu  device.Device
	prefix    []int32 // blocks of the shared prefix
	logical   int     // number of table entries on the GPU
	tables    device.Tables

	// moved is indexed by block id. If moved[id].mark equals Manager.mark, the current call has already counted or
	// moved block id, and moved[id].block is its block on the other device.
	moved []move
	mark  uint32
}

type move struct {
	mark  uint32
	block int32
}

// A Group is the sequences of one request. All unfinished sequences of a group are on the same device.
type Group struct {
	Seqs    []Seq
	swapped bool
}

// A Seq is a sequence of tokens and its block table.
type Seq struct {
	Len      int // tokens, including the last generated one
	Finished bool
	table    []int32
}

// Table returns the block table. The caller must not change it. It is valid until the next call for the sequence's
// group.
func (s *Seq) Table() []int32 { return s.table }

// running counts the sequences that are not finished.
func (g *Group) running() int {
	n := 0
	for i := range g.Seqs {
		if !g.Seqs[i].Finished {
			n++
		}
	}
	return n
}

// NewManager makes a manager whose blocks are all free.
func NewManager(config Config) (*Manager, error) {
	switch {
	case config.BlockSize < 1:
		return nil, fmt.Errorf("%w: blocks of %d tokens: want at least 1", ErrConfig, config.BlockSize)
	case config.NumGPUBlocks < 0 || config.NumCPUBlocks < 0 || config.NumGPUBlocks >= math.MaxInt32 || config.NumCPUBlocks >= math.MaxInt32:
		return nil, fmt.Errorf("%w: %d GPU and %d CPU blocks", ErrConfig, config.NumGPUBlocks, config.NumCPUBlocks)
	case !(config.Watermark >= 0 && config.Watermark <= 1):
		return nil, fmt.Errorf("%w: a watermark of %v: want 0 to 1", ErrConfig, config.Watermark)
	}
	if config.Prefix < 0 || config.Prefix/config.BlockSize > config.NumGPUBlocks {
		return nil, fmt.Errorf("%w: a prefix of %d tokens in %d blocks of %d", ErrConfig, config.Prefix, config.NumGPUBlocks, config.BlockSize)
	}
	m := &Manager{
		config:    config,
		watermark: device.Watermark(config.Watermark, config.NumGPUBlocks),
		gpu:       device.Descending(0, config.NumGPUBlocks),
		cpu:       device.Descending(0, config.NumCPUBlocks),
		moved:     make([]move, max(config.NumGPUBlocks, config.NumCPUBlocks)),
	}
	for range config.Prefix / config.BlockSize {
		m.prefix = append(m.prefix, m.gpu.Take())
	}
	return m, nil
}

// prefixTokens returns the number of tokens in the full blocks of the shared prefix. If the prefix ends inside a block,
// the tokens in that last block are computed again for each prompt.
func (m *Manager) prefixTokens() int { return len(m.prefix) * m.config.BlockSize }

// Devices returns the pools of the GPU and of the CPU, which the caller must not change.
func (m *Manager) Devices() (gpu, cpu *device.Device) { return &m.gpu, &m.cpu }

// Watermark is the number of GPU blocks that admission leaves free.
func (m *Manager) Watermark() int { return m.watermark }

func (m *Manager) blocks(tokens int) int {
	return (tokens + m.config.BlockSize - 1) / m.config.BlockSize
}

// CanAllocate reports whether a prompt can be admitted now.
func (m *Manager) CanAllocate(tokens int) bool {
	return m.gpu.NumFree()-m.fresh(tokens) >= m.watermark
}

func (m *Manager) fresh(tokens int) int { return m.blocks(tokens) - len(m.prefix) }

// Allocate gives all unfinished sequences of a group the same new table. The sequences must be equally long and have
// no blocks.
func (m *Manager) Allocate(g *Group) error {
	first := -1
	for i := range g.Seqs {
		s := &g.Seqs[i]
		if s.Finished {
			continue
		}
		if first < 0 {
			first = i
		}
		if len(s.table) > 0 || s.Len != g.Seqs[first].Len || s.Len < 0 {
			return fmt.Errorf("%w: a sequence of %d tokens with %d blocks, another of %d tokens", ErrGroup, s.Len, len(s.table), g.Seqs[first].Len)
		}
	}
	if first < 0 {
		return fmt.Errorf("%w: every sequence is finished", ErrGroup)
	}
	if n := g.Seqs[first].Len; n <= m.prefixTokens() && n > 0 {
		return fmt.Errorf("%w: a prompt of %d tokens, of which the first %d are the prefix", ErrGroup, n, m.prefixTokens())
	}
	n := m.fresh(g.Seqs[first].Len)
	if n > m.gpu.NumFree() {
		return fmt.Errorf("%w: %d needed for a prompt of %d tokens, %d free", ErrNoFreeBlocks, n, g.Seqs[first].Len, m.gpu.NumFree())
	}
	table := m.withPrefix(m.tables.Take())
	for range n {
		table = append(table, m.gpu.Take())
	}
	g.Seqs[first].table = table
	m.logical += len(table)
	for i := first + 1; i < len(g.Seqs); i++ {
		if !g.Seqs[i].Finished {
			m.share(&m.gpu, &g.Seqs[first], &g.Seqs[i])
		}
	}
	g.swapped = false
	return nil
}

func (m *Manager) withPrefix(table []int32) []int32 {
	for _, id := range m.prefix {
		m.gpu.Ref(id)
	}
	return append(table, m.prefix...)
}

// CanAppend reports whether there are enough free blocks for one more token of each unfinished sequence of a group.
// It assumes that each sequence takes a block.
func (m *Manager) CanAppend(g *Group) bool { return g.running() <= m.gpu.NumFree() }

// Append makes sure that sequence i can write its last token; the caller has increased the sequence's Len by one. If
// the token needs a new block, Append takes one. If the sequence's last block is shared, Append replaces it and
// returns the copy that the caller must make.
func (m *Manager) Append(g *Group, i int) (copied device.Pair, isCopy bool, err error) {
	s := &g.Seqs[i]
	switch missing := m.blocks(s.Len) - len(s.table); {
	case s.Finished || g.swapped || missing > 1 || len(s.table) == 0 && missing == 0:
		return copied, false, fmt.Errorf("%w: append to a sequence of %d tokens with %d blocks, finished: %t, swapped out: %t",
			ErrGroup, s.Len, len(s.table), s.Finished, g.swapped)
	case missing == 1:
		id := m.gpu.Take()
		if id == block.None {
			return copied, false, fmt.Errorf("%w: for token %d", ErrNoFreeBlocks, s.Len)
		}
		s.table = append(s.table, id)
		m.logical++
		return copied, false, nil
	}
	last := &s.table[len(s.table)-1]
	if !m.gpu.Shared(*last) {
		return copied, false, nil
	}
	fresh := m.gpu.Take()
	if fresh == block.None {
		return copied, false, fmt.Errorf("%w: for a copy", ErrNoFreeBlocks)
	}
	return m.gpu.CopyOnWrite(last, fresh), true, nil
}

// Refork frees the blocks of sequence child and makes it a copy of sequence parent (beam search).
func (m *Manager) Refork(g *Group, child, parent int) error {
	c, p := &g.Seqs[child], &g.Seqs[parent]
	if c.Finished || p.Finished || child == parent {
		return fmt.Errorf("%w: sequence %d (finished: %t) cannot become a copy of %d (finished: %t)", ErrGroup, child, c.Finished, parent, p.Finished)
	}
	m.release(g, c)
	c.Len = p.Len
	m.share(m.deviceOf(g), p, c)
	return nil
}

func (m *Manager) share(d *device.Device, parent, child *Seq) {
	child.table = append(m.tables.Take(), parent.table...)
	for _, id := range child.table {
		d.Ref(id)
	}
	if d == &m.gpu {
		m.logical += len(child.table)
	}
}

func (m *Manager) deviceOf(g *Group) *device.Device {
	if g.swapped {
		return &m.cpu
	}
	return &m.gpu
}

// Free drops the references of sequence i to its blocks, in logical order.
func (m *Manager) Free(g *Group, i int) { m.release(g, &g.Seqs[i]) }

func (m *Manager) release(g *Group, s *Seq) {
	d := m.deviceOf(g)
	for _, id := range s.table {
		d.Drop(id)
	}
	if d == &m.gpu {
		m.logical -= len(s.table)
	}
	m.tables.Give(s.table)
	s.table = nil
}
