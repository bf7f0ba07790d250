package kvoffload

import (
	"context"
	"errors"

	"llmmemory/internal/scheduling/blockhash"
)

// A Chain combines tiers, the fastest first. It stores each block in all tiers. It loads leading blocks from
// the first tier, the blocks after them from the second tier, and so on.
type Chain []Tier

// Count implements Tier.
func (c Chain) Count(ctx context.Context, blocks []blockhash.Hash) (n int, err error) {
	for _, t := range c {
		count, e := t.Count(ctx, blocks[n:])
		n, err = n+count, errors.Join(err, e)
	}
	return n, err
}

// Load implements Tier.
func (c Chain) Load(ctx context.Context, blocks []blockhash.Hash, dst [][]byte) (n int, err error) {
	for _, t := range c {
		if ctx.Err() != nil { // an earlier tier's read may still write to the memory
			break
		}
		count, e := t.Load(ctx, blocks[n:], dst[n:])
		n, err = n+count, errors.Join(err, e)
	}
	return n, err
}

// Store implements Tier.
func (c Chain) Store(ctx context.Context, block blockhash.Hash, m Memory) (err error) {
	for _, t := range c {
		err = errors.Join(err, t.Store(ctx, block, m))
	}
	return err
}

// Close implements Tier.
func (c Chain) Close() (err error) {
	for _, t := range c {
		err = errors.Join(err, t.Close())
	}
	return err
}
