package sched

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

type load struct {
	id     ID
	tables [][]int32
	values []uint64
	start  int
	end    int
}

type delivery struct {
	id     ID
	values []uint64
}

type engineTransfers struct {
	loads  []load
	sends  []delivery
	asking []ID
}

func (x *engineTransfers) pending() bool { return len(x.loads)+len(x.sends)+len(x.asking) > 0 }

func (e *engine) drawTransfers(t *rapid.T, spec *Spec) {
	c := e.config.Connector
	if c.Consumer && rapid.Bool().Draw(t, "external") {
		spec.External = e.drawMatch(t, len(spec.Tokens))
	}
	spec.Ask = c.Consumer && rapid.IntRange(0, 2).Draw(t, "ask") == 0
	spec.Send = c.Producer && rapid.Bool().Draw(t, "send")
}

// drawExtras draws an adapter for a request, and up to two items near the beginning of its prompt. Every second token
// of an item named dog is text.
func (e *engine) drawExtras(t *rapid.T, spec *Spec) {
	spec.LoRAID = int64(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "adapter"))
	spec.Extras.LoRA = []string{"", "ada", "bob"}[spec.LoRAID]
	if e.pictures {
		e.drawPictures(t, spec)
		return
	}
	spec.IsEmbed = make([]byte, len(spec.Tokens))
	at := rapid.IntRange(0, 1).Draw(t, "offset")
	for n := rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "items"); n > 0 && at+1 < len(spec.Tokens); n-- {
		item := rapid.SampledFrom([]string{"cat", "dog"}).Draw(t, "item")
		length := rapid.IntRange(1, min(14, len(spec.Tokens)-at-1)).Draw(t, "length")
		spec.Extras.Items = append(spec.Extras.Items, blockhash.Item{Identifier: fmt.Sprint(item, length), Offset: at, Length: length})
		for k := range length {
			if item == "cat" || k%2 == 0 {
				spec.IsEmbed[at+k] = 1
			}
		}
		at += length + rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "gap")
	}
}

func (e *engine) drawPictures(t *rapid.T, spec *Spec) {
	for at := 0; at+5 < len(spec.Tokens) && len(spec.Extras.Items) < 3; {
		length := rapid.IntRange(3, 5).Draw(t, "length")
		spec.Extras.Items = append(spec.Extras.Items, blockhash.Item{Identifier: fmt.Sprint(e.added%5, at, length), Offset: at, Length: length})
		at += length + rapid.IntRange(0, 2).Draw(t, "gap")
	}
}

func (e *engine) drawMatch(t *rapid.T, limit int) Match {
	return Match{rapid.IntRange(0, limit).Draw(t, "match"), rapid.Bool().Draw(t, "async")}
}

// noteTransfers records the queries and loads of a step. At random, it finishes some loads before the steps in flight
// have run.
func (e *engine) noteTransfers(t *rapid.T, step *Step) {
	x := &e.transfers
	x.asking = x.asking[:0]
	for _, q := range step.Queries {
		x.asking = append(x.asking, q.ID)
	}
	for _, l := range step.Loads {
		r := e.requests.Get(uint64(l.ID))
		now := load{id: l.ID, values: e.worker.values(l.ID, r.kv.Tokens()), start: l.NumComputedTokens, end: l.NumComputedTokens + l.NumExternalTokens}
		for g := range e.worker.groups {
			now.tables = append(now.tables, slices.Clone(r.kv.Table(g)))
		}
		if rapid.Bool().Draw(t, "there at once") {
			e.worker.fill(&now, nil)
		}
		x.loads = append(x.loads, now)
	}
}

// checkZeroBlocks requires that a step zeroes the new blocks of running requests, and only blocks of its rows.
func (e *engine) checkZeroBlocks(t *rapid.T, step *Step) {
	var tables []int32
	for i, row := range step.Rows {
		for g := range e.worker.groups {
			tables = append(tables, e.live(row.ID).kv.Table(g)...)
			if row.Kind == KindRunning && e.config.ZeroNewBlocks && e.worker.groups[g].Kind != kvcache.Mamba {
				require.Subset(t, step.ZeroBlocks, step.RowBlocks(i, g))
			}
		}
	}
	require.Subset(t, tables, step.ZeroBlocks, "only blocks of rows")
	for _, tail := range step.Tails {
		require.True(t, slices.ContainsFunc(step.Copies, func(c Copy) bool { return c.Dst == tail.Block && c.Group == tail.Group }))
		for g := range e.worker.groups {
			require.NotContains(t, e.live(tail.ID).kv.Table(g), tail.Block)
		}
	}
}

func (w *worker) fill(l *load, failed map[int32]bool) {
	for g, group := range w.groups {
		for p := l.start; p < l.end; p++ {
			at := p / group.BlockSize
			if at >= len(l.tables[g]) || l.tables[g][at] == 0 {
				continue
			}
			id := l.tables[g][at]
			value := l.values[p]
			if failed[id] {
				w.garbage++
				value = w.garbage
			}
			place := int64(id)*int64(group.BlockSize) + int64(p%group.BlockSize)
			if group.Kind == kvcache.Mamba { // the last token's state remains
				place = int64(id) * int64(group.BlockSize)
			}
			w.memory[g][place] = value
		}
	}
}

