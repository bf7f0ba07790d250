package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/weightfile"
)

// Ensure that weights in each quantized format of folders have the right bits, both in the tensor and in the packed
// matrix. testdata/folders/write.py computed these bits.
func TestQuantizedFoldersHaveTheWeightsOfTheirFormats(t *testing.T) {
	tests := []struct {
		folder string
		dtype  DType
	}{
		{"gptq", Groups4}, {"gptq_v2", Groups4Free}, {"awq", Groups4}, {"packed", Groups4Free},
		{"packed_zeros", Groups4Free}, {"fp8", FP8}, {"fp8_channels", FP8}, {"fp8_blocks", FP8},
	}
	for _, test := range tests {
		t.Run(test.folder, func(t *testing.T) {
			dir := filepath.Join("testdata", "folders", test.folder)
			w, err := OpenSafetensors(dir)
			require.NoError(t, err)
			defer func() { require.NoError(t, w.Close()) }()
			a := w.Get("a.weight")
			require.NotNil(t, a)
			require.Equal(t, test.dtype, a.DType)
			want, err := os.ReadFile(filepath.Join(dir, "want.bin"))
			require.NoError(t, err)
			require.Len(t, want, 24*a.Cols*4)

			var arena matrix.Arena
			defer func() { require.NoError(t, arena.Close()) }()
			m, err := arena.New(a.Packed(), a.Rows, a.Cols, a.Block())
			require.NoError(t, err)
			require.NoError(t, m.Pack(a, 0, 1))
			row, packed := make([]float32, a.Cols), make([]float32, a.Cols)
			for i := range a.Rows {
				a.Row(i, row)
				m.Row(i, packed)
				require.Equal(t, row, packed)
				for k, v := range row {
					if w := float32At(want[(i*a.Cols+k)*4:]); w != v {
						require.Equal(t, w, v, "output %d, input %d", i, k)
					}
				}
			}
		})
	}
}

