package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refused has command lines that must fail. Each has a part of the expected error.
var refused = []struct{ args, says string }{
	{"fly", "unknown command"},
	{"run --ratee 3", "did you mean --rate?"},
	{"run --zebra 3", "unknown flag: --zebra"},
	{"run trace.csv", "llmsim run takes flags, and no \"trace.csv\"; a file goes with --trace FILE\n"},
	{"view calls.trace", "a file goes with --trace FILE or --course FILE"},
	{"list models", "llmsim list takes flags, and no \"models\"\n"},
	{"completion csh", "no shell \"csh\"; shells: bash, fish, powershell, zsh"},
	{"help plna", "no command \"plna\", did you mean plan?"},
	{"cheapest --model llama-3-8b --target 1", "cheapest was removed: run llmsim plan for each --gpu"},
	{"plan --prices=p.json", "--prices was removed: llmsim computes rates and latencies, not money"},
	{"fleet --prices p.json", "--prices was removed: "},

	// Unknown names.
	{"run --system orca", "want fastertransformer, orca-max, orca-pow2, orca-oracle, sosp, vllm-v0, vllm-v1"},
	{"view --system orca -o x.html", "there is no system \"orca\""},
	{"run --workload chatgpt", "known are sharegpt, alpaca"},
	{"run --setup opt", "paper-opt-13b"},
	{"run --model opt-13b", "a model needs a GPU"},
	{"run --model llama-3-8b", "name one beside \"llama-3-8b\": a100-40gb"},
	{"run --gpu l4", "a GPU needs a model"},
	{"run --model llama-3-8b --gpu a100", "did you mean a100-40gb or a100-80gb?"},
	{"run --model llama-3-8b --gpu H100", "did you mean h100-80gb or h100-pcie-80gb?"},
	{"run --model llama3-8b --gpu l4", "did you mean llama-3-8b?"},
	{"fleet --router best", "want random"},
	{"view --story fork -o x.html", "there are copy-on-write"},
	{"view --course none.trace -o x.html", "no such file or directory"},
	{"plan --trace absent.csv", "no such file"},
	{"figures --check --only fig3", "want table1, fig1"},

	// Numbers.
	{"run --duration 1e18", "want 0 to 1000000000"},
	{"run --rate 1e12", "want 0 to 1000000"},
	{"run --rate -1", "for \"--rate\" flag: want more than 0"},
	{"run --rate 1e5 --duration 1e8", "1000000000 requests"},
	{"plan --target 1e300", "want more than 0, and at most 1000000"},
	{"plan --target NaN", "want more than 0"},
	{"run --max-seqs -1", "for \"--max-seqs\" flag: want more than 0"},
	{"plan --max-tokens -7", "for \"--max-tokens\" flag: want more than 0"},
	{"run --max-concurrency -1", "requests at once: -1: want 0 to"},
	{"run --turns 0.5", "at least 1"},
	{"run --burstiness NaN", "for \"--burstiness\" flag: want more than 0"},
	{"run --drafts 2 --accept 2", "a draft is accepted with the probability 2: want 0 to 1"},
	{"run --block-size 0", "for \"--block-size\" flag: want more than 0, or leave the flag out for its default"},
	{"run --memory-utilization 0", "for \"--memory-utilization\" flag: want more than 0"},
	{"run --watermark 0", "for \"--watermark\" flag: want more than 0, or -1 for none"},
	{"run --watermark NaN", "want a part of the blocks, more than 0 and less than 1, or -1 for none"},
	{"run --system sosp --watermark=-0.01", "want a part of the blocks, more than 0 and less than 1, or -1 for none"},
	{"run --system vllm-v0 --watermark 1", "want a part of the blocks, more than 0 and less than 1, or -1 for none"},
	{"run --system orca-max --max-len 2000", "125"},
	{"run --duration 1h", "\"1h\" for \"--duration\" flag: want a number without a unit; llmsim run --help has the unit\n"},
	{"plan --seed -1", "\"-1\" for \"--seed\" flag: want a whole number of at least 0\n"},
	{"run --requests 2.5", "\"2.5\" for \"--requests\" flag: want a whole number\n"},
	{"plan --seeds 0", "for \"--seeds\" flag: want more than 0"},
	{"plan --seeds 100000", "want 1 to 100 seeds"}, // they took 24 GB
	{"plan --precision NaN", "for \"--precision\" flag: want more than 0"},
	{"plan --precision 1.5", "a precision of 1.5: want 1 to 100 seeds and a precision of 0 to 1"},
	{"plan --slo ttft<1s@p0", `"p0" is no mean, max, or percentile`},
	{"run --goodput ttft<1s@p99", "without @"},
	{"fleet --replicas 0", "0 replicas"},
	{"fleet --also l4", "want GPU:N"},
	{"figures --check --seeds -1", "--seeds -1"},

	// Flags that contradict each other or have no effect.
	{"run --trace x.csv --workload alpaca", "not from both"},
	{"run --rate inf", "need a number"},
	{"run --think 3", "--turns"},
	{"run --trace ../../internal/simulation/workload/testdata/traces/own.csv --turns 1", "hash_ids"},
	{"run --setup llama-3-8b --gpu l4", "already: leave out l4\n"},
	{"run --weights int4", "--weights and --kv go with --model and --gpu"},
	{"run --memory-utilization 0.8 --blocks 9", "does nothing with --blocks"},
	{"run --swap", "--swap does nothing with vllm-v1, the default: it is for sosp, vllm-v0"},
	{"run --system orca-max --chunked", "--chunked does nothing with orca-max: it is for vllm-v0, vllm-v1"},
	{"run --caching --no-caching", "take one of them"},
	{"run --system sosp --beam", "add --samples 2 or more"},
	{"run --system vllm-v1 --beam --samples 2", "take one of orca-max, orca-pow2, orca-oracle, sosp"},
	{"run --system sosp --no-caching", "--no-caching does nothing with sosp: it is for vllm-v1"},
	{"plan --swap-gb-s 5 --system sosp", "--swap-gb-s does nothing without --swap"},
	{"run --cpu-blocks 5", "--cpu-blocks does nothing with vllm-v1, the default: it is for sosp, vllm-v0"},
	{"run --system orca-max --watermark 0.1", "--watermark does nothing with orca-max: it is for sosp, vllm-v0, vllm-v1"},
	{"run --system fastertransformer --max-seqs 3", "--max-seqs does nothing with fastertransformer"},
	{"plan --system sosp --batch 3", "--batch does nothing with sosp: it is for fastertransformer"},
	{"view --prefix 32 -o none.html", "--prefix does nothing"},
	{"view --story two-levels --system sosp -o x.html", "a page shows one thing"},
	{"view --story two-levels", "name the page"},
	{"fleet --also l4:1", "--model and --gpu"},
	{"fleet --event-delay 30", "--event-delay does nothing without --router prefix"},
	{"fleet --samples 2", "one answer"},
	{"figures", "give a folder for the figures (-o), or --check"},

	{"sweep --rates 1", "sweep was removed: repeat llmsim run --json in a loop of the shell"},

	// Runs that cannot work or serve nothing.
	{"run --model opt-175b --gpu l4", "workers would do"},
	{"run --rate 0.0001 --duration 1", "no request arrived"},
	{"view --system sosp --duration 20 --from 1e6 -o x.html", "nothing happens after"},
	{"plan -o /dev/null/plan", "/dev/null"},
	{"view --story copy-on-write -o /none/page.html", "/none/page.html: no such file or directory"},
}

func TestAZeroIsNoDefault(t *testing.T) {
	for _, name := range []string{"rate", "duration", "burstiness", "workers", "stages", "samples", "blocks", "cpu-blocks",
		"max-tokens", "max-seqs", "max-len", "batch", "swap-gb-s", "memory-utilization", "input-len", "output-len"} {
		require.ErrorIs(t, runCommand().Flags().Lookup(name).Value.Set("0"), errNotPositive, name)
	}
	require.ErrorIs(t, viewCommand().Flags().Lookup("steps").Value.Set("0"), errNotPositive)
}

// Ensure that an invalid command line fails with its error and writes no file. It prints nothing, except the summary of
// a run that served nothing.
func TestWhatCannotBeIsRefused(t *testing.T) {
	files := func() []string {
		names, err := filepath.Glob("*")
		require.NoError(t, err)
		return names
	}
	before := files()
	for _, c := range refused {
		status, stdout, stderr := llmsim(t, strings.Fields(c.args)...)
		require.Equal(t, 1, status, c.args)
		require.Contains(t, stderr, c.says, c.args)
		if stdout != "" { // a run that served nothing
			require.Regexp(t, `to the first token +- +- +- +- +-`, stdout, c.args)
		}
	}
	require.Equal(t, before, files())
}
