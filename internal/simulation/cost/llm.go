package cost

import (
	"cmp"
	"fmt"
	"slices"
)

// An LLM is a decoder-only transformer with equal layers. Its numbers describe the whole model, also if several
// workers share it. The ranges of the dimensions are such that their products do not overflow.
type LLM struct {
	Name   string `json:"name"`
	Source string `json:"source"` // of the numbers; not interpreted

	Layers     int  `json:"layers" range:"1 4096"`
	Hidden     int  `json:"hidden" range:"1 16777216"` // elements of a token's state
	Heads      int  `json:"heads" range:"1 4096"`
	KVHeads    int  `json:"kv_heads" range:"1 4096"`  // fewer than heads if groups of them share keys and values
	HeadSize   int  `json:"head_size" range:"1 4096"` // elements
	FFN        int  `json:"ffn" range:"1 16777216"`   // elements between the matrices of the feed-forward part
	Gated      bool `json:"gated"`                    // the feed-forward part has three matrices (SwiGLU) instead of two
	Vocabulary int  `json:"vocabulary" range:"1 16777216"`

	// Parallel means that attention and the feed-forward part have the same input, and their results are
	// added. A layer then needs one all-reduce instead of two.
	Parallel bool `json:"parallel,omitempty"`

	// Experts is the number of feed-forward parts (experts) in each layer of a mixture of experts; each token
	// goes through ExpertsPerToken of them. 0 means that the model is no mixture.
	Experts         int `json:"experts,omitempty" range:"0 4096"`
	ExpertsPerToken int `json:"experts_per_token,omitempty"`

	Tied       bool  `json:"tied"`       // one matrix is both the embedding and the head
	Parameters int64 `json:"parameters"` // including norms, biases and positions

	ParameterBytes float64 `json:"bytes_per_parameter" range:"0.0625 8"` // 2 for fp16, 0.5 for 4 bits
	// bytes of a parameter of the embedding, the head and the norms; default ParameterBytes
	OuterBytes float64 `json:"bytes_per_outer_parameter,omitempty" range:"0 8"`
	// number format of the operations in linear layers: fp16 (default), bf16, fp8, int8, int4 or fp4
	Computed  string `json:"computed_in,omitempty"`
	KVBytes   int    `json:"bytes_per_kv_element" range:"1 8"` // 2 for fp16, 1 for fp8
	MaxLength int    `json:"max_length" range:"1 16777216"`    // tokens of a sequence
}

// KVBytesPerToken returns the bytes of a token's keys and values in all layers, without the copies that
// several workers may have.
func (l LLM) KVBytesPerToken() int64 { return l.kvBytes(1, 1) }

// kvBytes counts all layers of one worker (scheduling/vllm/v0/RULES.md §7).
func (l LLM) kvBytes(workers, tokens int) int64 {
	return 2 * int64(l.Layers) * int64(tokens) * int64(l.workerKVHeads(workers)*l.HeadSize*l.KVBytes)
}

// workerKVHeads returns the number of KV heads of one worker: an equal share, or one if there are more
// workers than heads.
func (l LLM) workerKVHeads(workers int) int { return max(1, l.KVHeads/workers) }

// splits returns an error if the workers cannot share the heads. Each worker needs the same number of query heads,
// and the KV heads that its query heads read.
func (l LLM) splits(workers int) error {
	switch {
	case workers < 1:
		return fmt.Errorf("%d workers: want at least 1", workers)
	case l.Heads%workers != 0:
		return fmt.Errorf("%d workers cannot share the %d heads of %s evenly", workers, l.Heads, l.Name)
	case l.KVHeads%workers != 0 && workers%l.KVHeads != 0:
		return fmt.Errorf("%d workers cannot share the %d KV heads of %s evenly, nor copies of them", workers, l.KVHeads,
			l.Name)
	}
	return nil
}

// layerMatrices counts one worker's parameters in all layers, with all experts.
func (l LLM) layerMatrices(workers int) float64 {
	return l.sharedMatrices(workers) + float64(l.Experts)*l.expertMatrices(workers)
}

// sharedMatrices returns how many parameters one worker has in the matrices by which every token is multiplied. These
// are the matrices of all layers, except those of experts and the small ones that choose experts.
func (l LLM) sharedMatrices(workers int) float64 {
	query := float64(l.Heads*l.HeadSize) / float64(workers) // the output has as many
	keys := float64(l.workerKVHeads(workers) * l.HeadSize)
	attention := float64(l.Layers) * float64(l.Hidden) * (2*query + 2*keys)
	if l.Experts > 0 {
		return attention
	}
	return attention + l.expertMatrices(workers)
}

