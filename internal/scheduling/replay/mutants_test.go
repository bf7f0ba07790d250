package replay

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "llmmemory/internal/testkit/gcpercent"
	"llmmemory/internal/testkit/level"
)

// A mutant is one rule changed: text of a file, which occurs once, and what
// stands there instead. The recordings named must differ then.
type mutant struct {
	rule       string
	file       string
	from, to   string
	recordings string // beginnings of names
}

var mutants = []mutant{
	{"unhashed blocks go to the head of the queue", "vllm/v1/pool/pool.go",
		"p.link(id, at)\n\t\treturn id", "p.link(id, p.recs[p.end()].prev)\n\t\treturn at", "p01"},
	{"blocks freed together keep their order", "vllm/v1/pool/pool.go",
		"p.link(id, at)\n\t\treturn id", "p.link(id, p.end())\n\t\treturn id", "p01"},
	{"a touched block leaves the queue", "vllm/v1/pool/pool.go",
		"p.unlink(id)", "p.recs[id].count += 0", "p01"},
	{"a popped block loses its keys", "vllm/v1/pool/pool.go",
		"if rec.tokens != 0 {\n\t\t\tp.forget", "if false {\n\t\t\tp.forget", "p01"},
	{"a lookup gives the first of equal blocks", "vllm/v1/pool/index.go",
		"return p.owner(p.slots[i].head - 1), true", "return p.owner(p.entry(p.slots[i].head - 1).older), true", "p01"},
	{"an event is sent even if nothing is stored", "vllm/v1/pool/register.go",
		"if p.config.EnableEvents {\n\t\tp.recordStored", "if p.config.EnableEvents && mask == nil {\n\t\tp.recordStored", "m08"},
	{"a later run of hashes starts at the last item", "vllm/v1/pool/register.go",
		"at := blockhash.Last", "at := blockhash.Cursor(0)", "m05"},
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
		"whole = floorTo(tokens, c.Config.SchedulerBlockSize)", "whole = tokens", "m09"},
	{"sparse retention keeps the prompt's last boundary", "vllm/v1/kvcache/retention.go",
		"replay := r.NumPromptTokens - 1", "replay := r.NumPromptTokens", "m08 s06"},
	{"sparse retention keeps the junction", "vllm/v1/kvcache/retention.go",
		"return [2]int{replay, r.Junction}", "return [2]int{replay, replay}", "m08 s06"},
	{"preempted requests are counted apart", "vllm/v1/kvcache/stats.go",
		"if again {", "if again && false {", "m10"},
	{"a common block has as many references as owners", "vllm/v1/kvcache/plan.go",
		"c.Pool.Count(id) != int32(g.owners)", "c.Pool.Count(id) < 2", "m11"},
	{"a state stored in this step is not hit", "vllm/v1/kvcache/mamba.go",
		"n > 0 && c.justStored(g, hits[n-1])", "n > 0 && false", "s07 s09"},
	{"the prompt's state moves to a copy", "vllm/v1/kvcache/mamba.go",
		"c.pool.Move(own, private)", "_ = own", "s09"},
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

// Ensure that each rule, when it is changed, is missed by a recording. All changes are in one build
// of a program that plays recordings.
func TestMutantsAreCaught(t *testing.T) {
	level.SkipQuick(t)
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	mutants := slices.Concat(mutants, oldMutants)
	s := switches{root, map[string]map[string][]string{}}
	plan, every := []string{}, []string{} // what to play, of which every recording at last with no change
	for i, m := range mutants {
		require.NoError(t, s.add(i+1, &m))
		files := recordings(t, root, m.recordings)
		plan = append(plan, fmt.Sprint(i+1, " ", strings.Join(files, " ")))
		every = append(every, files...)
	}
	slices.Sort(every)
	plan = append(plan, "0 "+strings.Join(slices.Compact(every), " "))
	program := filepath.Join(t.TempDir(), "verify")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-overlay", s.write(t), "-o", program, "./internal/scheduling/replay/testdata/verify")
	cmd.Dir = root
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	found := playPlan(t, program, plan)
	require.Empty(t, found["0"], "with no rule changed")
	for i, m := range mutants {
		require.NotEmpty(t, found[strconv.Itoa(i+1)], "%s: it plays as recorded", m.rule)
	}
}

// playPlan lets one process play the plan, whose lines are the number of a change and the recordings,
// and returns by number in what they differ. A change that ends the process is caught, too:
// then another goes on behind it.
func playPlan(t *testing.T, program string, plan []string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for len(plan) > 0 {
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader(strings.Join(plan, "\n"))
		text, err := cmd.CombinedOutput()
		for line := range strings.Lines(string(text)) {
			number, _, _ := strings.Cut(plan[0], " ")
			answer, isAnswer := strings.CutPrefix(line, "played "+number+":")
			if !isAnswer {
				continue
			}
			found[number] = strings.TrimSpace(answer)
			if plan = plan[1:]; len(plan) == 0 {
				return found
			}
		}
		require.Error(t, err, "%s", text)
		number, _, _ := strings.Cut(plan[0], " ")
		found[number], plan = fmt.Sprint(err, string(text)), plan[1:]
	}
	return found
}

// recordings finds the files whose names begin so.
func recordings(t *testing.T, root, names string) (files []string) {
	for name := range strings.FieldsSeq(names) {
		found, err := filepath.Glob(filepath.Join(root, "testdata/traces/*", name+"*"))
		require.NoError(t, err)
		require.Len(t, found, 1, name)
		files = append(files, found...)
	}
	return files
}
