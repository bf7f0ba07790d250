package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/weightfile"
)

// anonymous returns the anonymous memory of a process in MB.
func anonymous(t *testing.T, pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, found)
	kB, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return kB >> 10
}

// sendWithKey sends a request with a key.
func (s *server) sendWithKey(t *testing.T, method, path, key, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequest(method, strings.TrimSuffix(s.url, "/v1")+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	return got.StatusCode, text(t, got)
}

// Ensure that a server does not wake up with other weights or adapters than those that computed the blocks in its tier.
func TestAServerWithATierDoesNotWakeUpWithOtherFiles(t *testing.T) {
	path, adapter, away := tinyWith(t, nil), ggufAdapter(t, loraPair{"blk.3.attn_output", weightfile.TinyHeads * weightfile.TinyDim, weightfile.TinyHidden}), filepath.Join(t.TempDir(), "away")
	s, _ := serveModelFile(t, path, "--api-key", "k", "--lora-modules", "a="+adapter, "--kv-offload-dir", filepath.Join(t.TempDir(), "tier"))
	ask := func() (int, string) {
		status, answer := s.sendWithKey(t, "POST", "/v1/completions", "k", `{"model": "a", "prompt": "some words", "max_tokens": 3, "temperature": 0, "logprobs": 1}`)
		return status, regexp.MustCompile(`"choices":.*\}\]|"error".*`).FindString(answer)
	}
	status, before := ask()
	require.Equal(t, 200, status, before)
	for _, file := range []string{path, adapter} {
		status, answer := s.sendWithKey(t, "POST", "/sleep", "k", "")
		require.Equal(t, 200, status, answer)
		require.NoError(t, os.Rename(file, away))
		data, err := os.ReadFile(away)
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		require.NoError(t, os.WriteFile(file, data, 0o644))
		status, answer = ask()
		require.Equal(t, 503, status, answer)
		require.Contains(t, answer, "have changed, and --kv-offload-dir or --kv-offload-url has blocks of the former ones; start the server again")
		require.NoError(t, os.Rename(away, file))
		status, answer = ask()
		require.Equal(t, 200, status)
		require.Equal(t, before, answer)
	}
}

// Ensure that a server frees its weights by /sleep, which needs a key, and reads them from the file again for the next
// request, whose answer is the same. While the file is missing, requests get status 503.
func TestAServerSleepsAndWakesUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{Hidden: 512, Layers: 8, Heads: 8, KVHeads: 4, Inter: 2048, Vocab: 512, Context: 128, Type: "F16"}))
	s, _ := serveModelFile(t, path, "--api-key", "k", "--kv-cache-gb", "0.02")
	send := func(method, path, key, body string) (int, string) {
		t.Helper()
		return s.sendWithKey(t, method, path, key, body)
	}
	ask := func() (int, string) {
		status, answer := send("POST", "/v1/completions", "k", `{"prompt": [1, 2, 3, 4], "max_tokens": 8, "temperature": 0, "logprobs": 3}`)
		return status, regexp.MustCompile(`"choices":.*\}\]`).FindString(answer) + regexp.MustCompile(`"error".*`).FindString(answer)
	}
	status, before := ask()
	require.Equal(t, 200, status, before)
	awake := anonymous(t, s.cmd.Process.Pid)

	status, _ = send("POST", "/sleep", "wrong", "")
	require.Equal(t, 401, status)
	status, answer := send("POST", "/sleep?level=1", "k", "")
	require.Equal(t, 200, status, answer)
	_, answer = send("GET", "/is_sleeping", "k", "")
	require.JSONEq(t, `{"is_sleeping": true}`, answer)
	status, answer = send("GET", "/health", "", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"status": "sleeping"}`, answer)
	_, answer = send("GET", "/metrics", "", "")
	require.Regexp(t, `vllm:engine_sleep_state\{.*sleep_state="awake"\} 0`, answer)
	require.Regexp(t, `vllm:engine_sleep_state\{.*sleep_state="discard_all"\} 1`, answer)
	asleep := anonymous(t, s.cmd.Process.Pid)
	require.Less(t, asleep, awake-40, "the weights have 64 MB")

	require.NoError(t, os.Rename(path, path+".gone"))
	status, answer = ask()
	require.Equal(t, 503, status, answer)
	require.Contains(t, answer, "The model sleeps, and the weights could not be loaded again: open ")
	require.Contains(t, answer, "model_not_loaded")
	status, _ = send("POST", "/wake_up", "k", "")
	require.Equal(t, 503, status)
	require.NoError(t, os.Rename(path+".gone", path))
	status, after := ask()
	require.Equal(t, 200, status, after)
	require.Equal(t, before, after)
	_, answer = send("GET", "/is_sleeping", "k", "")
	require.JSONEq(t, `{"is_sleeping": false}`, answer)
}

func TestSleepNeedsAKey(t *testing.T) {
	s := serveDemo(t, "--idle-unload", "1h")
	r, err := http.Post(strings.TrimSuffix(s.url, "/v1")+"/sleep", "", nil)
	require.NoError(t, err)
	require.Equal(t, 403, r.StatusCode)
	require.Contains(t, text(t, r), "/sleep is only for servers with an API key")
}
