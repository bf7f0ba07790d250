package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
)

type request struct {
	prompt []int32
	output int
}

// engine returns an engine on the GPU, without prefix caching: the prompts have no common prefixes.
func (b *bench) engine(m *model.Model, d engine.Device, c engine.Config, o engine.Observer) (*engine.Engine, error) {
	c.Model, c.Device, c.Pool, c.Tokenizer, c.NoPrefixCaching = m, d, b.pool, tokenizer.Bytes(0), true
	return engine.New(c, o)
}

// answers sends all requests at once, and returns n answers to each. If deadline is not zero, it cancels the unfinished
// requests at that time.
func answers(e *engine.Engine, requests []request, n int, deadline time.Time) ([][][]int32, error) {
	ctx := context.Background()
	if !deadline.IsZero() {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	all, errs := make([][][]int32, len(requests)), make([]error, len(requests))
	var streams []*engine.Stream
	for _, r := range requests {
		p := sampling.Default()
		p.Temperature = 0
		s, err := e.Submit(engine.Request{Prompt: r.prompt, N: n, MaxTokens: r.output, IgnoreEOS: true, Params: p})
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	var wait sync.WaitGroup
	for i, s := range streams {
		all[i] = make([][]int32, n)
		wait.Go(func() { errs[i] = read(ctx, s, all[i]) })
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

func read(ctx context.Context, s *engine.Stream, dst [][]int32) error {
	defer s.Cancel()
	for {
		events, err := s.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) || err == nil && events == nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, event := range events {
			if event.Err != nil {
				return fmt.Errorf("answer %d: %w", event.Index, event.Err)
			}
			for _, t := range event.Tokens {
				dst[event.Index] = append(dst[event.Index], t.ID)
			}
		}
	}
}
