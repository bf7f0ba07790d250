package model_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

type group []*bench

func folder(dir string) func(*parallel.Pool, model.Part) (*model.Model, error) {
	return func(pool *parallel.Pool, p model.Part) (*model.Model, error) { return model.OpenFolder(dir, pool, p) }
}

func join(t *testing.T, n int, open func(*parallel.Pool, model.Part) (*model.Model, error)) group {
	var g group
	workers := model.NewWorkers(n)
	for rank := range n {
		pool := newPool(t, 1+rank%2)
		m, err := open(pool, model.Part{Rank: rank, Size: n})
		require.NoError(t, err)
		g = append(g, benchOfPart(t, m, pool, workers))
	}
	return g
}

func (g group) step(t *testing.T, parts ...part) (logits [][][]float32) {
	var wait sync.WaitGroup
	for i, b := range g {
		wait.Go(func() {
			if all := b.step(t, parts...); i == 0 {
				logits = all
			}
		})
	}
	wait.Wait()
	return logits
}

// requireSameBits requires that both groups compute the same bits for two chunks of a prompt and a few tokens after
// it, one by one.
func requireSameBits(t *testing.T, one, many group) {
	tokens, other := randomTokens(1, 40), randomTokens(2, 9)
	for _, b := range many {
		b.runner.SetMLPRows(10)
	}
	table, otherTable := randomTable(1, 0, 8), randomTable(2, 20, 8)
	for _, ends := range [][2]int{{0, 20}, {20, 33}, {33, 34}, {34, 35}, {35, 40}} {
		parts := []part{{other, 0, otherTable}, {tokens[ends[0]:ends[1]], ends[0], table}}
		want := one.step(t, parts...)
		require.Equal(t, want, many.step(t, parts...), "tokens from %d to %d", ends[0], ends[1])
	}
}

func TestPartsTogetherComputeTheBitsOfTheWhole(t *testing.T) {
	shared := map[int]int{}
	for _, f := range families() {
		dir := f.write(t)
		open := folder(dir)
		for _, n := range []int{2, 4} {
			if f.ref.shape.latent != nil || f.ref.shape.gemma4 != nil {
				_, err := model.OpenFolder(dir, newPool(t, 1), model.Part{Size: n})
				require.ErrorContains(t, err, "cannot be shared out among workers")
				continue
			}
			if f.ref.kvHeads%n != 0 {
				continue
			}
			shared[n]++
			t.Run(fmt.Sprintf("%s by %d", f.name, n), func(t *testing.T) {
				many := join(t, n, open)
				one := join(t, 1, open)
				requireSameBits(t, one, many)
				require.Less(t, many[0].m.WeightBytes(), one[0].m.WeightBytes())
			})
		}
	}
	require.GreaterOrEqual(t, shared[2], 6)
	require.GreaterOrEqual(t, shared[4], 1)
}

// Ensure that two parts of a model together compute the same logits as the whole model, bit for bit: a quantized model,
// without and with activations rounded to 8 bits, and a model of 16-bit weights with activations rounded to BF16.
func TestPartsOfQuantizedWeightsComputeTheBitsOfTheWhole(t *testing.T) {
	for _, test := range []struct {
		replace map[string]string
		options []model.Option
	}{{nil, nil}, {nil, []model.Option{model.Int8Activations}}, {halves, []model.Option{model.BF16Activations}}} {
		g := openGGUF(t, mixedGGUF("llama", test.replace))
		open := func(pool *parallel.Pool, p model.Part) (*model.Model, error) {
			return model.OpenGGUF(g, pool, p, test.options...)
		}
		requireSameBits(t, join(t, 1, open), join(t, 2, open))
	}
}

func TestModelsThatCannotBeSharedOutAreRefused(t *testing.T) {
	pool := newPool(t, 1)
	dir := families()[0].write(t) // 3 key heads
	tests := []struct {
		name string
		part model.Part
		want string
	}{
		{"key heads", model.Part{Size: 2}, "3 key heads cannot be shared out among 2 workers"},
		{"three workers", model.Part{Size: 3}, "1, 2 and 4 workers are possible"},
		{"rank", model.Part{Rank: 4, Size: 4}, "worker 4 of 4"},
	}
	tiny := tinyOf(t, "gpt-oss, MXFP4") // 96 inputs in blocks of 32
	_, err := model.OpenGGUF(openGGUF(t, tiny.GGUF()), pool, model.Part{Size: 2})
	require.ErrorContains(t, err, `the 96 inputs of "blk.0.ffn_down_exps" cannot be shared out among 2 workers: `+
		"the share of each must be a multiple of 32")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := model.OpenFolder(dir, pool, test.part)
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Ensure that AllReduce with four workers gives each of them the bits of (a+b)+(c+d).
func TestSumsAreInAFixedOrder(t *testing.T) {
	for _, n := range []int{2, 4} {
		rnd := rand.New(rand.NewPCG(uint64(n), 6))
		x := make([][]float32, n)
		for i := range x {
			for range 1003 {
				x[i] = append(x[i], float32(math.Ldexp(rnd.NormFloat64(), rnd.IntN(20))))
			}
		}
		want, other := make([]float32, len(x[0])), make([]float32, len(x[0]))
		for i := range want {
			want[i] = x[0][i] + x[1][i]
			if other[i] = want[i]; n == 4 {
				want[i], other[i] = want[i]+(x[2][i]+x[3][i]), want[i]+x[2][i]+x[3][i]
			}
		}
		require.Equal(t, n == 2, equal(want, other))
		g := model.NewWorkers(n)
		var wait sync.WaitGroup
		for rank := range x {
			wait.Go(func() {
				if err := g.AllReduce(rank, x[rank]); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		for rank := range x {
			require.True(t, equal(want, x[rank]), "worker %d of %d", rank, n)
		}
	}
}

func equal(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// Ensure that the bytes of an output, if there are any, are the output's weights, also in a part of a model: a part has
// some rows of most matrices, and some columns of others.
func TestRawBytesAreTheWeightsOfTheOutput(t *testing.T) {
	f := families()[slices.IndexFunc(families(), func(f family) bool { return f.ref.kvHeads%2 == 0 })]
	dir, raw, cut := f.write(t), 0, 0
	for _, part := range []model.Part{{}, {Rank: 1, Size: 2}} {
		_, err := model.OpenFolder(dir, newPool(t, 1), part, model.LoadOn(func(c *model.Config, s *model.Sources) error {
			for _, lin := range []model.LinearSource{s.Layers[0].QKV, s.Layers[0].Out, s.Layers[0].Up, s.Layers[0].Down} {
				for _, m := range lin.Parts {
					require.Equal(t, weights.F32, m.DType)
					want := make([]float32, m.In)
					for i := range m.Out {
						m.Row(i, want)
						have, ok := m.Raw(i)
						if !ok {
							cut++
							continue
						}
						raw++
						require.Equal(t, want, unsafe.Slice((*float32)(unsafe.Pointer(&have[0])), len(have)/4), "%v, output %d", part, i)
					}
				}
			}
			return nil
		}))
		require.NoError(t, err)
		require.Equal(t, part.Size > 1, cut > 0, "only a part has matrices of some columns")
	}
	require.Positive(t, raw)
}
