package sched

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// The scenarios and expected values are those of vLLM's tests/v1/kv_connector/unit and tests/v1/core/test_scheduler.py
// at the commit that RULES.md names.

func transferConfig(blocks int) Config {
	c := large(blocks)
	c.AsVLLM, c.Connector = true, Connector{Consumer: true, Producer: true}
	return c
}

const eos = 9999

func remote(n int) Spec {
	return Spec{External: Match{n, true}, Stop: []int32{eos}, MaxTokens: 16}
}

func TestLifeOfARemotePrefill(t *testing.T) {
	h := newHost(t, transferConfig(100))
	id := h.add(40, 1, remote(40))
	require.Empty(t, h.schedule())
	require.Equal(t, []Loading{{ID: id, NumExternalTokens: 40}}, h.step.Loads)
	require.Equal(t, 40, h.computed(id))
	require.Len(t, h.table(id), 3)
	require.Zero(t, h.hashed(id), "nothing can be hit before it is loaded")
	require.Empty(t, h.schedule())
	require.Empty(t, h.step.Loads, "a load is listed once")
	require.NoError(t, h.Transfers.Received(id))
	require.Equal(t, []Row{{ID: id, Kind: KindNew, Samples: true, NumComputedTokens: 39, NumScheduledTokens: 1}}, h.schedule())
	require.Equal(t, 2, h.hashed(id))
	require.Empty(t, h.update(1))
	h.schedule()
	require.Equal(t, []Done{{ID: id, Reason: StopToken}}, h.update(eos))
	h.empty()
}

// Ensure that the counts of first admissions have a request once if it loses its loaded blocks before its first row and
// is admitted again.
func TestALoadThatIsTakenBackCountsOnce(t *testing.T) {
	config := transferConfig(4)
	config.AsVLLM = false
	h := newHost(t, config)
	h.add(16, 1, Spec{Stop: []int32{eos}, MaxTokens: 10})
	id := h.add(32, 2, remote(32))
	require.Len(t, h.schedule(), 1)
	require.Len(t, h.step.Loads, 1)
	require.NoError(t, h.Transfers.Received(id))
	h.update(1)
	require.Len(t, h.schedule(), 1, "its second token needs a block")
	require.Zero(t, h.computed(id), "the loaded blocks were taken back")
	h.update(eos)
	require.Equal(t, KindNew, h.schedule()[0].Kind)
	stats, counters := h.Monitor.TakeStats(), h.Scheduler.counters
	require.Equal(t, 2, stats.Requests)
	require.Equal(t, 48, stats.Queries)
	require.Equal(t, 1, stats.Preempted, "it is admitted again")
	require.Equal(t, 2, counters.External.Requests)
}

func TestALoadLeavesWhatOthersStillNeed(t *testing.T) {
	for _, test := range []struct {
		name   string
		blocks int
		loads  []int
		begun  int
	}{
		{"not enough after the first one's rest", 8, []int{1, 4}, 1},
		{"enough for both", 64, []int{1, 1}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t, transferConfig(test.blocks))
			h.add(16*4, 1, Spec{External: Match{16 * test.loads[0], true}})
			b := h.add(16*5, 2, Spec{External: Match{16 * test.loads[1], true}})
			h.schedule()
			require.Len(t, h.step.Loads, test.begun)
			require.Equal(t, test.begun == 1, len(h.table(b)) == 0)
		})
	}
}

func TestLifeOfARemoteDecode(t *testing.T) {
	for tokens, blocks := range map[int]int{40: 3, 8: 1} {
		h := newHost(t, transferConfig(100))
		id := h.add(tokens, 1, Spec{MaxTokens: 1, Send: true})
		require.Len(t, h.schedule(), 1)
		require.Equal(t, []Done{{ID: id, Reason: Length}}, h.update(1))
		require.Equal(t, 99-blocks, h.Monitor.Load().FreeBlocks)
		require.Len(t, h.table(id), blocks)
		require.Empty(t, h.schedule())
		require.Equal(t, []ID{id}, h.step.Finished)
		require.Empty(t, h.schedule())
		require.Empty(t, h.step.Finished)
		require.Equal(t, 1, h.Monitor.Load().Parked)
		require.ErrorIs(t, h.Transfers.Received(id), ErrRequest)
		require.NoError(t, h.Transfers.Sent(id))
		require.ErrorIs(t, h.Transfers.Sent(id), ErrRequest)
		h.empty()
	}
}

