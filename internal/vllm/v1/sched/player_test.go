package sched

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/kvcache"
)

// A player is a scheduler and a worker that checks what each row reads, for scenarios
// without drafts.
type player struct {
	*Scheduler
	t       *testing.T
	worker  *worker
	flights []*flying
	failed  map[int32]bool // blocks that are not loaded
	out     Outcome
}

func newPlayer(t *testing.T, c Config) *player {
	return &player{Scheduler: newSmall(t, c), t: t, worker: newWorker(&c)}
}

func (p *player) add(spec Spec) ID {
	id := add(p.t, p.Scheduler, spec)
	p.worker.extras[id] = spec.Extras
	return id
}

// schedule returns the rows of the next step.
func (p *player) schedule() []Row {
	f := &flying{known: map[ID][]int32{}, spoiled: map[ID]bool{}}
	require.NoError(p.t, p.Schedule(&f.step))
	require.NoError(p.t, p.Check())
	for _, row := range f.step.Rows {
		if row.Kind != KindRunning {
			f.known[row.ID] = slices.Clone(p.live(row.ID).kv.Tokens())
		}
	}
	if len(f.step.Rows) == 0 {
		p.worker.begin(&f.step, nil)
		return nil
	}
	p.flights = append(p.flights, f)
	return slices.Clone(f.step.Rows)
}

// compute runs the oldest step and returns what the worker has found wrong. Each row that samples
// samples token.
func (p *player) compute(token int32) error {
	f := p.flights[0]
	p.flights = p.flights[1:]
	p.worker.begin(&f.step, f.known)
	var jobs []job
	var counts, sampled []int32
	for _, row := range f.step.Rows {
		r := p.live(row.ID)
		jobs = append(jobs, job{
			row: row, start: row.NumComputedTokens, writes: row.NumScheduledTokens,
			void: f.spoiled[row.ID] || r == nil || r.stale > 0 && r.dropStale, gone: r == nil, spoiled: f.spoiled[row.ID],
		})
		if jobs[len(jobs)-1].void && r != nil { // it went back before the worker got this row
			p.worker.computed[row.ID] = r.kv.NumComputedTokens - (r.inFlight - r.stale)
		}
		if n := row.NumExternalTokens; n > 0 {
			w := p.worker
			w.fill(&load{
				tables: w.tables[row.ID], values: w.values(row.ID, w.tokens[row.ID]),
				start: row.NumComputedTokens - n, end: row.NumComputedTokens,
			}, p.failed)
		}
		counts = append(counts, 0)
		if row.Samples {
			counts[len(counts)-1] = 1
			sampled = append(sampled, token)
		}
	}
	err := p.worker.run(&f.step, jobs)
	require.NoError(p.t, p.Update(counts, sampled, &p.out))
	require.NoError(p.t, p.Check())
	for i, row := range f.step.Rows {
		if jobs[i].void {
			continue
		}
		p.worker.computed[row.ID] = row.NumComputedTokens + row.NumScheduledTokens
		for range p.out.Kept[i] {
			p.worker.tokens[row.ID] = append(p.worker.tokens[row.ID], token)
		}
	}
	return err
}

// fail reports that blocks are not loaded, and returns the affected requests.
func (p *player) fail(blocks ...int32) FailedLoad {
	var out FailedLoad
	require.NoError(p.t, p.Transfers.LoadFailed(&out, blocks...))
	require.NoError(p.t, p.Check())
	p.failed = map[int32]bool{}
	for _, id := range blocks {
		p.failed[id] = true
	}
	for _, v := range out.Void {
		f := p.flights[v.Step]
		f.spoiled[f.step.Rows[v.Row].ID] = true
	}
	return out
}

// finish plays to the end with as many steps in flight as may be.
func (p *player) finish(token int32) {
	for {
		if len(p.flights) < p.config.MaxConcurrentBatches && p.schedule() != nil {
			continue
		}
		if len(p.flights) == 0 {
			return
		}
		require.NoError(p.t, p.compute(token))
	}
}

