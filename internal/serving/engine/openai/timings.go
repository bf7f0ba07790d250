package openai

import "time"

// timings is llama.cpp's object of that name: the times of computing the prompts and generating the answers, without
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

// timingsOf returns the timings of a job after the parameter made tokens have been generated, or nil
// if the client did not ask for them. They cover all prompts of the job together.
func (j *job) timingsOf(made int) *timings {
	if !j.timings {
		return nil
	}
	t := &timings{PredictedN: made}
	var started, first, last time.Time
	for i, s := range j.streams {
		cached, times := s.CachedTokens(), s.Times()
		t.CacheN += cached
		t.PromptN += len(j.prompts[i].tokens) - cached
		if started.IsZero() || times.Started.Before(started) {
			started = times.Started
		}
		if first.IsZero() || times.First.Before(first) {
			first = times.First
		}
		if times.Last.After(last) {
			last = times.Last
		}
	}
	t.PromptMS, t.PromptPerTokenMS, t.PromptPerSecond = pace(first.Sub(started), t.PromptN)
	t.PredictedMS, t.PredictedPerTokenMS, t.PredictedPerSecond = pace(last.Sub(first), made)
	return t
}

// pace returns a time in ms, the time for each of n tokens, and the tokens in a second. The latter are 0 if there are no
// tokens or no time.
func pace(d time.Duration, n int) (ms, each, perSecond float64) {
	if ms = float64(max(0, d).Microseconds()) / 1e3; ms == 0 || n == 0 {
		return ms, 0, 0
	}
	return ms, ms / float64(n), float64(n) * 1e3 / ms
}
