package gpu_test

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

const steps = 6

// batchesOf returns a batch for each step. The first batch has the prompts of two sequences. Each other batch has one
// token of each sequence; the order of the sequences alternates. The values of these tokens are not known yet. If
// placeholders is true, the batches have placeholders for them.
func batchesOf(vocab int, placeholders bool) (all [steps]*model.Batch) {
	prompts, tables := [2][]int32{randomTokens(1, 5, vocab), randomTokens(2, 7, vocab)}, [2][]int32{{1}, {2}}
	all[0] = batchOf(chunk{prompts[0], 0, tables[0]}, chunk{prompts[1], 0, tables[1]})
	for k := 1; k < steps; k++ {
		rows := make([]chunk, 2)
		for i := range rows {
			s := (i + k) % 2
			rows[i] = chunk{[]int32{0}, len(prompts[s]) + k - 1, tables[s]}
		}
		all[k] = batchOf(rows...)
		if placeholders {
			all[k].Placeholders = []model.Placeholder{{Token: 0, Logits: 1}, {Token: 1, Logits: 0}}
		}
	}
	if placeholders {
		all[1].Placeholders = []model.Placeholder{{Token: 0, Logits: 11}, {Token: 1, Logits: 4}}
	}
	return all
}

// copiesOf returns the copy of a block that the runner must make before it computes the batch of a step. The copy
// reads block 10+step and writes block 11+step. So each copy reads the block that the copy of the previous step has
// written.
func copiesOf(step int) []kvstore.Pair {
	return []kvstore.Pair{{Src: int32(10 + step), Dst: int32(11 + step)}}
}

// Ensure that a batch gives the same logits whether it is launched while the GPU computes the previous batch, or after
// that. This is so only under three conditions:
//   - The inputs of the batch, and its copies of blocks, do not overwrite memory that the GPU has still to read.
//   - The results of the batch do not overwrite results that the test has not yet taken.
//   - The placeholders of the batch become the tokens that the previous batch has chosen.
//
// In the first round, Forward sends the inputs and launches the batch. In the second round, Prepare sends all inputs,
// but with other tokens. ForwardPrepared later sends the right tokens and launches the batch.
func TestABatchIsLaunchedBeforeTheOneBeforeIsComputed(t *testing.T) {
	driver, d := openDriver(t)
	m, w := load(t, d, openSmall(small))
	known, batches := batchesOf(m.VocabSize, false), batchesOf(m.VocabSize, true)
	var want [steps][][]float32
	var largest [steps][]int32
	reference := onGPU(t, m, w)
	for k := range steps {
		for _, p := range batches[k].Placeholders {
			known[k].Tokens[p.Token] = largest[k-1][p.Logits]
		}
		require.NoError(t, reference.Forward(known[k]))
		want[k] = logitsOf(t, reference, known[k])
		largest[k] = slices.Clone(reference.Largest())
	}
	require.Equal(t, 4, driver.Calls("cuGraphLaunch"))
	for round, prepare := range []bool{false, true} {
		r := onGPU(t, m, w)
		r.WriteBlocks([]int32{11}, [][]byte{bytes.Repeat([]byte{7, 8}, blockSize*64*2)})
		require.NoError(t, r.Forward(batches[0]))
		for k := range steps {
			launch := launchNext(t, r, k+1, known, batches, prepare)
			require.True(t, slices.EqualFunc(want[k], logitsOf(t, r, batches[k]), slices.Equal), "step %d", k)
			require.Equal(t, largest[k], r.Largest(), "step %d", k)
			launch()
		}
		require.Equal(t, 8+4*round, driver.Calls("cuGraphLaunch"))
		got := make([]byte, 2*blockSize*64*2)
		for id := int32(12); id < 11+steps; id++ {
			r.ReadBlocks([]int32{id}, [][]byte{got})
			require.Equal(t, bytes.Repeat([]byte{7, 8}, blockSize*64*2), got, "block %d", id)
		}
	}
}

// Ensure that copies of blocks for a prepared batch stay as they are until the GPU has made them, also if copies for the
// next batch follow at once.
func TestCopiesForAPreparedBatchAreNotOverwritten(t *testing.T) {
	d := openDevice(t)
	m, w := load(t, d, openSmall(small))
	r := onGPU(t, m, w)
	batches := batchesOf(m.VocabSize, false)
	block := bytes.Repeat([]byte{7, 8}, blockSize*64*2)
	r.WriteBlocks([]int32{11}, [][]byte{block})
	require.NoError(t, r.Forward(batches[0]))
	r.Prepare(batches[1])
	logitsOf(t, r, batches[0])
	require.NoError(t, r.CopyBlocks([]kvstore.Pair{{Src: 11, Dst: 12}}))
	require.NoError(t, r.ForwardPrepared(batches[1]))
	require.NoError(t, r.CopyBlocks([]kvstore.Pair{{Src: 11, Dst: 13}}))
	require.NoError(t, r.Forward(batches[2]))
	logitsOf(t, r, batches[1])
	logitsOf(t, r, batches[2])
	for _, id := range []int32{12, 13} {
		got := make([]byte, len(block))
		r.ReadBlocks([]int32{id}, [][]byte{got})
		require.Equal(t, block, got, "block %d", id)
	}
}

