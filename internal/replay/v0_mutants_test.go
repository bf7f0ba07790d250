package replay

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// oldMutants are those of vLLM V0 and of what the paper compares.
var oldMutants = []mutant{
	{"the block freed last is taken first", "block/device.go",
		"d.free = append(d.free, id)\n", "d.free = append([]int32{id}, d.free...)\n", "v0_naive_small", ""},
	{"V0 begins with block 0", "v0/manager.go",
		"block.Ascending(0, config.GPU)", "block.Descending(0, config.GPU)", "v0_naive_oom0", ""},
	{"a shared block is copied before a write", "v0/append.go",
		"if m.gpu.Shared(s.table[at]) {\n\t\t\tdst", "if false {\n\t\t\tdst", "v0_naive_tight", ""},
	{"lookahead gets blocks", "v0/append.go",
		"for range m.freshBlocks(s, lookahead) {", "for range m.freshBlocks(s, 0) {", "v0_naive_lookahead.", ""},
	{"room is counted by touched blocks, old ones included", "v0/seq.go",
		"return 1 + ceil(", "return ceil(", "v0_naive_tight", ""},
	{"lookahead counts as touched", "v0/seq.go",
		"s.Unseen()+lookahead-room", "s.Unseen()-room", "v0_naive_lookahead.", ""},
	{"appending knows no watermark", "v0/append.go",
		"return touched <= m.FreeGPU()", "return touched <= m.FreeGPU()-m.watermark", "v0_naive_tight", ""},
	{"admission leaves the watermark", "v0/allocate.go",
		"return okOrLater(need, m.FreeGPU(), m.watermark)", "return okOrLater(need, m.FreeGPU(), 0)", "v0_naive_tight", ""},
	{"a prompt that only fits without the watermark never fits", "v0/allocate.go",
		"m.config.GPU-need < m.watermark", "m.config.GPU-need < 0", "", "v0"},
	{"a swap that only fits without the watermark is waited for", "v0/swap.go",
		"if m.config.GPU < need {", "if m.config.GPU < need+m.watermark {", "", "v0"},
	{"full blocks count for a swap", "v0/swap.go",
		"+ s.fullBlocks(m.config.Block)", "", "v0_naive_tight", ""},
	{"a table is freed in logical order", "v0/allocate.go",
		"for _, id := range ids {\n\t\tif id != m.null {\n\t\t\td.Drop(id)", "for i := range ids {\n\t\tif id := ids[len(ids)-1-i]; id != m.null {\n\t\t\td.Drop(id)", "v0_naive_small", ""},
	{"a sequence is swapped when its own blocks are free", "v0/swap.go",
		"\t\tm.drop(from, s.table)\n\t\tfor i, id := range s.table {\n", "\t\tfor i, id := range s.table {\n\t\t\tfrom.Drop(id)\n\t\t\tid += 0 * int32(i)\n\t\t\t_ = id\n\t\t}\n\t\tfor i, id := range s.table[:0] {\n", "v0_naive_tight", ""},
	{"a window needs two blocks more", "v0/manager.go",
		"m.config.Window/m.config.Block + 2", "m.config.Window/m.config.Block + 1", "v0_naive_swa", ""},
	{"the null block is taken at the first append", "v0/append.go",
		"for i := range m.outside(s, computed) {\n\t\tif id", "if m.outside(s, computed) == 0 {\n\t\tm.gpu.Drop(m.null)\n\t\tm.null = block.None\n\t\treturn\n\t}\n\tfor i := range m.outside(s, computed) {\n\t\tif id", "v0_naive_swa", ""},
	{"of equally old blocks the end of the longest prefix goes", "v0/prefix.go",
		"p.blocks[id].tokens > p.blocks[best].tokens", "p.blocks[id].tokens < p.blocks[best].tokens", "v0_prefix_evict", ""},
	{"younger blocks are not evicted", "v0/prefix.go",
		"if p.blocks[id].access > p.blocks[best].access {", "if false {", "v0_prefix_evict", ""},
	{"an access counts when the blocks are freed", "v0/prefix.go",
		"if s.accessed {", "if false {", "v0_prefix_evict", ""},
	{"a block that becomes full and is known is given up", "v0/prefix.go",
		"if id, hit := m.prefix.cached[key]; hit {\n\t\tm.gpu.Drop", "if id, hit := m.prefix.cached[key]; hit && false {\n\t\tm.gpu.Drop", "", "v0"},
	{"a restored block is computed", "v0/prefix.go",
		"m.prefix.track(id, true)", "m.prefix.track(id, false)", "v0_prefix_evict", ""},
	{"a promoted block is computed when it is marked", "v0/prefix.go",
		"b.touched = true\n", "b.touched, b.computed = true, true\n", "", "v0"},
	{"the last block never counts as computed", "v0/prefix.go",
		"last := len(s.table) - 1", "last := len(s.table)", "v0_prefix_small", ""},
	{"behind a gap the list stays", "v0/prefix.go",
		"s.gap = len(s.computed) < last", "s.gap = false", "", "v0"},
	{"a window's prompt is not written before it", "v0/slots.go",
		"return max(0, query-window)", "return 0", "v0_prefix_bs16", ""},
	{"victims come from the end of the queue", "v0/step.go",
		"victim := s.running.Tail()", "victim := s.running.Head()", "v0_sched_recompute", ""},
	{"a recomputed request waits in front", "v0/step.go",
		"s.waiting.PushFront(at) // so", "s.waiting.PushBack(at) // so", "v0_sched_recompute", ""},
	{"swapped requests keep others from being admitted", "v0/step.go",
		"if s.swapped.Len() == 0 {", "if s.swapped.Len() >= 0 {", "v0_sched_swap", ""},
	{"nothing is swapped in after a preemption", "v0/step.go",
		"t.failed != nil || len(t.it.Preempted) > 0", "t.failed != nil", "v0_sched_swap", ""},
	{"swapping in is not cut to the budget", "v0/step.go",
		"n := q.remaining()\n\t\tif !s.fits(n)", "n := s.chunked(q.remaining())\n\t\tif !s.fits(n)", "v0_sched_chunked_swap", ""},
	{"what is swapped in runs first, with chunks", "v0/step.go",
		"s.queueRunning(t.swappedDecodes, t.swappedFills, t.decodes, t.prefills, t.admitted)", "s.queueRunning(t.decodes, t.prefills, t.swappedDecodes, t.swappedFills, t.admitted)", "v0_sched_chunked_swap", ""},
	{"new prompts are the first of a batch", "v0/batch.go",
		"{t.admitted, t.prefills, t.swappedFills}", "{t.prefills, t.admitted, t.swappedFills}", "v0_sched_chunked.", ""},
	{"a prompt that never fits is dropped", "v0/step.go",
		"status = s.manager.CanAllocate(q.Len, 0)", "status = min(Later, s.manager.CanAllocate(q.Len, 0))", "v0_sched_chunked_swap", ""},

	{"the paper's system begins with the last block", "paper/manager.go",
		"gpu:       block.Descending(0, config.GPU)", "gpu:       block.Ascending(0, config.GPU)", "sosp_astra_small", ""},
	{"a copy is taken before the shared block is dropped, a full one is not copied", "paper/manager.go",
		"missing == 1:\n", "missing == 1 && len(s.table) > 1:\n", "sosp_astra_small", ""},
	{"swapping keeps what is shared", "paper/swap.go",
		"if seen.mark != m.mark {\n\t\t\t\t*seen", "if true {\n\t\t\t\t*seen", "sosp_astra_small", ""},
	{"swapping in leaves a block for each sequence", "paper/swap.go",
		"return m.gpu.NumFree()-(m.distinct(g)+g.Running()) >= m.watermark", "return m.gpu.NumFree()-m.distinct(g) >= m.watermark", "sosp_astra_small", ""},
	{"the target of a swap is taken before the source is dropped", "paper/swap.go",
		"table[j] = seen.to\n\t\t\tfrom.Drop(id)\n", "table[j] = seen.to\n\t\t\tdefer from.Drop(id)\n", "sosp_astra_small", ""},
	{"the chunk pushed last is taken", "paper/buddy.go",
		"at := b.lists[j].tail", "at := b.lists[j].head", "sosp_orca_power2", ""},
	{"a split keeps the lower half", "paper/buddy.go",
		"b.push(at+1<<j, j)", "b.push(at, j)\n\t\tat += 1 << j", "sosp_orca_power2", ""},
	{"free buddies are merged", "paper/buddy.go",
		"for k < len(b.lists)-1 {", "for false {", "sosp_orca_oracle", ""},
	{"a group gets all its chunks or none", "paper/buddy.go",
		"count -= b.lists[j].n << (j - k)", "count -= count * min(1, b.lists[j].n)", "sosp_orca_constant", ""},
	{"Pow2 reserves the next power of two", "paper/orca.go",
		"output = 1 << order(output)", "output = 1 << order(output+1)", "sosp_orca_power2", ""},
	{"no reservation is longer than a sequence", "paper/orca.go",
		"return min(prompt+output, longest)", "return prompt + output", "sosp_orca_constant", ""},
	{"the paper preempts the request that came last", "paper/scheduler.go",
		"victim := s.running.Tail()", "victim := at", "", "paper"},
	{"nobody preempted is admitted in the same step", "paper/scheduler.go",
		"if q.preempted == s.steps {\n\t\t\treturn nil\n\t\t}\n\t\tif !s.memory.possible", "if !s.memory.possible", "", "paper"},
	{"decodes count against the tokens of an iteration", "paper/scheduler.go",
		"it.Tokens += s.requests.At(at).Running()", "it.Tokens += 0 * s.requests.At(at).Running()", "", "paper"},
	{"a swapped group keeps others from being admitted", "paper/scheduler.go",
		"if s.swapped.Len() == 0 {", "if s.swapped.Len() >= 0 {", "", "paper"},
	{"several sequences are swapped, one is recomputed", "paper/systems.go",
		"p.alwaysSwap || q.Running() > 1", "p.alwaysSwap || q.Running() > 0", "", "paper"},
	{"blocks are freed in the order of the running queue", "queue/queue.go",
		"for at := q.Head(); at != None && n > 0; {\n\t\t\tnext := q.Next(at)", "for at := q.Tail(); at != None && n > 0; {\n\t\t\tnext := q.Prev(at)", "v0_sched_bs16 v0_sched_chunked.", ""},
	{"a static batch is answered as a whole", "paper/static.go",
		"if s.unfinished > 0 {", "if false {", "", "paper"},
}

// Ensure that each rule, when it is changed, is missed by a test.
func TestOldMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program for each mutant")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, m := range oldMutants {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			caught, output := m.try(t, root)
			require.True(t, caught, "nobody noticed: %s", output)
		})
	}
}
