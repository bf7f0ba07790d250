// Command llmsim simulates LLM serving. It runs any scheduler of the project under any workload, repeats the
// experiments of the PagedAttention paper, and plans the capacity of servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"llmmemory/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{w: stdout}
	c := command()
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(stderr)
	terminal.RefuseUnknownNames(c)
	err := c.ExecuteContext(ctx)
	if out.err != nil && !errors.Is(err, out.err) {
		err = errors.Join(err, out.err)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted") // once, not for each run that was under way
	}
	if err != nil {
		fmt.Fprintln(stderr, "llmsim:", err)
		return 1
	}
	return 0
}

// firstCommands is the output of llmsim without arguments.
const firstCommands = `What do you want to know?

How many requests a second does a GPU serve?
  llmsim plan --model llama-3-8b --gpu a100-80gb --input-len 1024 --output-len 128 \
    --slo 'ttft<1s@p99,tpot<50ms@p99'

What are throughput and latency with 32 clients?
  llmsim run --model llama-3-8b --gpu a100-80gb --input-len 1024 --output-len 128 \
    --rate inf --max-concurrency 32 --requests 200

How does the PagedAttention paper's vLLM serve its own workload?
  llmsim run --system sosp --workload sharegpt --rate 2

llmsim --help lists all commands; llmsim list lists models, GPUs and engines.
`

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "llmsim",
		Short: "Simulate LLM serving, repeat the PagedAttention paper, plan capacity",
		Long: "llmsim runs the schedulers and block managers of vLLM, of the PagedAttention paper, of Orca\n" +
			"and of FasterTransformer through simulated time. Equal commands give equal results,\n" +
			"to the byte, on one kind of processor.\n" +
			"The exit status is 0, or 1 when something is wrong, falls short or is interrupted.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), firstCommands)
			return err
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.AddCommand(runCommand(), planCommand(), fleetCommand(), calibrateCommand(), figuresCommand(),
		viewCommand(), listCommand())
	for _, sub := range c.Commands() {
		completeNames(sub)
	}
	terminal.Program(c)
	removed.Explain(c)
	return c
}
