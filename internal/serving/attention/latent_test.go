package attention

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// latentShapes are the sizes of published models, and sizes that are not whole chunks.
func latentShapes(d DType) []Shape {
	return []Shape{
		{BlockSize: 16, NumKVHeads: 1, HeadSize: 576, Latent: 512, Layout: LayoutFlash, DType: d},
		{BlockSize: 8, NumKVHeads: 1, HeadSize: 48, Latent: 40, Layout: LayoutFlash, DType: d},
	}
}

var latentDTypes = []DType{F32, F16, BF16, E4M3, E5M2}

func TestLatentValuesEqualTheReference(t *testing.T) {
	for _, dtype := range latentDTypes {
		for _, shape := range latentShapes(dtype) {
			t.Run(fmt.Sprint(dtype, shape.HeadSize), func(t *testing.T) {
				p := newProblem(rand.New(rand.NewPCG(5, 8)), problemSpec{
					shape: shape, heads: 6, lens: []int{530, 1, 70}, queries: []int{1, 1, 5},
				})
				p.batch.Scale *= 0.7
				p.forEach(t, setsOf(dtype), func(t *testing.T, r *Runner) {
					outputs(t, r, p, nil)
					requireNear(t, p, f32Bound)
				})
			})
		}
	}
}

// Ensure that a row has the same bits in decoding and in chunks of a prompt, alone and in a batch, on any number of
// cores, with a common prefix, and if outputs replace queries.
func TestLatentRowsDependOnThemselvesAlone(t *testing.T) {
	for _, k := range testedSets() {
		for _, shape := range latentShapes(BF16) {
			t.Run(fmt.Sprint(k, shape.HeadSize), func(t *testing.T) {
				p := newProblem(rand.New(rand.NewPCG(5, 9)), problemSpec{
					shape: shape, heads: 4, lens: []int{1090, 1070, 40}, queries: []int{3, 1, 40},
				})
				one, three := newRunner(t, 1, k), newRunner(t, 3, k)
				want := outputs(t, one, p, func(b *Batch) { b.Version = V1 })
				for _, v := range []Version{Auto, V1, V2} {
					requireSameBits(t, want, outputs(t, three, p, func(b *Batch) { b.Version = v }), fmt.Sprintf("version %d", v))
				}
				width := p.batch.NumHeads * shape.HeadSize
				for seq := range p.batch.seqs() {
					first, n, position := p.batch.queries(seq)
					for q := range n {
						got := outputs(t, three, p, func(b *Batch) {
							selectSequence(b, seq)
							b.SeqLens, b.QueryStart = []int32{int32(position + q + 1)}, []int32{0, 1}
							b.Query.Data = b.Query.Data[q*width*4:]
						})
						requireSameBits(t, want[(first+q)*width:][:width], got[:width], fmt.Sprintf("sequence %d, token %d alone", seq, q))
					}
				}
				query := append([]float32(nil), p.query...)
				b := p.batch
				b.Out = b.Query
				require.NoError(t, three.Forward(&p.cache, &b))
				for i := range want {
					if i%shape.HeadSize >= shape.Latent {
						require.Equal(t, query[i], p.query[i], "an element after the value was written")
						want[i] = query[i]
					}
				}
				requireSameBits(t, want, p.query, "in place of the queries")
			})
		}
	}
}

func TestACommonPrefixOfLatentKeysChangesNoBit(t *testing.T) {
	p := newProblem(rand.New(rand.NewPCG(5, 9)), problemSpec{
		shape: latentShapes(F16)[1], heads: 4, lens: []int{600, 620, 560}, queries: []int{3, 1, 2}, common: 552,
	})
	p.forEach(t, testedSets(), func(t *testing.T, r *Runner) {
		want := outputs(t, r, p, func(b *Batch) { b.CommonPrefix = 0 })
		requireSameBits(t, want, outputs(t, r, p, nil), "common prefix")
	})
}

func TestInstructionSetsGiveTheSameBitsForLatentKeys(t *testing.T) {
	sets := instructionSets()
	if len(sets) < 3 {
		t.Skip("this processor has no AVX-512")
	}
	for _, dtype := range latentDTypes {
		p := newProblem(rand.New(rand.NewPCG(6, 2)), problemSpec{shape: latentShapes(dtype)[0], heads: 16, lens: []int{530, 33},
			queries: []int{1, 3}, contents: contentsOf(dtype)})
		runner := newRunner(t, 2)
		runner.kernels = sets[1]
		want := outputs(t, runner, p, nil)
		for _, k := range sets[2:] {
			runner.kernels = k
			requireSameBits(t, want, outputs(t, runner, p, nil), fmt.Sprintf("%v, %v", k, dtype))
		}
	}
}

// Ensure that a NaN in a token that no row attends to changes nothing, although it is in the same tile.
func TestNaNAfterALatentRowChangesNoBit(t *testing.T) {
	p := newProblem(rand.New(rand.NewPCG(5, 9)), problemSpec{shape: latentShapes(F32)[1], heads: 4, lens: []int{522}, queries: []int{2}})
	p.forEach(t, testedSets(), func(t *testing.T, r *Runner) {
		want := outputs(t, r, p, nil)
		c := p.cache
		c.Key = append([]byte(nil), c.Key...)
		c.Value = c.Key
		last := int(p.batch.BlockTables[65]) // tokens 520 to 527
		for i := c.KeyOffset(last, 0, 2, 0); i < c.KeyOffset(last, 0, 7, 47)+4; i++ {
			c.Key[i] = 0xff
		}
		b := p.batch
		clear(p.out)
		require.NoError(t, r.Forward(&c, &b))
		requireSameBits(t, want, p.out, "NaN")
	})
}

func TestLatentShapesThatCannotBeComputedAreRefused(t *testing.T) {
	good := latentShapes(F16)[0]
	require.NoError(t, good.Check())
	require.Equal(t, 16*576*2, good.BlockBytes(), "a block has its keys alone")
	for _, test := range []struct {
		want   string
		change func(*Shape)
	}{
		{"latent keys of 584 elements", func(s *Shape) { s.HeadSize = 584 }},
		{"latent keys of 572 elements", func(s *Shape) { s.HeadSize = 572 }},
		{"values that are 580 elements of keys of 576", func(s *Shape) { s.Latent = 580 }},
		{"values that are -8 elements", func(s *Shape) { s.Latent = -8 }},
		{"2 latent heads in layout flash", func(s *Shape) { s.NumKVHeads = 2 }},
		{"1 latent heads in layout tile", func(s *Shape) { s.Layout = LayoutTile }},
		{"latent keys of type int8", func(s *Shape) { s.DType = Int8 }},
		{"blocks of 0 tokens", func(s *Shape) { s.BlockSize = 0 }},
	} {
		s := good
		test.change(&s)
		require.ErrorContains(t, s.Check(), test.want)
	}
}

// Ensure that decoding reads each latent key once, whatever the number of heads.
func TestDecodingReadsEachPartitionOfLatentKeysOnce(t *testing.T) {
	for _, heads := range []int{1, 16, 128} {
		p := newProblem(rand.New(rand.NewPCG(5, 9)), problemSpec{shape: latentShapes(F16)[1], heads: heads, lens: []int{1300, 200}})
		r := newRunner(t, 2)
		outputs(t, r, p, nil)
		partitions := 0
		for _, it := range r.plan.items {
			partitions += it.part1 - it.part0
		}
		require.Equal(t, 3+1, partitions, "%d heads", heads)
	}
}
