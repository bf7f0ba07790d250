package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPriceThatNoGPUHasIsWarnedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.json")
	require.NoError(t, os.WriteFile(path,
		[]byte(`{"gpus":{"l4":{"watts":72},"h100-80g":{"watts":700},"something-else":{"watts":1}}}`), 0o644))
	var said strings.Builder
	prices, err := openPrices(&said, path, "l4", "absent.json")
	require.NoError(t, err)
	require.Len(t, prices.GPUs, 3)
	require.Equal(t, "llmsim: prices "+path+": no GPU is called \"h100-80g\"; did you mean h100-80gb?\n"+
		"llmsim: prices "+path+": no GPU is called \"something-else\"\n", said.String())
	said.Reset()
	_, err = openPrices(&said, "")
	require.NoError(t, err)
	require.Empty(t, said.String())
	status, _, stderr := llmsim(t, "cheapest", "--model", "llama-3-9b", "--target", "1", "--prices", path)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "did you mean h100-80gb?")
}