func TestExternalHitsAreCounted(t *testing.T) {
	for _, test := range []struct {
		name                             string
		local                            bool
		requests, tokens, hits, external int
	}{
		{"none in the cache", false, 2, 8, 0, 4},
		{"some in the cache", true, 1, 128, 64, 32},
	} {
		for _, async := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				c := transferConfig(1000)
				c.Cache.EnablePrefixCaching = test.local
				h := newHost(t, c)
				if test.local {
					h.add(test.hits, 1, Spec{MaxTokens: 2})
					for range 2 {
						h.run(1)
					}
					h.Monitor.TakeCounters()
				}
				var ids []ID
				for range test.requests {
					ids = append(ids, h.add(test.tokens, 1, Spec{External: Match{test.hits + test.external, async}}))
				}
				h.schedule()
				require.Equal(t, ExternalCounters{test.requests, (test.tokens - test.hits) * test.requests, test.external * test.requests},
					h.Monitor.TakeCounters().External)
				if async {
					require.NoError(t, h.Transfers.Received(ids...))
					h.schedule()
				}
				require.Zero(t, h.Monitor.TakeCounters().External, "they count when blocks are there, not again when they run")
			})
		}
	}
}

func TestAPreemptedRequestLoadsAgain(t *testing.T) {
	for _, async := range []bool{false, true} {
		c := transferConfig(7)
		c.Cache.Groups[0].BlockSize = 2
		h := newHost(t, c)
		var ids []ID
		for i := range 2 {
			ids = append(ids, h.add(5, i+1, Spec{External: Match{2, async}, MaxTokens: 4}))
		}
		if async {
			require.Empty(t, h.schedule())
			require.NoError(t, h.Transfers.Received(ids...))
		}
		for step, want := range [][]int{{3, 3}, {1, 1}, {1}, {1}} {
			var got []int
			for _, row := range h.schedule() {
				got = append(got, row.NumScheduledTokens)
			}
			require.Equal(t, want, got, "step %d", step)
			h.update(1)
		}
		require.Equal(t, Load{Waiting: 1, FreeBlocks: 6, Blocks: 6}, h.Monitor.Load())
		// 4 tokens of the request are in the cache, and the connector can load 2 more.
		require.NoError(t, h.Transfers.SetMatch(ids[1], Match{6, async}))
		if async {
			require.Empty(t, h.schedule())
			require.Equal(t, []Loading{{ID: ids[1], NumComputedTokens: 4, NumExternalTokens: 2}}, h.step.Loads)
			require.NoError(t, h.Transfers.Received(ids[1]))
		}
		rows := h.schedule()
		require.Len(t, rows, 1)
		require.Equal(t, 1, rows[0].NumScheduledTokens)
		require.Equal(t, KindResumed, rows[0].Kind)
		h.update(1)
		h.run(1)
		require.Equal(t, Load{FreeBlocks: 6, Blocks: 6}, h.Monitor.Load())
	}
}

func TestARequestWaitsForAnAnswer(t *testing.T) {
	h := newHost(t, transferConfig(100))
	id := h.add(32, 1, Spec{Ask: true, UserData: 5})
	other := h.add(32, 2, Spec{})
	require.Equal(t, other, h.schedule()[0].ID, "those after it do not wait")
	h.update(1)
	for range 2 {
		require.Len(t, h.schedule(), 1)
		require.Equal(t, []Query{{id, 5, 0}}, h.step.Queries)
		h.update(1)
	}
	require.NoError(t, h.Transfers.SetMatch(id, Match{16, false}))
	rows := h.schedule()
	require.Equal(t, Row{ID: id, UserData: 5, Kind: KindNew, Samples: true, NumComputedTokens: 16, NumScheduledTokens: 16, NumExternalTokens: 16}, rows[1])
	require.Empty(t, h.step.Queries)
	stats := h.Monitor.TakeStats()
	require.Equal(t, 2, stats.Requests, "it counts once, however often it was asked for")
	require.Equal(t, 64, stats.Queries)
}

// Ensure that a request keeps its Match if the step in which it is admitted fails: the next step uses the same Match.
// After a failed load, the request asks for a new Match.
func TestAnAnswerHoldsUntilItWasUsed(t *testing.T) {
	for _, async := range []bool{false, true} {
		c := transferConfig(100)
		c.AsVLLM = false
		h := newHost(t, c)
		id := h.add(32, 1, Spec{Ask: true})
		require.Empty(t, h.schedule())
		require.NoError(t, h.Transfers.SetMatch(id, Match{16, async}))
		if !async {
			require.Equal(t, 16, h.schedule()[0].NumExternalTokens)
			h.fail()
			require.Equal(t, 16, h.schedule()[0].NumExternalTokens)
			continue
		}
		require.Empty(t, h.schedule())
		h.loadFailed(h.table(id)...)
		require.NoError(t, h.Transfers.Received(id))
		require.Empty(t, h.schedule())
		require.Equal(t, []Query{{ID: id}}, h.step.Queries)
	}
}

