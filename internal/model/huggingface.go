package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	Theta         *float64        `json:"rope_theta"`
	Scaling       *scaling        `json:"rope_scaling"`
	RopeParams    *scaling        `json:"rope_parameters"`
	Activation    string          `json:"hidden_act"`
	GemmaAct      string          `json:"hidden_activation"`
	Tie           *bool           `json:"tie_word_embeddings"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	Window        json.RawMessage `json:"sliding_window"`
	UseWindow     bool            `json:"use_sliding_window"`
	FirstWindow   *int            `json:"max_window_layers"`
	LayerTypes    []string        `json:"layer_types"`
	End           json.RawMessage `json:"eos_token_id"`

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

	newer
}

// scaling is rope_scaling, or rope_parameters of newer files, which has theta too.
type scaling struct {
	Type   string   `json:"type"`
	Rope   string   `json:"rope_type"`
	Theta  *float64 `json:"rope_theta"`
	Factor float64  `json:"factor"`
	Llama3

	// yarn and longrope
	Attention    *float64  `json:"attention_factor"`
	BetaFast     float64   `json:"beta_fast"`
	BetaSlow     float64   `json:"beta_slow"`
	Scale        float64   `json:"mscale"`
	ScaleAllDims float64   `json:"mscale_all_dim"`
	Truncate     *bool     `json:"truncate"`
	Short        []float64 `json:"short_factor"`
	Long         []float64 `json:"long_factor"`
	Partial      float64   `json:"partial_rotary_factor"`

	// where layers with a window have their own
	Full    *scaling `json:"full_attention"`
	Sliding *scaling `json:"sliding_attention"`
}

// ReadConfig reads config.json of a folder, and the tokens that end a sequence from
// generation_config.json where it has them.
func ReadConfig(dir string) (*Config, error) {
	if err := refuseAdapter(dir); err != nil {
		return nil, err
	}
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

// refuseAdapter refuses a folder with an adapter. If a model is beside it, transformers applies the adapter and vLLM
// does not, so neither answer is what everybody expects.
func refuseAdapter(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, adapterConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var adapter struct {
		Base string `json:"base_model_name_or_path"`
	}
	_ = json.Unmarshal(data, &adapter) // the name is only for the message
	of := "its base model"
	if adapter.Base != "" {
		of = fmt.Sprintf("its base model (%q)", adapter.Base)
	}
	beside := ""
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
		beside = "; to serve the model of this folder without the adapter, remove " + adapterConfig
	}
	return fmt.Errorf("%w: %s has %s: adapters (LoRA) are not applied; merge the adapter into %s and give the folder of "+
		"the merged model (peft's merge_and_unload and save_pretrained)%s", ErrModel, dir, adapterConfig, of, beside)
}

const adapterConfig = "adapter_config.json"

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
	if p.ModelType == "gemma3" && p.Text != nil {
		if err := p.readText(); err != nil {
			return nil, err
		}
	}
	for _, a := range p.Architectures {
		if strings.HasSuffix(a, "Classification") {
			return nil, fmt.Errorf("%w: %s generates no text", ErrModel, a)
		}
	}
	if n := len(p.LayerTypes); p.LayerTypes != nil && n != p.Layers {
		return nil, fmt.Errorf("%w: layer_types has %d elements; num_hidden_layers is %d", ErrModel, n, p.Layers)
	}
	if p.LogitsScaling != nil && *p.LogitsScaling == 0 {
		return nil, fmt.Errorf("%w: logits_scaling is 0", ErrModel)
	}
	make, ok := families[p.ModelType]
	if !ok {
		known := append(slices.Collect(maps.Keys(families)), "gemma3")
		slices.Sort(known)
		return nil, fmt.Errorf("%w: model_type is %q; supported are %s", ErrModel, p.ModelType, strings.Join(known, ", "))
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
	if act := cmp.Or(p.GemmaAct, p.Activation); act != "" && act != p.activation() {
		return nil, fmt.Errorf("%w: hidden_act is %q; %s is supported", ErrModel, act, p.activation())
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
	if err := p.windows(c); err != nil {
		return nil, err
	}
	var err error
	c.Rope, err = p.rope(c)
	return c, err
}

// windows reads the sliding window and which layers have it, as transformers' configurations of the families do.
func (p *published) windows(c *Config) error {
	w, known := windowDefaults[p.ModelType]
	size := w.size
	window := &size
	if size == 0 {
		window = nil
	}
	if p.Window != nil && json.Unmarshal(p.Window, &window) != nil {
		return fmt.Errorf("%w: config.json: sliding_window has the wrong type: %s", ErrModel, p.Window)
	}
	if !known || w.asked && !p.UseWindow || window == nil { // null
		return nil
	}
	full := make([]bool, max(0, min(p.Layers, 1<<24)))
	switch {
	case p.LayerTypes != nil:
		full = full[:0]
		for _, kind := range p.LayerTypes {
			if kind != "full_attention" && kind != "sliding_attention" {
				return fmt.Errorf("%w: layer_types has %q; full_attention and sliding_attention are supported",
					ErrModel, kind)
			}
			full = append(full, kind == "full_attention")
		}
	case w.last:
		first := 28 // transformers' default
		if p.FirstWindow != nil {
			first = *p.FirstWindow
		}
		for i := range full {
			full[i] = i < first
		}
	case w.every > 0:
		full = everyFrom(p.Layers, orElse(p.WindowPattern, w.every))
	case p.ModelType == "smollm3":
		for i, none := range p.noRope() {
			full[i] = !none
		}
	}
	if slices.Contains(full, false) {
		c.SlidingWindow = *window
	}
	if c.SlidingWindow > 0 && slices.Contains(full, true) {
		c.Full = full
	}
	return nil
}

// rope reads the rotation of layers without a window of their own, and how long it makes a sequence.
func (p *published) rope(c *Config) (*Rope, error) {
	s := p.Scaling
	if p.RopeParams != nil {
		s = p.RopeParams
	}
	if s == nil {
		s = &scaling{}
	}
	if s.Full != nil {
		s = s.Full
	}
	r := &Rope{Theta: *cmp.Or(s.Theta, p.Theta, number(10000))}
	if part := cmp.Or(s.Partial, p.Partial, 1); part != 1 {
		if r.Dim = int(float64(c.HeadDim) * part); r.Dim == 0 {
			return nil, fmt.Errorf("%w: partial_rotary_factor is %v", ErrModel, part)
		}
	}
	size, original := float64(r.size(c.HeadDim)), cmp.Or(s.OriginalLength, p.Original, float64(c.MaxModelLen))
	kind := cmp.Or(s.Rope, s.Type, "default")
	if p.ModelType == "phi3" && (kind == "su" || kind == "yarn") {
		kind = "longrope" // its older names
	}
	if s.Factor == 0 && slices.Contains([]string{"linear", "llama3", "dynamic", "yarn"}, kind) {
		return nil, fmt.Errorf("%w: rope_scaling of type %s has no factor", ErrModel, kind)
	}
	switch kind {
	case "default":
	case "linear":
		r.Linear = s.Factor
	case "llama3":
		r.Llama3 = &s.Llama3
		r.Llama3.Factor = s.Factor
	case "dynamic": // as in vLLM for all lengths what it is for the longest
		if !(s.Factor >= 1) || size <= 2 {
			return nil, fmt.Errorf("%w: dynamic rope scaling by %v", ErrModel, s.Factor)
		}
		r.Theta *= math.Pow(s.Factor*s.Factor-(s.Factor-1), size/(size-2))
		c.MaxModelLen = int(float64(c.MaxModelLen) * s.Factor)
	case "yarn":
		r.Yarn = &Yarn{Factor: s.Factor, OriginalLength: original, BetaFast: cmp.Or(s.BetaFast, 32),
			BetaSlow: cmp.Or(s.BetaSlow, 1), Exact: s.Truncate != nil && !*s.Truncate}
		r.Attention = yarnAttention(s.Factor, 1)
		if s.Scale != 0 && s.ScaleAllDims != 0 {
			r.Attention = yarnAttention(s.Factor, s.Scale) / yarnAttention(s.Factor, s.ScaleAllDims)
		}
		if n := original * s.Factor; n >= 1 && n < math.MaxInt32 {
			c.MaxModelLen = int(n)
		}
	case "longrope":
		r.Long = &LongRope{Short: s.Short, Long: s.Long, OriginalLength: int(original)}
		factor := s.Factor
		if p.Original != 0 || factor == 0 {
			factor = float64(c.MaxModelLen) / original
		}
		if factor > 1 {
			r.Attention = math.Sqrt(1 + math.Log(factor)/math.Log(original))
		}
	default:
		return nil, fmt.Errorf("%w: rope scaling of type %q; linear, llama3, dynamic, yarn and longrope are supported",
			ErrModel, kind)
	}
	if s.Attention != nil && (r.Yarn != nil || r.Long != nil) {
		r.Attention = *s.Attention
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

func number(v float64) *float64 { return &v }

func orElse(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}
