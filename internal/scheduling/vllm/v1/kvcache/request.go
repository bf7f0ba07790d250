package kvcache

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// ErrRequest is wrapped by errors about a request or about a wrong call.
var ErrRequest = errors.New("bad request")

// ErrStale is wrapped if blocks of a Hit may have been evicted since the lookup, or if the Hit is of another request.
var ErrStale = errors.New("stale hit")

// A Spec describes a request.
type Spec struct {
	Tokens []int32 // the prompt; copied
	Extras blockhash.Extras
	LoRAID int64
	NoRead bool // lookups find nothing (prompt logprobs); blocks get keys all the same
	Report bool // record events for hits, too
}

// A Request is a sequence of tokens with its block tables.
type Request struct {
	Tag uint64 // the caller's

	// NumComputedTokens is the number of tokens that have keys and values in blocks when the steps in flight have run.
	// The caller increases it after an allocation, and decreases it when drafts are rejected; the blocks stay in the
	// table (vllm/v1/RULES.md §6). See also Rollback.
	NumComputedTokens int

	// The caller must not change these.
	NumPromptTokens int
	NumPreemptions  int // calls of Release with Preempt
	Junction        int // length of the longest prefix that one set of groups has cached, if it is longer than the hit; 0: none (vllm/v1/RULES.md §9)

	cache     *Cache
	content   pool.Content
	recorded  bool // its admission was counted
	running   bool // it has had an allocation since it was last waiting
	noRead    bool
	report    bool
	forked    bool    // it may write to shared blocks
	lent      bool    // another request reads the arrays of content
	kept      []int32 // blocks of tails that were taken
	tables    []table
	liveIndex int // index in Cache.live
}

// A table is the block table of one group.
type table struct {
	ids        []int32
	registered int  // blocks at the beginning that were adopted or passed to pool.Register
	tracked    bool // it has adopted a hit, got blocks for external tokens, or registered a block
	owns       bool // the request counts in group.owners

	// partial is the index in ids of a block that the next allocation must copy, or -1 if there is none. The block is
	// one inside which a hit ends. In a Mamba group it can also be the block of the running state, if
	// registerPromptState has given this state a key.
	partial int

	allocated bool // Mamba: it has had an allocation
	lastState int  // Mamba: index of the block from which the running state was copied to its present block; -1: none
	tail      int  // Mamba: number of tokens before the state in ids[partial]
}

// Add makes a request.
func (c *Cache) Add(s Spec) (*Request, error) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	if len(s.Tokens) == 0 {
		return nil, fmt.Errorf("%w: it has no tokens", ErrRequest)
	}
	if err := s.Extras.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	r := c.blank()
	r.content.Tokens = append(r.content.Tokens, s.Tokens...)
	r.content.Extras, r.content.LoRAID = s.Extras, s.LoRAID
	r.NumPromptTokens, r.noRead, r.report = len(s.Tokens), s.NoRead, s.Report
	r.hash()
	return r, nil
}

// Reserve allocates arrays for the given number of tokens when a request begins to run, so that later steps allocate
// no memory.
func (r *Request) Reserve(tokens int) {
	c := r.cache
	reserve(&r.content.Tokens, tokens)
	if c.Config.Hash != nil {
		reserve(&r.content.Hashes, tokens/c.Config.HashBlockSize)
	}
	for i := range r.tables {
		reserve(&r.tables[i].ids, ceil(tokens, c.groups[i].BlockSize)+c.groups[i].NumSpeculativeBlocks+1)
	}
}

func reserve[T any](s *[]T, n int) { *s = slices.Grow(*s, max(0, n-len(*s))) }

// blank returns an empty request. It reuses the memory of a request that has ended, if there is one.
func (c *Cache) blank() *Request {
	var r *Request
	if n := len(c.spare) - 1; n >= 0 {
		r, c.spare[n] = c.spare[n], nil
		c.spare = c.spare[:n]
	} else {
		r = &Request{cache: c, tables: make([]table, len(c.groups))}
		for i := range r.tables {
			r.tables[i].forget()
		}
	}
	r.liveIndex = len(c.live)
	c.live = append(c.live, r)
	return r
}

// Append adds generated tokens.
func (r *Request) Append(tokens ...int32) {
	r.content.Tokens = append(r.content.Tokens, tokens...)
	r.hash()
}

func (r *Request) hash() {
	if c := r.cache; c.Config.Hash != nil && len(r.content.Tokens) >= (len(r.content.Hashes)+1)*c.Config.HashBlockSize {
		r.content.Extend(c.Config.Hash, c.Config.HashBlockSize)
	}
}

// Tokens returns the prompt and the generated tokens. The caller must not change them.
func (r *Request) Tokens() []int32 { return r.content.Tokens }

// NumTokens is the length of Tokens.
func (r *Request) NumTokens() int { return len(r.content.Tokens) }

// Table returns the block table of a group. The caller must not change it. It is valid until the next call for this
// request.
func (r *Request) Table(group int) []int32 { return r.tables[group].ids }

func (t *table) forget() {
	*t = table{ids: t.ids[:0], partial: -1, lastState: -1}
}
