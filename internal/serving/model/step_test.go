package model_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	pack "llmmemory/internal/serving/model/matrix"
)

type bench struct {
	m      *model.Model
	store  *kvstore.Store
	runner *model.Runner
	states []float32 // of the last step, in the worker of rank 0

	adapters []int32 // of the parts of the next steps
}

// A part is the tokens of one sequence in a step. start is the position of the first of these tokens in the sequence.
// table is the block table of the sequence.
type part struct {
	tokens []int32
	start  int
	table  []int32
}

func (b *bench) step(t testing.TB, parts ...part) [][][]float32 {
	batch := model.Batch{QueryStart: []int32{0}, Blocks: model.Blocks{TableStride: numBlocks}, Adapters: b.adapters}
	for _, p := range parts {
		for i, token := range p.tokens {
			position := p.start + i
			batch.Logits = append(batch.Logits, int32(len(batch.Tokens)))
			batch.States = append(batch.States, int32(len(batch.Tokens)))
			batch.Tokens = append(batch.Tokens, token)
			batch.Positions = append(batch.Positions, int32(position))
			batch.Slots = append(batch.Slots, int64(p.table[position/blockSize])*blockSize+int64(position%blockSize))
		}
		batch.QueryStart = append(batch.QueryStart, int32(len(batch.Tokens)))
		batch.SeqLens = append(batch.SeqLens, int32(p.start+len(p.tokens)))
		batch.BlockTables = append(batch.BlockTables, append(append([]int32(nil), p.table...),
			make([]int32, numBlocks-len(p.table))...)...)
	}
	require.NoError(t, b.runner.Forward(&batch))
	logits, err := b.runner.ComputeLogits(&batch, 0, len(batch.Logits))
	require.NoError(t, err)
	states, err := b.runner.ComputeStates(&batch)
	require.NoError(t, err)
	if b.states = slices.Clone(states); logits == nil {
		require.Empty(t, states)
		return nil // not the first worker of a group
	}
	for i, token := range b.runner.Largest() {
		largest, _ := pack.ArgMax(logits[i*b.m.VocabSize:][:b.m.VocabSize])
		require.EqualValues(t, largest, token)
	}
	var all [][][]float32
	for _, p := range parts {
		var rows [][]float32
		for range p.tokens {
			rows = append(rows, append([]float32(nil), logits[:b.m.VocabSize]...))
			logits = logits[b.m.VocabSize:]
		}
		all = append(all, rows)
	}
	return all
}

func randomTokens(seed uint64, n int) []int32 {
	rnd := rand.New(rand.NewPCG(seed, 1))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(rnd.IntN(97))
	}
	return tokens
}

func randomTable(seed uint64, first, n int) []int32 {
	rnd := rand.New(rand.NewPCG(seed, 2))
	var table []int32
	for _, b := range rnd.Perm(n) {
		table = append(table, int32(first+b))
	}
	return table
}
