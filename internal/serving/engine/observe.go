package engine

import "time"

// An Observer receives reports of what the engine does. Its methods must return at once;
// they are called under the engine's lock.
type Observer interface {
	Step(StepReport)
	FirstToken(sinceArrival time.Duration)
	NextToken(sinceLast time.Duration)
	Finished(RequestReport)
}

// A StepReport is about one step.
type StepReport struct {
	Tokens                     int // computed
	GenerationTokens           int
	PromptTokens, CachedTokens int // of prompts that are through, and of these the part that was found in the cache
	Sampled                    int // sequences that get a token
	Decodes, Context           int // sequences that generate after their prompt; tokens that they attend to, in all
	Preempted                  int
	Drafts, DraftTokens        int                 // sequences with speculative tokens, and these tokens
	Accepted                   [maxSpeculative]int // of these tokens, by place: the first of each sequence, ...
	CacheQueries, CacheHits    int                 // tokens

	// Tokens that were not in the cache and were looked up in tiers outside, those of them that were
	// loaded, and the part of CachedTokens that was loaded.
	ExternalQueries, ExternalHits, ExternalTokens int

	Model time.Duration // computing logits

	// Elapsed is the time that the step took in all. Scheduling and delivering count only as far
	// as they did not overlap the model.
	Elapsed time.Duration
}

// A RequestReport is about one answer that has ended.
type RequestReport struct {
	Reason                         string // finish_reason, or abort
	PromptTokens, GenerationTokens int
	CachedTokens                   int // of the prompt
	N, MaxTokens                   int
	Longest                        int  // tokens of the longest of N answers, if this is the last one to end; else 0
	NotFinite                      bool // the request failed with ErrNotFinite, and this is the last of its answers to end
	EndToEnd, Queue, Inference     time.Duration
	Prefill, Decode                time.Duration // until the first token, and from it to the last
}

type silent struct{}

func (silent) Step(StepReport)          {}
func (silent) FirstToken(time.Duration) {}
func (silent) NextToken(time.Duration)  {}
func (silent) Finished(RequestReport)   {}

func (q *sequence) report(reason string) RequestReport {
	now := time.Now()
	r := RequestReport{
		Reason: reason, PromptTokens: q.prompt, GenerationTokens: len(q.output()),
		N: len(q.stream.answers), MaxTokens: q.most, EndToEnd: now.Sub(q.arrived), CachedTokens: q.stream.CachedTokens(),
	}
	if q.stream.unfinished() == 0 {
		for _, a := range q.stream.answers {
			r.Longest = max(r.Longest, len(a.output()))
		}
	}
	if !q.started.IsZero() {
		r.Queue, r.Inference = q.started.Sub(q.arrived), now.Sub(q.started)
	}
	if !q.first.IsZero() {
		r.Prefill, r.Decode = q.first.Sub(q.started), q.last.Sub(q.first)
	}
	return r
}
