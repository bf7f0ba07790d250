package model_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	pack "llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/weightfile"
)

// A quantizer writes random weights of a matrix in a format, and sets weights to the dequantized values.
type quantizer func(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor

func randomFP8(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor {
	data, scales := make([]byte, rows*cols), make([]float32, rows)
	for i := range data {
		if i%cols == 0 {
			scales[i/cols] = 0.0005 * (1 + rnd.Float32())
		}
		data[i] = byte(rnd.IntN(127) | rnd.IntN(2)<<7)
		weights[i] = pack.E4M3.Table()[data[i]] * scales[i/cols]
	}
	return []weightfile.Tensor{{Name: name + ".weight", DType: "F8_E4M3", Shape: []int{rows, cols}, Data: data},
		weightfile.F32(name+".weight_scale", scales, rows, 1)}
}

func randomPacked(rnd *rand.Rand, name string, rows, cols int, weights []float32) []weightfile.Tensor {
	var data []byte
	scales := make([]float32, rows*cols/32)
	for i := 0; i < rows*cols; i += 8 {
		if i%32 == 0 {
			scales[i/32] = 0.02 * (1 + rnd.Float32())
		}
		word := rnd.Uint32()
		data = binary.LittleEndian.AppendUint32(data, word)
		for j := range 8 {
			weights[i+j] = float32(int(word>>(4*j)&15)-8) * scales[i/32]
		}
	}
	return []weightfile.Tensor{{Name: name + ".weight_packed", DType: "I32", Shape: []int{rows, cols / 8}, Data: data},
		weightfile.F32(name+".weight_scale", scales, rows, cols/32)}
}

func TestQuantizedFoldersLogitsAreThoseOfTheReference(t *testing.T) {
	config := func(format, kind string, bits int) map[string]any {
		return map[string]any{"quant_method": "compressed-tensors", "format": format, "config_groups": map[string]any{
			"g": map[string]any{"weights": map[string]any{"type": kind, "num_bits": bits, "group_size": 32}}}}
	}
	for _, test := range []struct {
		name         string
		quantization map[string]any
		quantize     quantizer
	}{
		{"FP8", config("float-quantized", "float", 8), randomFP8},
		{"INT4", config("pack-quantized", "int", 4), randomPacked},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := families()[1]
			f.config["hidden_size"], f.config["intermediate_size"] = 64, 128
			f.config["quantization_config"] = test.quantization
			f.ref.hidden, f.ref.inter = 64, 128
			dir := f.write(t)
			write := func(quantized string) {
				rnd := rand.New(rand.NewPCG(8, 3))
				f.save(t, dir, func(name string, shape []int) []weightfile.Tensor {
					if strings.Contains(name, quantized) {
						return test.quantize(rnd, strings.TrimSuffix(name, ".weight"), shape[0], shape[1], f.ref.w[name])
					}
					return f.same(name, shape)
				})
			}
			write("_proj")
			most, _, size := logitErrors(t, newBench(t, dir, 2), &f.ref)
			require.Less(t, most, 2e-4)
			require.Greater(t, size, 0.3)
			requireSameBits(t, join(t, 1, folder(dir)), join(t, 2, folder(dir)))
			write("embed_tokens")
			_, err := model.OpenFolder(dir, newPool(t, 1), model.Part{})
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, "embeddings are read in F32, F16 and BF16")
		})
	}
}
