package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// families are the model types of folders.
var families = map[string]func(*published) (*Config, error){
	"llama": llama, "mistral": llama, "gpt2": gpt2, "opt": opt,
	"qwen2":   with(func(c *Config, _ *published) { c.QKVBias, c.OutBias = true, false }),
	"qwen3":   with(func(c *Config, _ *published) { c.QKNorm = HeadNorm }),
	"phi3":    with(func(*Config, *published) {}),
	"smollm3": with(smollm3),
	"granite": with(granite),
	"olmo2":   with(func(c *Config, _ *published) { c.NormPlace, c.QKNorm = NormAfter, WidthNorm }),
	"olmo3": with(func(c *Config, _ *published) { // no rope scaling in layers with a window
		c.NormPlace, c.QKNorm, c.LocalRope = NormAfter, WidthNorm, &Rope{Theta: c.Rope.Theta}
	}),
	"gpt_oss":     gptOSS,
	"gemma2":      gemma,
	"gemma3_text": gemma,
	"mixtral": with(func(c *Config, p *published) {
		c.Experts = &Experts{Count: p.LocalExperts, PerToken: p.ExpertsPerToken, IntermediateSize: p.Intermediate,
			Normalize: true}
	}),
	"qwen2_moe": with(func(c *Config, p *published) {
		c.QKVBias, c.OutBias = true, false
		qwenExperts(c, p)
		c.Experts.SharedSize, c.Experts.SharedGate = p.SharedIntermediate, true
	}),
	"qwen3_moe": with(func(c *Config, p *published) {
		c.QKNorm = HeadNorm
		qwenExperts(c, p)
	}),
}

// A windowDefault is the window of a family whose config.json does not state it.
type windowDefault struct {
	size  int  // 0: none
	asked bool // only with use_sliding_window
	last  bool // layers from max_window_layers on have it
	every int  // the last of every so many layers has no window; 0: all have it
}

// windowDefaults are the families that can have windows.
var windowDefaults = map[string]windowDefault{
	"mistral": {size: 4096}, "mixtral": {}, "phi3": {}, "smollm3": {asked: true},
	"qwen2": {4096, true, true, 0}, "qwen3": {4096, true, true, 0}, "qwen2_moe": {4096, true, true, 0},
	"qwen3_moe": {size: 4096, asked: true}, "olmo3": {size: 4096, every: 4}, "gemma2": {size: 4096, every: 2},
	"gemma3_text": {size: 4096, every: 6}, "gpt_oss": {size: 128, every: 2},
}

// newer are the fields of config.json that the families in this file have in addition to Llama's.
type newer struct {
	WindowPattern int     `json:"sliding_window_pattern"`
	LocalTheta    float64 `json:"rope_local_base_freq"`
	Partial       float64 `json:"partial_rotary_factor"`
	Original      float64 `json:"original_max_position_embeddings"`
	RopeLayers    []int   `json:"no_rope_layers"` // 1: with rope
	NoRopeEvery   int     `json:"no_rope_layer_interval"`

	AttentionScalar     float64         `json:"query_pre_attn_scalar"`
	AttentionCap        json.RawMessage `json:"attn_logit_softcapping"`
	LogitCap            json.RawMessage `json:"final_logit_softcapping"`
	EmbeddingMultiplier float64         `json:"embedding_multiplier"`
	ResidualMultiplier  float64         `json:"residual_multiplier"`
	AttentionMultiplier float64         `json:"attention_multiplier"`
	LogitsScaling       *float64        `json:"logits_scaling"`

	LocalExperts       int   `json:"num_local_experts"`
	NumExperts         int   `json:"num_experts"`
	ExpertsPerToken    int   `json:"num_experts_per_tok"`
	ExpertIntermediate int   `json:"moe_intermediate_size"`
	SharedIntermediate int   `json:"shared_expert_intermediate_size"`
	Normalize          bool  `json:"norm_topk_prob"`
	SparseStep         int   `json:"decoder_sparse_step"`
	DenseLayers        []int `json:"mlp_only_layers"`

	SwigluLimit *float64 `json:"swiglu_limit"`
	SwigluAlpha *float64 `json:"swiglu_alpha"`

	Text json.RawMessage `json:"text_config"` // of a model that also sees images
}

// readText reads the text part of Gemma 3, whose settings have defaults.
func (p *published) readText() error {
	end := slices.Clone(p.End) // decoding writes over it
	if err := json.Unmarshal(p.Text, p); err != nil {
		return fmt.Errorf("%w: config.json: text_config: %w", ErrModel, err)
	}
	p.ModelType = "gemma3_text"
	if end != nil {
		p.End = end
	}
	for _, d := range []struct {
		value     *int
		otherwise int
	}{
		{&p.VocabSize, 262208}, {&p.Hidden, 2304}, {&p.Layers, 26}, {&p.Heads, 8}, {&p.KVHeads, 4},
		{&p.Intermediate, 9216}, {&p.MaxPositions, 131072},
	} {
		*d.value = orElse(*d.value, d.otherwise)
	}
	return nil
}

