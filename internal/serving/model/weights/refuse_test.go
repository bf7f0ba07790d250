package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/weightfile"
)

func safetensors(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}

func TestADamagedFileIsSaidToBeWhatItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
		Hidden: 32, Layers: 1, Heads: 2, KVHeads: 2, Inter: 32, Vocab: 64, Context: 64, Type: "F16",
	}))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 538090408\n"
	const header = `{"a": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}`
	tests := []struct {
		name string
		file []byte
		want string
	}{
		{"a pointer for GGUF", []byte(pointer), "it is a pointer of Git LFS; git lfs pull fetches the file"},
		{"a pointer for safetensors", []byte(pointer), "it is a pointer of Git LFS; git lfs pull fetches the file"},
		{"a GGUF cut in its last tensor", whole[:len(whole)-10],
			"ends before tensor \"blk.0.ffn_down.weight\" does: was it downloaded in full?"},
		{"a GGUF cut in its first tensor", whole[:len(whole)*2/5], "does: was it downloaded in full?"},
		{"safetensors cut", safetensors(header, 31), "ends before tensor \"a\" does: was it downloaded in full?"},
		{"big-endian GGUF", []byte("GGUF\x00\x00\x00\x03" + strings.Repeat("\x00", 16)),
			"it is big-endian; little-endian GGUF is read"},
		{"no GGUF", bytes.Repeat([]byte("x"), 99), "it is not a GGUF file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseGGUF(test.file)
			if bytes.Contains([]byte(test.name), []byte("safetensors")) {
				err = (&Tensors{byName: map[string]*Tensor{}}).parseSafetensors(test.file)
			}
			require.True(t, errors.Is(err, ErrFormat) || errors.Is(err, ErrUnsupported))
			require.ErrorContains(t, err, test.want)
		})
	}
	iq2 := weightfile.Tensor{Name: "q", Type: 16, Shape: []int{1, 256}, Data: make([]byte, 66)}
	_, err = parseGGUF(weightfile.GGUF(nil, iq2))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, `tensor "q" is of type IQ2_XXS; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, `+
		"MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS are read")
	iq2.Type = 99
	_, err = parseGGUF(weightfile.GGUF(nil, iq2))
	require.ErrorContains(t, err, `tensor "q" is of type 99;`)

	all := &Tensors{byName: map[string]*Tensor{}}
	require.NoError(t, all.parseSafetensors(
		safetensors(`{"a": {"dtype": "F64", "shape": [64, 2], "data_offsets": [0, 0]}}`, 0)))
	require.Equal(t, "of type F64 and shape [64 2]", all.LeftOut("a"))
}
