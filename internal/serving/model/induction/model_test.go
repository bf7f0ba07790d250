package induction_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
)

func complete(t *testing.T, prompt string, n int) string {
	pool, err := parallel.New(2)
	require.NoError(t, err)
	defer pool.Close()
	m, err := induction.New(pool, model.Part{})
	require.NoError(t, err)
	defer m.Close()
	const blocks = 64
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(16, attention.F32), Layers: m.NumLayers, NumBlocks: blocks},
		pool)
	require.NoError(t, err)
	defer store.Close()
	r, err := model.NewRunner(m, store, pool, nil)
	require.NoError(t, err)
	tok := induction.Tokenizer()
	tokens := tok.Encode(prompt, true)
	table := make([]int32, blocks)
	for i := range table {
		table[i] = int32(i * 37 % blocks)
	}
	computed := 0
	var out []int32
	for range n {
		b := model.Batch{QueryStart: []int32{0, int32(len(tokens) - computed)}, SeqLens: []int32{int32(len(tokens))},
			Blocks: model.Blocks{BlockTables: table, TableStride: blocks}}
		for p := computed; p < len(tokens); p++ {
			b.Tokens, b.Positions = append(b.Tokens, tokens[p]), append(b.Positions, int32(p))
			b.Slots = append(b.Slots, int64(table[p/16])*16+int64(p%16))
		}
		b.Logits = []int32{int32(len(b.Tokens) - 1)}
		require.NoError(t, r.Forward(&b))
		logits, err := r.ComputeLogits(&b, 0, 1)
		require.NoError(t, err)
		best := int32(0)
		for i, v := range logits {
			if v > logits[best] {
				best = int32(i)
			}
		}
		computed = len(tokens)
		tokens, out = append(tokens, best), append(out, best)
	}
	return tok.Decode(out)
}

func TestItGoesOnAsTheTextDidBefore(t *testing.T) {
	tests := []struct{ name, prompt, want string }{
		{"a word", "The password is 8kq2-xw7. Say it again! The password is", " 8kq2-xw7."},
		{"the last of two", "red: apple. red: cherry. blue: plum. red:", " cherry."},
		{"digits far back", "Call 555-0199 now! Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore. Call", " 555-0199"},
		{"bytes beyond ASCII", "größe: zwölf äpfel; größe:", " zwölf"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, complete(t, test.prompt, len(test.want)))
		})
	}
}
