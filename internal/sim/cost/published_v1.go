package cost

import "math"

// chunked is what a point of vLLM V1 has besides: its scheduler computes prompts in chunks
// beside decodes (vllm/v1/core/sched/scheduler.py), and keeps prompts that were computed before.
type chunked struct {
	Budget   int     `json:"max_num_batched_tokens"` // tokens in an iteration; 0: an engine with separate iterations for prompts
	Computed int     `json:"computed"`               // tokens of a prompt that are computed, the others are cached; 0: all
	TTFT     float64 `json:"ttft_ms"`                // where both are published, in place of Value:
	TPOT     float64 `json:"tpot_ms"`                // a request takes TTFT and Output - 1 times TPOT
}

// requestMS is how long a request takes of which TTFT and TPOT are published.
func (p Published) requestMS() float64 { return p.TTFT + float64(p.Output-1)*p.TPOT }

// onChunks is how long it takes an engine that computes prompts beside decodes.
func (p Published) onChunks(m *Model) float64 {
	switch p.Metric {
	case "token_ms":
		return m.Seconds(p.decodes(1))
	case "first_token_ms":
		return p.prefill(m)
	case "tokens_per_s", "batch_s":
		return p.batch(m)
	}
	return p.cycle(m)
}

// decodes are sequences in the middle of their answers.
func (p Published) decodes(n float64) Work {
	context := float64(p.Median) + float64(p.Output+p.Longest+2)/4
	return Work{Seqs: int(math.Round(n)), Context: int(n * context)}
}

// computed are the tokens of a prompt that are computed, and what they attend to.
func (p Published) computed() (tokens, pairs float64) {
	prompt := float64(p.Median)
	tokens = prompt
	if p.Computed > 0 {
		tokens = float64(p.Computed)
	}
	return tokens, tokens*(prompt-tokens) + tokens*(tokens+1)/2
}

// with adds a number of prompts to an iteration.
func (p Published) with(w Work, prompts float64) Work {
	tokens, pairs := p.computed()
	w.Prompt, w.PromptContext = int(prompts*tokens), int64(prompts*pairs)
	return w
}

// prefill is a prompt alone, until its first token.
func (p Published) prefill(m *Model) float64 {
	tokens, _ := p.computed()
	chunks := math.Ceil(tokens / float64(p.Budget))
	w := p.with(Work{Seqs: 1}, 1/chunks)
	return chunks * m.Seconds(w)
}

// batch is one whose prompts come at once: as many iterations as their tokens fill, in which
// the first ones already decode, and one for each further token of an answer.
func (p Published) batch(m *Model) float64 {
	n := float64(p.Batch)
	tokens, _ := p.computed()
	chunks := math.Ceil(n * tokens / float64(p.Budget))
	running := n * float64(p.Output-1) / float64(p.Longest-1)
	prompts := m.Seconds(p.with(p.decodes(n/2), n/chunks))
	return chunks*prompts + float64(p.Longest-1)*m.Seconds(p.decodes(running))
}

// cycle is the time in which each of the clients has one answer. They are at different places of
// theirs, so an iteration has as many new prompts as chance makes it: none with the
// probability e^-x, if there are x on the average. If the prompts of a cycle do not fit in the iterations that
// answers take, there are more of these.
func (p Published) cycle(m *Model) float64 {
	clients := float64(p.Batch)
	tokens, _ := p.computed()
	room := float64(max(1, p.Budget-p.Batch))
	chunks := math.Ceil(tokens / room)
	iterations := max(float64(p.Output-1)+chunks, clients*tokens/room)
	with := max(1-math.Exp(-clients*chunks/iterations), clients*tokens/iterations/room)
	running := p.decodes(clients * float64(p.Output) / iterations)
	prompts := m.Seconds(p.with(running, clients/(iterations*with)))
	return iterations * (with*prompts + (1-with)*m.Seconds(running))
}
