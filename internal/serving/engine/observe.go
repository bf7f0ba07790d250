package engine

import "time"

// An Observer receives reports from an engine. The engine calls the methods with its lock held, so they must return at
// once.
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
	PromptTokens, CachedTokens int // tokens of the prompts that were completed; of these, tokens that were not computed
	Sampled                    int // sequences that sampled a token
	Decodes, Context           int // sequences that generate tokens, and the tokens to which they attend
	Preempted                  int
	Drafts, DraftTokens        int                 // sequences with drafts, and their drafts
	Accepted                   [maxSpeculative]int // accepted drafts, by their index in the proposal
	CacheQueries, CacheHits    int                 // tokens

	// ExternalQueries is the number of tokens of new requests that the prefix cache did not have, if blocks are loaded
	// from tiers. ExternalHits is the number of those tokens for which a load began. ExternalTokens is the number of
	// tokens that were loaded. CachedTokens includes ExternalTokens.
	ExternalQueries, ExternalHits, ExternalTokens int

	Model time.Duration // to compute the logits

	// Elapsed is the time from the beginning of the step to the beginning of the next one, or to the end if no step
	// follows. It includes scheduling and delivery only when the model did not compute at the same time.
	Elapsed time.Duration
}

// A RequestReport describes a finished answer.
type RequestReport struct {
	Reason                         string // finish_reason, or abort
	PromptTokens, GenerationTokens int
	CachedTokens                   int // of the prompt
	N, MaxTokens                   int
	Longest                        int  // tokens of the longest of the N answers, set for the last one to end
	NotFinite                      bool // set for the last answer to end if the request failed with ErrNotFinite
	EndToEnd, Queue, Inference     time.Duration
	Prefill, Decode                time.Duration // until the first token, and from it to the last
}

// NoObserver is an Observer that ignores all reports. Embed it in an observer that needs only some of them.
type NoObserver struct{}

func (NoObserver) Step(StepReport)          {}
func (NoObserver) FirstToken(time.Duration) {}
func (NoObserver) NextToken(time.Duration)  {}
func (NoObserver) Finished(RequestReport)   {}

func (q *sequence) report(reason string) RequestReport {
	now := time.Now()
	r := RequestReport{
		Reason: reason, PromptTokens: q.prompt, GenerationTokens: len(q.output()),
		N: len(q.stream.answers), MaxTokens: q.maxTokens, EndToEnd: now.Sub(q.arrived), CachedTokens: q.stream.CachedTokens(),
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
