package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// kvOfBlocks returns a value of --kv-cache-gb. With this value, the model of tinyFile has n blocks and the null
// block.
func kvOfBlocks(n int) string { return fmt.Sprintf("%.9f", float64(n+1)*16*2*64*2/(1<<30)) }

// tinyFile writes a model with one layer and one head of 64 elements.
func tinyFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
		Hidden: 64, Layers: 1, Heads: 1, KVHeads: 1, Inter: 64, Vocab: 128, Context: 4096, Type: "F16",
	}))
	return path
}

// Ensure that a server with too few blocks gives the same bits as a server with enough blocks, although it preempts
// sequences. The requests have several answers, or beams. Ensure also that all blocks are free after a request was
// aborted during a step.
func TestAGPUServesOverHTTP(t *testing.T) {
	level.SkipNormal(t)
	emulated(t, 64)
	path := tinyFile(t)
	const prompt = `"model": "tiny", "prompt": [5,6,7,9,5,6,7,9,5,6,7,9,5,6,7,9,5,6], "ignore_eos": true, `
	requests := []string{
		`{` + prompt + `"n": 4, "max_tokens": 24, "temperature": 1, "seed": 3, "logprobs": 2}`,
		`{` + prompt + `"n": 3, "max_tokens": 20, "temperature": 0.9, "seed": 4, "top_k": 60, "top_p": 0.9, "min_p": 0.01, "frequency_penalty": 0.5,
			"repetition_penalty": 1.1, "logit_bias": {"5": 1, "7": -100}}`,
		`{` + prompt + `"n": 3, "max_tokens": 20, "temperature": 1, "seed": 5, "presence_penalty": 1, "structured_outputs": {"regex": "([a-z]|[0-9 ])+"}}`,
		`{` + prompt + `"n": 2, "best_of": 3, "use_beam_search": true, "max_tokens": 4, "temperature": 0}`,
	}
	s := serveHere(t, path, "--kv-cache-gb", kvOfBlocks(200))
	ctx, abort := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.address+"/v1/completions",
		strings.NewReader(`{`+prompt+`"max_tokens": 3000, "stream": true}`))
	require.NoError(t, err)
	stream, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, err = stream.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	abort()
	require.NoError(t, stream.Body.Close())
	var want []string
	for _, r := range requests {
		choices, _ := s.choices(t, r)
		want = append(want, choices)
	}
	_, metrics := s.get(t, "/metrics")
	require.Regexp(t, `vllm:num_preemptions_total\{.*\} 0\n`, metrics)
	require.Regexp(t, `vllm:request_success_total\{.*finished_reason="abort".*\} 1\n`, metrics)
	require.Regexp(t, `vllm:kv_cache_usage_perc\{.*\} 0\n`, metrics)
	s.end(t)

	s = serveHere(t, path, "--kv-cache-gb", kvOfBlocks(5))
	for i, r := range requests {
		got, _ := s.choices(t, r)
		require.Equal(t, want[i], got)
	}
	_, metrics = s.get(t, "/metrics")
	require.Regexp(t, `vllm:num_preemptions_total\{.*\} [1-9]`, metrics)
	require.Regexp(t, `vllm:kv_cache_usage_perc\{.*\} 0\n`, metrics)
	s.end(t)
}

// Ensure that each of 64 requests gets the same bits whether it runs together with the others or alone.
func TestAGPUServesManyRequestsAsEachAlone(t *testing.T) {
	level.SkipNormal(t)
	emulated(t, 64)
	s := serveHere(t, tinyFile(t), "--kv-cache-gb", kvOfBlocks(300), "--max-num-seqs", "64", "--max-num-batched-tokens", "256")
	requests, want, got := make([]string, 64), make([]string, 64), make([]string, 64)
	for i := range requests {
		prompt := make([]int, 5+i%11)
		for j := range prompt {
			prompt[j] = 4 + (i*7+j*13)%100
		}
		text, err := json.Marshal(prompt)
		require.NoError(t, err)
		requests[i] = fmt.Sprintf(`{"model": "tiny", "prompt": %s, "max_tokens": 12, "ignore_eos": true, "temperature": %d, "seed": %d, "logprobs": 2}`, text, i%2, i)
		want[i], _ = s.choices(t, requests[i])
	}
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() { got[i], _ = s.choices(t, requests[i]) })
	}
	wg.Wait()
	require.Equal(t, want, got)
	s.end(t)
}

