package view_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/block"
	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/view"
)

func TestABadTraceIsNamedWithItsLine(t *testing.T) {
	for text, says := range map[string]string{
		"":                               "line 1: it has no calls",
		"init e0 64\ngrow e0 1":          `line 2: "grow" is none of init, create`,
		"# a\n\ninit e0 64\nhole e0 1 1": "line 4: hole is a write from outside, not a call",
		"init e0 64\ncreate e0 1 1\n# all at once\nforks e0 1 2 256": "line 4: 257 sequences at a time: a map shows at most 256",
	} {
		_, err := view.Course(strings.NewReader(text))
		require.ErrorIs(t, err, trace.ErrSyntax)
		require.ErrorContains(t, err, says)
	}
	_, err := view.Course(iotest.ErrReader(io.ErrUnexpectedEOF))
	require.True(t, errors.Is(err, io.ErrUnexpectedEOF))
}

func TestCommentsAreShownWithTheirCalls(t *testing.T) {
	r, err := view.Course(strings.NewReader(`# title: A title
# Not about a call.

# Before.
# And more.
init e1 128 # Behind.
create null 1 1
destroy e1
append e1 1 1`))
	require.NoError(t, err)
	require.Equal(t, "A title", r.Title)
	require.Equal(t, []string{"The engine has 2 blocks, all free.", "Before.", "And more.", "Behind."}, r.Frames[0].Said)
	require.Equal(t, "e1 = llm_init(pool, 128)", r.Frames[0].Call)
	require.Equal(t, []string{"Refused: engine is NULL. Nothing has changed."}, r.Frames[1].Said)
	require.Equal(t, "create_sequence(NULL, 1, 1)", r.Frames[1].Call)
	require.Equal(t, 2, r.NumGPUBlocks)
	require.Zero(t, r.Frames[2].Blocks)
	require.True(t, r.Frames[3].Refused)
}

func TestAStepOfSeveralCallsIsToldAsSuch(t *testing.T) {
	r, err := view.Course(strings.NewReader("init e0 640\ncreates e0 1 5 3\nfork e0 1 9\nappends e0 1 7 13\nforks e0 2 4 2\nfrees e0 2 2\nappends null 1 7 2"))
	require.NoError(t, err)
	for i, want := range []struct{ call, said string }{
		{"e0 = llm_init(pool, 640)", "The engine has 10 blocks, all free."},
		{"create_sequence(e0, 1 … 3, 5)", "3 new sequences, of 3, with 5 records each."},
		{"fork_sequence(e0, 1, 9)", "Sequence 9 shares block 0 with 1: every count goes up, no block is taken."},
		{"append_kv(e0, 1, 7 … 19)", "13 records, of 13, are written to sequence 1."},
		{"fork_sequence(e0, 2, 4 … 5)", "2 forks of sequence 2, of 2: no block is taken."},
		{"free_sequence(e0, 2 … 3)", "2 sequences, of 2, are gone."},
		{"append_kv(NULL, 1, 7 … 8)", "0 records, of 2, are written to sequence 1."},
	} {
		require.Equal(t, want.call, r.Frames[i].Call)
		require.Equal(t, want.said, r.Frames[i].Said[0])
	}
	after := r.Frames[3]
	require.Equal(t, []device.Pair{{Src: 0, Dst: 3}}, after.Copies)
	for k := range int32(11) { // in the copy, behind the records that create_sequence left unwritten
		require.Equal(t, 7+k, after.Records[3*course.KVPerBlock+5+int(k)])
	}
	require.EqualValues(t, 19, after.Records[4*course.KVPerBlock+1])
}

