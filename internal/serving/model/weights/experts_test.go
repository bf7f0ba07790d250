package weights

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/testkit/weightfile"
)

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
