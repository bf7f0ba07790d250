// Package encodercache decides which outputs of the encoder (embeddings of images, audio and other multimodal items) a
// worker keeps: vLLM's EncoderCacheManager (vllm/v1/RULES.md §20).
//
// An output is identified by the hash of its input, and its size is a number of embeddings. A request has references
// to the outputs that it still reads. When space is needed, the cache evicts the output that lost its last reference
// first, and the next step lists this output.
//
// Package sched decides when an input is encoded. The worker stores the embeddings.
package encodercache

import (
	"math"
	"slices"
	"sort"

	"llmmemory/internal/invariants"
)

// A Cache records the outputs that a worker has, or will have when the steps in flight have run. Sizes are numbers of
// embeddings.
type Cache struct {
	size         int
	free         int
	unreferenced int // embeddings of outputs without references
	entries      map[string]*entry
	oldest       []*entry // outputs without references, the longest unreferenced first
	evicted      []string // hashes evicted since the last TakeEvicted
}

// An entry is one output.
type entry struct {
	hash   string
	embeds int
	step   uint64     // number of the step that computes it
	users  []*Request // requests that refer to it
}

// New makes an empty cache for size embeddings.
func New(size int) *Cache {
	return &Cache{size: size, free: size, entries: map[string]*entry{}}
}

// Use adds a reference of r to the output of its input i and returns true. If the output is not in the cache, Use
// returns false (vLLM: check_and_update_cache).
func (c *Cache) Use(r *Request, i int) bool {
	e := c.entries[r.inputs[i].Hash]
	if e == nil {
		return false
	}
	if len(e.users) == 0 {
		c.unreferenced -= e.embeds
		c.unlist(e)
	}
	e.refer(r, i)
	return true
}

// Reserve reports whether there is space for the output of input i of r, in addition to numPlanned embeddings that the
// caller will also allocate. It evicts outputs if necessary (vLLM: can_allocate).
func (c *Cache) Reserve(r *Request, i, numPlanned int) bool {
	need := r.inputs[i].NumEmbeds + numPlanned
	if need > c.free+c.unreferenced {
		return false
	}
	for need > c.free {
		e := c.oldest[0]
		c.remove(e)
		c.evicted = append(c.evicted, e.hash)
	}
	return true
}

// Allocate adds the output of input i of r, which the step with the given number will compute, and a reference of r to
// it. If the output is already in the cache, Allocate only adds the reference. Reserve must have returned true.
func (c *Cache) Allocate(r *Request, i int, step uint64) {
	input := &r.inputs[i]
	e := c.entries[input.Hash]
	if e == nil {
		e = &entry{hash: input.Hash, embeds: input.NumEmbeds, step: step}
		c.entries[input.Hash] = e
		c.free -= e.embeds
	}
	e.refer(r, i)
}

func (e *entry) refer(r *Request, i int) {
	if !slices.Contains(e.users, r) {
		e.users = append(e.users, r)
	}
	if !slices.Contains(r.held, i) {
		r.held = append(r.held, i)
	}
}

func (c *Cache) freeInput(r *Request, i int) {
	r.held = slices.DeleteFunc(r.held, func(h int) bool { return h == i })
	e := c.entries[r.inputs[i].Hash]
	if e == nil || len(e.users) == 0 {
		return
	}
	e.users = slices.DeleteFunc(e.users, func(u *Request) bool { return u == r })
	if len(e.users) == 0 {
		c.oldest = append(c.oldest, e)
		c.unreferenced += e.embeds
	}
}

// Free removes all references of r, in the order of its inputs.
func (c *Cache) Free(r *Request) { c.FreePassed(r, math.MaxInt) }

// FreePassed removes the references of r to the outputs of inputs that end at or before token end.
func (c *Cache) FreePassed(r *Request, end int) {
	slices.Sort(r.held)
	for k := 0; k < len(r.held); {
		if input := &r.inputs[r.held[k]]; input.Offset+input.Length <= end {
			c.freeInput(r, r.held[k])
		} else {
			k++
		}
	}
}

// Forget removes the output of input i of r, because it will not be computed.
func (c *Cache) Forget(r *Request, i int) { c.forget(c.entries[r.inputs[i].Hash]) }

// EvictSince removes the outputs that the step with the given number, or a later one, should have computed, because
// these steps have failed. TakeEvicted returns the hashes of these outputs, because the worker may have computed them.
func (c *Cache) EvictSince(step uint64) {
	var gone []string
	for hash, e := range c.entries {
		if e.step >= step {
			gone = append(gone, hash)
		}
	}
	slices.Sort(gone)
	for _, hash := range gone {
		c.forget(c.entries[hash])
	}
	c.evicted = append(c.evicted, gone...)
}

// Evicted makes TakeEvicted return these hashes again, because the steps that had listed them have failed.
func (c *Cache) Evicted(hashes []string) { c.evicted = append(c.evicted, hashes...) }