func openChanged(t *testing.T, folder, file, old, replacement string) *Tensors {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join("testdata", "folders", folder, name))
		require.NoError(t, err)
		if name == file {
			require.Contains(t, string(data), old)
			data = bytes.Replace(data, []byte(old), []byte(replacement), 1)
		}
		write(t, dir, name, data)
	}
	w, err := OpenSafetensors(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// Ensure that settings without effect on the weights are accepted: an older name of the configuration, and an order of
// quantization (desc_act, actorder) in which each input stays in its group.
func TestSettingsThatChangeNoWeight(t *testing.T) {
	for _, test := range []struct{ folder, old, replacement string }{
		{"packed", "quantization_config", "compression_config"},
		{"gptq", `"desc_act": false`, `"desc_act": true`}, {"packed", `"actorder": null`, `"actorder": "weight"`},
		{"packed", `"actorder": null`, `"actorder": "static"`},
	} {
		require.NotNil(t, openChanged(t, test.folder, "config.json", test.old, test.replacement).Get("a.weight"), test.replacement)
	}
}

// Ensure that the fingerprint depends on the zero points and on how they are read. Tensors.Names does not contain the
// zero points, because they are not floats.
func TestTheFingerprintKnowsAllPartsOfAQuantizedMatrix(t *testing.T) {
	fingerprint := func(file, old, replacement string) string {
		return openChanged(t, "gptq", file, old, replacement).Fingerprint()
	}
	file, err := os.ReadFile(filepath.Join("testdata", "folders", "gptq", "model.safetensors"))
	require.NoError(t, err)
	header := binary.LittleEndian.Uint64(file)
	zeros := string(file[8+header+16*24*4:][:16]) // after 16 × 24 words
	unchanged := fingerprint("", "", "")
	require.Equal(t, unchanged, fingerprint("", "", ""))
	require.NotEqual(t, unchanged, fingerprint("model.safetensors", zeros, "0123456789abcdef"))
	require.NotEqual(t, unchanged, fingerprint("config.json", `"desc_act": false`, `"checkpoint_format": "gptq_v2"`))
}

// Ensure that a folder has the same fingerprint each time it is opened: blocks in a tier are found by it.
func TestTheFingerprintOfAFolderIsTheSameEachTime(t *testing.T) {
	configs, err := filepath.Glob(filepath.Join("testdata", "folders", "*", "config.json"))
	require.NoError(t, err)
	require.NotEmpty(t, configs)
	for _, config := range configs {
		folder := filepath.Base(filepath.Dir(config))
		first := openChanged(t, folder, "", "", "").Fingerprint()
		require.Equal(t, first, openChanged(t, folder, "", "", "").Fingerprint(), folder)
	}
}

func TestQuantizedFoldersThatCannotBeReadAreRefused(t *testing.T) {
	words := func(name string, rows, cols int) weightfile.Tensor {
		return weightfile.Tensor{Name: name, DType: "I32", Shape: []int{rows, cols}, Data: make([]byte, rows*cols*4)}
	}
	scales := func(name string, shape ...int) weightfile.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return weightfile.F32(name, make([]float32, n), shape...)
	}
	fp8 := func(rows, cols int) weightfile.Tensor {
		return weightfile.Tensor{Name: "a.weight", DType: "F8_E4M3", Shape: []int{rows, cols}, Data: make([]byte, rows*cols)}
	}
	order := words("a.g_idx", 1, 64)
	order.Data[0] = 1
	gptq := []weightfile.Tensor{words("a.qweight", 8, 16), words("a.qzeros", 1, 2), scales("a.scales", 1, 16)}
	type config = map[string]any
	compressed := func(format, kind string, bits int, extra config) config {
		w := config{"num_bits": bits, "type": kind}
		for k, v := range extra {
			w[k] = v
		}
		groups := config{"g": config{"weights": w}}
		return config{"quant_method": "compressed-tensors", "format": format, "config_groups": groups}
	}
	tests := []struct {
		name    string
		config  config
		tensors []weightfile.Tensor
		want    string
	}{
		{"another method", config{"quant_method": "bitsandbytes"}, nil, `quant_method is "bitsandbytes"; fp8, gptq, awq`},
		{"GPTQ in 8 bits", config{"quant_method": "gptq", "bits": 8}, nil, "gptq with 8 bits; 4 are read"},
		{"GPTQ in an order", config{"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true},
			append(gptq[:3:3], order), "g_idx orders inputs"},
		{"GPTQ in an order that is missing", config{"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true},
			gptq, `tensor "a.g_idx" is missing`},
		{"GPTQ in an order of fewer inputs", config{"quant_method": "gptq", "bits": 4, "group_size": 64},
			append(gptq[:3:3], words("a.g_idx", 1, 63)), "g_idx orders inputs"},
		{"GPTQ in an order that the config does not mention", config{"quant_method": "gptq", "bits": 4, "group_size": 64},
			append(gptq[:3:3], order), "g_idx orders inputs"},
		{"GPTQ of Marlin", config{"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, nil,
			`checkpoint_format "marlin"`},
		{"GPTQ without zeros", config{"quant_method": "gptq", "bits": 4, "group_size": 64}, gptq[:1],
			`tensor "a.qzeros" is missing`},
		{"GPTQ without scales", config{"quant_method": "gptq", "bits": 4, "group_size": 64}, gptq[:2],
			`tensor "a.scales" is missing`},
		{"GPTQ in groups that do not fit", config{"quant_method": "gptq", "bits": 4, "group_size": 32}, gptq,
			"scales of 1 groups of 16 outputs for 16 × 64 weights in groups of 32"},
		{"GPTQ with other zeros", config{"quant_method": "gptq", "bits": 4, "group_size": 64},
			[]weightfile.Tensor{gptq[0], words("a.qzeros", 1, 3), gptq[2]}, "zeros of 1 × 3 words"},
		{"AWQ of another version", config{"quant_method": "awq", "bits": 4, "version": "gemv"}, nil, `version "gemv"`},
		{"AWQ in groups that are too small", config{"quant_method": "awq", "bits": 4, "group_size": 16},
			[]weightfile.Tensor{words("a.qweight", 64, 2), words("a.qzeros", 4, 2), scales("a.scales", 4, 16)},
			"64 inputs in groups of 16; multiples of 32 are read"},
		{"FP8 of another kind", config{"quant_method": "fp8", "fmt": "e5m2"}, nil, `fmt "e5m2"`},
		{"FP8 of odd rows", config{"quant_method": "fp8"}, []weightfile.Tensor{fp8(2, 48), scales("a.weight_scale", 1)},
			"48 inputs in groups of 48; multiples of 32 are read"},
		{"FP8 without scales", config{"quant_method": "fp8"}, []weightfile.Tensor{fp8(2, 32)},
			`tensor "a.weight_scale" is missing`},
		{"FP8 with scales of other outputs", config{"quant_method": "fp8"},
			[]weightfile.Tensor{fp8(2, 32), scales("a.weight_scale", 3)}, "3 scales for 2 outputs"},
		{"FP8 with other blocks", config{"quant_method": "fp8", "weight_block_size": []int{128, 128}},
			[]weightfile.Tensor{fp8(2, 256), scales("a.weight_scale_inv", 1, 1)}, "1 × 1 scales of blocks of [128 128]"},
		{"FP8 with a large scale", config{"quant_method": "fp8"},
			[]weightfile.Tensor{fp8(1, 32), weightfile.F32("a.weight_scale", []float32{256}, 1)}, "a scale of 256"},
		{"compressed-tensors of integers of 8 bits", compressed("int-quantized", "int", 8, nil), nil,
			`format "int-quantized" and weights of type "int" of 8 bits`},
		{"compressed-tensors in an order", compressed("pack-quantized", "int", 4, config{"actorder": "group"}), nil,
			`actorder "group"`},
		{"compressed-tensors with other zeros", compressed("pack-quantized", "int", 4, config{"group_size": 64}),
			[]weightfile.Tensor{words("a.weight_packed", 16, 8), scales("a.weight_scale", 16, 1),
				words("a.weight_zero_point", 2, 2)}, "zeros of 2 × 2 words"},
		{"compressed-tensors without groups", config{"quant_method": "compressed-tensors"}, nil, "without config_groups"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			text, err := json.Marshal(config{"quantization_config": test.config})
			require.NoError(t, err)
			write(t, dir, "config.json", text)
			write(t, dir, "model.safetensors", weightfile.Safetensors(test.tensors...))
			_, err = OpenSafetensors(dir)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// fromGGML returns the test data of a type: a tensor with one row, and the numbers to which ggml converted it.
func fromGGML(t *testing.T, d DType) (*Tensor, []float32) {
	data, err := os.ReadFile(filepath.Join("testdata", "ggml", d.String()+".bin"))
	require.NoError(t, err)
	l := layouts[d]
	n := len(data) / (l.bytes + 4*l.elements)
	require.Equal(t, len(data), n*(l.bytes+4*l.elements))
	require.Positive(t, n)
	blocks, numbers := data[:n*l.bytes], data[n*l.bytes:]
	tensor, err := makeTensor("x", d, []uint64{uint64(n * l.elements)}, blocks)
	require.NoError(t, err)
	want := make([]float32, n*l.elements)
	for i := range want {
		want[i] = float32At(numbers[i*4:])
	}
	return tensor, want
}

// Ensure that a tensor of each type and its packed matrix have ggml's numbers for the same blocks. The bits are the
// same, except for the sign of zeros.
func TestNumbersAreThoseOfGGML(t *testing.T) {
	for d := Q8_0; d <= IQ4_XS; d++ {
		t.Run(d.String(), func(t *testing.T) {
			tensor, want := fromGGML(t, d)
			equal(t, want, tensor.Vector())

			var a matrix.Arena
			defer func() { require.NoError(t, a.Close()) }()
			m, err := a.New(tensor.Packed(), 1, tensor.Cols, tensor.Block())
			require.NoError(t, err)
			require.NoError(t, m.Pack(tensor, 0, 1))
			have := make([]float32, tensor.Cols)
			m.Row(0, have)
			if d == Q4_0 { // in F16, the minimum is infinite if the scale is above 8191
				for i, v := range have {
					if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
						have[i] = want[i]
					}
				}
			}
			equal(t, want, have)
		})
	}
}

func equal(t *testing.T, want, have []float32) {
	t.Helper()
	zeros := 0
	for i, v := range have {
		if v == 0 {
			zeros++
		}
		if want[i] != v {
			require.Equal(t, want[i], v, "element %d", i)
		}
	}
	require.Less(t, zeros, len(want)/2)
}
