package replay

import (
	"errors"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

type poolPlayer struct {
	watcher
	p        *pool.Pool
	ids      []int32
	hash     blockhash.Function
	contents map[name]*pool.Content
}

func newPoolPlayer(c *Config, hash blockhash.Function) *poolPlayer {
	p := mustGet(pool.New(pool.Config{
		NumGPUBlocks: c.NumBlocks, EnableCaching: c.Caching, HashBlockSize: c.HashBlock, EnableEvents: c.Events,
	}))
	return &poolPlayer{watcher: watcher{pool: p.View, config: c}, p: p, hash: hash, contents: map[name]*pool.Content{}}
}

func (p *poolPlayer) play(op *Op, r result) {
	switch op.Name {
	case "pget":
		ids, err := p.p.Get([]int32{}, op.N)
		if errors.Is(err, pool.ErrNoBlocks) {
			r["err"] = "ValueError"
		} else {
			r["ids"] = mustGet(ids, err)
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
		p.playContent(p.contents[op.ID], op, r)
	}
}

func (p *poolPlayer) playContent(c *pool.Content, op *Op, r result) {
	switch op.Name {
	case "pnew":
		c := &pool.Content{Tokens: op.Tokens, Extras: op.extras()}
		p.contents[op.ID] = c
		c.Extend(p.hash, p.config.HashBlock)
		r.hashes(c.Hashes)
	case "pdrop":
		delete(p.contents, op.ID)
	case "pcache":
		p.p.Register(c, op.IDs, op.Hit, op.NF, op.Size, op.Group, op.Mask)
	case "ppart":
		if key, ok := p.p.RegisterPart(c, op.Block, op.New, op.Group); ok {
			r["key"] = row{key.Hash.Short(), key.Group}
		} else {
			r["key"] = nil
		}
	case "plook":
		r["ids"] = p.look(&c.Hashes[op.Hash], op.Groups)
	default:
		unknown(op, "a pool")
	}
}

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

func (r result) hashes(list []blockhash.Hash) {
	r["nh"], r["lh"] = len(list), nil
	if n := len(list); n > 0 {
		r["lh"] = list[n-1].Short()
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
