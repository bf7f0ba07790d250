package kvcache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
)

// ErrConfig is wrapped by every error about a Config.
var ErrConfig = errors.New("bad cache configuration")

// A Kind says which tokens a group of layers attends to.
type Kind uint8

const (
	Full          Kind = iota // all tokens
	SlidingWindow             // the last Group.Window tokens
	ChunkedLocal              // the tokens of the same chunk of Group.Chunk
	Mamba                     // a running state; see Group.Align
)

// A Group is layers that share a block table.
type Group struct {
	Kind      Kind
	BlockSize int // tokens in a block

	Window   int // SlidingWindow
	Retained int // SlidingWindow: tokens below the window that are kept, too
	Chunk    int // ChunkedLocal

	// With Align, a Mamba group keeps only the running state and states at ends of blocks (vLLM's mamba_cache_mode
	// "align"). Without Align, it gets a block for each BlockSize tokens.
	Align                bool
	NumSpeculativeBlocks int // Mamba: additional blocks for the states after draft tokens

	Eagle bool // a draft model computes the last block of each hit again
}

// RetainAll is a value of Config.RetentionInterval. With it, all blocks that a hit can use get keys (vllm/v1/RULES.md
// §9).
const RetainAll = -1

// Config describes a cache. Lengths are tokens unless said otherwise.
type Config struct {
	NumGPUBlocks int // the null block included
	Groups       []Group

	EnablePrefixCaching bool
	Hash                blockhash.Function // nil: requests get no hashes; only without EnablePrefixCaching
	EnableEvents        bool               // record events for Pool.TakeEvents
	RecordNewBlocks     bool               // see Pending
	HandOffTails        bool               // see Pending

	// Differences from vLLM (vllm/v1/RULES.md §17).
	CopyWritten bool // no hit ends inside a block that got a key since StartStep
	Exact       bool // no group adopts a block after the hit, needs a negative number, or leaves out the state at a prompt's end

	MaxModelLen       int
	MaxInFlightTokens int     // largest number of tokens of a request in steps in flight; 0: MaxModelLen
	Watermark         float64 // fraction of the blocks that stays free when a waiting request is admitted

	SchedulerBlockSize int // granularity of hits; 0: least common multiple of the blocks
	HashBlockSize      int // tokens of one hash; 0: greatest common divisor of the blocks

	// RetentionInterval selects the blocks of sliding windows and the states of Mamba groups that get keys. RetainAll
	// selects all blocks that a hit can use. 0 selects only the blocks before boundaries; a boundary is the end of a
	// prefix that later lookups are likely to find (see boundaries). A number n > 0 of tokens selects these blocks, and
	// also the blocks before each multiple of n tokens.
	RetentionInterval int
	Eagle             bool // all groups are Eagle if none is marked
}

// maxGroups is the largest number of groups: reconcile has one bit of a uint64 for each set of groups.
const maxGroups = 64

func (c *Config) complete() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	if n := len(c.Groups); n < 1 || n > maxGroups {
		return bad("%d groups of layers: want 1 to %d", n, maxGroups)
	}
	if c.MaxModelLen < 1 {
		return bad("the longest sequence has %d tokens", c.MaxModelLen)
	}
	if !(c.Watermark >= 0) {
		return bad("the watermark is %v: want 0 or more", c.Watermark)
	}
	if c.EnablePrefixCaching && c.Hash == nil {
		return bad("caching needs a hash")
	}
	lcm, gcd := 1, 0
	for i := range c.Groups {
		g := &c.Groups[i]
		if err := g.Check(); err != nil {
			return bad("group %d: %v", i, err)
		}
		if c.MaxModelLen > 1<<31-1-2*g.BlockSize {
			return bad("group %d: sequences of %d tokens are too long", i, c.MaxModelLen)
		}
		lcm, gcd = lcm/GCD(lcm, g.BlockSize)*g.BlockSize, GCD(gcd, g.BlockSize)
		if lcm > 1<<31-1 {
			return bad("the least common multiple of the blocks of the first %d groups is %d tokens: want at most %d", i+1, lcm, 1<<31-1)
		}
	}
	c.SchedulerBlockSize = cmp.Or(c.SchedulerBlockSize, lcm)
	c.HashBlockSize = cmp.Or(c.HashBlockSize, gcd)
	c.MaxInFlightTokens = cmp.Or(c.MaxInFlightTokens, c.MaxModelLen)
	for i := range c.Groups {
		if b := c.Groups[i].BlockSize; c.SchedulerBlockSize%b != 0 || c.HashBlockSize < 1 || c.EnablePrefixCaching && b%c.HashBlockSize != 0 {
			return bad("group %d has blocks of %d: the scheduler's block of %d must be a multiple, the hash's of %d a divisor",
				i, b, c.SchedulerBlockSize, c.HashBlockSize)
		}
	}
	if c.EnablePrefixCaching && len(c.Groups) == 1 && c.HashBlockSize != c.Groups[0].BlockSize {
		return bad("the only group has blocks of %d, hashes cover %d: want the same", c.Groups[0].BlockSize, c.HashBlockSize)
	}
	return c.checkRetention(bad)
}

