package suite_test

import (
	"bufio"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/exhaustive"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// casesFile writes a file for play.c with every state that the given number of calls reaches in pools of 1 to 3
// blocks, and returns its path.
func casesFile(t *testing.T, calls int) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "cases"))
	require.NoError(t, err)
	w := &caseWriter{Writer: bufio.NewWriter(f)}
	for blocks := 1; blocks <= 3; blocks++ {
		for c := range exhaustive.Small(blocks, [3]int32{1, -1, 0}, calls).Cases() {
			w.put(blocks)
			w.calls(c.Path)
			w.calls(c.Refused)
			w.put(len(c.Changes))
			for _, op := range c.Changes {
				after := c.State.Clone()
				after.Play(op)
				w.call(op)
				w.state(&after)
			}
		}
	}
	w.put(-1)
	require.NoError(t, w.Flush())
	require.NoError(t, f.Close())
	return f.Name()
}

type caseWriter struct{ *bufio.Writer }

func (w *caseWriter) put(numbers ...int) {
	for _, n := range numbers {
		_, _ = w.Write(binary.NativeEndian.AppendUint32(w.AvailableBuffer(), uint32(int32(n)))) // Flush reports it
	}
}

func (w *caseWriter) call(op trace.Op) { w.put(int(op.Kind), int(op.A), int(op.B), op.Fail) }

func (w *caseWriter) calls(ops []trace.Op) {
	w.put(len(ops))
	for _, op := range ops {
		w.call(op)
	}
}

// state is what take in play.c makes of the same.
func (w *caseWriter) state(s *exhaustive.State) {
	var n []int
	for _, r := range s.Pool {
		n = append(n, int(r))
	}
	n = append(n, s.Allocations())
	if s.Exists {
		n = append(n, 1, int(s.Free))
		for _, count := range s.Counts {
			n = append(n, int(count))
		}
		for _, q := range s.Sequences {
			n = append(n, 1, int(q.ID), int(q.KVCount))
			for _, table := range q.Tables {
				if table == nil {
					n = append(n, 0)
					continue
				}
				n = append(n, 1)
				for _, id := range table {
					n = append(n, int(id))
				}
			}
		}
	}
	w.put(len(n))
	w.put(n...)
}

func TestEveryShortUseOfTheCorrectSubmissionIsTheHandouts(t *testing.T) {
	r := execute(t, buildCorrect(t), "--play", casesFile(t, level.Pick(5, 9)))
	require.Zero(t, r.status, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "every call in them as the handout says")
	t.Log(r.stdout)
}

// In make test, TestShortUsesFindWrongSubmissions plays only one of shortUsesOf mutants.
const shortUsesOf = 20

// Ensure that short sequences of calls detect most wrong submissions of the corpus. The others need more than
// four calls or a write from outside, or their mistake does not show in the state.
func TestShortUsesFindWrongSubmissions(t *testing.T) {
	file := casesFile(t, 4)
	found := 0
	for i, m := range mutants(t) {
		if m.Kind == corpus.Rejected || right(m) || !level.Long() && i%shortUsesOf != 0 {
			continue
		}
		r := execute(t, buildMutant(t, m, true), "--play", file)
		if r.status == 0 {
			t.Log("not found: ", m.ID)
			continue
		}
		found++
	}
	require.NotZero(t, found)
	t.Logf("%d found", found)
}
