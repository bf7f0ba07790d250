package kvstore

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/parallel"
)

// Limits of a store.
const (
	MaxLayers = 1 << 16
	maxBlocks = 1 << 24
)

// ErrMemory is wrapped by errors about a store that needs more memory than the machine has.
var ErrMemory = errors.New("not enough memory")

// Config describes the size of a store. In this package, every error about an argument wraps attention.ErrArgument
// (ErrRequest apart), and the failed call has written no block.
type Config struct {
	attention.Shape
	Layers     int
	NumBlocks  int // vLLM's num_gpu_blocks
	HostBlocks int // vLLM's num_cpu_blocks, for swapping; may be 0
}

// BlockBytes returns the bytes of a block over all layers (vLLM's get_cache_block_size).
func (c *Config) BlockBytes() int { return c.Layers * c.Shape.BlockBytes() }

// BlocksIn returns how many blocks fit into the given number of bytes (vLLM's determine_num_available_blocks). The
// result never exceeds the largest number of blocks of a store.
func (c *Config) BlocksIn(bytes int64) int {
	if bytes <= 0 || c.BlockBytes() <= 0 {
		return 0
	}
	return int(min(bytes/int64(c.BlockBytes()), maxBlocks))
}

func (c *Config) check() error {
	if err := c.Shape.Check(); err != nil {
		return err
	}
	switch {
	case c.Layers < 1 || c.Layers > MaxLayers:
		return fmt.Errorf("%w: %d layers; 1 to %d are possible", attention.ErrArgument, c.Layers, MaxLayers)
	case c.NumBlocks < 1 || c.HostBlocks < 0 || c.NumBlocks > maxBlocks || c.HostBlocks > maxBlocks:
		return fmt.Errorf("%w: %d blocks and %d on the host; 1 to %d and 0 to %d are possible", attention.ErrArgument,
			c.NumBlocks, c.HostBlocks, maxBlocks, maxBlocks)
	case max(c.NumBlocks, c.HostBlocks) > math.MaxInt/4/c.BlockBytes():
		return fmt.Errorf("%w: %d blocks of %d bytes", attention.ErrArgument, max(c.NumBlocks, c.HostBlocks), c.BlockBytes())
	}
	return nil
}

// A Store holds the blocks of all layers. One goroutine may use it at a time, but see ReadBlock and WriteBlock.
type Store struct {
	config Config
	pool   *parallel.Pool
	device tier
	host   tier
	writer *Writer
	mover  mover
}

// A tier is the blocks of all layers in one mapping.
type tier struct {
	memory []byte
	layers []attention.Cache
	blocks int
}

// New maps zeroed memory for a store, which writes and copies on pool. The system provides the memory page by page on
// first use, so New cannot know whether enough memory is free. It returns ErrMemory only if the store needs more than
// the whole machine has.
func New(c Config, pool *parallel.Pool) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	need, total := (uint64(c.NumBlocks)+uint64(c.HostBlocks))*uint64(c.BlockBytes()), machineMemory()
	if need > total {
		return nil, fmt.Errorf("%w: %d blocks, %d of them on the host, take %d bytes; the machine has %d", ErrMemory,
			c.NumBlocks+c.HostBlocks, c.HostBlocks, need, total)
	}
	s := &Store{config: c, pool: pool, writer: NewWriter(pool)}
	var err error
	if s.device, err = newTier(&c, c.NumBlocks); err != nil {
		return nil, err
	}
	if c.HostBlocks > 0 {
		if s.host, err = newTier(&c, c.HostBlocks); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// newTier maps blocks of all layers, one layer after the other.
func newTier(c *Config, blocks int) (tier, error) {
	layer := (c.Shape.BlockBytes()*blocks + pageSize - 1) / pageSize * pageSize
	memory, err := mapMemory(layer * c.Layers)
	if err != nil {
		return tier{}, fmt.Errorf("%d blocks of %d bytes: %w", blocks, c.BlockBytes(), err)
	}
	t := tier{memory: memory, blocks: blocks}
	for i := range c.Layers {
		cache, err := attention.NewCache(c.Shape, memory[i*layer:][:c.Shape.BlockBytes()*blocks])
		if err != nil {
			return tier{}, errors.Join(err, unmapMemory(memory))
		}
		t.layers = append(t.layers, cache)
	}
	return t, nil
}

// Close unmaps the memory. Caches returned by Layer must not be used afterwards.
func (s *Store) Close() error {
	err := errors.Join(unmapMemory(s.device.memory), unmapMemory(s.host.memory))
	s.device, s.host = tier{}, tier{}
	return err
}

// Memory returns the memory of all blocks of the device and of the host.
func (s *Store) Memory() (device, host []byte) { return s.device.memory, s.host.memory }

// Config returns the configuration passed to New.
func (s *Store) Config() Config { return s.config }

// Layer returns the device blocks of a layer, valid until Close. Its KeyScale and ValueScale may be set before the
// first Write.
func (s *Store) Layer(i int) *attention.Cache { return &s.device.layers[i] }

// View returns the device blocks of a layer with another shape, whose blocks have as many bytes. Layers of different
// shapes can use the same layer of the store, in different blocks.
func (s *Store) View(layer int, shape attention.Shape) (attention.Cache, error) {
	if uint(layer) >= uint(len(s.device.layers)) || shape.BlockBytes() != s.config.Shape.BlockBytes() {
		return attention.Cache{}, fmt.Errorf("%w: layer %d of %d, with blocks of %d bytes instead of %d", attention.ErrArgument, layer,
			len(s.device.layers), shape.BlockBytes(), s.config.Shape.BlockBytes())
	}
	size := (shape.BlockBytes()*s.device.blocks + pageSize - 1) / pageSize * pageSize
	return attention.NewCache(shape, s.device.memory[layer*size:][:shape.BlockBytes()*s.device.blocks])
}

// WriteView is Write for a cache that View has returned.
func (s *Store) WriteView(c *attention.Cache, t *Tokens) error { return s.writer.Write(c, t) }

// Write writes the keys and values of tokens into a layer; see Writer.Write.
func (s *Store) Write(layer int, t *Tokens) error {
	if uint(layer) >= uint(len(s.device.layers)) {
		return fmt.Errorf("%w: no layer %d; there are %d", attention.ErrArgument, layer, len(s.device.layers))
	}
	return s.writer.Write(s.Layer(layer), t)
}
