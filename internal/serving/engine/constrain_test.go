package engine_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/structured"
)

// byteConstraint returns the constraint of a form. Token i stands for byte i, except that tokens 0 to 3 are
// special. The tokens in ends are end tokens.
func byteConstraint(t *testing.T, form structured.Form, ends ...int) *structured.Constraint {
	all := make([][]byte, 256)
	for i := range all {
		if i > 3 {
			all[i] = []byte{byte(i)}
		}
	}
	v, err := structured.NewVocabulary(all, nil, ends)
	require.NoError(t, err)
	c, err := structured.Compile(v, form)
	require.NoError(t, err)
	return c
}

// Ensure that a form whose tokens need too much work ends its own request with an error that says so, and no other.
func TestAFormThatNeedsTooMuchWorkEndsOnlyItsRequest(t *testing.T) {
	e := start(t, nil)
	bad, good := request(story[:8], 20), request(story[:8], 20)
	bad.Constraint = byteConstraint(t, structured.Form{Grammar: "root ::= " + strings.Repeat("root ", 4096) + `| "a"?`})
	good.Constraint = byteConstraint(t, structured.Form{Regex: "[a-c]{9}"})
	streams := make([]*engine.Stream, 2)
	for i, r := range []engine.Request{bad, good} {
		var err error
		streams[i], err = e.Submit(r)
		require.NoError(t, err)
	}
	var failed []error
	for i, stream := range streams {
		for {
			events, err := stream.Next(t.Context())
			require.NoError(t, err)
			if events == nil {
				break
			}
			for _, event := range events {
				if event.Err != nil {
					require.Zero(t, i)
					failed = append(failed, event.Err)
				}
			}
		}
	}
	require.Len(t, failed, 1)
	require.ErrorIs(t, failed[0], structured.ErrTooLarge)
	require.ErrorContains(t, failed[0], "needs too much work: the limit for an answer is")
}

// Ensure that constrained answers match their regular expression, and do not depend on what else the engine computes.
// The test varies other requests, preemption, the steps in flight, drafts, several answers to a prompt, log
// probabilities and prefix hits.
func TestConstrainedAnswersDoNotDependOnWhatRunsBeside(t *testing.T) {
	const pattern = `([a-c]{2}[0-9]){4,9}(end|stop)`
	counts := &counter{}
	for _, setting := range []struct {
		name   string
		change func(*engine.Config)
		drafts bool
	}{
		{"two steps in flight", nil, false},
		{"one step at a time", func(c *engine.Config) { c.NoAsyncScheduling = true }, false},
		{"speculating", func(c *engine.Config) { c.NumSpeculativeTokens = 4 }, true},
	} {
		t.Run(setting.name, func(t *testing.T) {
			cramped := startWorkers(t, 1, func(c *engine.Config) {
				c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 120, 17*8*2*2*4*8*4
				c.MaxNumBatchedTokens, c.MaxNumSeqs = 30, 20
				if setting.change != nil {
					setting.change(c)
				}
			}, counts)
			alone := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching = true }, nil)
			var ends []int
			for _, id := range alone.Config().End {
				ends = append(ends, int(id))
			}
			form := structured.Form{Regex: pattern}
			constraints := [2]*structured.Constraint{byteConstraint(t, form, ends...), byteConstraint(t, form)}
			var wait sync.WaitGroup
			for i := range 16 {
				r := request(story[:i%5*8+3], 60)
				r.Constraint, r.Temperature, r.Seed, r.Logprobs, r.N = constraints[i%2], float64(i%3), uint64(i), i%3-1, 1+i%4/2
				wait.Go(func() {
					got, want := transcript(t, cramped, r), transcript(t, alone, r)
					if got != want {
						t.Errorf("request %d: %s, alone %s", i, got, want)
					}
				})
			}
			wait.Wait()
			requireIdle(t, cramped)
			for seed := range 4 {
				r := request(story, 60)
				r.Constraint, r.Temperature, r.Seed = constraints[seed%2], 2*float64(seed%2), uint64(seed)
				a := ask(t, cramped, r)[0]
				require.Equal(t, engine.FinishStop, a.finish, fmt.Sprint(a))
				require.Regexp(t, regexp.MustCompile(`^`+pattern+`$`), a.text)
			}
		})
	}
	require.Positive(t, counts.preempted.Load())
}

func TestAConstraintWithoutATokenToContinueEndsWithAnError(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	r := request(story, 10)
	r.Constraint = byteConstraint(t, structured.Form{Regex: "ab\x01"})
	a := ask(t, e, r)[0]
	require.ErrorIs(t, a.err, engine.ErrNoToken)
	require.Equal(t, "ab", a.text)
	requireIdle(t, e)
	require.Equal(t, engine.FinishLength, ask(t, e, request(story, 3))[0].finish)
}

// Ensure that a greedy answer has the same tokens whether the runner reports the token with the largest logit or a
// sampler searches the logits for it.
func TestTheLargestAllowedTokenIsTaken(t *testing.T) {
	e := startWorkers(t, 1, nil, nil)
	for _, pattern := range []string{`[a-z ]{20}`, `[ -df-~]{20}`, `[ -~]{20}`} {
		r := request(story, 20)
		r.Constraint = byteConstraint(t, structured.Form{Regex: pattern})
		known := ask(t, e, r)[0]
		r.LogitBias = map[int32]float32{0: 0}
		require.Equal(t, ask(t, e, r)[0], known)
		require.Regexp(t, `^`+pattern+`$`, known.text)
	}
	requireIdle(t, e)
}
