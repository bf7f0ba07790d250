package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Ensure that every help fits a terminal.
func TestHelpIsNotTooWide(t *testing.T) {
	for _, c := range append(command().Commands(), command()) {
		var b strings.Builder
		c.SetOut(&b)
		c.InitDefaultHelpFlag()
		require.NoError(t, c.Help())
		require.Contains(t, b.String(), "--help")
		narrow(t, b.String())
	}
}

// Ensure that the flags of every example are there and can be read.
func TestTheExamplesOfHelpParse(t *testing.T) {
	examples := 0
	for _, from := range command().Commands() {
		text := strings.ReplaceAll(from.Example, "\\\n", " ")
		for line := range strings.SplitSeq(text, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			words := strings.Fields(strings.NewReplacer("'", "", "$SLURM_CPUS_PER_TASK", "4").Replace(line))
			if len(words) == 0 || words[0] == "#" {
				continue
			}
			require.Equal(t, "llmsim", words[0], line)
			var c *cobra.Command
			c, rest, err := command().Find(words[1:])
			require.NoError(t, err, line)
			require.True(t, c.HasParent(), line)
			require.NoError(t, c.ParseFlags(rest), line)
			examples++
		}
	}
	require.Greater(t, examples, 20)
}

func TestFlagsThatDoNothingAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"run --swap", "--swap does nothing with vllm-v1, the default: it is for sosp, vllm-v0"},
		{"run --system orca-max --chunked", "--chunked does nothing with orca-max: it is for vllm-v0, vllm-v1"},
		{"run --caching --no-caching", "take one of them"},
		{"run --system sosp --beam", "add --samples 2 or more"},
		{"run --system sosp --no-caching", "--no-caching does nothing with sosp: it is for vllm-v1"},
		{"run --swap-gb-s 5", "--swap-gb-s does nothing without --swap"},
		{"run --cpu-blocks 5", "--cpu-blocks does nothing with vllm-v1, the default: it is for sosp, vllm-v0"},
		{"run --system orca-max --watermark 0.1", "--watermark does nothing with orca-max: it is for sosp, vllm-v0, vllm-v1"},
		{"run --system fastertransformer --max-seqs 3", "--max-seqs does nothing with fastertransformer"},
		{"plan --system sosp --batch 3", "--batch does nothing with sosp: it is for fastertransformer"},
		{"plan --seeds 0", "want 1 to 100 seeds"},
		{"plan --seeds 100000", "want 1 to 100 seeds"},
		{"plan --precision 0", "between 0 and 1"},
		{"view --prefix 32 -o none.html", "--prefix does nothing"},
		{"merge part1 -o out", "merge was removed: with all results-*.jsonl in one folder"},
		{"plan --shard 1/2", "--shard was removed: a plan runs on one machine"},
		{"plan --swap-gb-s 5 --system sosp", "--swap-gb-s does nothing without --swap"},
		{"run --model llama-3-8b", "name one beside \"llama-3-8b\": a100-40gb"},
		{"run --gpu l4", "a GPU needs a model"},
	} {
		status, stdout, stderr := llmsim(t, strings.Fields(c.args)...)
		require.Equal(t, 1, status, c.args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, c.want, c.args)
	}
}

func TestProgressElsewhereThanOnATerminal(t *testing.T) {
	var often, never strings.Builder
	tell, quiet := said(&often, "runs", 0), said(&never, "runs", time.Hour)
	for _, f := range []func(int, int){tell, quiet} {
		f(1, 3)
		f(2, 4)
		f(4, 4)
	}
	require.Equal(t, "1 of 3 runs so far\n2 of 4 runs so far\n", often.String())
	require.Empty(t, never.String())
}

// Ensure that a bar goes on when all that was asked for is done and more is asked for.
func TestABarThatWasFullGoesOn(t *testing.T) {
	var b strings.Builder
	tell, stop := drawn(&b, "runs", 0)
	tell(1, 1)
	tell(2, 4)
	require.Contains(t, b.String(), "2 of 4 runs")
	require.Contains(t, b.String(), "40%")
	stop()
}
