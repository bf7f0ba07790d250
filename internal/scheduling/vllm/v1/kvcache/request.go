package kvcache

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// ErrRequest is wrapped by errors about a request, or about how it is used.
var ErrRequest = errors.New("bad request")

// A Spec describes a request.
type Spec struct {
	Tokens []int32 // the prompt; copied
	Extras blockhash.Extras
	LoRAID int64
	NoRead bool // do not hit the cache (prompt logprobs); the blocks are stored all the same
	Report bool // record events for hits, too
}

// A Request is a sequence of tokens and its block tables. It belongs to the
// Cache that made it.
type Request struct {
	Tag uint64 // the caller's

	// NumComputedTokens is how many tokens have their keys and values in blocks, or will after
	// the steps in flight. The caller advances it after an allocation, and moves it back when
	// drafts are rejected: their blocks stay in the table and are used later
	// (vllm/v1/RULES.md §6). Rollback gives them back instead.
	NumComputedTokens int

	// For reading:
	NumPromptTokens int
	NumPreemptions  int // how often the request has lost its blocks
	Junction        int // end of a prefix that it shares with others and that a group with sparse retention does not hold yet; 0: none (vllm/v1/RULES.md §9)

	cache    *Cache
	content  pool.Content
	recorded bool // its admission was counted
	running  bool // has been allocated for since it began to wait
	noRead   bool
	report   bool
	forked   bool    // shares blocks that it may write to
	lent     bool    // another request reads the arrays of content
	kept     []int32 // blocks of tails that were taken
	tables   []table
	place    int // in Cache.live
}

// A table is the block table of one group.
type table struct {
	ids        []int32
	registered int  // blocks that were offered for registration
	tracked    bool // adopted a hit, or registered a block
	owns       bool // counts as an owner for the common prefix

	// partial is the index of a block that a hit ends inside, or that holds
	// the end of the prompt's state (Mamba): the next allocation gives the
	// request a copy, or the cache. -1: none.
	partial int

	allocated bool // Mamba: had an allocation
	lastState int  // Mamba: index of the block with the state before the running one; -1: none
	tail      int  // Mamba: tokens before the state in block number partial, which is the request's own
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

// Reserve allocates memory for so many tokens, so that steps need not. It is for requests that
// run: one that waits takes memory for the tokens that it has.
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

// reserve gives an array room for n elements.
func reserve[T any](to *[]T, n int) { *to = slices.Grow(*to, max(0, n-len(*to))) }

// blank returns an empty request, whose arrays may be those of a former one.
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
	r.place = len(c.live)
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

// Tokens are the prompt and what was generated, for reading.
func (r *Request) Tokens() []int32 { return r.content.Tokens }

// NumTokens is the length of Tokens.
func (r *Request) NumTokens() int { return len(r.content.Tokens) }

// Table is the block table of a group, for reading: it changes with the next
// call for this request.
func (r *Request) Table(group int) []int32 { return r.tables[group].ids }

func (t *table) forget() {
	*t = table{ids: t.ids[:0], partial: -1, lastState: -1}
}

// ErrStale is wrapped if a Hit may name blocks that have been evicted since the lookup.
var ErrStale = errors.New("stale hit")
