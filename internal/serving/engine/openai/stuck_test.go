package openai

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/serving/toolparser"
)

// Stuck is a Device that computes nothing before Released is closed, so that requests wait.
type Stuck struct {
	Model    *model.Model
	Released chan struct{}
}

func (d *Stuck) KVShape(blockSize int) (attention.Shape, error) {
	return d.Model.KVShape(blockSize, attention.F32), nil
}

func (d *Stuck) NewRunner(engine.RunnerConfig) (engine.DeviceRunner, error) {
	return &stuckRunner{device: d}, nil
}

// A stuckRunner has only the methods of a DeviceRunner that these tests call. The embedded interface is nil.
type stuckRunner struct {
	engine.DeviceRunner
	device *Stuck
}

func (r *stuckRunner) Prepare(*model.Batch)                 {}
func (r *stuckRunner) ForwardPrepared(b *model.Batch) error { return r.Forward(b) }
func (r *stuckRunner) Sample([]sampling.Choice) error       { return nil }
func (r *stuckRunner) CopyBlocks([]kvstore.Pair) error      { return nil }
func (r *stuckRunner) Poison([]int32)                       {}
func (r *stuckRunner) Largest() []int32                     { return make([]int32, engine.MaxLogits) }
func (r *stuckRunner) Close() error                         { return nil }

func (r *stuckRunner) Forward(*model.Batch) error {
	<-r.device.Released
	return nil
}

func (r *stuckRunner) ComputeStates(b *model.Batch) ([]float32, error) {
	return make([]float32, len(b.States)*r.device.Model.HiddenSize), nil
}

func (r *stuckRunner) ComputeLogits(_ *model.Batch, start, end int) ([]float32, error) {
	return make([]float32, (end-start)*r.device.Model.VocabSize), nil
}

// Ensure that the memory of bodies counts what an accepted request keeps until its answer has ended, and nothing else.
func TestWhatAWaitingRequestKeepsIsCounted(t *testing.T) {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := induction.New(pool, model.Part{})
	require.NoError(t, err)
	device := &Stuck{m, make(chan struct{})}
	metrics := NewMetrics("demo")
	e, err := engine.New(engine.Config{Model: m, Tokenizer: induction.Tokenizer(), Pool: pool, KVCacheBytes: 32 << 20, MaxModelLen: 1024,
		Device: device}, metrics)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	template, err := chat.New("{% if tools %}{% endif %}{{ messages[0].content }}", nil) // it does not show the long tools
	require.NoError(t, err)
	requests := func() int { l := e.Load(); return l.Running + l.Waiting }
	const size = 8 * shortBody
	pad := strings.Repeat("x", size)
	tool := `"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "description": "` + pad + `"}}}]`
	for _, test := range []struct {
		name, parser, path, fields string
		pieces                     int
	}{
		{"variables", "hermes", "/v1/chat/completions", `"chat_template_kwargs": {"a": "` + pad + `"}`, 0},
		{"tools", "hermes", "/v1/chat/completions", tool, 0},
		{"tools whose parameters are read", "qwen3_coder", "/v1/chat/completions", tool, 8},
		{"a form", "hermes", "/v1/chat/completions", `"response_format": {"type": "json_object", "schema": {"description": "` + pad + `"}}`, 0},
		{"a field without effect", "hermes", "/v1/chat/completions", `"metadata": {"a": "` + pad + `"}`, 0},
		{"beams", "hermes", "/v1/chat/completions", `"use_beam_search": true, "n": 2, "chat_template_kwargs": {"a": "` + pad + `"}`, 0},
		{"a form of a completion", "hermes", "/v1/completions", `"guided_json": {"description": "` + pad + `"}`, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			tools, err := toolparser.Tools(test.parser, "")
			require.NoError(t, err)
			s := New(Config{
				Engine:      e,
				ModelConfig: ModelConfig{Name: "demo", Template: template, Format: toolparser.Format{Tools: tools}},
				Metrics:     metrics,
			})
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			body := `{"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], ` + test.fields + "}"
			if test.path == "/v1/completions" {
				body = `{"max_tokens": 9, "prompt": "hi", ` + test.fields + "}"
			}
			ctx, leave := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "POST", server.URL+test.path, strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if a, err := http.DefaultClient.Do(r); err == nil {
					<-ctx.Done()
					_ = a.Body.Close()
				}
			}()
			require.Eventually(t, func() bool { return requests() > 0 }, 10*time.Minute, time.Millisecond, "accepted")
			s.bodies.mu.Lock()
			used := s.bodies.used
			s.bodies.mu.Unlock()
			require.Equal(t, test.pieces, used, fmt.Sprintf("pieces of %d bytes", shortBody))
			leave()
			<-ended
			server.Close() // waits for the handler
			require.Zero(t, s.bodies.used)
			require.Zero(t, requests())
		})
	}
	close(device.Released)
}
