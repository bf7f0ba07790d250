package kvcache

import (
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Cache manages the blocks of requests. It is for one goroutine.
type Cache struct {
	Config Config    // with its defaults; for reading
	Pool   pool.View // the blocks
	Stats  Stats     // counts of lookups; who takes them sets them to zero

	pool *pool.Pool

	groups []group
	sets   []set // full attention first

	watermark int  // blocks
	finest    bool // hits may end inside a block (Mamba align with coarse blocks)
	hitUnit   int  // every hit is a multiple of it
	recycles  bool // some group gives blocks back early
	plain     bool // no Mamba group

	live     []*Request // in no order
	spare    []*Request
	copies   []Copy
	tails    []Tail          // that were not taken yet
	pins     map[int32]int32 // references that copies hold, by block
	held     map[int32]int32 // references that deferrals and requests' tails hold, by block
	deferred []deferral      // the oldest first
	hybrid   []hitState      // scratch of a lookup, by group
	plans    []plan          // scratch of an allocation, by group
	fresh    []int32         // scratch: blocks of an allocation

	newBlocks [][]int32 // by group: since they were taken; see Take
	mask      []bool    // scratch of a registration

	refuse func(group int) bool // tests only: a group for which there are no blocks
}

// New makes a cache.
func New(config Config) (*Cache, error) {
	config.Groups = slices.Clone(config.Groups)
	if err := config.complete(); err != nil {
		return nil, err
	}
	p, err := pool.New(pool.Config{
		NumGPUBlocks: config.NumGPUBlocks, EnableCaching: config.EnablePrefixCaching, HashBlockSize: config.HashBlockSize,
		EnableEvents: config.EnableEvents,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c := &Cache{
		Config: config,
		Pool:   p.View,
		pool:   p,

		watermark: int(min(config.Watermark, 1) * float64(config.NumGPUBlocks)), // 1 admits no request
		hybrid:    make([]hitState, len(config.Groups)),
		plans:     make([]plan, len(config.Groups)),
		newBlocks: make([][]int32, len(config.Groups)),
		pins:      map[int32]int32{},
		held:      map[int32]int32{},
	}
	c.plain = true
	for i := range config.Groups {
		c.groups = append(c.groups, newGroup(config.Groups[i], i, &config))
		c.plain = c.plain && config.Groups[i].Kind != Mamba
	}
	c.recycles = config.Recycles()
	c.setFineness()
	c.makeSets()
	if err := c.checkSets(); err != nil {
		return nil, err
	}
	return c, nil
}

// setFineness decides where hits can end: with one group at its blocks, with
// several at the scheduler's blocks or at each hash (vllm/v1/RULES.md §10).
func (c *Cache) setFineness() {
	c.finest = c.Config.PartialBlockHits()
	switch {
	case len(c.groups) == 1:
		c.hitUnit = c.groups[0].BlockSize
	case c.finest:
		c.hitUnit = c.Config.HashBlockSize
	default:
		c.hitUnit = c.Config.SchedulerBlockSize
	}
}

// makeSets puts equal groups together, and sets of full attention first: they
// are looked up from the left, which bounds the others (vllm/v1/RULES.md §10).
func (c *Cache) makeSets() {
	marked := slices.ContainsFunc(c.groups, func(g group) bool { return g.Eagle })
	for i := range c.groups {
		g := &c.groups[i]
		eagle := g.Eagle || c.Config.Eagle && !marked
		spec := g.Group
		spec.Eagle = false
		at := slices.IndexFunc(c.sets, func(s set) bool {
			other := s.spec.Group
			other.Eagle = false
			return other == spec
		})
		if at < 0 {
			c.sets = append(c.sets, set{spec: g})
			at = len(c.sets) - 1
		}
		c.sets[at].groups = append(c.sets[at].groups, i)
		c.sets[at].eagle = c.sets[at].eagle || eagle
	}
	slices.SortStableFunc(c.sets, func(a, b set) int {
		return notFull(a.spec) - notFull(b.spec)
	})
	if !c.Config.EnablePrefixCaching {
		return
	}
	for _, s := range c.sets {
		for _, i := range s.groups {
			c.groups[i].eagle = s.eagle
		}
	}
}

func notFull(g *group) int {
	if g.Kind == Full {
		return 0
	}
	return 1
}

// checkSets refuses groups for which V1 has no lookup.
func (c *Cache) checkSets() error {
	for _, s := range c.sets {
		if s.spec.Kind != ChunkedLocal || !c.Config.EnablePrefixCaching {
			continue
		}
		if s.eagle {
			return fmt.Errorf("%w: chunked local attention has no EAGLE lookup", ErrConfig)
		}
		if s.spec.BlockSize != c.hitUnit {
			return fmt.Errorf("%w: chunked local attention with blocks of %d needs scheduler_block_size %d, it is %d",
				ErrConfig, s.spec.BlockSize, s.spec.BlockSize, c.hitUnit)
		}
	}
	return nil
}

// StartStep begins scheduling step number seq. From now on the states that Mamba groups stored
// in the last step can be hit.
func (c *Cache) StartStep(seq uint64) {
	c.pool.SetStamp(uint32(seq))
	for i := range c.groups {
		c.groups[i].justStored = c.groups[i].justStored[:0]
	}
}

// EndStep says that the steps up to number seq are over, and frees the blocks that waited for
// them. It stops at the first that wait for a later step, as vLLM does.
func (c *Cache) EndStep(seq uint64) {
	c.pool.SetStamp(uint32(seq))
	for len(c.deferred) > 0 && c.deferred[0].step <= seq {
		ids := c.deferred[0].ids
		c.deferred = c.deferred[1:]
		for _, id := range ids {
			c.release(id)
		}
		c.pool.Free(ids)
	}
}

// NumDeferred is how many blocks wait for a step to end.
func (c *Cache) NumDeferred() int {
	n := 0
	for _, d := range c.deferred {
		n += len(d.ids)
	}
	return n
}