// Ensure that the blocks of a request aborted during a load are kept until Received and Sent were both called, in
// either order. Sent is needed although there is nothing to send.
func TestAnAbortedLoadIsKeptUntilItIsOverAndSent(t *testing.T) {
	for _, sentFirst := range []bool{false, true} {
		h := newHost(t, transferConfig(100))
		spec := remote(40)
		spec.Send = true
		id := h.add(40, 1, spec)
		h.schedule()
		require.Equal(t, 1, h.Abort(id))
		require.Zero(t, h.computed(id))
		require.Empty(t, h.table(id))
		end := []func(...ID) error{h.Transfers.Received, h.Transfers.Sent}
		if sentFirst {
			end[0], end[1] = end[1], end[0]
		}
		require.NoError(t, end[0](id))
		require.Equal(t, 1, h.Monitor.Load().Parked)
		require.NoError(t, end[1](id))
		h.empty()
	}
}

func loadsIntoBlocks() Config {
	c := small(30)
	c.MaxNumBatchedTokens, c.Connector.Consumer, c.Cache.HashBlockSize = 64, true, 4
	c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 8}, {Kind: kvcache.Mamba, BlockSize: 8, Align: true}}
	return c
}

// A hit ends inside a block. Ensure that the connector loads this block only if the load brings more of the block's
// tokens than the hit (vllm/v1/RULES.md §19).
func TestALoadReplacesAPartOfABlockIfItIsMore(t *testing.T) {
	for external, want := range map[int][2]int{12: {12, 0}, 13: {13, 5}} {
		h := newHost(t, loadsIntoBlocks())
		h.add(14, 1, Spec{MaxTokens: 2})
		for h.unfinished() > 0 {
			h.run(1)
		}
		h.add(15, 1, Spec{External: Match{external, false}})
		row := h.schedule()[0]
		require.Equal(t, want, [2]int{row.NumComputedTokens, row.NumExternalTokens}, "%d tokens to load", external)
	}
}

// Ensure that nothing is sent for a request aborted in flight, neither loaded blocks nor blocks of a hit.
func TestNothingIsSentOfARequestAbortedInFlight(t *testing.T) {
	h := newHost(t, transferConfig(100))
	h.add(40, 1, Spec{MaxTokens: 1})
	h.run(1)
	id := h.add(48, 1, Spec{External: Match{47, false}, Send: true})
	row := h.schedule()[0]
	require.Equal(t, []int{47, 15}, []int{row.NumComputedTokens, row.NumExternalTokens})
	require.Equal(t, 1, h.Abort(id))
	require.Zero(t, h.computed(id))
	require.Empty(t, h.table(id))
	h.update(1)
	require.NoError(t, h.Transfers.Sent(id))
	h.empty()
}

func TestWhatWasLoadedIsSent(t *testing.T) {
	c := small(10)
	c.Connector = Connector{Consumer: true, Producer: true}
	h := newHost(t, c)
	id := h.add(13, 1, Spec{External: Match{8, false}, Send: true, MaxTokens: 3})
	require.Equal(t, 8, h.schedule()[0].NumExternalTokens)
	h.finish(1)
	require.Equal(t, 15, h.computed(id), "the last token is sampled only")
	require.Len(t, h.table(id), 4)
	require.NoError(t, h.Transfers.Sent(id))
	h.empty()
}

// A row of an aborted request was to load blocks. Ensure that these blocks cannot be hit, because the load may never
// happen.
func TestWhatAnAbortedRowLoadsCannotBeHit(t *testing.T) {
	c := small(20)
	c.Connector.Consumer = true
	h := newHost(t, c)
	id := h.add(13, 1, Spec{External: Match{8, false}})
	require.Equal(t, 8, h.schedule()[0].NumExternalTokens)
	h.Abort(id)
	h.update(1)
	h.add(13, 1, Spec{})
	require.Zero(t, h.schedule()[0].NumComputedTokens)
}

func TestStatesAreSentWhole(t *testing.T) {
	c := small(20)
	c.Connector.Producer = true
	c.Cache.Groups = append(c.Cache.Groups, kvcache.Group{Kind: kvcache.Mamba, BlockSize: 4, Align: true, NumSpeculativeBlocks: 2})
	h := newHost(t, c)
	id := h.add(6, 1, Spec{Send: true, MaxTokens: 2})
	h.finish(1)
	require.Len(t, h.tableOf(id, 0), 2)
	require.Len(t, h.tableOf(id, 1), 2+2)
}
