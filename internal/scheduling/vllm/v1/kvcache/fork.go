package kvcache

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
)

// ErrFork is wrapped when the last token of a request cannot be replaced.
var ErrFork = errors.New("cannot fork")

// Fork makes a request with the tokens of r, for parallel sampling and beam search. If share is true, the child
// shares all blocks of r. If a block is partly filled, the first of the two requests that writes to it gets a copy
// (see Pending). Mamba groups overwrite their state in every step, so with Mamba groups nothing is shared. Fork
// reports whether the blocks are shared.
func (c *Cache) Fork(r *Request, share bool) (child *Request, shares bool) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	shares = share && c.plain
	child = c.clone(r, shares)
	if !shares {
		return child, false
	}
	child.NumComputedTokens, child.running, child.Junction = r.NumComputedTokens, r.running, r.Junction
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
	return child, true
}

// clone makes a request with the tokens of r and no blocks. If runs is false, the new request reads the arrays of r
// until it needs longer arrays.
func (c *Cache) clone(r *Request, runs bool) *Request {
	child := c.blank()
	if runs {
		child.content.Tokens = append(child.content.Tokens, r.content.Tokens...)
		child.content.Hashes = append(child.content.Hashes, r.content.Hashes...)
	} else {
		child.content.Tokens, child.content.Hashes = slices.Clip(r.content.Tokens), slices.Clip(r.content.Hashes)
		r.lent, child.lent = true, true
	}
	child.content.Extras, child.content.LoRAID = r.content.Extras, r.content.LoRAID
	child.NumPromptTokens, child.noRead, child.report = r.NumPromptTokens, r.noRead, r.report
	return child
}

// ReplaceLast changes the last token. This token must be generated and not computed yet.
func (r *Request) ReplaceLast(token int32) error {
	c := r.cache
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	last := r.NumTokens() - 1
	if r.NumComputedTokens > last || last < r.NumPromptTokens {
		return fmt.Errorf("%w: token %d is computed already, or of the prompt", ErrFork, last)
	}
	for i := range r.tables {
		if r.tables[i].registered*c.groups[i].BlockSize > last {
			return fmt.Errorf("%w: token %d is in a block that is registered", ErrFork, last)
		}
	}
	if r.lent {
		r.content.Tokens, r.content.Hashes = slices.Clone(r.content.Tokens), slices.Clone(r.content.Hashes)
		r.lent = false
	}
	r.content.Tokens[last] = token
	if c.Config.Hash != nil {
		r.content.Hashes = r.content.Hashes[:last/c.Config.HashBlockSize]
		r.hash()
	}
	return nil
}

// Rollback sets the number of computed tokens of r to a lower number, because drafts were rejected. It frees the
// blocks after these tokens, which vLLM keeps. Mamba groups keep all their blocks. If computed is out of range, or
// if a block after it is registered, Rollback changes nothing and returns an error that wraps ErrRequest.
func (r *Request) Rollback(computed int) error {
	c := r.cache
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	if computed < 0 || computed > r.NumComputedTokens {
		return fmt.Errorf("%w: roll back to %d tokens from %d", ErrRequest, computed, r.NumComputedTokens)
	}
	for i := range r.tables {
		if n := r.tables[i].registered; n*c.groups[i].BlockSize > computed {
			return fmt.Errorf("%w: roll back to %d tokens, but %d blocks of %d are registered", ErrRequest, computed, n, c.groups[i].BlockSize)
		}
	}
	r.NumComputedTokens = computed
	for i := range r.tables {
		t := &r.tables[i]
		keep := min(ceil(computed, c.groups[i].BlockSize), len(t.ids))
		if c.groups[i].Kind == Mamba {
			continue
		}
		c.pool.Free(t.ids[keep:])
		t.ids = t.ids[:keep]
	}
	return nil
}
