package replay

import (
	"encoding/binary"
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

type managerPlayer struct {
	watcher
	cache    *kvcache.Cache
	requests map[name]*kvcache.Request
	hit      kvcache.Hit
}

func cacheConfig(c *Config, hash blockhash.Function) kvcache.Config {
	out := kvcache.Config{
		NumGPUBlocks: c.NumBlocks, EnablePrefixCaching: c.Caching, EnableEvents: c.Events,
		MaxModelLen: c.MaxModelLen, Watermark: c.Watermark,
		SchedulerBlockSize: c.SchedulerBlock, HashBlockSize: c.HashBlock,
		RetentionInterval: kvcache.RetainAll, Eagle: c.Eagle,
	}
	if orTrue(c.Hashing) {
		out.Hash = hash
	}
	if c.Retention != nil {
		out.RetentionInterval = *c.Retention
	}
	if c.MaxInFlight != nil {
		out.MaxInFlightTokens = *c.MaxInFlight
	}
	for i, g := range c.Groups {
		kind := oneOf(fmt.Sprintf("group %d is", i), g.Kind, "full, swa, chunk or mamba", map[string]kvcache.Kind{
			"full": kvcache.Full, "swa": kvcache.SlidingWindow, "chunk": kvcache.ChunkedLocal, "mamba": kvcache.Mamba,
		})
		out.Groups = append(out.Groups, kvcache.Group{
			Kind: kind, BlockSize: g.Block, Window: g.Window, Chunk: g.Chunk, Align: g.Mode == "align",
		})
	}
	return out
}

func newManagerPlayer(c *Config, hash blockhash.Function) *managerPlayer {
	cache := mustGet(kvcache.New(cacheConfig(c, hash)))
	return &managerPlayer{watcher{pool: cache.Pool, config: c}, cache, map[name]*kvcache.Request{}, kvcache.Hit{}}
}

func (p *managerPlayer) play(op *Op, r result) {
	switch op.Name {
	case "new":
		p.add(op, r)
	case "evict":
		must(p.cache.Evict(op.Block))
	case "reset":
		r["ok"] = p.cache.Reset()
	case "stats":
		s := p.cache.Stats
		p.cache.Stats = kvcache.Stats{}
		r["s"] = row{s.Reset, s.Requests, s.Queries, s.Hits, s.Preempted, s.PreemptedQueries, s.Rehits}
	default:
		p.playRequest(p.requests[op.ID], op, r)
	}
}

func (p *managerPlayer) add(op *Op, r result) {
	spec := kvcache.Spec{Tokens: op.Tokens, Extras: op.extras(), NoRead: op.Skip}
	if op.LoRA != nil {
		spec.LoRAID = op.LoRA.ID
	}
	q := mustGet(p.cache.Add(spec))
	p.requests[op.ID] = q
	r.hashes(kvcache.Hashes(q))
}

func (p *managerPlayer) playRequest(q *kvcache.Request, op *Op, r result) {
	switch op.Name {
	case "get":
		p.cache.Lookup(q, &p.hit)
		blocks := row{}
		for _, ids := range p.hit.Blocks {
			blocks = append(blocks, append([]int32{}, ids...))
		}
		r["hit"], r["blk"], r["spb"] = p.hit.NumTokens, blocks, q.Junction
	case "alloc":
		p.alloc(q, op, r)
	case "append":
		q.Append(op.Tokens...)
		r.hashes(kvcache.Hashes(q))
	case "setcomp":
		q.NumComputedTokens = op.N
	case "cache":
		must(p.cache.Store(q, op.N))
	case "preempt":
		p.cache.Release(q, kvcache.Preempt, 0)
	case "free":
		p.cache.Release(q, kvcache.UndoAdmit, 0) // keeps the request: later operations may name it
	case "common":
		r["n"] = q.NumCommonPrefixBlocks([]int32{})
	default:
		unknown(op, "a manager")
	}
}

func (p *managerPlayer) alloc(q *kvcache.Request, op *Op, r result) {
	if q.NumComputedTokens != op.Computed {
		must(fmt.Errorf("alloc: request %q has %d computed tokens, the recording says %d", op.ID, q.NumComputedTokens, op.Computed))
	}
	a := kvcache.Alloc{
		NumNewTokens: op.New, NumLookaheadTokens: op.Lookahead, NumExternalTokens: op.External, DelayCacheBlocks: op.Delay, FullSequenceMustFit: op.Full,
		ReservedBlocks: op.Reserved, NothingScheduled: !orTrue(op.Scheduled), NumInFlightTokens: op.InFlight,
		Record: op.RecordStats,
	}
	if op.Use {
		a.Hit = &p.hit
	}
	ok := mustGet(p.cache.Allocate(q, &a))
	if ok {
		q.NumComputedTokens = op.Computed + op.Hit + op.External + op.New
	}
	fresh, tables, lengths, named := row{}, row{}, []int{}, []byte{}
	for g := range p.config.Groups {
		table := append([]int32{}, q.Table(g)...)
		tables = append(tables, table)
		lengths = append(lengths, len(table))
		for _, id := range table {
			named = binary.LittleEndian.AppendUint32(named, uint32(id))
		}
		named = append(named, 0xff, 0xff, 0xff, 0xff)
		if ok {
			fresh = append(fresh, kvcache.NewBlocks([]int32{}, q, g))
		}
	}
	r["ok"], r["nb"], r["th"] = ok, lengths, digest(named)
	if ok {
		r["after"], r["new"] = q.NumComputedTokens, fresh
	}
	if op.Table {
		r["table"] = tables
	}
}
