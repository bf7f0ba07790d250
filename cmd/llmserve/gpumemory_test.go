package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// Ensure that an error of missing memory names the size of the weights. It must be the same size that llmserve prints
// when the memory suffices.
func TestTheErrorOfMissingMemoryNamesTheSizeOfTheWeights(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	for _, kind := range []string{"F16", "Q8_0"} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{Hidden: 512, Layers: 2, Heads: 4, KVHeads: 4, Inter: 1024, Vocab: 512, Context: 64, Type: kind}))
		args := []string{"run", path, "x", "--max-tokens", "1", "--device", "cuda", "--max-num-batched-tokens", "16", "--max-num-seqs", "4"}
		_, notes := runHere(t, args...)
		size := regexp.MustCompile(`[^ ]+ MiB of weights`).FindString(notes)
		require.NotEmpty(t, size)
		require.Contains(t, refusedHere(t, append(args, "--kv-cache-gb", "1")...), size)
		require.Zero(t, d.Allocated())
	}
}

// Ensure that the error about too little memory lists everything that takes memory of the GPU. It must suggest values
// of flags. With these values the memory must suffice. If the suggestion is one flag with a whole number, the memory
// must not suffice with a value that is about an eighth larger.
func TestTheErrorOfMissingMemorySaysWhatSuffices(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	path := tinyFile(t)
	for _, test := range []struct {
		name, model string
		memory      int // bytes
		args, want  string
	}{
		{"batches of many sequences", path, 6 << 20, "--max-num-seqs 2000 --max-num-batched-tokens 16", ` of weights, .* for batches and .* bytes for keys and values of one sequence of 16 tokens need .* --max-num-seqs \d+ would suffice$`},
		{"batches of many tokens", path, 2 << 20, "--max-num-seqs 1 --max-num-batched-tokens 2000", `--max-num-batched-tokens \d+ would suffice$`},
		{"batches of many sequences and tokens", path, 2 << 20, "--max-num-seqs 2000 --max-num-batched-tokens 6000", `--max-num-seqs \d+ together with --max-num-batched-tokens \d+ would suffice$`},
		{"the utilization", "demo", 30 << 20, "--gpu-memory-utilization 0.2 --max-num-batched-tokens 16 --max-num-seqs 4", `leaves 24\.0 MiB unused: --gpu-memory-utilization 0\.\d+ `},
		{"one sequence", path, 6 << 20, "--max-model-len 4096 --gpu-memory-utilization 0.4 --max-num-batched-tokens 16 --max-num-seqs 4", `keys and values of one sequence of 4096 tokens need .*--gpu-memory-utilization 0\.\d+ or --max-model-len \d+ would suffice$`},
		{"keys and values that were asked for", path, 64 << 20, "--kv-cache-gb 0.2 --max-num-batched-tokens 16", `204\.8 MiB for keys and values \(--kv-cache-gb 0\.2\) need .* MiB more than there is: 64.0 MiB of 64.0 MiB are free: --kv-cache-gb 0\.\d+ would suffice$`},
	} {
		t.Run(test.name, func(t *testing.T) {
			d.Forget()
			d.Set(t, "memory", test.memory)
			args := append([]string{"run", test.model, "x", "--max-tokens", "1", "--device", "cuda"}, strings.Fields(test.args)...)
			refusal := refusedHere(t, args...)
			require.Regexp(t, test.want, refusal)
			advice := refusal[strings.LastIndex(refusal, ": ")+2:]
			for _, flags := range strings.Split(strings.TrimSuffix(advice, " would suffice"), " or ") {
				given := strings.Fields(strings.Replace(flags, " together with ", " ", 1))
				runHere(t, append(args, given...)...)
				if n, err := strconv.Atoi(given[1]); err == nil && len(given) == 2 {
					refusedHere(t, append(args, given[0], strconv.Itoa(n+n/8+1))...)
				}
			}
			require.Zero(t, d.Allocated())
		})
	}
}
