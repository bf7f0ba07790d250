package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A published config.json. Families call the same thing by different names.
type published struct {
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`

	VocabSize     int             `json:"vocab_size"`
	Hidden        int             `json:"hidden_size"`
	Layers        int             `json:"num_hidden_layers"`
	Heads         int             `json:"num_attention_heads"`
	KVHeads       int             `json:"num_key_value_heads"`
	HeadDim       int             `json:"head_dim"`
	Intermediate  int             `json:"intermediate_size"`
	MaxPositions  int             `json:"max_position_embeddings"`
	RMSEps        float64         `json:"rms_norm_eps"`
	Theta         float64         `json:"rope_theta"`
	Scaling       *scaling        `json:"rope_scaling"`
	RopeParams    *scaling        `json:"rope_parameters"`
	Activation    string          `json:"hidden_act"`
	Tie           *bool           `json:"tie_word_embeddings"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	Window        json.RawMessage `json:"sliding_window"`
	UseWindow     bool            `json:"use_sliding_window"`
	FirstWindow   *int            `json:"max_window_layers"`
	LayerTypes    []string        `json:"layer_types"`
	End           json.RawMessage `json:"eos_token_id"`
	Quantization  *struct {
		Method string `json:"quant_method"`
	} `json:"quantization_config"`

	// GPT-2
	NEmbd       int     `json:"n_embd"`
	NLayer      int     `json:"n_layer"`
	NHead       int     `json:"n_head"`
	NInner      int     `json:"n_inner"`
	NPositions  int     `json:"n_positions"`
	LayerEps    float64 `json:"layer_norm_epsilon"`
	GPT2Act     string  `json:"activation_function"`
	ScaleByLoop bool    `json:"scale_attn_by_inverse_layer_idx"`

	// OPT
	FFN        int   `json:"ffn_dim"`
	WordDim    int   `json:"word_embed_proj_dim"`
	NormBefore *bool `json:"do_layer_norm_before"`
}

// scaling is rope_scaling, or rope_parameters of newer files, which has theta too.
type scaling struct {
	Type   string  `json:"type"`
	Rope   string  `json:"rope_type"`
	Theta  float64 `json:"rope_theta"`
	Factor float64 `json:"factor"`
	Llama3
}

// ReadConfig reads config.json of a folder, and the tokens that end a sequence from
// generation_config.json where it has them.
func ReadConfig(dir string) (*Config, error) {
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w; a folder needs config.json, model.safetensors and a tokenizer", ErrModel, err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return nil, err
	}
	var generation struct {
		End json.RawMessage `json:"eos_token_id"`
	}
	if data, err := os.ReadFile(filepath.Join(dir, "generation_config.json")); err == nil {
		if err := json.Unmarshal(data, &generation); err != nil {
			return nil, fmt.Errorf("%w: generation_config.json: %w", ErrModel, err)
		}
		if end, err := tokenList(generation.End); err != nil {
			return nil, err
		} else if len(end) > 0 {
			c.End = end
		}
	}
	return c, c.check()
}

// ParseConfig reads a config.json.
func ParseConfig(data []byte) (*Config, error) {
	var p published
	if err := json.Unmarshal(data, &p); err != nil {
		var wrong *json.UnmarshalTypeError
		switch {
		case !errors.As(err, &wrong):
			return nil, fmt.Errorf("%w: config.json: %w", ErrModel, err)
		case wrong.Field == "":
			return nil, fmt.Errorf("%w: config.json is a JSON %s; an object is expected", ErrModel, wrong.Value)
		}
		return nil, fmt.Errorf("%w: config.json: %s has the wrong type: a JSON %s", ErrModel, wrong.Field, wrong.Value)
	}
	families := map[string]func(*published) (*Config, error){
		"llama": llama, "mistral": llama, "qwen2": llama, "qwen3": llama, "gpt2": gpt2, "opt": opt,
	}
	make, ok := families[p.ModelType]
	if !ok {
		return nil, fmt.Errorf("%w: model_type is %q; llama, mistral, qwen2, qwen3, gpt2 and opt are supported", ErrModel,
			p.ModelType)
	}
	if q := p.Quantization; q != nil {
		return nil, fmt.Errorf("%w: its weights are quantized by %q; folders are read in F32, F16 and BF16, quantized "+
			"models as GGUF", ErrModel, q.Method)
	}
	c, err := make(&p)
	if err != nil {
		return nil, err
	}
	c.Family, c.VocabSize = p.ModelType, p.VocabSize
	if c.End, err = tokenList(p.End); err != nil {
		return nil, err
	}
	return c, c.check()
}

// tokenList reads a token, a list of tokens, or null.
func tokenList(raw json.RawMessage) ([]int32, error) {
	var list []int32
	var one *int32
	if len(raw) == 0 || json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, fmt.Errorf("%w: eos_token_id: %w", ErrModel, err)
	}
	if one == nil {
		return nil, nil
	}
	return []int32{*one}, nil
}

