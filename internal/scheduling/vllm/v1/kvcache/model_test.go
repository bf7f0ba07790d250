package kvcache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/testkit/rapidtest"
)

func drawGroup(t *rapid.T) Group {
	g := Group{
		Kind:      rapid.SampledFrom([]Kind{Full, Full, SlidingWindow, ChunkedLocal, Mamba}).Draw(t, "kind"),
		BlockSize: rapid.SampledFrom([]int{2, 4}).Draw(t, "block"),
	}
	switch g.Kind {
	case SlidingWindow:
		g.Window = rapid.IntRange(1, 12).Draw(t, "window")
		g.Retained = rapid.IntRange(0, 2).Draw(t, "retained")
	case ChunkedLocal:
		g.Chunk = rapid.IntRange(1, 3).Draw(t, "chunk") * 4
	case Mamba:
		g.Align = rapid.Bool().Draw(t, "align")
		g.NumSpeculativeBlocks = rapid.IntRange(0, 2).Draw(t, "speculative")
	}
	return g
}

func drawCache(t *rapid.T) *Cache {
	config := Config{
		NumGPUBlocks:        rapid.IntRange(4, 40).Draw(t, "blocks"),
		Groups:              rapid.SliceOfN(rapid.Custom(drawGroup), 1, 3).Draw(t, "groups"),
		EnablePrefixCaching: rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "caching"),
		EnableEvents:        rapid.Bool().Draw(t, "events"),
		MaxModelLen:         48,
		MaxInFlightTokens:   rapid.IntRange(1, 48).Draw(t, "in flight"),
		Watermark:           rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "watermark"),
		Eagle:               rapid.SampledFrom([]bool{false, false, true}).Draw(t, "eagle"),
		RetentionInterval:   rapid.SampledFrom([]int{RetainAll, RetainAll, 0, 4, 8}).Draw(t, "retention"),
	}
	if config.EnablePrefixCaching {
		config.Hash = blockhash.LE{}
	}
	if len(config.Groups) > 1 {
		config.HashBlockSize = 2
	}
	c, err := New(config)
	if err != nil {
		require.ErrorIs(t, err, ErrConfig)
		t.Skip("not allowed")
	}
	return c
}

type world struct {
	*Cache
	memory *memory
	all    []*Request
	hit    Hit
}

func (w *world) draw(t *rapid.T, keep func(*Request) bool) *Request {
	var some []*Request
	for _, r := range w.all {
		if keep(r) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		t.Skip("no such request")
	}
	return rapid.SampledFrom(some).Draw(t, "request")
}

func (w *world) snapshot() []any {
	all := []any{slices.Collect(w.Pool.Queue()), w.Pool.NumKeys(), fmt.Sprint(w.copies, w.pins, w.Stats)}
	for id := range w.Pool.NumBlocks() {
		key, tokens, ok := w.Pool.Primary(int32(id))
		all = append(all, w.Pool.Count(int32(id)), key, tokens, ok)
	}
	for _, r := range w.live {
		all = append(all, slices.Clone(r.content.Tokens), r.NumComputedTokens, r.running, r.forked)
		for _, t := range r.tables {
			t.owns = false // being asked may make an owner
			t.ids = slices.Clone(t.ids)
			all = append(all, t)
		}
	}
	return all
}

// allocate calls Allocate and checks the state afterwards. At random, one group refuses to give blocks in the middle
// of the call.
func (w *world) allocate(t *rapid.T, r *Request, a Alloc) bool {
	hit := 0
	if a.Hit != nil {
		hit = a.Hit.NumTokens
	}
	from := r.NumComputedTokens + hit + a.NumExternalTokens
	w.leaveWindows(r, max(0, min(from, w.Config.MaxModelLen)-a.NumInFlightTokens))
	before := w.snapshot()
	if group := rapid.IntRange(-2, len(w.groups)-1).Draw(t, "failing group"); group >= 0 {
		w.refuse = func(g int) bool { return g == group }
		defer func() { w.refuse = nil }()
	}
	ok, err := w.Allocate(r, &a)
	require.NoError(t, err)
	if !ok {
		require.Equal(t, before, w.snapshot(), "a refused call changes nothing")
		return false
	}
	r.NumComputedTokens = from + a.NumNewTokens
	w.memory.step(w.Cache, r, r.NumComputedTokens-a.NumNewTokens-a.NumExternalTokens)
	return true
}

func waiting(r *Request) bool {
	return !slices.ContainsFunc(r.tables, func(t table) bool { return t.tracked || len(t.ids) > 0 }) && r.NumComputedTokens == 0
}

func working(r *Request) bool { return r.NumComputedTokens > 0 && r.NumComputedTokens < r.NumTokens() }

func (w *world) add(t *rapid.T) {
	if len(w.all) > 8 {
		t.Skip("enough requests")
	}
	r, err := w.Add(Spec{
		Tokens: rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 30).Draw(t, "tokens"),
		Extras: blockhash.Extras{Salt: rapid.SampledFrom([]string{"", "", "s"}).Draw(t, "salt")},
		NoRead: rapid.IntRange(0, 9).Draw(t, "no read") == 0,
	})
	require.NoError(t, err)
	w.all = append(w.all, r)
}