func (c *Config) checkRetention(bad func(string, ...any) error) error {
	sparse := slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Kind == SlidingWindow || g.Kind == Mamba })
	switch {
	case c.RetentionInterval > 0 && !sparse:
		return bad("retention_interval %d has no effect: no group has a window or is Mamba", c.RetentionInterval)
	case c.RetentionInterval < RetainAll || c.RetentionInterval > 0 && c.RetentionInterval%c.SchedulerBlockSize != 0:
		return bad("retention_interval is %d: want -1, 0 or a multiple of the scheduler's block of %d", c.RetentionInterval, c.SchedulerBlockSize)
	}
	return nil
}

// Check returns an error if a field is out of range, or has a value although groups of this kind do not use it.
func (g *Group) Check() error {
	switch {
	case g.BlockSize < 1:
		return fmt.Errorf("blocks of %d tokens", g.BlockSize)
	case g.Kind == SlidingWindow && (g.Window < 1 || g.Retained < 0):
		return fmt.Errorf("a window of %d tokens and %d retained", g.Window, g.Retained)
	case g.Kind == ChunkedLocal && g.Chunk < 1:
		return fmt.Errorf("chunks of %d tokens", g.Chunk)
	case g.NumSpeculativeBlocks < 0:
		return fmt.Errorf("%d speculative blocks", g.NumSpeculativeBlocks)
	case g.Kind > Mamba:
		return fmt.Errorf("kind %d", g.Kind)
	case g.Kind != SlidingWindow && (g.Window != 0 || g.Retained != 0):
		return fmt.Errorf("a window of %d tokens and %d retained, which only a group of kind %d (sliding window) can have", g.Window, g.Retained, SlidingWindow)
	case g.Kind != ChunkedLocal && g.Chunk != 0:
		return fmt.Errorf("chunks of %d tokens, which only a group of kind %d (chunked local) can have", g.Chunk, ChunkedLocal)
	case g.Kind != Mamba && (g.NumSpeculativeBlocks != 0 || g.Align):
		return fmt.Errorf("%d speculative blocks and align %t, which only a group of kind %d (Mamba) can have", g.NumSpeculativeBlocks, g.Align, Mamba)
	}
	return nil
}

// PartialBlockHits reports whether a hit can end inside a block, at any multiple of HashBlockSize. This needs a Mamba
// group in align mode whose blocks are longer than HashBlockSize. The other groups must also allow hits that end at any
// multiple of HashBlockSize (vllm/v1/RULES.md §10).
func (c *Config) PartialBlockHits() bool {
	coarse, follow := false, len(c.Groups) > 1
	for i := range c.Groups {
		g := &c.Groups[i]
		coarse = coarse || g.aligned() && g.BlockSize > c.HashBlockSize
		follow = follow && (g.fine() || g.BlockSize == c.HashBlockSize)
	}
	return c.EnablePrefixCaching && coarse && follow
}

// Recycles reports whether some group frees blocks before a request ends.
func (c *Config) Recycles() bool {
	return slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Kind != Full })
}

// PeakBlocks returns the largest number of blocks that a request can have at one time. tokens is the length of the
// request, and steps the number of steps in flight. If the cache has fewer blocks, the request could wait for ever.
func (c *Config) PeakBlocks(tokens, steps int) int {
	n := 0
	partialHits := c.PartialBlockHits()
	for i := range c.Groups {
		g := &c.Groups[i]
		blocks := ceil(tokens, g.BlockSize)
		if limit := g.maxAdmitted(c); limit > 0 {
			blocks = min(blocks, limit)
		}
		if g.aligned() && steps == 1 {
			blocks = min(blocks, 2) // the running state and the one before
		} // if more steps are in flight, states can stay until the request ends (RULES.md §13)
		if partialHits && g.fine() {
			blocks++ // the copy of a block that a hit ends in
		}
		n += blocks + g.NumSpeculativeBlocks
	}
	return n
}

// GCD is the greatest common divisor of two numbers.
func GCD(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func ceil(a, b int) int { return (a + b - 1) / b }

func floorTo(a, b int) int { return a - a%b }
