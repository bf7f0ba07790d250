package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

// randomBody draws the body of a completion. Some bodies ask for beams, for several answers, or for the log
// probabilities of a prompt that has more tokens than MaxLogits.
func randomBody(rnd *rand.Rand) string {
	prompt, _ := json.Marshal(strings.Repeat(story, rnd.IntN(4)) + "The code of " + []string{"the vault", "a", "7Kx", "ü"}[rnd.IntN(4)])
	options := []string{
		`"echo": true, "logprobs": 2`,
		`"echo": true, "logprobs": 0, "max_tokens": 0`,
		`"use_beam_search": true, "n": 2, "max_tokens": 4`,
		`"n": 3, "best_of": 4`,
		`"temperature": 0, "return_token_ids": true, "n": 2`,
		`"top_p": 0.8, "logprobs": 3, "prompt_logprobs": 5`,
		`"stop": "is", "include_stop_str_in_output": true, "skip_special_tokens": false, "ignore_eos": true`,
	}[rnd.IntN(7)]
	if !strings.Contains(options, "max_tokens") {
		options += `, "max_tokens": 8`
	}
	return fmt.Sprintf(`{"model": "demo", "prompt": %s, "seed": %d, %s}`, prompt, rnd.IntN(1000), options)
}

// choices returns the choices of the answer to a completion.
func (s *served) choices(t *testing.T, body string) string {
	a := s.ask(t, texts, body)
	assert.Equal(t, 200, a.Status, a.Text)
	var c struct{ Choices json.RawMessage }
	assert.NoError(t, json.Unmarshal([]byte(a.Text), &c))
	return string(c.Choices)
}

// Ensure that each of 64 simultaneous requests gets the same answer as alone, even while other clients disconnect.
// One server schedules asynchronously and one speculates.
func TestAnswersOverHTTPDoNotDependOnWhatRunsBeside(t *testing.T) {
	level.SkipNormal(t)
	level.SkipQuick(t) // engine.TestAnswersDoNotDependOnWhatRunsBeside is the quick test
	const n = 64
	rnd := rand.New(rand.NewPCG(3, 16))
	bodies, alone := make([]string, n), make([]string, n)
	one := start(t, nil)
	for i := range bodies {
		bodies[i] = randomBody(rnd)
		alone[i] = one.choices(t, bodies[i])
	}
	for _, speculative := range []int{0, 3} {
		s := start(t, func(_ *openai.Config, e *engine.Config) { e.NumSpeculativeTokens, e.MaxNumSeqs = speculative, 32 })
		together := make([]string, n)
		var wait sync.WaitGroup
		for i, body := range bodies {
			wait.Go(func() { together[i] = s.choices(t, body) })
			if i%8 == 0 {
				wait.Go(func() {
					r := s.open(t, texts, demo+`"prompt": "one two", "max_tokens": 300, "ignore_eos": true, "stream": true}`)
					bufio.NewScanner(r.Body).Scan()
					assert.NoError(t, r.Body.Close())
				})
			}
		}
		wait.Wait()
		for i := range bodies {
			require.Equal(t, alone[i], together[i], "%d speculative tokens: %s", speculative, bodies[i])
		}
		settle(t, s)
	}
}