// Ensure that a request whose padded decode takes more blocks than its tokens need reserves none, and not fewer than
// none, when another loads in the same step.
func TestAPaddedDecodeReservesNothing(t *testing.T) {
	for _, asVLLM := range []bool{false, true} {
		s := newSmall(t, Config{
			MaxNumSeqs: 4, MaxNumBatchedTokens: 64, NumSpeculativeTokens: 2, Connector: Connector{Consumer: true}, AsVLLM: asVLLM,
			Cache: kvcache.Config{
				NumGPUBlocks: 60, MaxModelLen: 60, EnablePrefixCaching: true, Hash: blockhash.LE{},
				Groups: []kvcache.Group{
					{Kind: kvcache.Full, BlockSize: 4}, {Kind: kvcache.Mamba, BlockSize: 4, Align: true, NumSpeculativeBlocks: 2},
				},
			},
		})
		var step Step
		add(t, s, Spec{Tokens: tokens(3, 1)})
		loaded := add(t, s, Spec{Tokens: tokens(3, 2)})
		one(t, s, &step)
		r := s.live(loaded)
		s.removeRunning(r)
		s.preempt(r)
		require.NoError(t, s.Transfers.SetMatch(loaded, Match{3, true}))
		one(t, s, &step)
		require.NoError(t, s.Transfers.Received(loaded))
		loads := add(t, s, Spec{Tokens: tokens(9, 3), External: Match{9, true}})
		require.NoError(t, s.Schedule(&step))
		require.NoError(t, s.Check())
		require.Equal(t, 3, step.Rows[1].NumScheduledTokens, "it is padded")
		require.Equal(t, loads, step.Loads[0].ID)
	}
}

// Ensure that a chunk ends where a block of each Mamba group ends that it began inside: that block gets its key there.
func TestAChunkEndsWithTheBlocksOfAllMambaGroups(t *testing.T) {
	p := newPlayer(t, Config{
		MaxNumSeqs: 2, MaxNumBatchedTokens: 8,
		Cache: kvcache.Config{
			NumGPUBlocks: 100, MaxModelLen: 60, EnablePrefixCaching: true, Hash: blockhash.LE{}, RetentionInterval: kvcache.RetainAll,
			Groups: []kvcache.Group{
				{Kind: kvcache.Mamba, BlockSize: 16, Align: true}, {Kind: kvcache.Full, BlockSize: 8}, {Kind: kvcache.Mamba, BlockSize: 8, Align: true},
			},
		},
	})
	prompt := tokens(20, 1)
	p.add(Spec{Tokens: tokens(6, 2), MaxTokens: 1})
	p.add(Spec{Tokens: prompt, MaxTokens: 1})
	require.Equal(t, 2, p.schedule()[1].NumScheduledTokens)
	require.NoError(t, p.compute(9))
	p.finish(9)
	p.add(Spec{Tokens: prompt[:9], MaxTokens: 1, NoRead: true}) // the other group gets its state after 8 tokens
	p.finish(9)
	p.add(Spec{Tokens: prompt[:9], MaxTokens: 1})
	require.Equal(t, 8, p.schedule()[0].NumComputedTokens)
	require.NoError(t, p.compute(9))
}

// Ensure that a request whose load failed in part neither zeroes nor writes a block that another request has, and has
// computed again.
func TestABlockOfAFailedLoadThatOthersHaveIsNotWritten(t *testing.T) {
	c := small(40)
	c.Connector.Consumer, c.ZeroNewBlocks, c.MaxNumBatchedTokens = true, true, 40
	p := newPlayer(t, c)
	prompt := tokens(20, 1)
	first := p.add(Spec{Tokens: prompt, External: Match{16, false}})
	second := p.add(Spec{Tokens: append(prompt[:10:10], tokens(4, 2)...), External: Match{12, true}})
	p.schedule()
	table, err := p.Monitor.Table(nil, first, 0)
	require.NoError(t, err)
	shared, err := p.Monitor.Table(nil, second, 0)
	require.NoError(t, err)
	require.Equal(t, table[:2], shared[:2])
	require.Equal(t, []ID{second, first}, p.fail(table[1]).Affected)
	require.NoError(t, p.compute(9))
	require.Len(t, p.schedule(), 1)
	require.NoError(t, p.compute(9))
	require.NoError(t, p.Transfers.Received(second))
	require.Len(t, p.schedule(), 2)
	step := &p.flights[0].step
	require.NotContains(t, step.ZeroBlocks, table[1])
	row := step.Rows[1]
	require.Equal(t, second, row.ID)
	require.NotContains(t, step.RowBlocks(1, 0)[row.NumComputedTokens/4:], table[1])
	require.NoError(t, p.compute(9))
	p.finish(9)
}
