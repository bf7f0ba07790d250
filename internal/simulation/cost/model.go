package cost

import "math"

// Work says what one iteration computes and moves.
type Work struct {
	Seqs    int // sequences that generate a token, including sequences whose prompt ends in this iteration
	Context int // total number of tokens that the decoding sequences attend to
	Prompt  int // prompt tokens that are computed, not read from the cache

	// PromptContext is a sum over the prompt tokens that are computed: for each, the number of tokens to which it
	// attends. It is n(n+1)/2 for a whole prompt of n tokens. Only a roofline uses it.
	PromptContext int64

	SwapBlocks int // blocks moved between GPU and CPU, in either direction

	// Swaps is the number of transfers of SwapBlocks. vLLM transfers each block by itself; other systems may
	// transfer adjacent blocks together. Each transfer consists of 2 × layers copies, because the keys and
	// the values of each layer are separate tensors (scheduling/vllm/v0/RULES.md §7).
	Swaps int

	CopyBlocks int // blocks copied on the GPU for copy-on-write
}

// A Model computes how long iterations take. It is immutable and safe for concurrent use.
type Model struct {
	describe, constants string

	// All times are in seconds, for an iteration or for one unit of work. The method unscaled computes the time of an
	// iteration from them.
	base, seq, context, prompt float64
	launches                   float64 // of an iteration with prompts; they overlap the GPU's work
	reduce, state              float64 // all-reduces of an iteration; all-reduces and memory traffic of a token's states
	weights, token, logits     float64 // linear layers: reading the weights, or computing the tokens and the logits
	experts                    experts // of a mixture, in addition to weights and token
	promptPair, promptKV       float64 // attention of prompts: computing the pairs, or moving keys and values
	swapBlock, swapEach        float64
	spread                     Spread  // not a pointer, so that a printed Model has all that runs depend on
	rounded                    float64 // see larger
	copyBlock                  float64
	first                      float64 // see FirstToken
	factor                     float64 // of all times, see Within
}

// Seconds returns how long an iteration takes. If it computes no token, only its swaps and copies count.
// Seconds does not allocate.
func (m *Model) Seconds(w Work) float64 { return m.factor * m.unscaled(w) }

func (m *Model) unscaled(w Work) float64 {
	t := m.swapBlock*float64(w.SwapBlocks) + m.swapEach*float64(w.Swaps) + m.copyBlock*float64(w.CopyBlocks)
	if w.Seqs == 0 && w.Prompt == 0 {
		return t
	}
	seqs, prompt := float64(w.Seqs), float64(w.Prompt)
	t += m.base + m.seq*seqs
	tokens := seqs + prompt // a prompt that ends counts one token too many
	gpu := m.context*float64(w.Context) + m.prompt*prompt + m.reduce + m.state*tokens
	read, compute := m.weights, m.token*tokens
	if w.Seqs > 0 {
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

// larger returns how long two simultaneous activities take. If m.rounded is 0, this is the longer of their times. If
// m.rounded is 1, it is the fourth root of the sum of the fourth powers of their times. Other values of m.rounded
// interpolate between the two. The fourth root is at most 19 % more than the longer time. It is 19 % more if both times
// are equal: the engine then reaches neither peak rate.
func (m *Model) larger(a, b float64) float64 {
	longer, shorter := max(a, b), min(a, b)
	if m.rounded == 0 || longer == 0 {
		return longer
	}
	part := shorter / longer
	part *= part
	return longer * (1 + m.rounded*(math.Sqrt(math.Sqrt(1+part*part))-1))
}

// Describe returns one line that names the model, the GPUs, and the source of the times.
func (m *Model) Describe() string { return m.describe }

// Constants returns one line with the terms of the times.
func (m *Model) Constants() string { return m.constants }