// Ensure that a server finds another server's blocks in a tier if both have the same type of keys and values and the
// same kind of device. Otherwise it must not find them.
func TestAGPUFindsInATierOnlyItsTypeOfKeysAndValues(t *testing.T) {
	level.SkipNormal(t)
	emulated(t, 64)
	path, dir := tinyFile(t), t.TempDir()
	const request = `{"model": "tiny", "prompt": [5,6,7,9,5,6,7,9,5,6,7,9,5,6,7,9,5,6], "max_tokens": 6, "temperature": 0, "logprobs": 2}`
	answers := map[string]string{}
	for _, test := range []struct {
		args   string
		cached int
	}{
		{"", 0}, {"", 16}, {"--kv-cache-dtype fp8", 0}, {"--kv-cache-dtype fp8_e4m3", 16}, {"--kv-cache-dtype fp8_e5m2", 0},
		{"--kv-cache-dtype fp8_e5m2", 16}, {"--activation-dtype bf16", 0},
		{"--device cpu --kv-cache-dtype f16", 0}, {"--device cpu --kv-cache-dtype f16", 16}, {"", 16},
	} {
		s := serveHere(t, path, append(strings.Fields("--kv-cache-gb 0.0001 --kv-offload-dir "+dir), strings.Fields(test.args)...)...)
		choices, cached := s.choices(t, request)
		s.end(t)
		require.Equal(t, test.cached, cached, test.args)
		kind := strings.TrimSuffix(test.args, "_e4m3")
		if test.cached > 0 {
			require.Equal(t, answers[kind], choices)
		}
		for other, answer := range answers {
			require.True(t, other == kind || answer != choices, "%q and %q", other, kind)
		}
		answers[kind] = choices
	}
}

// Ensure that a start that waits for the GPU prints what it waits for. A signal must end the process, even though a
// function of the driver never returns.
func TestASignalEndsAStartThatWaitsForTheGPU(t *testing.T) {
	level.SkipNormal(t)
	path, model := cudatest.Library(t), tinyFile(t)
	for _, test := range []struct {
		call, says string
		args       []string
	}{
		{"cuDevicePrimaryCtxRetain", "opening the GPU takes longer than 1ms", []string{model, "--port", "0"}},
		{"cuEventSynchronize", "sending a layer to GPU 0 (Emulated GPU 0) takes longer than 1ms", []string{model, "--port", "0"}},
		{"cuStreamEndCapture", "computing the largest batch on GPU 0 (Emulated GPU 0) takes longer than 1ms", []string{model, "--port", "0"}},
		{"cuStreamEndCapture", "computing the largest batch on GPU 0 (Emulated GPU 0) takes longer than 1ms", []string{"run", model, "x"}},
	} {
		t.Run(test.args[0]+" "+test.call, func(t *testing.T) {
			c := llmserve(append(test.args, "--device", "cuda")...)
			c.Env = append(c.Env, hangingGPU+"="+path, hangingCall+"="+test.call)
			var out bytes.Buffer
			c.Stdout = &out
			stderr, err := c.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			defer c.Process.Kill()
			for lines := bufio.NewReader(stderr); ; {
				line, err := lines.ReadString('\n')
				require.NoError(t, err, "before it says %q", test.says)
				if line == "llmserve: "+test.says+"\n" {
					break
				}
			}
			require.NoError(t, c.Process.Signal(syscall.SIGTERM))
			_ = c.Wait()
			want := 0
			if test.args[0] == "run" {
				want = interrupted
			}
			require.Equal(t, want, c.ProcessState.ExitCode())
			require.NotContains(t, out.String(), "http://")
		})
	}
}

// Ensure that a terminal shows how many layers were sent to the GPU. The line must be removed at the end. A pipe must
// get nothing.
func TestATerminalShowsTheProgressOfLoading(t *testing.T) {
	level.SkipNormal(t)
	emulated(t, 64)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	path := tinyFile(t)
	show := func(reader, writer *os.File) string {
		before := os.Stderr
		os.Stderr = writer
		defer func() { os.Stderr = before }()
		s := serveHere(t, path, "--kv-cache-gb", kvOfBlocks(20))
		s.end(t)
		require.NoError(t, writer.Close())
		shown, _ := io.ReadAll(reader) // a terminal ends with an error
		return string(shown)
	}
	require.Equal(t, "\r\x1b[K1 of 1 layers are on the GPU (100%)\r\x1b[K", show(master, slave))
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.Empty(t, show(reader, writer))
}
