package openai_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// javaScriptClient is the version of the npm package openai that is tested with.
const javaScriptClient = "6.0.0"

// The official client for JavaScript reads what the server says, and aborting frees the blocks.
func TestTheJavaScriptClientUnderstandsTheServer(t *testing.T) {
	level.SkipQuick(t)
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "llmserve-openai-"+javaScriptClient)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "openai", "package.json")); err != nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		npm := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts",
			"--fetch-retries", "0", "--prefer-offline", "openai@"+javaScriptClient)
		if out, err := npm.CombinedOutput(); err != nil {
			t.Skipf("the npm package openai@%s cannot be installed: %v: %.200s", javaScriptClient, err, out)
		}
	}
	script, err := os.ReadFile("testdata/client.mjs")
	require.NoError(t, err)
	file := filepath.Join(dir, "client.mjs") // node looks for packages beside it
	require.NoError(t, os.WriteFile(file, script, 0o644))
	s := start(t, nil)
	out, err := exec.CommandContext(t.Context(), node, file, s.url+"/v1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "all is well\n", string(out))
	settle(t, s)
}