// with returns the reader of a family that is Llama with some changes, which more makes.
func with(more func(*Config, *published)) func(*published) (*Config, error) {
	return func(p *published) (*Config, error) {
		switch p.ModelType {
		case "phi3", "mixtral", "olmo2", "olmo3":
			p.RMSEps = cmp.Or(p.RMSEps, 1e-5)
		case "smollm3":
			p.Theta = cmp.Or(p.Theta, number(2000000))
		}
		c, err := llama(p)
		if err == nil {
			more(c, p)
		}
		return c, err
	}
}

// activation returns the only activation that a family can have.
func (p *published) activation() string {
	if p.ModelType == "gemma2" || p.ModelType == "gemma3_text" {
		return "gelu_pytorch_tanh"
	}
	return "silu"
}

// noRope returns the layers without rotations: those with a 0 in no_rope_layers, or without that field every fourth.
func (p *published) noRope() []bool {
	if p.RopeLayers == nil {
		return everyFrom(p.Layers, orElse(p.NoRopeEvery, 4))
	}
	var none []bool
	for _, v := range p.RopeLayers {
		none = append(none, v == 0)
	}
	return none[:min(len(none), max(p.Layers, 0))]
}

func smollm3(c *Config, p *published) {
	c.TieEmbeddings = p.Tie == nil || *p.Tie
	c.NoRope = p.noRope()
}

func granite(c *Config, p *published) {
	c.EmbeddingScale, c.ResidualScale = p.EmbeddingMultiplier, p.ResidualMultiplier
	c.AttentionScale = cmp.Or(p.AttentionMultiplier, 1)
	if p.LogitsScaling != nil {
		c.LogitScale = 1 / *p.LogitsScaling
	}
}

// gemma is Gemma 2, and the text part of Gemma 3.
func gemma(p *published) (*Config, error) {
	third := p.ModelType == "gemma3_text"
	if third {
		p.Theta = cmp.Or(p.Theta, number(1000000))
	}
	p.HeadDim = orElse(p.HeadDim, 256)
	c, err := llama(p)
	if err != nil {
		return nil, err
	}
	c.NormPlace, c.NormOffset, c.Activation = NormAround, 1, GatedGELU
	c.EmbeddingScale, c.AttentionScale = math.Sqrt(float64(c.HiddenSize)), 1/math.Sqrt(cmp.Or(p.AttentionScalar, 256))
	c.TieEmbeddings = p.Tie == nil || *p.Tie
	attention, logits := 50.0, 30.0
	if third {
		attention, logits = 0, 0
		c.QKNorm, c.LocalRope = HeadNorm, &Rope{Theta: cmp.Or(p.LocalTheta, 10000)}
		if s := p.RopeParams; s != nil && s.Sliding != nil {
			c.LocalRope.Theta = *cmp.Or(s.Sliding.Theta, number(10000))
		}
	}
	if c.AttentionCap, err = softCap("attn_logit_softcapping", p.AttentionCap, attention); err != nil {
		return nil, err
	}
	c.LogitCap, err = softCap("final_logit_softcapping", p.LogitCap, logits)
	return c, err
}

// gptOSS has the defaults of transformers' configuration.
func gptOSS(p *published) (*Config, error) {
	for _, v := range []struct {
		name  string
		value *float64
		want  float64
	}{{"swiglu_limit", p.SwigluLimit, 7}, {"swiglu_alpha", p.SwigluAlpha, 1.702}} {
		if v.value != nil && *v.value != v.want {
			return nil, fmt.Errorf("%w: %s is %v; %v is supported", ErrModel, v.name, *v.value, v.want)
		}
	}
	p.RMSEps, p.Theta, p.HeadDim = cmp.Or(p.RMSEps, 1e-5), cmp.Or(p.Theta, number(150000)), orElse(p.HeadDim, 64)
	if p.Scaling == nil && p.RopeParams == nil {
		exact := false
		p.Scaling = &scaling{Rope: "yarn", Factor: 32, Truncate: &exact}
		p.Scaling.OriginalLength = 4096
	}
	p.AttentionBias = true
	c, err := llama(p)
	if err != nil {
		return nil, err
	}
	c.Activation, c.Sinks = ClampedSwiGLU, true
	c.Experts = &Experts{Count: orElse(p.LocalExperts, 128), PerToken: orElse(p.ExpertsPerToken, 4),
		IntermediateSize: p.Intermediate, Normalize: true, Bias: true, RouterBias: true}
	return c, nil
}

// softCap reads a number or null, which is no cap.
func softCap(name string, raw json.RawMessage, otherwise float64) (float64, error) {
	if len(raw) == 0 {
		return otherwise, nil
	}
	var v *float64
	if json.Unmarshal(raw, &v) != nil {
		return 0, fmt.Errorf("%w: config.json: %s has the wrong type: %s", ErrModel, name, raw)
	}
	if v == nil {
		return 0, nil
	}
	return *v, nil
}

// qwenExperts reads which layers of Qwen are mixtures.
func qwenExperts(c *Config, p *published) {
	c.Experts = &Experts{Count: p.NumExperts, PerToken: p.ExpertsPerToken, IntermediateSize: p.ExpertIntermediate,
		Normalize: p.Normalize}
	step := orElse(p.SparseStep, 1)
	dense := make([]bool, max(0, min(c.NumLayers, 1<<24)))
	for i := range dense {
		dense[i] = (i+1)%step != 0 || slices.Contains(p.DenseLayers, i)
	}
	c.Experts.Dense = dense
}
