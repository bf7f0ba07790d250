package cost

import "math"

// Work is what one iteration computes and moves.
type Work struct {
	Seqs    int // sequences that generate a token in it, also those whose prompt it completes
	Context int // tokens that the decoding sequences attend to, all together
	Prompt  int // prompt tokens computed; cached ones are not

	// PromptContext is, for each computed prompt token, the tokens it attends to,
	// all together: n(n+1)/2 for a whole prompt of n. Only a roofline reads it.
	PromptContext int64

	SwapBlocks int // blocks moved between GPU and CPU, in either direction

	// Swaps is the number of transfers these blocks are moved in: one for each
	// block in vLLM, fewer if neighbours are moved together. Keys and values of each
	// layer are tensors of their own (scheduling/vllm/v0/RULES.md §7), so a transfer costs 2 × layers
	// copies; that factor is not in Swaps.
	Swaps int

	CopyBlocks int // blocks copied on the GPU for copy-on-write
}

// A Model is how long iterations take: a sum of terms, some of which are the
// larger of two. Immutable, safe for concurrent use.
type Model struct {
	describe, constants string

	// All in seconds, of an iteration or of one thing of it.
	base, seq, context, prompt float64
	launches                   float64 // of an iteration that computes prompts, while the GPU computes
	reduce, state              float64 // all-reduces: of an iteration; and of a token, with what its states take in memory
	weights, token, logits     float64 // linear layers: read the weights, or compute the tokens and the logits
	experts                    experts // of a mixture: besides weights and token
	promptPair, promptKV       float64 // attention of prompts: compute the pairs, or move keys and values
	swapBlock, swapEach        float64
	spread                     Spread  // no pointer: the text of a Model tells what its runs depend on
	rounded                    float64 // see larger
	copyBlock                  float64
	first                      float64 // of a first token, besides iterations: see FirstToken
}

// Seconds returns how long an iteration takes. If no token is computed in it, only
// what it moves counts. It allocates nothing.
func (m *Model) Seconds(w Work) float64 {
	t := m.swapBlock*float64(w.SwapBlocks) + m.swapEach*float64(w.Swaps) + m.copyBlock*float64(w.CopyBlocks)
	if w.Seqs == 0 && w.Prompt == 0 {
		return t
	}
	seqs, prompt := float64(w.Seqs), float64(w.Prompt)
	t += m.base + m.seq*seqs
	// A prompt that is completed counts as one token too many here.
	tokens := seqs + prompt
	gpu := m.context*float64(w.Context) + m.prompt*prompt + m.reduce + m.state*tokens
	read, compute := m.weights, m.token*tokens
	if w.Seqs > 0 { // logits are made of the tokens that are generated
		compute += m.logits * seqs
	}
	if m.experts.all > 0 {
		expertRead, expertCompute := m.experts.seconds(tokens)
		read, compute = read+expertRead, compute+expertCompute
	}
	gpu += m.larger(read, compute)
	gpu += m.larger(m.promptPair*float64(w.PromptContext), m.promptKV*prompt)
	if w.Prompt > 0 {
		gpu = m.larger(gpu, m.launches)
	}
	return t + gpu
}

// larger returns how long two things take that are done at the same time: as long as the longer
// one. Rounded by 1 it is the fourth root of the sum of their fourth powers, at most 19 % more,
// where they are equally long: then neither reaches its peak.
func (m *Model) larger(a, b float64) float64 {
	more, less := max(a, b), min(a, b)
	if m.rounded == 0 || more == 0 {
		return more
	}
	part := less / more
	part *= part
	return more * (1 + m.rounded*(math.Sqrt(math.Sqrt(1+part*part))-1))
}

// Describe returns a line on what the model is of and what its times rest on.
func (m *Model) Describe() string { return m.describe }

// Constants returns a line on what makes up its times.
func (m *Model) Constants() string { return m.constants }
