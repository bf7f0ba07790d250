package kvcache

import (
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
)

// An Alloc describes an allocation of slots for more tokens of a request (vllm/v1/RULES.md §6). The slots are in this
// order:
//
//	| computed | hit | external | new | lookahead |
//
// The parts are:
//
//   - computed: tokens whose slots the request already has
//   - hit: cached tokens that Lookup has found
//   - external: tokens that a connector will load
//   - new: tokens that this step computes
//   - lookahead: slots for the draft model
//
// Unless DelayCacheBlocks is true, Allocate also gives keys to the full blocks before the lookahead slots, except blocks
// with draft tokens.
type Alloc struct {
	NumNewTokens       int  // tokens to compute in this step, drafts included
	Hit                *Hit // result of a Lookup just before; nil for a running request
	NumLookaheadTokens int  // slots for the draft model
	NumExternalTokens  int  // tokens that a connector will load

	DelayCacheBlocks    bool // do not register blocks: the caller calls Store when they are loaded
	FullSequenceMustFit bool // fail unless there are blocks for the whole sequence
	ReservedBlocks      int  // number of free blocks that must be left
	NothingScheduled    bool // no other request is scheduled, so the watermark does not apply
	StaysWaiting        bool // the request will still wait, so the watermark also applies to its next Alloc
	NumInFlightTokens   int  // tokens of r in steps in flight, which still read the windows before these tokens
	Record              bool // on success, count the hit in the statistics
}

// Allocate adds blocks to the tables of r and reports whether enough blocks were free. If too few were free, it has
// changed nothing, except that it may have freed blocks outside windows (vllm/v1/RULES.md §6, step 5). Allocate does
// not change r.NumComputedTokens: the caller does. An error means that the caller has made a mistake; it wraps
// ErrRequest or ErrStale.
func (c *Cache) Allocate(r *Request, a *Alloc) (bool, error) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	if a.Hit == nil && a.NumExternalTokens == 0 && a.NumNewTokens > 0 && c.grow(r, a) {
		return true, nil
	}
	if err := c.checkAlloc(r, a); err != nil {
		return false, err
	}
	hit := 0
	if a.Hit != nil {
		hit = a.Hit.NumTokens
	}
	d := demand{Alloc: a, local: r.NumComputedTokens + hit}
	d.external = d.local + a.NumExternalTokens
	d.total = min(d.external, c.Config.MaxModelLen)
	watermark := 0
	if !r.running && !a.NothingScheduled {
		watermark = c.watermark
	}
	if a.FullSequenceMustFit {
		whole := min(r.NumTokens(), c.Config.MaxModelLen)
		d.slots, d.main, d.computed, d.capped = whole, whole, d.total, true
		if c.need(r, &d)+watermark > c.Pool.NumFree() {
			return false, nil
		}
	}
	d.main = d.total + a.NumNewTokens
	d.slots, d.computed, d.capped = min(d.main+a.NumLookaheadTokens, c.Config.MaxModelLen), d.external, false
	c.leaveWindows(r, max(0, d.total-a.NumInFlightTokens))
	if c.need(r, &d)+watermark > c.Pool.NumFree()-a.ReservedBlocks {
		return false, nil
	}
	if !c.plan(r, &d) {
		return false, nil
	}
	c.commit(r, &d)
	if c.Config.EnablePrefixCaching && !a.DelayCacheBlocks {
		c.register(r, min(d.main, r.NumTokens()), d.main)
	}
	r.running = !a.StaysWaiting
	if a.Record {
		c.record(r, hit)
	}
	return true, nil
}

// grow is Allocate for the usual case: a running request whose tables have enough blocks for the new tokens and the
// lookahead slots. In other cases it changes nothing and returns false.
func (c *Cache) grow(r *Request, a *Alloc) bool {
	if !c.noMamba || r.forked || !r.running || a.FullSequenceMustFit || a.NumLookaheadTokens < 0 || a.ReservedBlocks < 0 || a.ReservedBlocks > c.Pool.NumFree() {
		return false
	}
	total := min(r.NumComputedTokens, c.Config.MaxModelLen)
	main := total + a.NumNewTokens
	slots := min(main+a.NumLookaheadTokens, c.Config.MaxModelLen)
	for i := range r.tables {
		if slots > len(r.tables[i].ids)*c.groups[i].BlockSize {
			return false
		}
	}
	c.leaveWindows(r, max(0, total-a.NumInFlightTokens))
	for i := range c.plans {
		c.plans[i] = plan{oldLen: len(r.tables[i].ids), copied: -1}
	}
	if c.Config.EnablePrefixCaching && !a.DelayCacheBlocks {
		c.register(r, min(main, r.NumTokens()), main)
	}
	return true
}

// A demand is an Alloc with the numbers that the rules compute from it. Each field of type int is a number of tokens,
// counted from the beginning of the request. While Allocate checks FullSequenceMustFit, main and slots are the length
// of the whole sequence.
type demand struct {
	*Alloc
	local    int // the computed tokens and the hit
	external int // local and the external tokens
	total    int // external, at most MaxModelLen
	main     int // total and the new tokens
	slots    int // main and the lookahead slots, at most MaxModelLen

	computed int  // total or external: the number of computed tokens from which windows are computed
	capped   bool // for each group, count at most group.cap blocks
}

func (d *demand) hit(group int) []int32 {
	if d.Hit == nil || group >= len(d.Hit.Blocks) {
		return nil
	}
	return d.Hit.Blocks[group]
}

func (d *demand) partial(g *group, hits []int32) bool {
	return len(hits) > 0 && d.local%g.BlockSize != 0
}

// adopts reports whether the request gets blocks with tokens that it does not compute: the blocks of the hit,
// including null blocks, or blocks for external tokens.
func (a *Alloc) adopts() bool { return a.NumExternalTokens > 0 || a.hits() }

func (a *Alloc) hits() bool {
	return a.Hit != nil && slices.ContainsFunc(a.Hit.Blocks, func(ids []int32) bool { return len(ids) > 0 })
}

func (c *Cache) checkAlloc(r *Request, a *Alloc) error {
	switch {
	case a.NumNewTokens < 0 || a.NumExternalTokens < 0 || a.NumLookaheadTokens < 0 || a.ReservedBlocks < 0 || a.NumInFlightTokens < 0:
		return fmt.Errorf("%w: a negative number in %+v", ErrRequest, *a)
	case a.NumNewTokens == 0 && a.NumExternalTokens == 0:
		return fmt.Errorf("%w: nothing to allocate for: no new and no external tokens", ErrRequest)
	case !a.adopts():
		return nil
	case a.Hit != nil && len(a.Hit.Blocks) != len(c.groups):
		return fmt.Errorf("%w: the hit has %d groups, the cache %d", ErrRequest, len(a.Hit.Blocks), len(c.groups))
	case a.hits() && (a.Hit.request != r || a.Hit.version != c.Pool.Version()):
		return fmt.Errorf("%w: it is of another request, or keys were removed since the lookup: look up again", ErrStale)
	case slices.ContainsFunc(r.tables, func(t table) bool { return t.tracked || len(t.ids) > 0 }):
		return fmt.Errorf("%w: it has blocks already, so it cannot adopt a hit or external tokens", ErrRequest)
	}
	return nil
}
