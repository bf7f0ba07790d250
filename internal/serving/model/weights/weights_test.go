package weights

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/testkit/weightfile"
)

func write(t testing.TB, dir, name string, data []byte) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return path
}

func TestSafetensorsAreReadInEachType(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "model.safetensors", weightfile.Safetensors(
		weightfile.F32("f", []float32{1, -2, 3.5, 4, 5, 6}, 2, 3),
		weightfile.Tensor{Name: "h", DType: "F16", Shape: []int{2}, Data: []byte{0, 0x3c, 0, 0xc0}},
		weightfile.Tensor{Name: "b", DType: "BF16", Shape: []int{1, 2}, Data: []byte{0x80, 0x3f, 0, 0xc0}},
		weightfile.Tensor{Name: "mask", DType: "BOOL", Shape: []int{1, 1, 2}, Data: []byte{0, 1}},
	))
	w, err := OpenSafetensors(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"b", "f", "h"}, w.Names())
	row := make([]float32, 3)
	w.Get("f").Row(1, row)
	require.Equal(t, []float32{4, 5, 6}, row)
	require.Equal(t, []float32{1, -2}, w.Get("h").Vector())
	require.Equal(t, []float32{1, -2}, w.Get("b").Vector())
	require.NoError(t, w.Close())
}

func TestShardsAreReadAsOne(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.safetensors", weightfile.Safetensors(weightfile.F32("x", []float32{1}, 1)))
	write(t, dir, "b.safetensors", weightfile.Safetensors(weightfile.F32("y", []float32{2}, 1)))
	write(t, dir, "model.safetensors.index.json", []byte(`{"metadata": {"loss": NaN}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}`))
	w, err := OpenSafetensors(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"x", "y"}, w.Names())
	require.NoError(t, w.Close())
}

func TestATensorInTwoFilesIsRefused(t *testing.T) {
	floats := weightfile.F32("x", []float32{1}, 1)
	words := weightfile.Tensor{Name: "x", DType: "I32", Shape: []int{1, 1}, Data: make([]byte, 4)}
	for _, pair := range [][2]weightfile.Tensor{{floats, floats}, {words, words}, {floats, words}, {words, floats}} {
		dir := t.TempDir()
		write(t, dir, "a.safetensors", weightfile.Safetensors(pair[0]))
		write(t, dir, "b.safetensors", weightfile.Safetensors(pair[1]))
		write(t, dir, "model.safetensors.index.json", []byte(`{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}`))
		_, err := OpenSafetensors(dir)
		require.ErrorIs(t, err, ErrFormat, "%s and %s", pair[0].DType, pair[1].DType)
		require.ErrorContains(t, err, `tensor "x" is in two files`)
	}
}

