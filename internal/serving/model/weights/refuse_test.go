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
	require.Equal(t, "of type F64 and shape [64 2]", all.DescribeOther("a"))
}

func TestAModelInSeveralFilesIsReadAsOne(t *testing.T) {
	const first, second, third = "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"
	part := func(number, count uint32, name string, value float32) []byte {
		return weightfile.GGUF(map[string]any{
			"split.no": number, "split.count": count, "split.tensors.count": uint32(3), "name": name,
		}, weightfile.F32(name, []float32{value, 2}, 2))
	}
	tests := []struct {
		name   string
		open   string
		change map[string][]byte // files; nil: missing
		want   string
	}{
		{"as it is", first, nil, ""},
		{"a file is missing", first, map[string][]byte{second: nil}, "file 2 of the 3 of the model: open "},
		{"the second file is given", second, nil, second + " is file 2 of the 3 of a model; give the first one"},
		{"a file of another model", first, map[string][]byte{third: part(2, 4, "c", 3)},
			third + ": damaged file of weights: it says that it is file 3 of 4; is it of another model?"},
		{"two files are the same", first, map[string][]byte{third: part(1, 3, "b", 3)}, "it says that it is file 2 of 3"},
		{"a file that is not a part", first, map[string][]byte{second: weightfile.GGUF(nil)}, "it says that it is file 1 of 0"},
		{"a tensor twice", first, map[string][]byte{third: part(2, 3, "a", 3)}, `tensor "a" is in two files`},
		{"a tensor is missing", first, map[string][]byte{third: weightfile.GGUF(map[string]any{
			"split.no": uint32(2), "split.count": uint32(3)})}, "have 2 tensors, the first one says 3"},
		{"another name", "other.gguf", map[string][]byte{"other.gguf": part(0, 3, "a", 1)},
			"its name must end in -00001-of-00003.gguf"},
		{"a damaged file", first, map[string][]byte{second: []byte("GGUF")}, second + ": damaged file of weights"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string][]byte{first: part(0, 3, "a", 1), second: part(1, 3, "b", 2), third: part(2, 3, "c", 3)}
			for name, data := range test.change {
				files[name] = data
			}
			for name, data := range files {
				if data != nil {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
				}
			}
			g, err := OpenGGUF(filepath.Join(dir, test.open))
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b", "c"}, g.Names())
			require.Equal(t, []float32{3, 2}, g.Get("c").Vector())
			require.Equal(t, "a", g.Meta["name"].String())
			require.NoError(t, g.Close())
		})
	}
}