func (e *engine) drawFailed(t *rapid.T, l *load) map[int32]bool {
	failed := map[int32]bool{}
	if e.finishing || rapid.IntRange(0, 3).Draw(t, "load fails") > 0 {
		return failed
	}
	for g, group := range e.worker.groups {
		for at := l.start / group.BlockSize; at*group.BlockSize < l.end && at < len(l.tables[g]); at++ {
			if id := l.tables[g][at]; id != 0 && at*group.BlockSize >= l.start && rapid.Bool().Draw(t, "block fails") {
				failed[id] = true
			}
		}
	}
	return failed
}

func (e *engine) loadFailed(t *rapid.T, failed map[int32]bool) (void []int) {
	if len(failed) == 0 {
		return nil
	}
	blocks := slices.Sorted(maps.Keys(failed))
	var announced, out FailedLoad
	require.NoError(t, e.Transfers.Affected(&announced, blocks...))
	require.NoError(t, e.Transfers.LoadFailed(&out, blocks...))
	require.Equal(t, announced, out)
	require.NoError(t, e.Check())
	for _, id := range out.Affected {
		e.worker.computed[id] = e.live(id).kv.NumComputedTokens
	}
	for _, v := range out.Void {
		f := e.flights[v.Step]
		f.spoiled[f.step.Rows[v.Row].ID] = true
		if v.Step == 0 {
			void = append(void, v.Row)
		}
	}
	return void
}

func (e *engine) receive(t *rapid.T) {
	x := &e.transfers
	if len(x.loads) == 0 {
		t.Skip("nothing is being loaded")
	}
	l := x.loads[0]
	x.loads = x.loads[1:]
	failed := e.drawFailed(t, &l)
	e.worker.fill(&l, failed)
	e.loadFailed(t, failed)
	require.NoError(t, e.Transfers.Received(l.id))
	require.ErrorIs(t, e.Transfers.Received(l.id), ErrRequest)
	require.NoError(t, e.Check())
}

// loadRows does the loads of rows before the rows are computed. A row whose load fails is void.
func (e *engine) loadRows(t *rapid.T, jobs []job) {
	for i := range jobs {
		l := e.loadOf(&jobs[i])
		if l.start == l.end {
			continue
		}
		failed := e.drawFailed(t, &l)
		e.worker.fill(&l, failed)
		for _, at := range e.loadFailed(t, failed) {
			jobs[at].void, jobs[at].spoiled = true, true
		}
	}
}

func (e *engine) spoilRows(jobs []job) {
	for i := range jobs {
		l := e.loadOf(&jobs[i])
		failed := map[int32]bool{}
		for _, table := range l.tables {
			for _, id := range table {
				failed[id] = true
			}
		}
		e.worker.fill(&l, failed)
	}
}

func (e *engine) loadOf(j *job) load {
	l := load{id: j.row.ID, start: j.row.NumComputedTokens - j.row.NumExternalTokens, end: j.row.NumComputedTokens}
	if l.start < l.end {
		l.values = e.worker.values(l.id, e.worker.tokens[l.id])
		l.tables = e.worker.tables[l.id]
	}
	return l
}

func (e *engine) answer(t *rapid.T) {
	x := &e.transfers
	if len(x.asking) == 0 {
		t.Skip("no request asks")
	}
	id := x.asking[0]
	x.asking = x.asking[1:]
	require.NoError(t, e.Transfers.SetMatch(id, e.drawMatch(t, e.live(id).kv.NumTokens())))
}

func (e *engine) endTransfers(id ID) {
	x := &e.transfers
	x.asking = slices.DeleteFunc(x.asking, func(o ID) bool { return o == id })
	if r := e.requests.Get(uint64(id)); r != nil && r.transfers.send {
		x.sends = append(x.sends, delivery{id, e.worker.values(id, r.kv.Tokens())})
	}
}

func (e *engine) send(t *rapid.T) {
	x := &e.transfers
	if len(x.sends) == 0 {
		t.Skip("nothing is being sent")
	}
	d := x.sends[0]
	x.sends = x.sends[1:]
	if !slices.ContainsFunc(x.loads, func(l load) bool { return l.id == d.id }) { // else they are not there yet
		e.checkDelivery(t, d)
	}
	require.NoError(t, e.Transfers.Sent(d.id))
	require.ErrorIs(t, e.Transfers.Sent(d.id), ErrRequest)
	require.NoError(t, e.Check())
}

func (e *engine) checkDelivery(t *rapid.T, d delivery) {
	computed, _, err := e.Monitor.NumComputedTokens(d.id)
	require.NoError(t, err)
	for g, group := range e.worker.groups {
		table, err := e.Monitor.Table(nil, d.id, g)
		require.NoError(t, err)
		if group.Kind == kvcache.Mamba {
			continue
		}
		for p := range computed {
			if at := p / group.BlockSize; at < len(table) && table[at] != 0 {
				slot := int64(table[at])*int64(group.BlockSize) + int64(p%group.BlockSize)
				require.Equal(t, d.values[p], e.worker.memory[g][slot], "group %d, token %d of %d in block %d", g, p, computed, table[at])
			}
		}
	}
}

func (e *engine) endAll(t *rapid.T) {
	for len(e.transfers.loads) > 0 {
		e.receive(t)
	}
	for len(e.transfers.sends) > 0 {
		e.send(t)
	}
	for len(e.transfers.asking) > 0 {
		e.answer(t)
	}
}
