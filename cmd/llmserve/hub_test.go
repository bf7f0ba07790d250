package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANameOfAHubIsAnsweredWithHowToGetTheFolder(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	for _, test := range []struct{ model, want string }{
		{"acme/tiny-1.5B", "hf download acme/tiny-1.5B --local-dir tiny-1.5B, then give the folder tiny-1.5B, or a .gguf file in it"},
		{"https://huggingface.co/acme/tiny", "hf download acme/tiny --local-dir tiny, then"},
		{"hf.co/acme/tiny-GGUF:Q4_K_M", "hf download acme/tiny-GGUF --include '*Q4_K_M*' --local-dir tiny-GGUF, then give the .gguf file in tiny-GGUF"},
		{"./acme/tiny", "MODEL is a folder or a .gguf file"},
		{"models/tiny.gguf", "MODEL is a folder or a .gguf file"},
		{"../tiny", "MODEL is a folder or a .gguf file"},
		{"a/b/c", "MODEL is a folder or a .gguf file"},
	} {
		require.Contains(t, refusedHere(t, test.model, "--port", "0"), test.want, test.model)
	}

	dir := filepath.Join(cache, "models--acme--tiny")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refs/main"), []byte("abc\n"), 0o644))
	require.Contains(t, refusedHere(t, "acme/tiny", "--port", "0"), "hf download", "without the snapshot")
	snapshot := filepath.Join(dir, "snapshots/abc")
	require.NoError(t, os.MkdirAll(snapshot, 0o755))
	require.Contains(t, refusedHere(t, "acme/tiny", "--port", "0"), "the cache of huggingface.co has it: give "+snapshot)
}
