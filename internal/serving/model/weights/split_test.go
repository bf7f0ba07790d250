package weights

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/weightfile"
)

func TestAModelInSeveralFilesIsReadAsOne(t *testing.T) {
	const first, second, third = "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"
	part := func(no, of uint32, name string, value float32) []byte {
		return weightfile.GGUF(map[string]any{
			"split.no": no, "split.count": of, "split.tensors.count": uint32(3), "name": name,
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
