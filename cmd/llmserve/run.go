package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/marks"
)

func runCommand() *cobra.Command {
	var o modelOptions
	var maxTokens int
	var temperature float64
	var seed int64
	var asChat bool
	c := &cobra.Command{
		Use:     "run MODEL PROMPT",
		Short:   "Answer one prompt in the terminal",
		Long:    "run answers a prompt in the terminal. MODEL is a folder, a GGUF file, or demo.",
		Example: "  llmserve run demo 'The door code is 4711. The door' --temperature 0 --max-tokens 13",
		Args:    needsModel(2, "MODEL PROMPT"),
		RunE: func(c *cobra.Command, args []string) error {
			r := engine.Request{Params: sampling.Default(), MaxTokens: maxTokens}
			r.Temperature, r.Seed = temperature, rand.Uint64()
			if c.Flags().Changed("seed") {
				r.Seed = uint64(seed)
			}
			return withModel(c.Context(), args[0], &o, func(l *loaded) (err error) {
				if r.Prompt, err = l.prompt(args[1], asChat); err != nil {
					return err
				}
				return r.Check(l.longest, l.config.VocabSize)
			}, func(l *loaded) error {
				return l.run(c, &o, r)
			})
		},
	}
	o.flags(c.Flags())
	c.Flags().IntVar(&maxTokens, "max-tokens", 128, "largest number of tokens of the answer")
	c.Flags().Float64Var(&temperature, "temperature", 0.8, "sampling temperature; 0: always the most likely token")
	c.Flags().Int64Var(&seed, "seed", 0, "seed; the same seed gives the same answer (default: random)")
	c.Flags().BoolVar(&asChat, "chat", false, "send the prompt as a message of a chat")
	return c
}

// withModel loads a model and calls use, which makes the engine. Before the engine exists, a signal ends the process.
// In a process that is not rank 0, withModel does not call check and use. Such a process computes its part of each
// step until the engine of rank 0 is closed.
func withModel(ctx context.Context, path string, o *modelOptions, check, use func(*loaded) error) (err error) {
	if ranks.follow() {
		return follow(path, o)
	}
	ready := endAtSignal(ctx, interrupted)
	defer ready()
	l, err := load(path, o, check)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	l.ready = ready
	return use(l)
}

func (l *loaded) prompt(text string, asChat bool) ([]int32, error) {
	if !asChat {
		return l.tokenizer.Encode(text, true), nil
	}
	if l.templateError != nil {
		return nil, fmt.Errorf("the chat template of %s cannot be used: %w; leave --chat out", l.name, l.templateError)
	}
	if l.template == nil {
		return nil, fmt.Errorf("%s has no chat template; leave --chat out", l.name)
	}
	var prompt strings.Builder
	marked, err := l.template.RenderTo(context.Background(), func(piece string, _ *marks.Marks) error {
		prompt.WriteString(piece)
		return nil
	}, []chat.Message{{Role: "user", Content: text}}, chat.Options{Answer: true, Marked: l.tokenizer.Edges()})
	if err != nil {
		return nil, err
	}
	return l.tokenizer.EncodeMarked(context.Background(), prompt.String(), marked, false, math.MaxInt)
}

func (l *loaded) run(c *cobra.Command, o *modelOptions, r engine.Request) (err error) {
	e, err := l.engine(o, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	l.notes(c.ErrOrStderr(), o, e)
	s, err := e.Submit(r)
	if err != nil {
		return err
	}
	for {
		events, err := s.Next(c.Context())
		if err != nil {
			return err
		}
		if events == nil {
			_, err := fmt.Fprintln(c.OutOrStdout())
			return err
		}
		for _, event := range events {
			if event.Err != nil {
				return event.Err
			}
			if _, err := fmt.Fprint(c.OutOrStdout(), event.Text); err != nil {
				return err
			}
		}
	}
}
