package kernels

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/cuda"
)

// GPUs by their multiprocessors and the shared memory that a block may have.
var (
	a100    = cuda.Device{Name: "A100", Multiprocessors: 108, SharedMemory: 163 << 10}
	h100    = cuda.Device{Name: "H100", Multiprocessors: 132, SharedMemory: 227 << 10}
	rtx4090 = cuda.Device{Name: "RTX 4090", Multiprocessors: 128, SharedMemory: 99 << 10}
)

// llama is the attention of Llama 3 8B.
var llama = AttentionShape{HeadSize: 128, Heads: 32, KVHeads: 8, BlockSize: 16}

// planOf plans sequences of the given lengths. The last queries tokens of each are queries.
func planOf(t *testing.T, s AttentionShape, device cuda.Device, queries int, lengths ...int32) AttentionPlan {
	t.Helper()
	starts := []int32{0}
	for i := range lengths {
		starts = append(starts, int32((i+1)*queries))
	}
	p, err := s.Plan(device, starts, lengths, 0)
	require.NoError(t, err)
	return p
}

// busy simulates the blocks of prefill: each multiprocessor computes one, and takes the next one when it is done. A block
// takes a unit of time for each step of 64 keys, and one for its queries and outputs. busy returns the least possible time
// divided by the time.
func busy(p *AttentionPlan, device cuda.Device, length int) float64 {
	ends, sum, longest := make([]int, device.Multiprocessors), 0, 0
	tileRows := p.warps * p.shape.tiles() * attentionTile
	for block := range p.wholeTiles * p.shape.KVHeads {
		tile := block / p.shape.KVHeads // as tile_of_block in attention.h
		last := min(int(p.Entries[p.wholeAt+4*tile+1])+tileRows, length*p.shape.group()) - 1
		units := ceil(last/p.shape.group()+1, attentionStep) + 1
		first := slices.Index(ends, slices.Min(ends))
		ends[first] += units
		sum, longest = sum+units, max(longest, units)
	}
	return max(float64(sum)/float64(device.Multiprocessors), float64(longest)) / float64(slices.Max(ends))
}

// Ensure that the multiprocessors are at work for at least 0.95 of the time of prefill.
func TestPrefillKeepsMultiprocessorsBusy(t *testing.T) {
	for _, device := range []cuda.Device{a100, h100} {
		for _, c := range []struct{ prompts, length int }{{1, 2048}, {8, 2048}, {1, 16384}} {
			p := planOf(t, llama, device, c.length, slices.Repeat([]int32{int32(c.length)}, c.prompts)...)
			require.Zero(t, p.splitTiles)
			require.GreaterOrEqual(t, busy(&p, device, c.length), 0.95, "%d prompts of %d tokens on %s", c.prompts, c.length, device.Name)
		}
	}
}

// Ensure that the warps of a block of prefill divide evenly among the four schedulers of a multiprocessor, as far as
// there is shared memory for four.
func TestWarpsOfPrefillDivideAmongSchedulers(t *testing.T) {
	for _, c := range []struct {
		device   cuda.Device
		headSize int
		warps    int
	}{{h100, 64, 8}, {h100, 80, 8}, {h100, 96, 8}, {h100, 128, 8}, {h100, 256, 4}, {a100, 64, 8}, {a100, 96, 4}, {a100, 128, 4}, {a100, 256, 4},
		{rtx4090, 64, 4}, {rtx4090, 128, 2}, {rtx4090, 256, 1}} {
		s := llama
		s.HeadSize = c.headSize
		p := planOf(t, s, c.device, 8192, 8192)
		require.Equal(t, c.warps, p.warps, "heads of %d on %s", c.headSize, c.device.Name)
		require.LessOrEqual(t, s.prefillMemory(p.warps), c.device.SharedMemory)
	}
}

// Ensure that a padded plan has the tiles and partitions of the plan, and nothing else to compute.
func TestPaddingOfDecodingHasNoWork(t *testing.T) {
	lengths := slices.Repeat([]int32{17*AttentionPartition - 3}, 65)
	p := planOf(t, llama, h100, 1, lengths...)
	plain := p
	plain.Entries = slices.Clone(p.Entries)
	shape, ok := p.PadDecode(80)
	require.True(t, ok)
	require.Equal(t, DecodeShape{80, 4, 2048, false}, shape, "tiles of 17 partitions")
	require.Equal(t, plain.PartBytes, p.PartBytes)
	require.Equal(t, plain.Entries[:4*65], p.Entries[:4*65])
	require.Equal(t, slices.Repeat([]int32{-1, 0, 0, 0}, 15), p.Entries[4*65:4*80])
	works := p.Entries[p.workAt:]
	require.Equal(t, plain.Entries[plain.workAt:], works[:2*65*17])
	require.Equal(t, slices.Repeat([]int32{-1, 0}, 2048-65*17), works[2*65*17:])
	shape, ok = p.PadDecode(64)
	require.True(t, ok)
	require.Equal(t, DecodeShape{80, 4, 2048, false}, shape, "it is padded already")
	shorter := planOf(t, llama, h100, 1, 16*AttentionPartition, 1)
	shape, _ = shorter.PadDecode(2)
	require.Equal(t, DecodeShape{2, 4, 32, true}, shape)
	whole := planOf(t, llama, h100, 2048, 2048, 2048, 2048)
	_, ok = whole.PadDecode(80)
	require.False(t, ok, "tiles of prefill")
}

// Ensure that the kernel for few rows has as many threads as fit a multiprocessor, and reads quantized weights again
// rather than unpack them, while this moves fewer bytes.
func TestPlansOfFewRows(t *testing.T) {
	for _, c := range []struct {
		device  cuda.Device
		format  WeightFormat
		rows    int
		threads int
		few     bool
	}{
		{h100, Plain, 1, 256, true}, {h100, Plain, 16, 256, true}, {h100, Plain, 17, 128, true}, {h100, Plain, 32, 128, true}, {h100, Plain, 33, 64, false},
		{rtx4090, Plain, 32, 128, true}, {h100, Q8_0, 128, 256, true}, {h100, Q8_0, 129, 0, false}, {h100, Q4_K, 160, 256, true}, {h100, Q4_K, 161, 0, false},
	} {
		p, err := Weights{Format: c.format, Outputs: 4096, Columns: 4096}.Plan(c.device, c.rows)
		require.NoError(t, err)
		name := fmt.Sprintf("%d rows of %v on %s", c.rows, c.format, c.device.Name)
		require.Equal(t, c.few, p.fewRows, name)
		require.Equal(t, c.few || c.format == Plain, p.UnpackedBytes == 0, name)
		if c.threads > 0 {
			require.Equal(t, c.threads, p.threads, name)
		}
	}
}
