package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCalibrateMakesACostFile(t *testing.T) {
	dir := t.TempDir()
	bench := filepath.Join(dir, "bench.jsonl")
	var text strings.Builder
	for _, line := range []string{
		`"pp": 128, "tg": 32, "pl": 1, "t_pp": 0.05, "t_tg": 0.640`,
		`"pp": 128, "tg": 32, "pl": 2, "t_pp": 0.09, "t_tg": 0.660`,
		`"pp": 128, "tg": 32, "pl": 4, "t_pp": 0.17, "t_tg": 0.710`,
		`"pp": 512, "tg": 32, "pl": 1, "t_pp": 0.17, "t_tg": 0.650`,
		`"pp": 512, "tg": 32, "pl": 4, "t_pp": 0.66, "t_tg": 0.730`,
	} {
		text.WriteString(`{"n_kv_max": 4096, "is_pp_shared": 0, ` + line + "}\n")
	}
	require.NoError(t, os.WriteFile(bench, []byte(text.String()), 0o600))
	out := filepath.Join(dir, "mine.json")
	status, stdout, stderr := llmsim(t, "calibrate", bench, "-o", out)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "fitted to 10 points, errors of those left out: median")
	narrow(t, strings.ReplaceAll(stdout, out, "mine.json"))
	status, stdout, stderr = llmsim(t, "run", "--model", "llama-3-8b", "--gpu", "l4", "--cost", out, "--rate", "0.5",
		"--requests", "50")
	require.Zero(t, status, stderr)
	require.Contains(t, strings.Join(strings.Fields(stdout), " "), "mine, fitted to 10 points")

	require.NoError(t, os.WriteFile(bench, []byte("batch,context\n1,2\n"), 0o600))
	status, _, stderr = llmsim(t, "calibrate", bench, "-o", filepath.Join(dir, "none.json"))
	require.Equal(t, 1, status)
	require.Contains(t, stderr, `no column "prompt"`)
	require.NoFileExists(t, filepath.Join(dir, "none.json"))
	status, _, stderr = llmsim(t, "run", "--cost", bench)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "cost file")
}

func TestCalibrateKeepsTheMeasurements(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.csv")
	text := "batch,context,prompt,seconds\n1,100,0,0.01\n8,100,0,0.02\n0,0,512,0.05\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	status, _, stderr := llmsim(t, "calibrate", file, "-o", file)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "take another name")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, text, string(kept))
}
