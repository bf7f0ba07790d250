// Command llmsim simulates LLM serving: any scheduler of the project under any
// workload, the experiments of the PagedAttention paper, and plans of capacity.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "llmsim:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{
		Use:   "llmsim",
		Short: "Simulate LLM serving, repeat the PagedAttention paper, plan capacity",
		Long: "llmsim runs the schedulers and block managers of vLLM, of the PagedAttention paper, of Orca\n" +
			"and of FasterTransformer through simulated time. Equal commands give equal results, to the byte.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.AddCommand(runCommand(), planCommand(), sweepCommand(), mergeCommand(), figuresCommand(), viewCommand(), listCommand())
	c.CompletionOptions.DisableDefaultCmd = true
	return c
}
