package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/testkit/level"
)

// randomRequest draws a request with random values of most fields. Many prompts have a common prefix.
func randomRequest(rnd *rand.Rand) engine.Request {
	prompt := strings.Repeat(story, rnd.IntN(3)) + "The code of "
	for range rnd.IntN(6) {
		prompt += []string{"the vault", " is", " 7Kx", ". Do not", "\xc3", "ü "}[rnd.IntN(6)]
	}
	r := request(prompt, 1+rnd.IntN(40))
	if rnd.IntN(3) > 0 {
		r.Temperature, r.Seed = 0.5+1.5*rnd.Float64(), rnd.Uint64()
	}
	switch rnd.IntN(5) {
	case 0:
		r.TopP = 0.3 + 0.7*rnd.Float64()
	case 1:
		r.TopK = 1 + rnd.IntN(50)
	case 2:
		r.MinP = rnd.Float64() * 0.2
	}
	if rnd.IntN(4) == 0 {
		r.FrequencyPenalty, r.PresencePenalty, r.RepetitionPenalty = rnd.Float64()*2, rnd.Float64(), 1+rnd.Float64()
	}
	if rnd.IntN(4) == 0 {
		r.Stop = []string{"vault", "e c"}
		r.IncludeStop = rnd.IntN(2) == 0
	}
	if rnd.IntN(4) == 0 {
		r.IgnoreEOS, r.SpecialTokens = rnd.IntN(2) == 0, true
	}
	if rnd.IntN(4) == 0 {
		r.MinTokens = rnd.IntN(r.MaxTokens)
	}
	if rnd.IntN(4) == 0 {
		r.N = 2 + rnd.IntN(4)
	}
	if rnd.IntN(4) == 0 {
		r.Logprobs = rnd.IntN(4)
		r.PromptLogprobs = rnd.IntN(4) - 1
	}
	r.LogitBias = map[int32]float32{int32(rnd.IntN(256)): 2}
	r.Adapter = rnd.IntN(3)
	return r
}

// Ensure that a request has the same events when it runs alone and when it runs together with many other requests,
// some of which are cancelled. In all cases except the one named roomy, the memory and the steps are small, so that
// requests are preempted. Some of these cases also use several workers, several processes, one adapter at a time,
// synchronous scheduling, or speculative decoding.
//
// A large step computes the log probabilities of a long prompt in several pieces. A small step computes its log
// probabilities in one piece.
func TestAnswersDoNotDependOnWhatRunsBeside(t *testing.T) {
	const n = 64
	rnd := rand.New(rand.NewPCG(21, 2))
	requests := make([]engine.Request, n)
	scored := 0 // the longest prompt whose log probabilities are wanted
	for i := range requests {
		requests[i] = randomRequest(rnd)
		if requests[i].PromptLogprobs >= 0 {
			scored = max(scored, len(requests[i].Prompt))
		}
	}
	require.Greater(t, scored, 2*engine.MaxLogits)
	alone := make([]string, n)
	one := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching = true }, nil)
	for i, r := range requests {
		alone[i] = transcript(t, one, r)
	}
	counts := &counter{}
	// 31 blocks of 8 tokens, one of them the null block, are enough for one sequence of 240 tokens. A block has keys
	// and values of 2 layers with 4 heads of 8 elements.
	cramped := func(c *engine.Config) {
		c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 240, 31*8*2*2*4*8*4
		c.MaxNumBatchedTokens, c.MaxNumSeqs = 24, 20
	}
	for _, setting := range level.First(3, []struct {
		name    string
		start   startFunc
		workers int
		change  func(*engine.Config)
	}{
		{"cramped", startWorkers, 1, cramped},
		{"two processes, cramped", startProcesses, 2, cramped},
		{"speculating, cramped", startWorkers, 1, func(c *engine.Config) {
			cramped(c)
			c.NumSpeculativeTokens, c.MaxNumBatchedTokens = 4, 30
			c.MaxModelLen, c.KVCacheBytes = 244, 36*8*2*2*4*8*4
		}},
		{"roomy", startWorkers, 1, nil},
		{"four workers, cramped", startWorkers, 4, cramped},
		{"an adapter at a time, cramped", startWorkers, 1, func(c *engine.Config) {
			cramped(c)
			c.MaxLoRAs = 1
		}},
		{"one step at a time, cramped", startWorkers, 1, func(c *engine.Config) {
			cramped(c)
			c.NoAsyncScheduling = true
		}},
	}) {
		t.Run(setting.name, func(t *testing.T) {
			e := setting.start(t, setting.workers, setting.change, counts)
			together := make([]string, n)
			var wait sync.WaitGroup
			for i, r := range requests {
				wait.Go(func() { together[i] = transcript(t, e, r) })
				if i%8 == 0 {
					wait.Go(func() { cancelled(t, e, requests[(i+1)%n], alone[(i+1)%n], i/8) })
				}
			}
			wait.Wait()
			for i := range requests {
				require.Equal(t, alone[i], together[i], "request %d: %+v", i, requests[i])
			}
			requireIdle(t, e)
		})
	}
	require.NotZero(t, counts.preempted.Load(), "no request was preempted")
	require.NotZero(t, counts.hits.Load())
	require.NotZero(t, counts.accepted.Load(), "no proposal was right")
	require.Greater(t, counts.drafts.Load(), counts.accepted.Load(), "no proposal was wrong")
}

