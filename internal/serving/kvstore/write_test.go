package kvstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func newRotation(size, tokens int, interleaved bool) *kvstore.Rotation {
	r := &kvstore.Rotation{Size: size, Interleaved: interleaved}
	for p := range 200 {
		for i := range size / 2 {
			s, c := math.Sincos(float64(p) / math.Pow(100, float64(2*i)/float64(size)))
			r.Cos, r.Sin = append(r.Cos, float32(c)), append(r.Sin, float32(s))
		}
	}
	for i := range tokens {
		r.Positions = append(r.Positions, int32(i*3%200))
	}
	return r
}

// Ensure that the faster code for whole tiles stores the same bytes as the code for single tokens.
func TestManyTokensAtOnceAreWrittenLikeOneByOne(t *testing.T) {
	forEachShape(t, func(t *testing.T, shape attention.Shape) {
		r := rand.New(rand.NewPCG(1, 2))
		n := 3*shape.BlockSize + 5
		slots := make([]int64, n)
		for i := range slots {
			slots[i] = int64(i + shape.BlockSize)
		}
		slots[17], slots[18], slots[n-12] = slots[18], slots[17], -1 // of tiles of 16 only the first is whole
		for _, rotation := range []*kvstore.Rotation{nil, newRotation(32, n, false), newRotation(64, n, true)} {
			tokens, _, _ := randomTokens(r, shape, slots)
			tokens.Rotation = rotation
			together := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 5})
			require.NoError(t, together.Write(0, tokens))
			single := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 5})
			width := shape.NumKVHeads * shape.HeadSize
			for i := range slots {
				one := kvstore.Tokens{Key: tokens.Key, Value: tokens.Value, Slots: slots[i : i+1]}
				one.Key.Data, one.Value.Data = one.Key.Data[i*width*4:], one.Value.Data[i*width*4:]
				if rotation != nil {
					part := *rotation
					part.Positions = rotation.Positions[i : i+1]
					one.Rotation = &part
				}
				require.NoError(t, single.Write(0, &one))
			}
			require.Equal(t, single.Layer(0).Key, together.Layer(0).Key)
			require.Equal(t, single.Layer(0).Value, together.Layer(0).Value)
		}
	})
}

func TestKeysAreRotated(t *testing.T) {
	shape := attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 64}
	for _, interleaved := range []bool{false, true} {
		t.Run(fmt.Sprint(interleaved), func(t *testing.T) {
			s := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 2})
			tokens, k, _ := randomTokens(rand.New(rand.NewPCG(1, 2)), shape, []int64{4, 9})
			tokens.Rotation = newRotation(32, 2, interleaved)
			require.NoError(t, s.Write(0, tokens))
			c := s.Layer(0)
			for i := range 16 {
				a, b := i, i+16
				if interleaved {
					a, b = 2*i, 2*i+1
				}
				sin, cos := math.Sincos(3 / math.Pow(100, float64(2*i)/32))
				x, y := float64(k[64+a]), float64(k[64+b])
				require.InDelta(t, x*cos-y*sin, stored(c, false, 9, 0, a), 1e-6)
				require.InDelta(t, y*cos+x*sin, stored(c, false, 9, 0, b), 1e-6)
			}
			require.Equal(t, k[64+40], stored(c, false, 9, 0, 40), "beyond the rotated part")
		})
	}
}

func TestBadTokensAreRefusedAndNothingIsWritten(t *testing.T) {
	shape := attention.Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 32}
	s := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 2})
	good := func() *kvstore.Tokens {
		tokens, _, _ := randomTokens(rand.New(rand.NewPCG(1, 2)), shape, []int64{1, 2, 3})
		return tokens
	}
	for _, c := range []struct {
		name   string
		change func(t *kvstore.Tokens)
	}{
		{"a slot after the last", func(t *kvstore.Tokens) { t.Slots[2] = 32 }},
		{"a slot below -1", func(t *kvstore.Tokens) { t.Slots[2] = -2 }},
		{"too few keys", func(t *kvstore.Tokens) { t.Key.Data = t.Key.Data[:2*64*4] }},
		{"too few values", func(t *kvstore.Tokens) { t.Value.Data = t.Value.Data[:3*64*4-1] }},
		{"rows that overlap", func(t *kvstore.Tokens) { t.Key.Stride = 63 }},
		{"a huge stride", func(t *kvstore.Tokens) { t.Key.Stride = math.MaxInt }},
		{"a type that cannot be", func(t *kvstore.Tokens) { t.Value.DType = attention.Int8 }},
		{"keys in the blocks", func(t *kvstore.Tokens) { t.Key.Data = s.Layer(0).Key }},
		{"a position without cosine", func(t *kvstore.Tokens) {
			t.Rotation = newRotation(32, 3, false)
			t.Rotation.Positions[1] = 200
		}},
		{"a position without sine", func(t *kvstore.Tokens) {
			t.Rotation = newRotation(32, 3, false)
			t.Rotation.Sin = t.Rotation.Sin[:2*16]
			copy(t.Rotation.Positions, []int32{0, 1, 2})
		}},
		{"a negative position", func(t *kvstore.Tokens) {
			t.Rotation = newRotation(32, 3, false)
			t.Rotation.Positions[1] = -1
		}},
		{"too few positions", func(t *kvstore.Tokens) { t.Rotation = newRotation(32, 2, false) }},
		{"an odd rotation", func(t *kvstore.Tokens) { t.Rotation = newRotation(32, 3, false); t.Rotation.Size = 7 }},
		{"a rotation beyond the head", func(t *kvstore.Tokens) { t.Rotation = newRotation(34, 3, false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := good()
			c.change(tokens)
			require.Error(t, s.Write(0, tokens))
			for _, b := range s.Layer(0).Key {
				require.Zero(t, b)
			}
		})
	}
	require.Error(t, s.Write(1, good()))
	require.Error(t, s.CopyBlocks([]kvstore.Pair{{Src: 0, Dst: 2}}))
	require.Error(t, s.CopyBlocks([]kvstore.Pair{{Src: -1, Dst: 1}}))
	require.Error(t, s.SwapOut([]kvstore.Pair{{Src: 0, Dst: 0}}), "there is no host pool")
}

