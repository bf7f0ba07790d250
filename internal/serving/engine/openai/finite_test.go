package openai_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// startDamaged serves the model of damaged.
func startDamaged(t *testing.T, name string, index int, change func(*engine.Config)) *served {
	return start(t, func(_ *openai.Config, c *engine.Config) {
		pool, err := parallel.New(1)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		c.Pool, c.Model = pool, damaged(t, pool, name, index)
		if change != nil {
			change(c)
		}
	})
}

const notFinite = "The model's logits are not finite numbers"

// corrupted is how many requests /metrics counts.
func (s *served) corrupted(t *testing.T) string {
	found := regexp.MustCompile(`vllm:corrupted_requests_total\{.*\} (\d+)`).FindStringSubmatch(s.metrics(t))
	require.Len(t, found, 2)
	return found[1]
}

// Ensure that a request fails if its logits are not finite, whatever it asks for. The failure is counted.
func TestLogitsThatAreNotFiniteAreAnError(t *testing.T) {
	for _, weight := range []struct {
		name  string
		place int
	}{
		{"ln_f.bias", 0},       // all logits are NaN
		{"lm_head.weight", 99}, // one is
	} {
		for _, speculative := range []int{0, 3} {
			s := startDamaged(t, weight.name, weight.place, func(c *engine.Config) { c.NumSpeculativeTokens = speculative })
			for i, more := range []string{
				`"temperature": 0`, `"temperature": 1`, `"temperature": 1, "top_k": 3`, `"temperature": 1, "n": 3`,
				`"temperature": 0, "n": 2, "best_of": 3`, `"temperature": 0, "logprobs": 1`,
				`"temperature": 0, "logprobs": 1, "echo": true`, `"logprobs": 1, "echo": true, "max_tokens": 0`,
				`"temperature": 0, "logit_bias": {"5": 50}`, `"temperature": 0, "min_tokens": 2, "stop_token_ids": [12]`,
				`"use_beam_search": true, "n": 2`,
			} {
				body := demo + `"prompt": [1, 2, 1, 2], ` + more
				if !strings.Contains(more, "max_tokens") {
					body += `, "max_tokens": 5`
				}
				a := s.ask(t, texts, body+"}")
				require.Equal(t, 500, a.Status, "%s: %s", more, a.Text)
				require.Contains(t, a.Error.Message, notFinite, more)
				require.Equal(t, fmt.Sprint(i+1), s.corrupted(t), more)
			}
			a := s.ask(t, texts, demo+`"prompt": [1, 2], "max_tokens": 2, "stream": true}`)
			require.Contains(t, a.Text, `data: {"error":{"message":"`+notFinite)
			require.NotContains(t, a.Text, "[DONE]")
		}
	}
}

// Ensure that one damaged weight changes only the answers that reach it. The weight belongs to the embedding of one
// position. A request whose answer ends before this position must get the same answer as from an undamaged model,
// even if other requests reach the position at the same time. Those other requests must fail.
func TestLogitsThatAreNotFiniteDisturbNoOtherRequest(t *testing.T) {
	const position = 40
	whole := startDamaged(t, "", 0, nil)
	for _, speculative := range []int{0, 3} {
		s := startDamaged(t, "wpe.weight", position*8, func(c *engine.Config) { c.NumSpeculativeTokens = speculative })
		short := func(i int) string {
			return demo + fmt.Sprintf(`"prompt": [1, 2, 3, %d], "max_tokens": 30, "temperature": %d, "seed": 7, "min_tokens": 20,
				"stop_token_ids": [5], "logit_bias": {"6": -100}, "logprobs": 1}`, 4+i, i%2)
		}
		done := make(chan string, 8)
		for i := range 8 {
			go func() {
				long := demo + fmt.Sprintf(`"prompt": [1, 2, 3, %d], "max_tokens": 60, "n": %d}`, 4+i, 1+i%2)
				done <- s.ask(t, texts, long).Error.Message
			}()
		}
		for i := range 8 {
			want := whole.ask(t, texts, short(i))
			require.Equal(t, 200, want.Status, want.Text)
			require.Equal(t, want.Choices, s.ask(t, texts, short(i)).Choices)
		}
		for range 8 {
			require.Contains(t, <-done, notFinite)
		}
		require.Equal(t, "8", s.corrupted(t))

		a := s.ask(t, texts, demo+`"prompt": [9], "max_tokens": 60, "stream": true, "temperature": 0}`)
		require.Equal(t, position, strings.Count(a.Text, `"text"`), "tokens before the damaged position")
		require.Contains(t, a.Text, `data: {"error":{"message":"`+notFinite)
		a = s.ask(t, texts, demo+fmt.Sprintf(`"prompt": [9], "max_tokens": %d, "temperature": 0}`, position))
		require.Equal(t, position, a.Usage.Completion, "an answer that ends before")
	}
}

// damaged returns a GPT-2 of one layer with random weights. In the tensor with the name damage, the weight with the
// given index is NaN. If there is no such tensor, no weight is NaN.
func damaged(t *testing.T, pool *parallel.Pool, damage string, index int) *model.Model {
	const hidden, vocabulary, longest = 8, 256, 1024
	rnd := rand.New(rand.NewPCG(3, 3))
	var tensors []*weights.Tensor
	add := func(name string, rows, cols int) {
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(rnd.NormFloat64())
		}
		if name == damage {
			values[index] = float32(math.NaN())
		}
		tensors = append(tensors, weights.FromFloats(name, rows, cols, values))
	}
	add("wte.weight", vocabulary, hidden)
	add("lm_head.weight", vocabulary, hidden)
	add("wpe.weight", longest, hidden)
	for _, norm := range []string{"h.0.ln_1", "h.0.ln_2", "ln_f"} {
		add(norm+".weight", 1, hidden)
		add(norm+".bias", 1, hidden)
	}
	for _, m := range []struct {
		name       string
		rows, cols int
	}{{"attn.c_attn", hidden, 3 * hidden}, {"attn.c_proj", hidden, hidden}, {"mlp.c_fc", hidden, hidden},
		{"mlp.c_proj", hidden, hidden}} {
		add("h.0."+m.name+".weight", m.rows, m.cols)
		add("h.0."+m.name+".bias", 1, m.cols)
	}
	m, err := model.Build(model.Config{
		Family: "gpt2", VocabSize: vocabulary, HiddenSize: hidden, NumLayers: 1, NumHeads: 1, NumKVHeads: 1, HeadDim: hidden,
		IntermediateSize: hidden, MaxModelLen: longest, Norm: model.LayerNorm, NormEps: 1e-5, Activation: model.GELU,
		QKVBias: true, OutBias: true, MLPBias: true,
	}, weights.Collect(tensors...), pool, model.Part{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}
