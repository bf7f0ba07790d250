package cost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that every price is of a GPU there is, and has a source.
func TestPricesAreOfKnownGPUs(t *testing.T) {
	p, err := OpenPrices("")
	require.NoError(t, err)
	require.NotEmpty(t, p.Source)
	require.NotContains(t, p.Source, "watts", "they have their own")
	require.NotEmpty(t, p.WattsSource)
	for name, v := range p.GPUs {
		require.Contains(t, GPUs(), name)
		require.Positive(t, v.Watts, name)
	}
}

func TestBadPricesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, wantErr string }{
		{"below 0", `{"gpus":{"l4":{"dollars_per_hour":-1}}}`, "at least 0"},
		{"a field there is not", `{"gpus":{"l4":{"euros":1}}}`, "unknown field"},
		{"no JSON", `l4: 1`, "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "prices.json")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o644))
			_, err := OpenPrices(path)
			require.ErrorIs(t, err, ErrFile)
			require.ErrorContains(t, err, c.wantErr)
		})
	}
	_, err := OpenPrices("no-such-file.json")
	require.ErrorIs(t, err, ErrFile)
}