// Ensure that blocks become free while the request still runs, when they have left a sliding window. Freeing them
// does not change the answers.
func TestASlidingWindowGivesItsBlocksBack(t *testing.T) {
	level.SkipNormal(t)
	windowed := func(change func(*engine.Config)) func(*engine.Config) {
		return func(c *engine.Config) {
			m := *c.Model // all tests share the model
			m.SlidingWindow = 48
			c.Model = &m
			if change != nil {
				change(c)
			}
		}
	}
	roomy := start(t, windowed(func(c *engine.Config) { c.NoPrefixCaching = true }))
	counts := &counter{}
	cramped := startObserved(t, windowed(func(c *engine.Config) {
		c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 240, 32*8*2*2*3*256*4
		c.MaxNumBatchedTokens = 24
	}), counts)
	var wait sync.WaitGroup
	rnd := rand.New(rand.NewPCG(5, 1))
	for range 16 {
		r := randomRequest(rnd)
		r.PromptLogprobs, r.Adapter = -1, 0 // the model has no adapters
		alone := transcript(t, roomy, r)
		wait.Go(func() {
			if together := transcript(t, cramped, r); together != alone {
				t.Errorf("%q\nalone %q\n%+v", together, alone, r)
			}
		})
	}
	wait.Wait()
	requireIdle(t, cramped)
	far := "The key is 4711. " + strings.Repeat("Lorem ipsum dolor sit amet. ", 4) + "The key"
	require.NotEqual(t, " is 4711", ask(t, roomy, request(far, 8))[0].text)
	require.Equal(t, " is 4711", ask(t, roomy, request("The key is 4711. The key", 8))[0].text)
}

// transcript returns all events of a request, by answer.
func transcript(t *testing.T, e *engine.Engine, r engine.Request) string {
	s, err := e.Submit(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	texts := make([]strings.Builder, max(r.N, 1))
	for {
		events, err := s.Next(t.Context())
		if err != nil {
			t.Error(err)
			return ""
		}
		if events == nil {
			break
		}
		for _, event := range events {
			writeEvent(&texts[event.Index], event)
		}
	}
	all := ""
	for i := range texts {
		all += texts[i].String() + "\n"
	}
	return all
}

// cancelled submits a request, reads more than n events, or all if there are fewer, and cancels the request. The
// parameter reference is the text of all events of the same request when it runs alone. If the request has one answer,
// the events that were read must be the beginning of reference.
func cancelled(t *testing.T, e *engine.Engine, r engine.Request, reference string, n int) {
	s, err := e.Submit(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Cancel()
	var text strings.Builder
	for seen := 0; seen <= n; {
		events, err := s.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		if events == nil {
			break
		}
		for _, event := range events {
			writeEvent(&text, event)
			seen++
		}
	}
	if r.N <= 1 && !strings.HasPrefix(reference, text.String()) {
		t.Errorf("%+v\n%s\n%s", r, reference, text.String())
	}
}

func writeEvent(out *strings.Builder, e engine.Event) {
	fmt.Fprintf(out, "%q %v %v %v %v %v\n", e.Text, e.Tokens, e.Prompt, e.Finish, e.StopReason, e.Err)
}

// A counter adds up the figures of all steps. The engine may report the last step just after it sends the last
// answer.
type counter struct {
	engine.NoObserver
	preempted, hits, drafts, accepted atomic.Int64
}

func (c *counter) Step(r engine.StepReport) {
	c.preempted.Add(int64(r.Preempted))
	c.hits.Add(int64(r.CacheHits))
	c.drafts.Add(int64(r.DraftTokens))
	for _, n := range r.Accepted {
		c.accepted.Add(int64(n))
	}
}
