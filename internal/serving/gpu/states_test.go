package gpu_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// statesOf computes chunks with all their states and the logits of the last token.
func statesOf(t *testing.T, r computer, chunks ...chunk) (states []float32) {
	t.Helper()
	b := batchOf(chunks...)
	b.States, b.Logits = b.Logits, b.Logits[len(b.Logits)-1:]
	require.NoError(t, r.Forward(b))
	logitsOf(t, r, b)
	states, err := r.ComputeStates(b)
	require.NoError(t, err)
	return slices.Clone(states)
}

// Ensure that hidden states are those of the CPU, up to rounding, also if there are more of them than are computed with
// the layers, and that they have the same bits in chunks and beside another sequence.
func TestStates(t *testing.T) {
	d := openDevice(t)
	for _, tiny := range weightfile.Tinies() {
		if tiny.Name != "llama" && (tiny.Name != "gemma3" || !level.Long()) { // F16 and BF16
			continue
		}
		t.Run(tiny.Name, func(t *testing.T) {
			open := gguf(t, tiny.GGUF())
			m, w := load(t, d, open)
			one, r := onCPU(t, open, attention.F32), onGPUOf(t, m, w, 80)
			tokens, table := randomTokens(1, 70, m.VocabSize), []int32{5, 3, 9, 12, 6}
			require.Greater(t, len(tokens), engine.MaxLogits)
			want := statesOf(t, r, chunk{tokens, 0, table})
			rows := func(states []float32) (rows [][]float32) {
				return slices.Collect(slices.Chunk(states, m.HiddenSize))
			}
			requireClose(t, m, w.Type(), rows(statesOf(t, one, chunk{tokens, 0, table})), rows(want))
			var chunks []float32
			table, other := []int32{7, 2, 11, 13, 1}, chunk{randomTokens(2, 9, m.VocabSize), 0, []int32{8}}
			for _, ends := range [][2]int{{0, 17}, {17, 69}, {69, 70}} {
				states := statesOf(t, r, other, chunk{tokens[ends[0]:ends[1]], ends[0], table})
				chunks = append(chunks, states[len(other.tokens)*m.HiddenSize:]...)
			}
			require.Equal(t, want, chunks)
		})
	}
}

// Ensure that a batch with more states than are computed with the layers keeps them until they are taken.
func TestStatesThatCannotBeComputedAnyMore(t *testing.T) {
	level.SkipNormal(t)
	d := openDevice(t)
	tiny := weightfile.Tinies()[0]
	m, w := load(t, d, gguf(t, tiny.GGUF()))
	r := onGPUOf(t, m, w, 80)
	b := batchOf(chunk{randomTokens(1, 70, m.VocabSize), 0, []int32{5, 3, 9, 12, 6}})
	b.States, b.Logits = b.Logits, b.Logits[:1]
	_, err := r.ComputeStates(b)
	require.ErrorIs(t, err, model.ErrBatch)
	require.NoError(t, r.Forward(b))
	logitsOf(t, r, b)
	next := batchOf(chunk{randomTokens(1, 1, m.VocabSize), 0, []int32{4}})
	require.NoError(t, r.Forward(next))
	_, err = r.ComputeStates(b)
	require.ErrorIs(t, err, model.ErrBatch)
	require.ErrorContains(t, err, fmt.Sprintf("%d states", 70))
	logitsOf(t, r, next)
}
