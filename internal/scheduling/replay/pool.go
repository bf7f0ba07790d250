package replay

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// poolPlayer plays the recordings of a pool alone.
type poolPlayer struct {
	watcher
	p        *pool.Pool
	ids      []int32
	hash     blockhash.Function
	contents map[name]*pool.Content
}

func newPoolPlayer(c *Config, hash blockhash.Function) (*poolPlayer, error) {
	p, err := pool.New(pool.Config{
		NumGPUBlocks: c.NumBlocks, EnableCaching: c.Caching, HashBlockSize: c.HashBlock, EnableEvents: c.Events,
	})
	if err != nil {
		return nil, err
	}
	return &poolPlayer{
		watcher:  watcher{pool: p.View, take: p.View.TakeEvents, config: c},
		p:        p,
		hash:     hash,
		contents: map[name]*pool.Content{},
	}, nil
}

func (p *poolPlayer) apply(op *Op, r result) error {
	if err := p.checkIDs(op); err != nil {
		return err
	}
	switch op.Name {
	case "pget":
		ids, err := p.p.Get([]int32{}, op.N)
		switch {
		case errors.Is(err, pool.ErrNoBlocks):
			r["err"] = "ValueError"
		case err != nil:
			return err
		default:
			r["ids"] = ids
		}
	case "pfree":
		p.ids = append(p.ids[:0], op.IDs...)
		slices.Reverse(p.ids) // Free frees the last id first
		p.p.Free(p.ids)
	case "ptouch":
		p.p.Touch(op.IDs)
	case "pevict":
		p.p.Evict(op.Block)
	case "preset":
		r["ok"] = p.p.Reset()
	default:
		return p.applyContent(op, r)
	}
	return nil
}

// checkIDs refuses ids that the pool does not have.
func (p *poolPlayer) checkIDs(op *Op) error {
	for _, id := range append([]int32{op.Block}, op.IDs...) {
		if id < 0 || int(id) >= p.pool.NumBlocks() {
			return fmt.Errorf("%s names block %d of a pool of %d", op.Name, id, p.pool.NumBlocks())
		}
	}
	return nil
}

// applyContent plays the operations that need a request's tokens.
func (p *poolPlayer) applyContent(op *Op, r result) error {
	if op.Name == "pnew" {
		c := &pool.Content{Tokens: op.Tokens, Extras: op.extras()}
		p.contents[op.ID] = c
		c.Extend(p.hash, p.config.HashBlock)
		r.hashes(c.Hashes)
		return nil
	}
	c := p.contents[op.ID]
	if c == nil {
		return fmt.Errorf("%s names request %q, which does not exist", op.Name, op.ID)
	}
	switch op.Name {
	case "pdrop":
		delete(p.contents, op.ID)
	case "pcache":
		if op.NF > len(op.IDs) || op.Size%p.config.HashBlock != 0 || op.NF*op.Size > len(c.Tokens) {
			return fmt.Errorf("pcache: %d full blocks of %d tokens, with %d blocks and %d tokens", op.NF, op.Size, len(op.IDs), len(c.Tokens))
		}
		p.p.Register(c, op.IDs, op.Hit, op.NF, op.Size, op.Group, op.Mask)
	case "ppart":
		if op.New%p.config.HashBlock != 0 || op.New <= 0 || op.New > len(c.Tokens) {
			return fmt.Errorf("ppart: %d tokens are no boundary of %d in %d", op.New, p.config.HashBlock, len(c.Tokens))
		}
		if key, ok := p.p.RegisterPart(c, op.Block, op.New, op.Group); ok {
			r["key"] = row{key.Hash.Short(), key.Group}
		} else {
			r["key"] = nil
		}
	case "plook":
		if op.Hash < 0 || op.Hash >= len(c.Hashes) {
			return fmt.Errorf("plook: hash %d of %d", op.Hash, len(c.Hashes))
		}
		r["ids"] = p.look(&c.Hashes[op.Hash], op.Groups)
	default:
		return fmt.Errorf("there is no operation %q in a recording of a pool", op.Name)
	}
	return nil
}

// look returns the blocks of a hash in all groups, or nil if a group has none.
func (p *poolPlayer) look(h *blockhash.Hash, groups []uint32) any {
	ids := []int32{}
	for _, g := range groups {
		id, ok := p.p.Lookup(h, g)
		if !ok {
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// hashes sets the fields with the number of a request's hashes and the last one.
func (r result) hashes(all []blockhash.Hash) {
	r["nh"], r["lh"] = len(all), nil
	if n := len(all); n > 0 {
		r["lh"] = all[n-1].Short()
	}
}

func (op *Op) extras() blockhash.Extras {
	e := blockhash.Extras{Salt: op.Salt}
	if op.LoRA != nil {
		e.LoRA = op.LoRA.Name
	}
	for _, i := range op.Items {
		e.Items = append(e.Items, blockhash.Item(i))
	}
	return e
}
