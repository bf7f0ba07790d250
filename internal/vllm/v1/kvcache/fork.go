package kvcache

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
)

// ErrFork is wrapped when a request cannot be forked.
var ErrFork = errors.New("cannot fork")

// Fork makes a request with the same tokens that shares all blocks of r, for
// parallel sampling and beam search. The first of the two to write to a block
// that is shared and partly filled gets a copy of it (see TakeCopies), the last
// one writes in place. room is how many tokens to make room for.
//
// Mamba groups overwrite their state in every step, so they cannot share it.
func (c *Cache) Fork(r *Request, room int) (*Request, error) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	for i := range c.groups {
		if c.groups[i].Kind == Mamba {
			return nil, fmt.Errorf("%w: group %d is Mamba, whose state cannot be shared", ErrFork, i)
		}
	}
	child := c.Clone(r, room)
	child.computed, child.running, child.junction = r.computed, r.running, r.junction
	for i := range r.tables {
		from, to := &r.tables[i], &child.tables[i]
		to.ids = append(to.ids, from.ids...)
		to.registered, to.tracked = from.registered, from.tracked
		c.pool.Touch(to.ids)
		if from.owns {
			c.own(&c.groups[i], to)
		}
	}
	r.forked, child.forked = true, true
	return child, nil
}

// Clone makes a request with the same tokens and no blocks.
func (c *Cache) Clone(r *Request, room int) *Request {
	child := c.blank()
	child.content.Tokens = append(slices.Grow(child.content.Tokens, max(room, r.NumTokens())), r.content.Tokens...)
	c.reserve(child, max(room, r.NumTokens()))
	child.content.Hashes = append(child.content.Hashes, r.content.Hashes...)
	child.content.Extras, child.content.LoRAID = r.content.Extras, r.content.LoRAID
	child.prompt, child.noRead, child.report = r.prompt, r.noRead, r.report
	return child
}

// ReplaceLast changes the last token, which must not be computed yet: the
// children of a beam differ there.
func (c *Cache) ReplaceLast(r *Request, token int32) error {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	last := r.NumTokens() - 1
	if r.computed > last || last < r.prompt {
		return fmt.Errorf("%w: token %d is computed already, or of the prompt", ErrFork, last)
	}
	for i := range r.tables {
		if r.tables[i].registered*c.groups[i].BlockSize > last {
			return fmt.Errorf("%w: token %d is in a block that is registered", ErrFork, last)
		}
	}
	r.content.Tokens[last] = token
	if c.config.Hash != nil {
		r.content.Hashes = r.content.Hashes[:last/c.config.HashBlockSize]
		c.hash(r)
	}
	return nil
}

// Rollback moves the computed tokens of r back, over drafts that were rejected,
// and frees the blocks after them (V1 keeps them, see
// SetNumComputedTokens). Mamba groups keep all their blocks. The error wraps ErrRequest if computed
// is out of range or a block after it is registered; nothing has changed then.
func (c *Cache) Rollback(r *Request, computed int) error {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	if computed < 0 || computed > r.computed {
		return fmt.Errorf("%w: roll back to %d tokens from %d", ErrRequest, computed, r.computed)
	}
	for i := range r.tables {
		if n := r.tables[i].registered; n*c.groups[i].BlockSize > computed {
			return fmt.Errorf("%w: roll back to %d tokens, but %d blocks of %d are registered", ErrRequest, computed, n, c.groups[i].BlockSize)
		}
	}
	r.computed = computed
	for i := range r.tables {
		t := &r.tables[i]
		keep := min(ceil(computed, c.groups[i].BlockSize), len(t.ids))
		if c.groups[i].Kind == Mamba {
			continue
		}
		c.pool.FreeTable(t.ids[keep:])
		t.ids = t.ids[:keep]
	}
	return nil
}