// Ensure that blocks are read and written while a step is awaited.
func TestBlocksMoveWhileAStepIsAwaited(t *testing.T) {
	driver, d := openDriver(t)
	if driver.Real {
		t.Skip("the steps of a GPU cannot be held")
	}
	m, w := load(t, d, openSmall(small))
	r := onGPU(t, m, w)
	b := batchOf(chunk{[]int32{1, 2}, 0, []int32{1}})
	require.NoError(t, r.Forward(b))
	release, ended := driver.Hold(), make(chan error)
	go func() {
		_, err := r.ComputeLogits(b, 0, 2)
		ended <- err
	}()
	for driver.Calls("cuEventSynchronize") == 0 {
		runtime.Gosched()
	}
	block, got := bytes.Repeat([]byte{7, 8}, blockSize*64*2), make([]byte, 2*blockSize*64*2)
	r.WriteBlocks([]int32{9}, [][]byte{block})
	r.ReadBlocks([]int32{9}, [][]byte{got})
	require.Equal(t, block, got)
	release()
	require.NoError(t, <-ended)
}

// Ensure that a launch moves many blocks, and that more blocks than it moves are moved too.
func TestALaunchMovesManyBlocks(t *testing.T) {
	driver, d := openDriver(t)
	m, w := load(t, d, openSmall(small))
	r := onGPU(t, m, w)
	var ids []int32
	var written, read [][]byte
	for i := range 70 {
		ids = append(ids, int32(i%(numBlocks-1)+1))
		written = append(written, bytes.Repeat([]byte{byte(ids[i]), 8}, blockSize*64*2))
		read = append(read, make([]byte, len(written[i])))
	}
	launches := driver.Calls("cuLaunchKernel")
	r.WriteBlocks(ids[:numBlocks-1], written)
	r.ReadBlocks(ids, read)
	require.Equal(t, written, read)
	if !driver.Real {
		require.Equal(t, launches+1+3, driver.Calls("cuLaunchKernel"))
	}
}

// Ensure that a thread that waits for the GPU sleeps if the process has few processors.
func TestWaitingForTheGPULeavesFewProcessorsFree(t *testing.T) {
	driver, d := openDriver(t)
	m, w := load(t, d, openSmall(small))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct{ processors, events int }{{2, 2}, {5, 2}, {4, 4}} {
		runtime.GOMAXPROCS(c.processors)
		onGPU(t, m, w)
		require.Equal(t, c.events, driver.Calls("cuEventCreate of a blocking event"), "%d processors", c.processors)
	}
}

// If prepare is false, launchNext launches the batch of step k and returns a function that does nothing. If prepare is
// true, launchNext prepares the batch and returns a function that launches it. If there is no step k, launchNext and
// the returned function do nothing.
func launchNext(t *testing.T, r engine.DeviceRunner, k int, known, batches [steps]*model.Batch, prepare bool) (launch func()) {
	t.Helper()
	switch {
	case k == steps:
		return func() {}
	case !prepare:
		require.NoError(t, r.CopyBlocks(copiesOf(k)))
		require.NoError(t, r.Forward(batches[k]))
		return func() {}
	}
	b := *known[k]
	b.Tokens = []int32{9, 9}
	r.Prepare(&b)
	return func() {
		t.Helper()
		require.NoError(t, r.CopyBlocks(copiesOf(k)))
		b.Tokens = known[k].Tokens
		require.NoError(t, r.ForwardPrepared(&b))
	}
}

// Ensure that a runner does not free the memory of inputs while a batch still reads it. The second batch needs larger
// memory for its inputs, so the runner replaces the memory that the first batch reads.
func TestALargerBatchIsLaunchedBeforeTheOneBeforeIsComputed(t *testing.T) {
	d := openDevice(t)
	m, w := load(t, d, openSmall(small))
	r, reference := onGPU(t, m, w), onGPU(t, m, w)
	short, many := chunk{randomTokens(1, 2, m.VocabSize), 0, []int32{1}}, chunk{randomTokens(2, 60, m.VocabSize), 0, []int32{2, 3, 4, 5}}
	first, second := batchOf(short), batchOf(many)
	require.NoError(t, r.Forward(first))
	require.NoError(t, r.Forward(second))
	require.Equal(t, step(t, reference, short), logitsOf(t, r, first))
	require.Equal(t, step(t, reference, many), logitsOf(t, r, second))
}

func TestBatchesThatCannotBeLaunched(t *testing.T) {
	d := openDevice(t)
	m, w := load(t, d, openSmall(small))
	r := onGPU(t, m, w)
	b := batchOf(chunk{[]int32{1, 2}, 0, []int32{1}})
	_, err := r.ComputeLogits(b, 0, 2)
	require.ErrorIs(t, err, model.ErrBatch, "it was not launched")
	require.NoError(t, r.Forward(b))
	require.NoError(t, r.Forward(b))
	require.ErrorIs(t, r.Forward(b), model.ErrBatch, "there are two")
	_, err = r.ComputeLogits(b, 0, 2)
	require.NoError(t, err)
	_, err = r.ComputeLogits(b, 1, 2)
	require.ErrorIs(t, err, model.ErrBatch, "the batch after it has replaced its activations")
	require.ErrorIs(t, r.ForwardPrepared(b), model.ErrBatch, "it is not prepared")
	for _, p := range []model.Placeholder{{Token: 2}, {Token: -1}, {Logits: -1}, {Logits: engine.MaxLogits}} {
		refused := *b
		refused.Placeholders = []model.Placeholder{p}
		require.ErrorIs(t, r.Forward(&refused), model.ErrBatch, "%+v", p)
	}
}