func TestWritingAndCopyingAllocateNothing(t *testing.T) {
	for _, d := range allDTypes {
		shape := attention.Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 64, DType: d}
		s := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 5, HostBlocks: 2})
		slots := make([]int64, 40)
		for i := range slots {
			slots[i] = int64(i + 10)
		}
		tokens, _, _ := randomTokens(rand.New(rand.NewPCG(1, 2)), shape, slots)
		pairs := []kvstore.Pair{{Src: 1, Dst: 0}}
		require.Zero(t, testing.AllocsPerRun(20, func() {
			_ = s.Write(0, tokens)
			_ = s.CopyBlocks(pairs)
			_ = s.SwapOut(pairs)
		}), "%v", d)
	}
}

// Ensure that the numbers of a key or value are stored as 0 if all of them are below 2^-120. The inverse of their scale
// could otherwise be infinite in float32.
func TestTinyNumbersBecomeZeroInInt8(t *testing.T) {
	shape := attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 8, DType: attention.Int8}
	for _, largest := range []float32{1, 0x1p-119, 0x1p-121, 0x1p-149} {
		s := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 1})
		k := []float32{largest, -largest, largest / 8, -largest / 8, 0, largest / 300, -largest / 2, 0}
		tokens := &kvstore.Tokens{Key: attention.Float32s(k, 8), Value: attention.Float32s(k, 8), Slots: []int64{3}}
		require.NoError(t, s.Write(0, tokens))
		for i, want := range k {
			for _, value := range []bool{false, true} {
				delta := float64(largest) / 254
				if largest < 0x1p-120 {
					delta, want = 0, 0
				}
				require.InDelta(t, want, stored(s.Layer(0), value, 3, 0, i), delta*1.001, "element %d beside %v", i, largest)
			}
		}
	}
}

// Ensure that a NaN in a token makes the token's scale NaN, because int8 itself has no NaN.
func TestANaNIsTheScaleOfItsTokenInInt8(t *testing.T) {
	for _, layout := range allLayouts {
		shape := attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: attention.Int8, Layout: layout}
		for _, element := range []int{0, 5, 31} {
			s := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 2})
			slots := make([]int64, 16) // a whole block
			for i := range slots {
				slots[i] = int64(16 + i)
			}
			tokens, k, v := randomTokens(rand.New(rand.NewPCG(1, 2)), shape, slots)
			k[3*32+element], v[7*32+element] = float32(math.NaN()), float32(math.NaN())
			require.NoError(t, s.Write(0, tokens))
			c := s.Layer(0)
			keys, values := c.Scales(c.KeyScales, 1, 0), c.Scales(c.ValueScales, 1, 0)
			for i := range 16 {
				require.Equal(t, i == 3, keys[i] != keys[i], "key %d: %v", i, keys[i])
				require.Equal(t, i == 7, values[i] != values[i], "value %d: %v", i, values[i])
			}
		}
	}
}

func TestStoredNumbersAreDividedByTheirScale(t *testing.T) {
	for _, d := range []attention.DType{attention.F32, attention.F16, attention.E4M3} {
		for _, layout := range allLayouts {
			t.Run(fmt.Sprintf("%v %v", d, layout), func(t *testing.T) {
				shape := attention.Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: d, Layout: layout}
				s := newStore(t, kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 2})
				c := s.Layer(0)
				c.KeyScale, c.ValueScale = 2, 0.25
				slots := []int64{31} // and a whole tile
				for i := range 16 {
					slots = append(slots, int64(i))
				}
				n := len(slots) * 32
				k := make([]float32, n)
				for i := range k {
					k[i] = float32(i%13) / 4
				}
				rows := attention.Float32s(k, 32)
				require.NoError(t, s.Write(0, &kvstore.Tokens{Key: rows, Value: rows, Slots: slots}))
				for i, slot := range slots {
					for j := range 32 {
						require.InDelta(t, k[i*32+j]/2, stored(c, false, int(slot), 0, j), tolerance(d))
						require.InDelta(t, k[i*32+j]*4, stored(c, true, int(slot), 0, j), 4*tolerance(d))
					}
				}
			})
		}
	}
}
