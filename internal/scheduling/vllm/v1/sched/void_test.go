package sched

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

func TestWhatWasComputedFromAFailedLoadCannotBeHit(t *testing.T) {
	c := transferConfig(100)
	c.AsVLLM, c.MaxConcurrentBatches, c.AsyncScheduling = false, 2, true
	h := newHost(t, c)
	a := h.add(48, 1, Spec{External: Match{32, false}})
	h.schedule()
	long := append(tokens(48, 1), tokens(32, 7)...)
	b := add(t, h.Scheduler, Spec{Tokens: long})
	rows := h.schedule()
	require.Equal(t, 48, rows[1].NumComputedTokens)
	invalid := h.table(a)[1]
	h.lose(b)
	h.loadFailed(invalid)
	h.update(1)
	require.Equal(t, 1, h.Abort(b))
	h.update(1)
	h.schedule() // a computes its blocks again
	h.update(1)
	c2 := add(t, h.Scheduler, Spec{Tokens: long})
	rows = h.schedule()
	require.Equal(t, c2, rows[len(rows)-1].ID)
	require.LessOrEqual(t, rows[len(rows)-1].NumComputedTokens, 48, "b's own blocks were computed from what was not there")
}

func TestAHitOfWhatWasComputedFromAFailedLoadIsGivenUp(t *testing.T) {
	c := transferConfig(100)
	c.AsVLLM, c.MaxConcurrentBatches, c.MaxNumBatchedTokens = false, 3, 48
	c.Cache.Groups = []kvcache.Group{{Kind: kvcache.Full, BlockSize: 16}, {Kind: kvcache.SlidingWindow, BlockSize: 16, Window: 16}}
	h := newHost(t, c)
	first := h.add(64, 1, Spec{External: Match{16, false}})
	require.Len(t, h.schedule(), 1)
	invalid := h.tableOf(first, 1)
	second := h.add(80, 1, Spec{})
	require.Len(t, h.schedule(), 1)
	computed := h.computed(second)
	require.Positive(t, computed)
	theirs := h.tableOf(second, 1)
	require.NotContains(t, theirs, invalid[0])
	affected := h.loadFailed(invalid[0])
	require.Equal(t, []ID{first, second}, affected)
	require.NoError(t, h.Check())
}

// A failed load makes a request start again, while an earlier row of this request is still in flight. Ensure that the
// failed load of another request is handled correctly in this state.
func TestALoadFailsAfterARequestWithTwoRowsHasGoneBack(t *testing.T) {
	for _, test := range []struct {
		name      string
		asVLLM    bool
		blockSize int
		external  int
	}{
		{"blocks of one token", false, 1, 44},
		{"blocks of one token, as vLLM", true, 1, 44},
		{"blocks of sixteen tokens", false, 16, 48},
		{"blocks of sixteen tokens, as vLLM", true, 16, 48},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := transferConfig(200)
			c.AsVLLM, c.MaxConcurrentBatches, c.AsyncScheduling = test.asVLLM, 2, true
			c.Cache.Groups[0].BlockSize = test.blockSize
			h := newHost(t, c)
			back := h.add(85, 1, Spec{External: Match{test.external, false}})
			other := h.add(20, 200, Spec{External: Match{16, true}})
			require.Len(t, h.schedule(), 1)
			require.Len(t, h.schedule(), 1)
			affected := h.loadFailed(h.table(back)[0])
			require.Equal(t, []ID{back}, affected)
			h.update(1)
			require.Zero(t, h.out.Kept[0])
			require.Zero(t, h.computed(back))
			affected = h.loadFailed(h.table(other)[0])
			require.Equal(t, []ID{other}, affected)
			require.NoError(t, h.Transfers.Received(other))
			h.update(1)
			require.Zero(t, h.out.Kept[0], "its second row was computed from what did not come")
			rows := h.schedule()
			require.Len(t, rows, 2)
			require.Equal(t, []int{85, 20}, []int{rows[0].NumScheduledTokens, rows[1].NumScheduledTokens})
		})
	}
}

