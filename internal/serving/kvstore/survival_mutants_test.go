package kvstore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/source"
)

// A mutant breaks a rule about keys and values by a change of one source file below internal. The text old, which
// occurs in the file once, becomes the text replacement.
type mutant struct{ rule, file, old, replacement string }

var mutants = []mutant{
	{"a touched block leaves the queue", "scheduling/vllm/v1/pool/pool.go", "p.unlink(id)", "p.recs[id].count += 0"},
	{"a popped block loses its keys", "scheduling/vllm/v1/pool/pool.go", "if rec.tokens != 0 {\n\t\t\tp.forget",
		"if false {\n\t\t\tp.forget"},
	{"the last token is never hit", "scheduling/vllm/v1/kvcache/lookup.go", "limit := r.NumTokens() - 1", "limit := r.NumTokens()"},
	{"a hit of a window needs the whole window", "scheduling/vllm/v1/kvcache/lookup_kinds.go", "ceil(g.Window-1, g.BlockSize)",
		"ceil(g.Window-1, 2*g.BlockSize)"},
	{"a shared block is not written in place", "scheduling/vllm/v1/kvcache/copies.go", "return id != pool.Null && block.Shared",
		"return id == pool.Null && block.Shared"},
	{"another last token has another hash", "scheduling/vllm/v1/kvcache/fork.go",
		"r.content.Hashes = r.content.Hashes[:last/c.Config.HashBlockSize]", ""},
	{"a worker writes where its table points", "scheduling/vllm/v1/sched/write.go", "slot = int64(id)*int64(size) + int64(offset)",
		"slot = int64(id)*int64(size)"},
	{"a child is new to the worker", "scheduling/vllm/v1/sched/fork.go", "p.prefill, KindNew\n", "p.prefill, KindRunning\n"},
	{"rejected drafts are computed again", "scheduling/vllm/v1/sched/update.go", "computed := r.kv.NumComputedTokens - n",
		"computed := r.kv.NumComputedTokens - max(0, n-1)"},
	{"a copy is the whole block", "serving/kvstore/move.go", "len(src)*part/m.parts, len(src)*(part+1)/m.parts",
		"len(src)*part/m.parts, len(src)*(part+1)/m.parts/2"},
	{"copies are of all layers", "serving/kvstore/move.go", "s.pool.Run(len(m.dst)*m.parts, m)", "s.pool.Run(m.parts, m)"},
	{"a key goes to its slot's place", "serving/kvstore/write.go",
		"int(w.slots[i])/w.cache.BlockSize, int(w.slots[i])%w.cache.BlockSize",
		"int(w.slots[i])/w.cache.BlockSize, (int(w.slots[i])+1)%w.cache.BlockSize"},
	{"a token's block is found in its own sequence's table", "serving/attention/batch.go",
		"return int(b.BlockTables[seq*b.TableStride+token/c.BlockSize])", "return int(b.BlockTables[token/c.BlockSize])"},
}

// dataOnly turns off the checks of the scheduler's state. A test then fails only if keys or values are wrong.
var dataOnly = os.Getenv("LLM_SURVIVAL_DATA_ONLY") != ""

// Ensure that the survival tests fail for each mutant. Only make exhaustive builds and runs the mutants. The normal run
// checks only whether the text to replace still exists.
func TestBrokenRulesShowInTheData(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) { m.try(t, root) })
	}
}

func (m *mutant) try(t *testing.T, root string) {
	list, dir := source.Replace(t, filepath.Join(root, "internal", m.file), m.old, m.replacement), t.TempDir()
	if !level.Exhaustive() {
		return
	}
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "test", "-buildvcs=false", "-ldflags=-s -w", "-c", "-overlay", list, "-o", program,
		"./internal/serving/kvstore")
	build.Dir = root
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	run := exec.Command(program, "-test.run=Survive", "-test.failfast", "-rapid.nofailfile",
		"-rapid.shrinktime=0s", "-rapid.checks=500")
	run.Dir = dir
	run.Env = append(os.Environ(), "LLM_TEST_LONG=", "LLM_SURVIVAL_DATA_ONLY=1")
	text, err = run.CombinedOutput()
	require.Error(t, err, "no test failed: %s", text)
}
