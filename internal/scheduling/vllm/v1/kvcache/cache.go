package kvcache

import (
	"fmt"
	"slices"
	"sort"

	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A Cache maps the tokens of requests to blocks. It is not safe for concurrent use.
type Cache struct {
	Config Config    // with its defaults; must not be changed
	Pool   pool.View // the blocks
	Stats  Stats     // counts of lookups; the caller may reset them

	pool *pool.Pool

	groups []group
	sets   []set // full attention first

	watermark   int  // blocks
	partialHits bool // Config.PartialBlockHits
	hitUnit     int  // every hit has a length in tokens that is a multiple of this number
	recycles    bool // Config.Recycles
	noMamba     bool

	live     []*Request // in no order
	spare    []*Request
	pins     map[int32]int32 // by block: references of pending copies
	held     map[int32]int32 // by block: references of deferred blocks and of Request.kept
	deferred []deferral      // the oldest first

	// Work for Take.
	copies    []Copy
	tails     []Tail
	newBlocks [][]int32 // by group

	// Memory that calls use again.
	hybrid []hitState // of Lookup, by the first group of a set
	plans  []plan     // of Allocate, by group
	fresh  []int32    // of Allocate and Take
	mask   []bool     // of register

	refuse func(group int) bool // set only by tests: reports that a group gets no blocks
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

		watermark: int(min(config.Watermark, 1) * float64(config.NumGPUBlocks)), // 1: no request is admitted while another is scheduled
		hybrid:    make([]hitState, len(config.Groups)),
		plans:     make([]plan, len(config.Groups)),
		newBlocks: make([][]int32, len(config.Groups)),
		pins:      map[int32]int32{},
		held:      map[int32]int32{},
	}
	c.noMamba = true
	for i := range config.Groups {
		c.groups = append(c.groups, group{Group: config.Groups[i], id: uint32(i), cap: config.Groups[i].maxAdmitted(&config)})
		c.noMamba = c.noMamba && config.Groups[i].Kind != Mamba
	}
	c.recycles = config.Recycles()
	c.setFineness()
	c.makeSets()
	if err := c.checkSets(); err != nil {
		return nil, err
	}
	return c, nil
}

// setFineness sets hitUnit and partialHits. With one group, a hit ends at the end of one of its blocks. With several
// groups, it ends at a multiple of HashBlockSize if hits may end inside a block, and otherwise at a multiple of
// SchedulerBlockSize (vllm/v1/RULES.md §10).
func (c *Cache) setFineness() {
	c.partialHits = c.Config.PartialBlockHits()
	switch {
	case len(c.groups) == 1:
		c.hitUnit = c.groups[0].BlockSize
	case c.partialHits:
		c.hitUnit = c.Config.HashBlockSize
	default:
		c.hitUnit = c.Config.SchedulerBlockSize
	}
}

// makeSets puts groups with equal fields, apart from Eagle, into one set. The sets of full attention come first,
// because a hit of another set must not be longer than the hit of full attention (vllm/v1/RULES.md §10).
func (c *Cache) makeSets() {
	marked := slices.ContainsFunc(c.groups, func(g group) bool { return g.Eagle })
	for i := range c.groups {
		g := &c.groups[i]
		eagle := g.Eagle || c.Config.Eagle && !marked
		spec := g.Group
		spec.Eagle = false
		index := slices.IndexFunc(c.sets, func(s set) bool {
			other := s.spec.Group
			other.Eagle = false
			return other == spec
		})
		if index < 0 {
			c.sets = append(c.sets, set{spec: g})
			index = len(c.sets) - 1
		}
		c.sets[index].groups = append(c.sets[index].groups, i)
		c.sets[index].eagle = c.sets[index].eagle || eagle
	}
	sort.SliceStable(c.sets, func(i, j int) bool { return c.sets[i].spec.Kind == Full && c.sets[j].spec.Kind != Full })
	if !c.Config.EnablePrefixCaching {
		return
	}
	for _, s := range c.sets {
		for _, i := range s.groups {
			c.groups[i].eagle = s.eagle
		}
	}
}

// checkSets returns an error if vLLM has no lookup for the groups of a set.
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

// StartStep begins the scheduling of step number seq. From now on, requests can also adopt the states that Mamba groups
// stored in the step before.
func (c *Cache) StartStep(seq uint64) {
	c.pool.SetStamp(uint32(seq))
	for i := range c.groups {
		c.groups[i].justStored = c.groups[i].justStored[:0]
	}
}

// EndStep says that the steps up to number seq have run. It frees the blocks that Release and Take have kept for these
// steps. It starts with the blocks kept first, and stops at the first block for a later step, as vLLM does.
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

// NumDeferred returns the number of references to blocks that EndStep will drop.
func (c *Cache) NumDeferred() int {
	n := 0
	for _, d := range c.deferred {
		n += len(d.ids)
	}
	return n
}
