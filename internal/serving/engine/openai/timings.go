package openai

import "time"

// timings is llama.cpp's object timings: the times for computing the prompts and for generating the answers, without
// the time in the queue.
type timings struct {
	CacheN              int     `json:"cache_n"`  // tokens of prompts that were in the cache
	PromptN             int     `json:"prompt_n"` // other tokens of prompts
	PromptMS            float64 `json:"prompt_ms"`
	PromptPerTokenMS    float64 `json:"prompt_per_token_ms"`
	PromptPerSecond     float64 `json:"prompt_per_second"`
	PredictedN          int     `json:"predicted_n"`
	PredictedMS         float64 `json:"predicted_ms"`
	PredictedPerTokenMS float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond  float64 `json:"predicted_per_second"`
}

// timingsOf returns the timings of a job. Numbers of tokens are sums over the job's prompts. The time of the prompts
// begins when the first prompt is started, and ends when the first token of any answer is sampled. The time of the
// generation begins at this moment, and ends when the last token is sampled. The parameter numGenerated is the number
// of tokens generated so far. If the client did not ask for timings, timingsOf returns nil.
func (j *job) timingsOf(numGenerated int) *timings {
	if !j.timings {
		return nil
	}
	t := &timings{PredictedN: numGenerated}
	var started, first, last time.Time
	for i, s := range j.streams {
		cached, times := s.CachedTokens(), s.Times()
		t.CacheN += cached
		t.PromptN += len(j.prompts[i].tokens) - cached
		started, first = earlier(started, times.Started), earlier(first, times.First)
		if times.Last.After(last) {
			last = times.Last
		}
	}
	t.PromptMS, t.PromptPerTokenMS, t.PromptPerSecond = rates(first.Sub(started), t.PromptN)
	t.PredictedMS, t.PredictedPerTokenMS, t.PredictedPerSecond = rates(last.Sub(first), numGenerated)
	return t
}

// earlier returns the earlier one of two times. A zero time is no time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// rates returns a duration d in milliseconds, the milliseconds for each of n tokens, and the tokens in a
// second. The last two are 0 if n or d is 0.
func rates(d time.Duration, n int) (ms, each, perSecond float64) {
	if ms = float64(max(0, d).Microseconds()) / 1e3; ms == 0 || n == 0 {
		return ms, 0, 0
	}
	return ms, ms / float64(n), float64(n) * 1e3 / ms
}