func (w *world) admit(t *rapid.T) {
	r := w.draw(t, waiting)
	w.StartStep(0)
	w.Lookup(r, &w.hit)
	require.Less(t, w.hit.NumTokens, r.NumTokens())
	a := Alloc{
		Hit:                 &w.hit,
		NumNewTokens:        rapid.IntRange(1, r.NumTokens()-w.hit.NumTokens).Draw(t, "new"),
		NumLookaheadTokens:  rapid.IntRange(0, 2).Draw(t, "lookahead"),
		FullSequenceMustFit: rapid.Bool().Draw(t, "must fit"),
		NothingScheduled:    rapid.Bool().Draw(t, "alone"),
		DelayCacheBlocks:    rapid.IntRange(0, 4).Draw(t, "delay") == 0,
	}
	if !w.hasMamba() && w.hit.NumTokens%w.Config.SchedulerBlockSize == 0 {
		a.NumExternalTokens = rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "external") * min(w.Config.SchedulerBlockSize, r.NumTokens()-w.hit.NumTokens-a.NumNewTokens)
	}
	w.allocate(t, r, a)
}

func (w *world) hasMamba() bool {
	return slices.ContainsFunc(w.groups, func(g group) bool { return g.Kind == Mamba })
}

func (w *world) extend(t *rapid.T) {
	r := w.draw(t, working)
	drafts := rapid.IntRange(0, 2).Draw(t, "drafts")
	remaining := w.Config.MaxModelLen - r.NumComputedTokens
	if remaining < 1 {
		t.Skip("the sequence is full")
	}
	w.StartStep(0)
	n := rapid.IntRange(1, r.NumTokens()-r.NumComputedTokens).Draw(t, "new")
	if r.NumComputedTokens+n == r.NumTokens() {
		n += drafts
	}
	if !w.allocate(t, r, Alloc{NumNewTokens: min(n, remaining), NumLookaheadTokens: rapid.IntRange(0, 2).Draw(t, "lookahead")}) {
		return
	}
	if over := r.NumComputedTokens - r.NumTokens(); over > 0 { // all drafts are rejected
		if rapid.Bool().Draw(t, "return blocks") {
			require.NoError(t, r.Rollback(r.NumTokens()))
		} else {
			r.NumComputedTokens = r.NumTokens()
		}
	}
}

// Ensure that no request attends to values that another request wrote.
func TestCacheStaysSound(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		w := &world{Cache: drawCache(t), memory: newMemory()}
		t.Repeat(map[string]func(*rapid.T){
			"add":    w.add,
			"admit":  w.admit,
			"extend": w.extend,
			"append": func(t *rapid.T) {
				r := w.draw(t, func(r *Request) bool {
					return r.NumComputedTokens == r.NumTokens() && r.NumComputedTokens < w.Config.MaxModelLen
				})
				r.Append(rapid.Int32Range(0, 1).Draw(t, "token"))
			},
			"store": func(t *rapid.T) {
				r := w.draw(t, func(r *Request) bool { return r.NumComputedTokens > 0 })
				require.NoError(t, w.Store(r, min(r.NumComputedTokens, r.NumTokens())))
			},
			"fork": func(t *rapid.T) {
				r := w.draw(t, func(r *Request) bool { return r.NumComputedTokens > 0 && len(w.all) < 12 })
				child, shares := w.Fork(r, true)
				require.Equal(t, !w.hasMamba(), shares)
				w.all = append(w.all, child)
				if child.NumComputedTokens < child.NumTokens() && child.NumTokens() > child.NumPromptTokens && rapid.Bool().Draw(t, "another token") {
					require.NoError(t, child.ReplaceLast(1-child.content.Tokens[child.NumTokens()-1]))
				}
			},
			"preempt": func(t *rapid.T) { w.Release(w.draw(t, working), Preempt, 0) },
			"drop": func(t *rapid.T) {
				r := w.draw(t, func(*Request) bool { return true })
				w.all = slices.DeleteFunc(w.all, func(o *Request) bool { return o == r })
				w.Release(r, Drop, 0)
			},
			"evict": func(t *rapid.T) {
				require.NoError(t, w.Evict(rapid.Int32Range(0, int32(w.Config.NumGPUBlocks-1)).Draw(t, "block")))
			},
			"reset": func(t *rapid.T) { w.Reset() },
			"common": func(t *rapid.T) {
				r := w.draw(t, func(*Request) bool { return true })
				require.Len(t, r.NumCommonPrefixBlocks(nil), len(w.groups))
			},
			"": func(t *rapid.T) {
				require.NoError(t, w.Check())
				for _, r := range w.all {
					require.NoError(t, w.memory.verify(w.Cache, r))
				}
			},
		})
	})
}
