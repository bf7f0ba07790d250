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

	"llmmemory/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	out := &checkedWriter{to: os.Stdout}
	c := command()
	c.SetOut(out)
	terminal.RefuseUnknownNames(c)
	err := c.ExecuteContext(ctx)
	if out.err != nil && !errors.Is(err, out.err) {
		err = errors.Join(err, out.err)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted") // once, not for each run that was under way
	}
	stop()
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
			"and of FasterTransformer through simulated time. Equal commands give equal results,\n" +
			"to the byte, on one kind of processor.\n" +
			"The exit status is 0, or 1 when something is wrong, falls short or is interrupted.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.AddCommand(runCommand(), planCommand(), cheapestCommand(), fleetCommand(), calibrateCommand(), sweepCommand(),
		figuresCommand(), viewCommand(), listCommand())
	addRemoved(c)
	for _, sub := range c.Commands() {
		completeNames(sub)
	}
	c.PersistentPreRunE = refuseZeros
	terminal.Program(c)
	c.SetFlagErrorFunc(explainFlag)
	return c
}
