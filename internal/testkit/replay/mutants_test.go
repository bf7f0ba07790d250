package replay

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/source"
)

// A mutant changes one rule of a scheduler: it replaces a text that occurs once in a file below internal/scheduling.
type mutant struct {
	rule             string
	file             string
	old, replacement string
	recordings       string // prefixes of names of recordings; the replay of one of them must differ
}

var mutants = []mutant{
	{"unhashed blocks go to the head of the queue", "vllm/v1/pool/pool.go",
		"p.link(id, prev)\n\t\treturn id", "p.link(id, p.recs[p.end()].prev)\n\t\treturn prev", "p01"},
	{"blocks freed together keep their order", "vllm/v1/pool/pool.go",
		"p.link(id, prev)\n\t\treturn id", "p.link(id, p.end())\n\t\treturn id", "p01"},
	{"a touched block leaves the queue", "vllm/v1/pool/pool.go",
		"p.unlink(id)", "p.recs[id].count += 0", "p01"},
	{"a popped block loses its keys", "vllm/v1/pool/pool.go",
		"if rec.tokens != 0 {\n\t\t\tp.forget", "if false {\n\t\t\tp.forget", "p01"},
	{"a lookup gives the first of equal blocks", "vllm/v1/pool/index.go",
		"return p.owner(p.slots[i].head - 1), true", "return p.owner(p.entry(p.slots[i].head - 1).older), true", "p01"},
	{"an event is sent even if nothing is stored", "vllm/v1/pool/register.go",
		"if p.config.EnableEvents {\n\t\tp.recordStored", "if p.config.EnableEvents && mask == nil {\n\t\tp.recordStored", "m08"},
	{"a later run of hashes starts at the last item", "vllm/v1/pool/register.go",
		"cursor := blockhash.Last", "cursor := blockhash.Cursor(0)", "m05"},
	{"an item's offset counts from its block", "blockhash/key.go",
		"Int: int64(item.Offset - start)", "Int: int64(max(0, item.Offset-start))", "m05"},
	{"the salt is in the first block only", "blockhash/key.go",
		`e.Salt != "" && start == 0`, `e.Salt != ""`, "m05"},
	{"a table is freed from its end", "vllm/v1/kvcache/free.go",
		"c.pool.Free(t.ids)", "slices.Reverse(t.ids)\n\t\tc.pool.Free(t.ids)", "m01"},
	{"the last token is never hit", "vllm/v1/kvcache/lookup.go",
		"limit := r.NumTokens() - 1", "limit := r.NumTokens()", "m04"},
	{"the watermark counts the null block", "vllm/v1/kvcache/cache.go",
		"1) * float64(config.NumGPUBlocks)", "1) * float64(config.NumGPUBlocks-1)", "m19"},
	{"running requests see no watermark", "vllm/v1/kvcache/allocate.go",
		"if !r.running && !a.NothingScheduled {", "if !a.NothingScheduled {", "m10 m19"},
	{"reserved blocks are left to others", "vllm/v1/kvcache/allocate.go",
		"c.Pool.NumFree()-a.ReservedBlocks {", "c.Pool.NumFree() {", "m10"},
	{"drafts are not registered", "vllm/v1/kvcache/allocate.go",
		"c.register(r, min(d.main, r.NumTokens()), d.main)", "c.register(r, min(d.main, (len(r.content.Hashes)+1)*c.Config.HashBlockSize), d.main)", "m12"},
	{"delayed blocks are not registered yet", "vllm/v1/kvcache/allocate.go",
		"c.Config.EnablePrefixCaching && !a.DelayCacheBlocks {\n\t\tc.register(r, min(d.main", "c.Config.EnablePrefixCaching {\n\t\tc.register(r, min(d.main", "m15"},
	{"windows are left on the settled tokens", "vllm/v1/kvcache/allocate.go",
		"max(0, d.total-a.NumInFlightTokens)", "d.total", "m06 m07 m16"},
	{"window blocks are freed from the last one", "vllm/v1/kvcache/free.go",
		"c.pool.Free(t.ids[start:end])", "slices.Reverse(t.ids[start:end])\n\t\t\tc.pool.Free(t.ids[start:end])", "m06"},
	{"a window may begin inside a block", "vllm/v1/kvcache/group.go",
		"tokens), g.BlockSize) + 1", "tokens), g.BlockSize)", "m06 m07 m08 s06"},
	{"a hit needs a whole window", "vllm/v1/kvcache/lookup_kinds.go",
		"ceil(g.Window-1, g.BlockSize)", "ceil(g.Window, g.BlockSize)", "m09"},
	{"a short run that reaches block 0 is a hit", "vllm/v1/kvcache/lookup_kinds.go",
		"\t\tend = run //", "\t\tend, run = 0, 0 //", "m06"},
	{"EAGLE gives the last block up", "vllm/v1/kvcache/lookup_kinds.go",
		"tokens -= min(unit, size)", "tokens -= 0", "m12"},
	{"tokens before the chunk are hit unseen", "vllm/v1/kvcache/lookup_kinds.go",
		"n := floorTo(max(limit, 0), s.spec.Chunk) / size\n\tappendNull(s, hit, n)", "n := 0", "m13"},
	{"hybrid registration ends at a boundary of hits", "vllm/v1/kvcache/register.go",
		"whole = floorTo(numTokens, c.Config.SchedulerBlockSize)", "whole = numTokens", "m09"},
	{"sparse retention keeps the prompt's last boundary", "vllm/v1/kvcache/retention.go",
		"replay := r.NumPromptTokens - 1", "replay := r.NumPromptTokens", "m08 s06"},
	{"sparse retention keeps the junction", "vllm/v1/kvcache/retention.go",
		"cmp.Or(r.Junction, replay)", "cmp.Or(replay, r.Junction)", "m08 s06"},
	{"preempted requests are counted apart", "vllm/v1/kvcache/stats.go",
		"if readmitted {", "if readmitted && false {", "m10"},
	{"a common block has as many references as owners", "vllm/v1/kvcache/plan.go",
		"c.Pool.Count(id) != int32(g.owners)", "c.Pool.Count(id) < 2", "m11"},
	{"a state stored in this step is not hit", "vllm/v1/kvcache/mamba.go",
		"n > 0 && c.justStored(g, hits[n-1])", "n > 0 && false", "s07 s09"},
	{"the prompt's state moves to a copy", "vllm/v1/kvcache/mamba.go",
		"c.pool.Move(src, dst)", "_ = src", "s09"},
	{"no request is admitted after a preemption", "vllm/v1/sched/schedule.go",
		"admits && !b.starved", "admits", "s01 s02 s03"},
	{"a preempted request waits in front", "vllm/v1/sched/scheduler.go",
		"s.waiting.pushFront(r)", "s.waiting.push(r)", "s01 s03"},
	{"of equal victims the first is taken", "vllm/v1/sched/order.go",
		"r.priority == w.priority && r.arrival > w.arrival", "r.priority == w.priority && r.arrival >= w.arrival", "s02"},
	{"long prompts are computed in parts", "vllm/v1/sched/admit.go",
		"if limit := s.config.LongPrefillTokenThreshold; limit > 0 {", "if limit := 0; limit > 0 {", "s04"},
	{"decodes are padded to equal rows", "vllm/v1/sched/admit.go",
		"padding && s.config.NumSpeculativeTokens > 0", "!padding && s.config.NumSpeculativeTokens > 0", "s05"},
	{"rejected drafts are computed again", "vllm/v1/sched/update.go",
		"computed := r.kv.NumComputedTokens - n", "computed := r.kv.NumComputedTokens - max(0, n-1)", "s05"},
	{"a whole sequence must fit", "vllm/v1/sched/admit.go",
		"FullSequenceMustFit: !s.config.AdmitChunks", "FullSequenceMustFit: s.config.AdmitChunks", "s01 s02"},
	{"prompts are not split without chunks", "vllm/v1/sched/admit.go",
		"s.config.DisableChunkedPrefill && n", "false && n", "s08"},
	{"a chunk ends where a state can be cached", "vllm/v1/sched/mamba.go",
		"for _, stop := range m.stops(r, start, end) {", "for _, stop := range [4]int{} {", "s07 s09"},
}

// Ensure that the recordings cover each rule: if the rule is changed, the replay of some recording differs.
func TestEveryChangedRuleDiffersFromARecording(t *testing.T) {
	for _, m := range slices.Concat(mutants, oldMutants) {
		t.Run(m.rule, func(t *testing.T) {
			list := source.Replace(t, filepath.Join("../../scheduling", m.file), m.old, m.replacement)
			if !level.Exhaustive() {
				return
			}
			names := "^(" + strings.ReplaceAll(m.recordings, " ", "|") + ")"
			out, err := exec.Command("go", "test", "-buildvcs=false", "-vet=off", "-ldflags=-s -w", "-overlay", list,
				"-run", "^TestEveryRecordingPlaysEqual$/"+names, "-count=1", "-timeout=2m", ".").CombinedOutput()
			require.Error(t, err, "it plays as recorded")
			require.Contains(t, string(out), "--- FAIL: TestEveryRecordingPlaysEqual/")
		})
	}
}