// expertMatrices returns the number of one worker's parameters in feed-forward parts, summed over all layers. In a
// mixture of experts, it counts only one expert of each layer.
func (l LLM) expertMatrices(workers int) float64 {
	return l.feedForward() * float64(l.Layers) * float64(l.Hidden) * float64(l.FFN) / float64(workers)
}

func (l LLM) feedForward() float64 {
	if l.Gated {
		return 3
	}
	return 2
}

func (l LLM) headMatrix(workers int) float64 {
	return float64(l.Vocabulary) * float64(l.Hidden) / float64(workers)
}

// matrices returns the number of one worker's parameters in the matrices of all layers, in the embedding matrix, and in
// the head matrix. If one matrix is both the embedding and the head, it counts once.
func (l LLM) matrices(workers int) float64 {
	if l.Tied {
		return l.layerMatrices(workers) + l.headMatrix(workers)
	}
	return l.layerMatrices(workers) + 2*l.headMatrix(workers)
}

// activations returns the number of elements per token that one worker writes to memory in all layers. These are the
// inputs, norms and sums of attention and of the feed-forward part, and the states between the feed-forward
// matrices.
func (l LLM) activations(workers int) float64 {
	wide := l.feedForward() * float64(max(1, l.ExpertsPerToken)) * float64(l.FFN) / float64(workers)
	return float64(l.Layers) * (8*float64(l.Hidden) + wide)
}

func (l LLM) allReduces() float64 {
	if l.Parallel {
		return 1
	}
	return 2
}

// weightBytes returns the bytes of one worker's parameters: its share of the matrices, and a copy of all other
// parameters, as in the paper's artifact.
func (l LLM) weightBytes(workers int) float64 {
	layers := l.layerMatrices(workers)
	return l.ParameterBytes*layers + l.outerBytes()*(l.matrices(workers)-layers+float64(l.Parameters)-l.matrices(1))
}

func (l LLM) outerBytes() float64 { return cmp.Or(l.OuterBytes, l.ParameterBytes) }

// activationElements returns the largest number of elements that the activations of tokens have at any time, as the
// paper's artifact estimates it. This is the larger of two numbers: the elements of the logits and their normalized
// form, or twice the sum of the elements of the residual and of the output of a layer's widest matrix.
func (l LLM) activationElements(tokens, workers int) float64 {
	n, wide := float64(tokens), float64(l.FFN)
	if l.Gated {
		wide *= 2
	}
	wide = max(wide, float64((l.Heads+2*l.KVHeads)*l.HeadSize))
	return max(2*n*float64(l.Vocabulary), 2*n*(wide/float64(workers)+float64(l.Hidden)))
}

// activationsV1 returns the bytes that vLLM V1's profiling run finds in use, without the weights. These are the input
// and output of the activation function in a feed-forward part, the states, residuals and norms, and the logits of
// seqs sequences in fp32.
func (l LLM) activationsV1(tokens, seqs, workers int) float64 {
	wide := 1.5 * float64(l.FFN) / float64(workers)
	if l.Gated {
		wide *= 2
	}
	wide *= float64(max(1, l.ExpertsPerToken))
	return activationBytes*float64(tokens)*(wide+3*float64(l.Hidden)) + l.logitsBytes(seqs)
}

func (l LLM) logitsBytes(seqs int) float64 { return 4 * float64(seqs) * float64(l.Vocabulary) }

func (l LLM) check() error {
	if err := checkRanges(l); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "fp16", "bf16", "fp8", "int8", "int4", "fp4"}, l.Computed) {
		return fmt.Errorf("computed_in is %q, must be fp16, bf16, fp8, int8, int4 or fp4", l.Computed)
	}
	if l.ExpertsPerToken < min(1, l.Experts) || l.ExpertsPerToken > l.Experts {
		return fmt.Errorf("experts is %d and experts_per_token is %d, must be from 1 to experts", l.Experts,
			l.ExpertsPerToken)
	}
	if l.Heads%l.KVHeads != 0 {
		return fmt.Errorf("heads is %d, must be a multiple of kv_heads, which is %d", l.Heads, l.KVHeads)
	}
	// Parameters that are not in the matrices (norms, biases and positions) are less than 5 % in all built-in models.
	if all := l.matrices(1); float64(l.Parameters) < all || float64(l.Parameters) > 1.05*all {
		return fmt.Errorf("parameters is %d, must be at most 5 %% more than the %.0f in the matrices of these dimensions; "+
			"are gated and tied right?", l.Parameters, all)
	}
	return nil
}