// llama is Llama and the families that follow it.
func llama(p *published) (*Config, error) {
	if p.Activation != "" && p.Activation != "silu" {
		return nil, fmt.Errorf("%w: hidden_act is %q; silu is supported", ErrModel, p.Activation)
	}
	c := &Config{
		HiddenSize: p.Hidden, NumLayers: p.Layers, NumHeads: p.Heads, NumKVHeads: orElse(p.KVHeads, p.Heads),
		HeadDim: p.HeadDim, IntermediateSize: p.Intermediate, MaxModelLen: orElse(p.MaxPositions, 2048),
		NormEps: p.RMSEps, Activation: SiLU, MLPBias: p.MLPBias,
		QKVBias: p.AttentionBias, OutBias: p.AttentionBias, TieEmbeddings: p.Tie != nil && *p.Tie,
	}
	if c.HeadDim == 0 && p.Heads > 0 {
		c.HeadDim = p.Hidden / p.Heads
	}
	if c.NormEps == 0 {
		c.NormEps = 1e-6
	}
	switch p.ModelType {
	case "qwen2":
		c.QKVBias, c.OutBias = true, false
	case "qwen3":
		c.QKNorm = true
	}
	var err error
	if c.SlidingWindow, err = p.window(); err != nil {
		return nil, err
	}
	c.Rope, err = p.rope()
	return c, err
}

// window is the sliding window of all layers, or 0, as transformers' configurations of the families have it.
func (p *published) window() (int, error) {
	size := 4096 // transformers' default
	window := &size
	if p.Window != nil && json.Unmarshal(p.Window, &window) != nil {
		return 0, fmt.Errorf("%w: config.json: sliding_window has the wrong type: %s", ErrModel, p.Window)
	}
	qwen := p.ModelType == "qwen2" || p.ModelType == "qwen3"
	if p.ModelType == "llama" || qwen && !p.UseWindow || window == nil { // null
		return 0, nil
	}
	with := p.Layers // layers that have the window
	switch {
	case p.LayerTypes != nil:
		with = 0
		for _, kind := range p.LayerTypes {
			switch kind {
			case "sliding_attention":
				with++
			case "full_attention":
			default:
				return 0, fmt.Errorf("%w: layer_types has %q; full_attention and sliding_attention are supported",
					ErrModel, kind)
			}
		}
	case qwen && p.FirstWindow != nil:
		with = max(0, p.Layers-*p.FirstWindow)
	case qwen:
		with = max(0, p.Layers-28) // transformers' default
	}
	switch with {
	case 0:
		return 0, nil
	case p.Layers:
		return *window, nil
	}
	return 0, fmt.Errorf("%w: %d of %d layers have a window; all or none is supported", ErrModel, with, p.Layers)
}

func (p *published) rope() (*Rope, error) {
	r := &Rope{Theta: p.Theta}
	s := p.Scaling
	if p.RopeParams != nil {
		s = p.RopeParams
	}
	if s != nil && s.Theta != 0 {
		r.Theta = s.Theta
	}
	if r.Theta == 0 {
		r.Theta = 10000
	}
	if s == nil {
		return r, nil
	}
	kind := s.Rope
	if kind == "" {
		kind = s.Type
	}
	switch kind {
	case "", "default":
	case "linear":
		r.Linear = s.Factor
	case "llama3":
		r.Llama3 = &s.Llama3
		r.Llama3.Factor = s.Factor
	default:
		return nil, fmt.Errorf("%w: rope scaling of type %q; linear and llama3 are supported", ErrModel, kind)
	}
	return r, nil
}

func gpt2(p *published) (*Config, error) {
	if p.GPT2Act != "" && p.GPT2Act != "gelu_new" || p.ScaleByLoop {
		return nil, fmt.Errorf("%w: GPT-2 with the activation %q, scaling by layer %v; gelu_new without it is supported",
			ErrModel, p.GPT2Act, p.ScaleByLoop)
	}
	c := &Config{
		HiddenSize: p.NEmbd, NumLayers: p.NLayer, NumHeads: p.NHead, NumKVHeads: p.NHead,
		IntermediateSize: orElse(p.NInner, 4*p.NEmbd), MaxModelLen: orElse(p.NPositions, 1024),
		Norm: LayerNorm, NormEps: p.LayerEps, Activation: GELU,
		QKVBias: true, OutBias: true, MLPBias: true, TieEmbeddings: p.Tie == nil || *p.Tie,
	}
	if c.NormEps == 0 {
		c.NormEps = 1e-5
	}
	if p.NHead > 0 {
		c.HeadDim = p.NEmbd / p.NHead
	}
	return c, nil
}

func opt(p *published) (*Config, error) {
	switch {
	case p.NormBefore != nil && !*p.NormBefore || p.WordDim != 0 && p.WordDim != p.Hidden:
		return nil, fmt.Errorf("%w: OPT with norms after its layers or projected embeddings (OPT-350m) is not supported",
			ErrModel)
	case p.GPT2Act != "" && p.GPT2Act != "relu":
		return nil, fmt.Errorf("%w: OPT with the activation %q; relu is supported", ErrModel, p.GPT2Act)
	}
	c := &Config{
		HiddenSize: p.Hidden, NumLayers: p.Layers, NumHeads: p.Heads, NumKVHeads: p.Heads,
		IntermediateSize: p.FFN, MaxModelLen: orElse(p.MaxPositions, 2048),
		Norm: LayerNorm, NormEps: 1e-5, Activation: ReLU, PositionOffset: 2,
		QKVBias: true, OutBias: true, MLPBias: true, TieEmbeddings: p.Tie == nil || *p.Tie,
	}
	if p.Heads > 0 {
		c.HeadDim = p.Hidden / p.Heads
	}
	return c, nil
}

func orElse(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}