func (c *Cache) forget(e *entry) {
	if e == nil {
		return
	}
	for _, r := range e.users {
		r.held = slices.DeleteFunc(r.held, func(i int) bool { return r.inputs[i].Hash == e.hash })
	}
	if len(e.users) > 0 {
		e.users = nil
		delete(c.entries, e.hash)
		c.free += e.embeds
		return
	}
	c.remove(e)
}

// remove removes e, which must have no references.
func (c *Cache) remove(e *entry) {
	c.unlist(e)
	c.unreferenced -= e.embeds
	c.free += e.embeds
	delete(c.entries, e.hash)
}

func (c *Cache) unlist(e *entry) {
	i := slices.Index(c.oldest, e)
	c.oldest = slices.Delete(c.oldest, i, i+1)
}

// TakeEvicted appends to dst the hashes that were evicted since the last call and are not in the cache again (vLLM:
// get_freed_mm_hashes).
func (c *Cache) TakeEvicted(dst []string) []string {
	for _, hash := range c.evicted {
		if c.entries[hash] == nil && !slices.Contains(dst, hash) {
			dst = append(dst, hash)
		}
	}
	c.evicted = c.evicted[:0]
	return dst
}

// Reset forgets all outputs. The worker must drop its own.
func (c *Cache) Reset() {
	for _, e := range c.entries {
		c.forget(e)
	}
	c.evicted = c.evicted[:0]
}

// Usage returns how many embeddings are in the cache, and how many of them are in outputs with references.
func (c *Cache) Usage() (taken, referenced int) {
	return c.size - c.free, c.size - c.free - c.unreferenced
}

// An Input is a multimodal item. The encoder turns it into embeddings for the tokens [Offset, Offset+Length) of a
// prompt or, with a Mask, for some of these tokens.
type Input struct {
	Hash           string
	Offset, Length int
	NumEmbeds      int   // size of the output; equals Length without a Mask
	embedsBefore   []int // number of embeddings before each token; nil without a Mask
}

// Mask sets which tokens of the input take an embedding. isEmbed has a byte for each token of the prompt: 0 for text,
// another value for a token with an embedding (vLLM: PlaceholderRange.is_embed).
func (input *Input) Mask(isEmbed []byte) {
	input.embedsBefore = make([]int, input.Length+1)
	for k := range input.Length {
		input.embedsBefore[k+1] = input.embedsBefore[k]
		if isEmbed[input.Offset+k] != 0 {
			input.embedsBefore[k+1]++
		}
	}
	input.NumEmbeds = input.embedsBefore[input.Length]
}

// Embeds returns the number of the input's embeddings that belong to the tokens [start, end) of the prompt.
func (input *Input) Embeds(start, end int) int {
	start, end = max(start-input.Offset, 0), min(end-input.Offset, input.Length)
	switch {
	case end <= start:
		return 0
	case input.embedsBefore == nil:
		return end - start
	}
	return input.embedsBefore[end] - input.embedsBefore[start]
}

// A Request has the multimodal inputs of one request, and the request's references to outputs in the cache.
type Request struct {
	inputs []Input
	held   []int // indexes of the inputs to whose outputs it refers
}

// NewRequest returns a request without references. The inputs must be in ascending order and must not overlap.
func NewRequest(inputs []Input) *Request { return &Request{inputs: inputs} }

// Inputs returns the inputs of r, which must not be changed.
func (r *Request) Inputs() []Input { return r.inputs }

// Window returns the range [lo, hi) of the inputs that contain at least one of the tokens [start, end).
func (r *Request) Window(start, end int) (lo, hi int) {
	lo = sort.Search(len(r.inputs), func(i int) bool { return r.inputs[i].Offset+r.inputs[i].Length > start })
	hi = sort.Search(len(r.inputs), func(i int) bool { return r.inputs[i].Offset >= end })
	return lo, max(lo, hi)
}

// Shares reports whether r has a reference to the output of input i of the request o. If so, it returns the index of
// the input of r that has this output.
func (r *Request) Shares(o *Request, i int) (int, bool) {
	for _, h := range r.held {
		if r.inputs[h].Hash == o.inputs[i].Hash {
			return h, true
		}
	}
	return 0, false
}

// Check computes the counters and the lists again and returns an error if one of them is wrong.
func (c *Cache) Check() error {
	taken, unreferenced := 0, 0
	for hash, e := range c.entries {
		taken += e.embeds
		listed := slices.Contains(c.oldest, e)
		if listed != (len(e.users) == 0) || e.hash != hash {
			return invariants.Broken("%q has %d users and can be evicted: %v", hash, len(e.users), listed)
		}
		if listed {
			unreferenced += e.embeds
		}
		for _, r := range e.users {
			if !slices.ContainsFunc(r.held, func(i int) bool { return r.inputs[i].Hash == hash }) {
				return invariants.Broken("%q has a user that does not hold it", hash)
			}
		}
	}
	if taken != c.size-c.free || unreferenced != c.unreferenced || c.free < 0 {
		return invariants.Broken("the entries take %d of %d, %d unreferenced; the counters are %d free, %d unreferenced", taken, c.size, unreferenced, c.free, c.unreferenced)
	}
	return nil
}
