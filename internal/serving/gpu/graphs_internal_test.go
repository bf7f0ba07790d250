package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that the rows that pad a decoding step are few, at most a tenth of all on average, where products compute rather
// than read weights. What pads attention is left out (see TestPaddingOfDecodingHasNoWork).
func TestPaddedRowsAreFew(t *testing.T) {
	shapes, rows, padded := map[int]bool{}, 0, 0
	for n := 1; n <= 256; n++ {
		p := paddedRows(n)
		require.GreaterOrEqual(t, p, n)
		require.Equal(t, p, paddedRows(p))
		shapes[p] = true
		if n > 64 {
			require.Less(t, p, n+16)
			rows, padded = rows+n, padded+p
		}
	}
	require.Len(t, shapes, 19)
	require.LessOrEqual(t, float64(padded), 1.1*float64(rows))
}
