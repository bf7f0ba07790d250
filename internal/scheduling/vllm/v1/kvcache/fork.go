package kvcache

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/invariants"
)

// ErrFork is wrapped by the errors of ReplaceLast.
var ErrFork = errors.New("cannot fork")

// Fork returns a new request with the tokens of r, for parallel sampling and beam search, and whether the two requests
// share blocks. They share all blocks of r if share is true and no group is Mamba: Mamba groups overwrite their state
// in every step. If a shared block is partly filled, the first of the two requests that writes to it gets a copy (see
// Pending).
func (c *Cache) Fork(r *Request, share bool) (child *Request, shares bool) {
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	shares = share && c.noMamba
	child = c.clone(r, shares)
	if !shares {
		return child, false
	}
	child.NumComputedTokens, child.running, child.Junction = r.NumComputedTokens, r.running, r.Junction
	for i := range r.tables {
		src, dst := &r.tables[i], &child.tables[i]
		dst.ids = append(dst.ids, src.ids...)
		dst.registered, dst.tracked = src.registered, src.tracked
		c.pool.Touch(dst.ids)
		if src.owns {
			c.addOwner(&c.groups[i], dst)
		}
	}
	r.forked, child.forked = true, true
	return child, true
}

// clone returns a new request with the tokens of r and no blocks. If runs is true, the new request will run at once and
// gets its own arrays of tokens and hashes. If runs is false, both requests use the same arrays until one of them needs
// longer arrays or replaces a token.
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

// ReplaceLast replaces the last token of r. It returns an error if this token is computed already, is a token of the
// prompt, or is in a registered block.
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

// Rollback reduces the number of computed tokens of r to numTokens, because drafts were rejected, and frees the blocks
// that have no computed token any more. (vLLM keeps these blocks.) Mamba groups keep all their blocks. If numTokens is
// out of range, or if a registered block ends after numTokens, Rollback changes nothing and returns an error that wraps
// ErrRequest.
func (r *Request) Rollback(numTokens int) error {
	c := r.cache
	if invariants.Enabled {
		defer invariants.Hold(c.Check)
	}
	if numTokens < 0 || numTokens > r.NumComputedTokens {
		return fmt.Errorf("%w: roll back to %d tokens from %d", ErrRequest, numTokens, r.NumComputedTokens)
	}
	for i := range r.tables {
		if n := r.tables[i].registered; n*c.groups[i].BlockSize > numTokens {
			return fmt.Errorf("%w: roll back to %d tokens, but %d blocks of %d are registered", ErrRequest, numTokens, n, c.groups[i].BlockSize)
		}
	}
	r.NumComputedTokens = numTokens
	for i := range r.tables {
		t := &r.tables[i]
		keep := min(ceil(numTokens, c.groups[i].BlockSize), len(t.ids))
		if c.groups[i].Kind == Mamba {
			continue
		}
		c.pool.Free(t.ids[keep:])
		t.ids = t.ids[:keep]
	}
	return nil
}
