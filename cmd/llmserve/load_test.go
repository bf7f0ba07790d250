package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// Ensure that a process never uses more than 100 MB of memory besides the packed weights, while it loads them
// and while it answers.
func TestMemoryBesideTheWeightsIsSmall(t *testing.T) {
	level.SkipNormal(t)
	const maxMB = 100
	for _, test := range []struct {
		name, weights, activations string
		args                       []string
	}{
		{"2 workers", "F16", "f32", []string{"--tensor-parallel-size", "2"}},
		{"activations in 8 bits", "Q8_0", "int8", []string{"--activation-dtype", "int8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "random.gguf")
			require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
				Hidden: 1024, Layers: 4, Heads: 8, KVHeads: 8, Inter: 2816, Vocab: 16384, Context: 131072, Type: test.weights,
			}))
			info, err := os.Stat(path)
			require.NoError(t, err)
			s, line := serveModelFile(t, path, test.args...)
			require.Contains(t, line, "activations: "+test.activations)
			weights := number(t, line, `weights of (\d+) MB`)
			require.InDelta(t, info.Size()>>20, weights, 40)
			require.Contains(t, text(t,
				s.post(t, "/completions", `{"model": "random", "prompt": "hello", "max_tokens": 8, "temperature": 0}`)),
				`"completion_tokens":8`)
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
			require.NoError(t, err)
			peak := number(t, string(status), `VmHWM:\s+(\d+) kB`) >> 10
			t.Logf("%d MB at most, %d of them weights", peak, weights)
			require.Less(t, peak, weights+maxMB)
			require.Greater(t, peak, weights)
		})
	}
}

func number(t *testing.T, text, pattern string) int {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.Len(t, found, 2, text)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// Ensure that the server says at its start if it does not use a GGUF file's sliding window.
func TestTheStartSaysThatAWindowIsNotUsed(t *testing.T) {
	for _, test := range []struct {
		tiny   string
		window uint32
		want   string
	}{
		{"phi3", 64, "  not used, as in llama.cpp: the file's sliding window of 64 tokens\n"},
		{"phi3", 256, ""}, {"gemma2", 64, ""},
	} {
		tinies := weightfile.Tinies()
		tiny := tinies[slices.IndexFunc(tinies, func(one weightfile.Tiny) bool { return one.Name == test.tiny })]
		tiny.Meta[test.tiny+".attention.sliding_window"] = test.window
		path := filepath.Join(t.TempDir(), "tiny.gguf")
		require.NoError(t, os.WriteFile(path, tiny.GGUF(), 0o644))
		require.Equal(t, test.want, runSays(t, path))
		_, said := serveModelFile(t, path)
		_, notes, _ := strings.Cut(said, "\n")
		require.Equal(t, test.want, afterDevice(t, notes))
	}
}

// Ensure that the start says how much faster prompts would be with rounded activations, unless the type of activations
// is given.
func TestTheStartSaysWhatRoundingWouldBring(t *testing.T) {
	for kind, name := range map[string]string{"F16": "bf16", "Q8_0": "int8"} {
		path := filepath.Join(t.TempDir(), "random.gguf")
		require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
			Hidden: 64, Layers: 1, Heads: 1, KVHeads: 1, Inter: 64, Vocab: 128, Context: 64, Type: kind,
		}))
		require.Regexp(t, `^  --activation-dtype `+name+` would round activations; products of prompts would be \d+\.\d times as fast\n$`,
			runSays(t, path))
		require.Empty(t, runSays(t, path, "--activation-dtype", "f32"))
	}
}

func runSays(t *testing.T, path string, args ...string) string {
	c := llmserve(append([]string{"run", path, "a", "--max-tokens", "1", "--kv-cache-gb", "0.1"}, args...)...)
	var said bytes.Buffer
	c.Stderr = &said
	require.NoError(t, c.Run(), said.String())
	return afterDevice(t, said.String())
}

// afterDevice returns the lines that llmserve prints at its start after the line about the device.
func afterDevice(t *testing.T, said string) string {
	line, rest, _ := strings.Cut(said, "\n")
	require.Regexp(t, `^  device: CPU \(.+\); activations: f32$`, line)
	return rest
}

func TestTheStartNamesTensorsThatAreNotUsed(t *testing.T) {
	for _, test := range []struct {
		extraTensors []string
		want         string
	}{
		{nil, ""},
		{[]string{"x", "score.weight"}, "  not used: the tensors score.weight, x\n"},
		{[]string{"\x1b[2J"}, "  not used: the tensors \\x1b[2J\n"},
		{[]string{"e", "d", "c", "b", "a"}, "  not used: the tensors a, b, c and 2 more\n"},
	} {
		dir := tinyFolder(t, map[string]string{"model.safetensors": string(tinySafetensors(4, test.extraTensors...))})
		require.Equal(t, test.want, runSays(t, dir))
	}
}
