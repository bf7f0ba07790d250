// Command llmserve serves language models on the CPU or a GPU behind OpenAI's interface.
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
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	err := join()
	if err == nil {
		c := command()
		terminal.RefuseUnknownNames(c)
		if ranks.follow() {
			c.SetOut(io.Discard) // rank 0 prints the same
		}
		err = ranks.leave(c.ExecuteContext(ctx))
	}
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(interrupted)
	case err != nil:
		fmt.Fprintln(os.Stderr, "llmserve:", terminal.Visible(err.Error()))
		os.Exit(1)
	}
}

// interrupted is the exit status of run and bench if a signal has ended them. It is the status that a shell reports
// for SIGINT.
const interrupted = 130

// endAtSignal makes a signal end the process, with the given exit status, until the caller calls ready.
// Loading can take minutes, and nothing is lost when it is interrupted.
func endAtSignal(ctx context.Context, status int) (ready func() bool) {
	return context.AfterFunc(ctx, func() { os.Exit(status) })
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "llmserve MODEL",
		Short: "Serve a language model on the CPU or a GPU behind OpenAI's interface",
		Long: "llmserve serves a model to many users at once over OpenAI's HTTP interface, with paged keys and\n" +
			"values, shared blocks for common prefixes, and continuous batching. MODEL is a folder\n" +
			"from Hugging Face (config.json, *.safetensors, tokenizer) or a GGUF file: Llama 1 to 4,\n" +
			"Mistral, Mixtral, Qwen2 and Qwen3 with their mixtures of experts, Gemma 2 and 3, Phi-3 and 4,\n" +
			"SmolLM3, Granite 3 and 4, OLMo 2 and 3, gpt-oss, LFM2, Nemotron-H, DeepSeek V2, V3 and R1,\n" +
			"Kimi K2, GLM-4 to 4.7, ERNIE 4.5, and as folders Qwen3-Next, Qwen3.5, Gemma 4, GPT-2 and OPT.",
		Example: "  llmserve demo\n  llmserve ./Llama-3.2-1B-Instruct --port 8000\n  llmserve run ./model.gguf " +
			"'Once upon a time'",
		Args: func(c *cobra.Command, args []string) error {
			args, _ = o.model.lora.split(args)
			return needsModel(1, "MODEL")(c, args)
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, args []string) error {
			args, modules := o.model.lora.split(args)
			o.model.lora.modules = append(o.model.lora.modules, modules...)
			return serveModel(c.Context(), c.OutOrStdout(), &o, args[0])
		},
	}
	o.model.flags(c.Flags())
	o.flags(c.Flags())
	c.AddCommand(demoCommand(), runCommand(), benchCommand())
	c.CompletionOptions.DisableDefaultCmd = true
	terminal.Program(c)
	c.SetFlagErrorFunc(explainFlag)
	return c
}