func TestSafetensorsThatLieAreRefused(t *testing.T) {
	file := func(size uint64, header string, data int) []byte {
		b := binary.LittleEndian.AppendUint64(nil, size)
		return append(append(b, header...), make([]byte, data)...)
	}
	whole := func(header string, data int) []byte { return file(uint64(len(header)), header, data) }
	tests := []struct {
		name string
		file []byte
		want error
	}{
		{"empty", nil, ErrFormat},
		{"header longer than the file", file(1<<62, "{}", 0), ErrFormat},
		{"header that is not JSON", whole("{", 8), ErrFormat},
		{"offsets outside", whole(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), ErrFormat},
		{"offsets reversed", whole(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8), ErrFormat},
		{"one offset", whole(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[8]}}`, 8), ErrFormat},
		{"shape larger than the data", whole(`{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8), ErrFormat},
		{"shape that overflows", whole(`{"x":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16]}}`, 16),
			ErrFormat},
		{"negative shape", whole(`{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}}`, 8), ErrFormat},
		{"no elements", whole(`{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, 8), ErrFormat},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := &Tensors{byName: map[string]*Tensor{}}
			require.ErrorIs(t, w.parseSafetensors(test.file), test.want)
		})
	}
	_, err := shards([]byte(`{"weight_map": {"x": "../secret"}}`))
	require.ErrorIs(t, err, ErrFormat)
}

func TestGGUFIsRead(t *testing.T) {
	f := weightfile.F32("f", []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	q := weightfile.Tensor{Name: "q", Type: 8, Shape: []int{2, 32}, Data: make([]byte, 68)}
	q.Data[34], q.Data[35], q.Data[36+5] = 0, 0x40, 0xfd // a scale of 2, −3 at 5
	path := write(t, t.TempDir(), "m.gguf", weightfile.GGUF(map[string]any{
		"name": "x", "n": uint32(7), "eps": float32(0.5), "yes": true,
		"words": []string{"", "ab"}, "scores": []float32{1, -1}, "kinds": []int32{3},
	}, f, q))
	g, err := OpenGGUF(path)
	require.NoError(t, err)
	n, ok := g.Meta["n"].Int()
	require.True(t, ok)
	require.EqualValues(t, 7, n)
	eps, ok := g.Meta["eps"].Float()
	require.True(t, ok)
	require.EqualValues(t, 0.5, eps)
	require.Equal(t, "x", g.Meta["name"].String())
	require.Equal(t, []string{"", "ab"}, g.Meta["words"].Strings())
	require.Equal(t, []float64{1, -1}, g.Meta["scores"].Floats())
	require.Equal(t, []float64{3}, g.Meta["kinds"].Floats())
	_, ok = g.Meta["missing"].Int()
	require.False(t, ok)
	require.Equal(t, []float32{1, 2, 3, 4, 5, 6}, g.Get("f").Vector())
	row := make([]float32, 32)
	g.Get("q").Row(1, row)
	require.EqualValues(t, -6, row[5])
	require.NoError(t, g.Close())
}

// eachDamage parses many damaged copies of a file. It requires that parse does not panic or allocate much more
// memory than the file's size.
func eachDamage(t *testing.T, file []byte, parse func([]byte)) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 3000
	for range rounds {
		changed := append([]byte(nil), file[:1+rnd.IntN(len(file))]...)
		for range rnd.IntN(4) {
			pos := rnd.IntN(len(changed))
			switch rnd.IntN(3) {
			case 0:
				changed[pos] = byte(rnd.Uint32())
			case 1:
				for i := pos; i < min(pos+8, len(changed)); i++ {
					changed[i] = 0xff
				}
			case 2:
				changed[pos] ^= 1 << rnd.IntN(8)
			}
		}
		parse(changed)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/rounds, uint64(20*len(file)+10000))
}

func samples() (safetensors, gguf []byte) {
	f := weightfile.F32("f", []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	safetensors = weightfile.Safetensors(f, weightfile.F32("g", []float32{1}, 1))
	gguf = weightfile.GGUF(map[string]any{
		"n": uint32(7), "words": []string{"a", "bc"}, "scores": []float32{1, -1},
	}, f, weightfile.Tensor{Name: "q", Type: 12, Shape: []int{256}, Data: make([]byte, 144)})
	return safetensors, gguf
}

func readSafetensors(file []byte) {
	w := &Tensors{byName: map[string]*Tensor{}}
	if w.parseSafetensors(file) == nil {
		for _, name := range w.Names() {
			w.Get(name).Vector()
		}
	}
}

func readGGUF(file []byte) {
	g, err := parseGGUF(file)
	if err != nil {
		return
	}
	for _, v := range g.Meta {
		v.Int()
		v.Float()
		v.Strings()
		v.Floats()
	}
	for _, name := range g.Names() {
		g.Get(name).Vector()
	}
}

func TestDamagedFilesGiveErrorsAndTakeNoMemory(t *testing.T) {
	safetensors, gguf := samples()
	t.Run("safetensors", func(t *testing.T) { eachDamage(t, safetensors, readSafetensors) })
	t.Run("GGUF", func(t *testing.T) { eachDamage(t, gguf, readGGUF) })
}

func FuzzSafetensors(f *testing.F) {
	file, _ := samples()
	f.Add(file)
	f.Fuzz(func(_ *testing.T, file []byte) { readSafetensors(file) })
}

func FuzzGGUF(f *testing.F) {
	_, file := samples()
	f.Add(file)
	f.Fuzz(func(_ *testing.T, file []byte) { readGGUF(file) })
}

func TestAMissingFileIsNamed(t *testing.T) {
	_, err := OpenSafetensors(t.TempDir())
	require.ErrorContains(t, err, "model.safetensors")
	_, err = OpenGGUF(write(t, t.TempDir(), "empty.gguf", nil))
	require.ErrorIs(t, err, ErrFormat)
	index, err := json.Marshal(map[string]any{})
	require.NoError(t, err)
	_, err = shards(index)
	require.ErrorIs(t, err, ErrFormat)
}

func TestExpertsThatAreParametersAreMatrices(t *testing.T) {
	for _, kind := range []string{"F32", "F16", "BF16"} {
		var values []float32
		for i := range 24 {
			values = append(values, float32(i))
		}
		w := weightfile.F32("a.experts.down_proj", values, 2, 4, 3)
		if kind != "F32" {
			w.DType, w.Data = kind, nil
			for _, v := range values {
				bits := half.ToF16(v)
				if kind == "BF16" {
					bits = half.ToBF16(v)
				}
				w.Data = binary.LittleEndian.AppendUint16(w.Data, bits)
			}
		}
		dir := t.TempDir()
		write(t, dir, "model.safetensors", weightfile.Safetensors(w, weightfile.F32("a.experts.down_proj_bias", values[:6], 2, 3)))
		all, err := OpenSafetensors(dir)
		require.NoError(t, err)
		m := all.Get("a.experts.down_proj.weight")
		require.Equal(t, []int{6, 4}, []int{m.Rows, m.Cols})
		require.Equal(t, []float32{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 12, 15, 18, 21, 13, 16, 19, 22, 14, 17, 20, 23}, m.Vector())
		require.Equal(t, values[:6], all.Get("a.experts.down_proj.bias").Vector())
		require.NoError(t, all.Close())
	}
}