// Ensure that every frame is consistent after any calls. The count of a block must be the number of table entries that
// name it. Only shared blocks may be copied. A refused call must change nothing. Written records must be in the pool.
func TestEveryFrameOfTheCourseIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		blocks := rapid.IntRange(1, 12).Draw(t, "blocks")
		fmt.Fprintf(&text, "init e0 %d\n", blocks*course.BlockSize)
		id := rapid.IntRange(1, 4)
		for i := range rapid.IntRange(0, 60).Draw(t, "calls") {
			oom := ""
			if rapid.IntRange(0, 9).Draw(t, "oom") == 0 {
				oom = " oom=1"
			}
			switch rapid.IntRange(0, 9).Draw(t, "call") {
			case 0:
				fmt.Fprintf(&text, "create e0 %d %d%s\n", id.Draw(t, "id"), rapid.IntRange(0, 60).Draw(t, "length"), oom)
			case 1:
				fmt.Fprintf(&text, "fork e0 %d %d%s\n", id.Draw(t, "parent"), id.Draw(t, "id"), oom)
			case 2:
				fmt.Fprintf(&text, "free e0 %d\n", id.Draw(t, "id"))
			case 3:
				fmt.Fprintf(&text, "destroy e0\ninit e0 %d\n", rapid.IntRange(1, 12).Draw(t, "blocks")*course.BlockSize)
			default:
				fmt.Fprintf(&text, "append e0 %d %d%s\n", id.Draw(t, "id"), i, oom)
			}
		}
		r, err := view.Course(strings.NewReader(text.String()))
		require.NoError(t, err)
		ops, err := trace.Parse(text.String())
		require.NoError(t, err)
		require.Len(t, r.Frames, len(ops))
		for i, f := range r.Frames {
			switch ops[i].Kind {
			case trace.Init:
				require.EqualValues(t, ops[i].A/course.BlockSize, f.Blocks)
			case trace.Destroy:
				require.Zero(t, f.Blocks)
			}
			require.Empty(t, f.Counts, "tables explain every count")
			if i > 0 {
				requireCall(t, ops[i], &r.Frames[i-1], &f)
			}
		}
	})
}

func requireCall(t *rapid.T, op trace.Op, before, after *view.Frame) {
	if after.Refused {
		require.Equal(t, before.Sequences, after.Sequences)
		require.Equal(t, before.Records, after.Records)
		require.Empty(t, after.Copies)
		return
	}
	if op.Kind != trace.Append {
		require.Empty(t, after.Copies)
		return
	}
	named := map[int32]int{}
	for _, s := range before.Sequences {
		for _, id := range s.Table {
			named[id]++
		}
	}
	for _, s := range after.Sequences {
		if s.Request != int(op.A) {
			continue
		}
		at := s.Tokens - 1
		id := s.Table[at/course.KVPerBlock]
		require.Equal(t, op.B, after.Records[int(id)*course.KVPerBlock+at%course.KVPerBlock])
		oldBlock := block.None
		for _, old := range before.Sequences {
			if old.Request == s.Request && at/course.KVPerBlock < len(old.Table) {
				oldBlock = old.Table[at/course.KVPerBlock]
			}
		}
		if oldBlock != block.None && named[oldBlock] > 1 {
			require.Equal(t, []device.Pair{{Src: oldBlock, Dst: id}}, after.Copies)
			require.Contains(t, after.Said[0], "copy-on-write")
		} else {
			require.Empty(t, after.Copies)
		}
	}
}

func TestSeveralEnginesAreDistinguished(t *testing.T) {
	r, err := view.Course(strings.NewReader("init e0 64\ninit e2 128\ncreate e0 1 1\ncreate e2 1 1\nfork e2 1 2\nappend e0 1 1\nappend e2 2 1"))
	require.NoError(t, err)
	require.Equal(t, []device.Pair{{Src: 0, Dst: 1}}, r.Frames[6].Copies)
	var engines, blocks []int
	for _, f := range r.Frames {
		engines, blocks = append(engines, f.Engine), append(blocks, f.Blocks)
	}
	require.Equal(t, []int{0, 2, 0, 2, 2, 0, 2}, engines)
	require.Equal(t, []int{1, 2, 1, 2, 2, 1, 2}, blocks)
}
