package engine

import "time"

// An Observer receives reports from an engine. Its methods must return at once; they are called with the engine's lock
// held.
type Observer interface {
	Step(StepReport)
	FirstToken(sinceArrival time.Duration)
	NextToken(sinceLast time.Duration)
	Finished(RequestReport)
}

// A StepReport describes a step.
type StepReport struct {
	Tokens                     int // computed
	GenerationTokens           int
	PromptTokens, CachedTokens int // tokens of the prompts that were completed; CachedTokens of these were not computed
	Sampled                    int // sequences that sampled a token
	Decodes, Context           int // sequences that have computed their prompt, and the tokens they attend to
	Preempted                  int
	Drafts, DraftTokens        int                 // sequences with drafts, and their drafts
	Accepted                   [maxSpeculative]int // accepted drafts, by their index in the proposal
	CacheQueries, CacheHits    int                 // tokens

	// Tokens that were looked up in tiers because they were not in the cache, the loaded ones of these, and the loaded
	// ones of CachedTokens.
	ExternalQueries, ExternalHits, ExternalTokens int

	Model time.Duration // to compute the logits

	// Elapsed is the time of the whole step. Scheduling and delivering count only as far as they did not overlap the
	// model.
	Elapsed time.Duration
}

// A RequestReport describes a finished answer.
type RequestReport struct {
	Reason                         string // finish_reason, or abort
	PromptTokens, GenerationTokens int
	CachedTokens                   int // of the prompt
	N, MaxTokens                   int
	Longest                        int  // tokens of the longest of the N answers if this is the last to end, else 0
	NotFinite                      bool // the request failed with ErrNotFinite, and this is its last answer to end
	EndToEnd, Queue, Inference     time.Duration
	Prefill, Decode                time.Duration // until the first token, and from it to the last
}

// NoObserver is an Observer that ignores all reports. An observer of some reports embeds it.
type NoObserver struct{}

func (NoObserver) Step(StepReport)          {}
func (NoObserver) FirstToken(time.Duration) {}
func (NoObserver) NextToken(time.Duration)  {}
func (NoObserver) Finished(RequestReport)   {}

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