// Ensure that a row is void if it reads a block that a void row v has written. The row can be in the same step as v or
// in a later step. What happened to the request of v must make no difference.
func TestWhoReadsWhatAVoidRowWritesIsVoid(t *testing.T) {
	for _, test := range []struct {
		name   string
		action func(h *host, first ID)
	}{
		{"the request runs", func(*host, ID) {}},
		{"the request is aborted", func(h *host, first ID) { require.Equal(h.t, 1, h.Abort(first)) }},
		{"the request has lost its blocks", (*host).lose},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := small(200)
			c.MaxNumBatchedTokens, c.AsyncScheduling, c.Connector.Consumer = 200, true, true
			c.Cache.Groups[0].BlockSize = 2
			h := newHost(t, c)
			h.add(13, 1, Spec{MaxTokens: 1})
			h.finish(9)

			first := h.add(38, 1, Spec{NoRead: true, External: Match{3, false}})
			long := append(tokens(30, 1), tokens(8, 2)...)
			second := add(t, h.Scheduler, Spec{Tokens: long[:35]})
			clean := add(t, h.Scheduler, Spec{Tokens: append(tokens(12, 1), tokens(8, 3)...)})
			require.Len(t, h.schedule(), 3)
			third := add(t, h.Scheduler, Spec{Tokens: long})
			rows := h.schedule()
			require.Equal(t, 34, rows[len(rows)-1].NumComputedTokens, "it hits the second request's blocks")

			invalid := h.table(first)[0]
			require.NotContains(t, h.table(second), invalid)
			require.NotContains(t, h.table(third), invalid)
			test.action(h, first)
			var out FailedLoad
			require.NoError(t, h.Transfers.LoadFailed(&out, invalid))
			affected := []ID{second, third}
			if h.Monitor.Live(first) {
				affected = append(affected, first)
			}
			require.ElementsMatch(t, affected, out.Affected)
			var void []ID
			for _, v := range out.Void {
				void = append(void, h.steps[v.Step].Rows[v.Row].ID)
			}
			require.ElementsMatch(t, []ID{first, second, first, second, third}, void)
			require.NotContains(t, void, clean)
			h.finish(9)
			require.Zero(t, h.unfinished())
		})
	}
}

// A request loses its blocks and waits, while its row is in flight. Ensure that this row is void if the load of a block
// fails.
func TestARowOfAWaitingRequestIsVoid(t *testing.T) {
	for _, test := range []struct {
		name   string
		asVLLM bool
		failed func(id ID) FailedLoad
		kept   int32
	}{
		{"correct", false, func(id ID) FailedLoad { return FailedLoad{[]ID{id}, []VoidRow{{0, 0}}} }, 0},
		{"as vLLM", true, func(ID) FailedLoad { return FailedLoad{} }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := transferConfig(100)
			c.AsVLLM, c.AsyncScheduling, c.Connector = test.asVLLM, true, Connector{Consumer: true}
			h := newHost(t, c)
			id := h.add(48, 1, Spec{External: Match{32, false}})
			require.Len(t, h.schedule(), 1)
			missing := h.table(id)[0]
			h.lose(id)
			var out FailedLoad
			require.NoError(t, h.Transfers.LoadFailed(&out, missing))
			require.Equal(t, test.failed(id), out)
			h.update(1)
			require.Equal(t, []int32{test.kept}, h.out.Kept)
		})
	}
}

// The load of a block fails. Ensure that a row is void if it reads a copy of this block.
func TestWhoReadsACopyOfWhatWasNotLoadedIsVoid(t *testing.T) {
	c := loadsIntoBlocks()
	c.PipelineParallelSize = 3
	h := newHost(t, c)
	first := h.add(14, 1, Spec{External: Match{10, false}})
	require.Equal(t, []int{2}, scheduled(h.schedule()))
	failed := h.table(first)[1]
	require.Equal(t, []int{2}, scheduled(h.schedule()))
	second := h.add(14, 1, Spec{})
	require.Equal(t, []int{2}, scheduled(h.schedule()))
	require.NotContains(t, h.table(second), failed)
	var out FailedLoad
	require.NoError(t, h.Transfers.LoadFailed(&out, failed))
	require.Equal(t, []VoidRow{{0, 0}, {1, 0}, {2, 0}}, out.Void)
	require.ElementsMatch(t, []ID{first, second}, out.Affected)
}
