package cost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// huggingFace has the fields of a model's config.json on Hugging Face that this package reads.
type huggingFace struct {
	Architectures []string `json:"architectures"`

	Layers     int   `json:"num_hidden_layers"`
	Hidden     int   `json:"hidden_size"`
	Heads      int   `json:"num_attention_heads"`
	KVHeads    int   `json:"num_key_value_heads"`
	HeadSize   int   `json:"head_dim"`
	FFN        int   `json:"intermediate_size"`
	Vocabulary int   `json:"vocab_size"`
	MaxLength  int   `json:"max_position_embeddings"`
	Tied       *bool `json:"tie_word_embeddings"`
	Bias       bool  `json:"attention_bias"`

	Experts         int   `json:"num_local_experts"` // in Mixtral
	NumExperts      int   `json:"num_experts"`       // in Qwen
	ExpertsPerToken int   `json:"num_experts_per_tok"`
	ExpertFFN       int   `json:"moe_intermediate_size"`
	DenseLayers     []int `json:"mlp_only_layers"`
	SparseStep      int   `json:"decoder_sparse_step"`

	SlidingWindow    int             `json:"sliding_window"`
	UseSlidingWindow *bool           `json:"use_sliding_window"`
	Quantization     json.RawMessage `json:"quantization_config"`
}

// An architecture has the properties that config.json does not contain.
type architecture struct {
	queryBias bool // queries, keys and values have biases
	headNorms bool // queries and keys are normalized over the elements of a head
}

// architectures lists the supported architectures. The simulation needs models in which all layers are equal and the
// keys and values of all tokens are kept.
var architectures = map[string]architecture{
	"LlamaForCausalLM":    {},
	"MistralForCausalLM":  {},
	"MixtralForCausalLM":  {},
	"Qwen2ForCausalLM":    {queryBias: true},
	"Qwen3ForCausalLM":    {headNorms: true},
	"Qwen3MoeForCausalLM": {headNorms: true},
}

func (h huggingFace) llm(path string) (LLM, error) {
	name := "model"
	if len(h.Architectures) == 1 {
		name = h.Architectures[0]
	}
	a, known := architectures[name]
	switch {
	case !known:
		return LLM{}, fmt.Errorf("architectures is %v; a config.json may be of %v, whose layers are all equal and keep the "+
			"keys and values of all tokens", h.Architectures, slices.Sorted(maps.Keys(architectures)))
	case h.Quantization != nil:
		return LLM{}, fmt.Errorf("quantization_config: give the config.json of the model in 16 bits, and --weights")
	case h.SlidingWindow > 0 && h.SlidingWindow < h.MaxLength && (h.UseSlidingWindow == nil || *h.UseSlidingWindow):
		return LLM{}, fmt.Errorf("sliding_window is %d: models that forget keys and values are not simulated",
			h.SlidingWindow)
	case len(h.DenseLayers) > 0 || h.SparseStep > 1:
		return LLM{}, fmt.Errorf("mlp_only_layers is %v, decoder_sparse_step %d: layers that differ are not simulated",
			h.DenseLayers, h.SparseStep)
	}
	l := LLM{
		Name: modelName(path), Source: path, Layers: h.Layers, Hidden: h.Hidden, Heads: h.Heads,
		KVHeads: cmp.Or(h.KVHeads, h.Heads), FFN: h.FFN, Gated: true, Vocabulary: h.Vocabulary,
		Experts: cmp.Or(h.Experts, h.NumExperts), ExpertsPerToken: h.ExpertsPerToken,
		Tied: h.Tied != nil && *h.Tied, ParameterBytes: 2, KVBytes: 2, MaxLength: h.MaxLength,
	}
	if l.Experts > 0 {
		l.FFN = cmp.Or(h.ExpertFFN, h.FFN)
	} else {
		l.ExpertsPerToken = 0
	}
	if l.HeadSize = h.HeadSize; l.HeadSize == 0 && h.Heads > 0 {
		l.HeadSize = h.Hidden / h.Heads
	}
	norms := (2*l.Layers + 1) * l.Hidden
	if a.headNorms {
		norms += 2 * l.Layers * l.HeadSize
	}
	if a.queryBias || h.Bias {
		norms += l.Layers * (l.Heads + 2*l.KVHeads) * l.HeadSize
	}
	l.Parameters = int64(l.matrices(1)) + int64(norms) + int64(l.Layers*l.Experts*l.Hidden)
	return l, nil
}

// modelName returns a name for a model's file: the folder's name for a config.json, otherwise the file's.
func modelName(path string) string {
	if filepath.Base(path) != "config.json" {
		return filepath.Base(path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.Base(filepath.Dir(path))
}
