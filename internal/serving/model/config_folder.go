package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/pyjson"
)

// published has the fields of config.json. Families have different names for some settings.
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

	WindowPattern int     `json:"sliding_window_pattern"`
	LocalTheta    float64 `json:"rope_local_base_freq"`
	Partial       float64 `json:"partial_rotary_factor"`
	Original      float64 `json:"original_max_position_embeddings"`
	RopeLayers    []int   `json:"no_rope_layers"` // 1 for a layer with rope
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

	expertFields
	publishedStates

	SwigluLimit *float64 `json:"swiglu_limit"`
	SwigluAlpha *float64 `json:"swiglu_alpha"`

	Text json.RawMessage `json:"text_config"` // in models that also read images
}

// scaling has the fields of rope_scaling or, in newer files, of rope_parameters, which also has rope_theta.
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

// ReadConfig reads config.json in a folder. The tokens that end an answer come from generation_config.json if it names
// any.
func ReadConfig(dir string) (*Config, error) {
	if err := refuseAdapter(dir); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, refused("%w; a folder needs config.json, model.safetensors and a tokenizer", err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return nil, err
	}
	var generation struct {
		End json.RawMessage `json:"eos_token_id"`
	}
	if data, err := os.ReadFile(filepath.Join(dir, "generation_config.json")); err == nil {
		if err := pyjson.Unmarshal(data, &generation); err != nil {
			return nil, refused("generation_config.json: %w", err)
		}
		if end, err := tokenList(generation.End); err != nil {
			return nil, err
		} else if len(end) > 0 {
			c.End = end
		}
	}
	return c, c.check()
}

// refuseAdapter returns an error if the folder has an adapter. If it also has a model, transformers applies the
// adapter to it and vLLM does not, so users may expect either.
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
	_ = pyjson.Unmarshal(data, &adapter) // the name is only for the message
	base := "its base model"
	if adapter.Base != "" {
		base = fmt.Sprintf("its base model (%q)", adapter.Base)
	}
	hint := ""
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
		hint = "; to serve the model of this folder, remove " + adapterConfig
	}
	return refused("%s has %s: it is an adapter (LoRA) and not a model; give %s, and the adapter with --lora-modules "+
		"NAME=%s%s", dir, adapterConfig, base, dir, hint)
}

const adapterConfig = "adapter_config.json"

// ParseConfig reads a config.json.
func ParseConfig(data []byte) (*Config, error) {
	p, err := parsePublished(data)
	if err != nil {
		return nil, err
	}
	f, err := p.family()
	for _, a := range p.Architectures {
		if strings.HasSuffix(a, "Classification") && !strings.HasSuffix(a, "ForSequenceClassification") { // see Classifier
			return nil, refused("%s generates no text", a)
		}
	}
	if err != nil {
		return nil, err
	}
	if f.folder.prepare != nil {
		if err := f.folder.prepare(p); err != nil {
			return nil, err
		}
	}
	if n := len(p.LayerTypes); p.LayerTypes != nil && n != p.Layers {
		return nil, refused("layer_types has %d elements; num_hidden_layers is %d", n, p.Layers)
	}
	c, err := p.config(f)
	if err != nil {
		return nil, err
	}
	if c.End, err = tokenList(p.End); err != nil {
		return nil, err
	}
	return c, c.check()
}

func parsePublished(data []byte) (*published, error) {
	p := &published{}
	err := pyjson.Unmarshal(data, p)
	var typeErr *json.UnmarshalTypeError
	switch {
	case err == nil:
	case !errors.As(err, &typeErr):
		return nil, refused("config.json: %w", err)
	case typeErr.Field == "":
		return nil, refused("config.json is a JSON %s; an object is expected", typeErr.Value)
	default:
		return nil, refused("config.json: %s has the wrong type: a JSON %s", typeErr.Field, typeErr.Value)
	}
	return p, nil
}

// family returns the model's family. For a model that also reads images, it replaces p's settings by those in
// text_config.
func (p *published) family() (*family, error) {
	var known []string
	for _, f := range families {
		switch {
		case f.folder.name == p.ModelType:
			return f, nil
		case f.folder.outer == "":
		case f.folder.outer == p.ModelType && p.Text != nil:
			return f, p.readText(f)
		default:
			known = append(known, f.folder.outer)
		}
		known = append(known, f.folder.name)
	}
	slices.Sort(known)
	return nil, refused("model_type is %q; supported are %s", p.ModelType, strings.Join(known, ", "))
}

// readText reads text_config, which overrides the outer settings except eos_token_id.
func (p *published) readText(f *family) error {
	end := slices.Clone(p.End) // Unmarshal would overwrite it
	if err := pyjson.Unmarshal(p.Text, p); err != nil {
		return refused("config.json: text_config: %w", err)
	}
	p.ModelType = f.folder.name
	if end != nil {
		p.End = end
	}
	return nil
}

func tokenList(raw json.RawMessage) ([]int32, error) {
	var list []int32
	var one *int32
	if len(raw) == 0 || json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	if err := pyjson.Unmarshal(raw, &one); err != nil {
		return nil, refused("eos_token_id: %w", err)
	}
	if one == nil {
		return nil, nil
	}
	return []int32{*one}, nil
}

func (p *published) config(f *family) (*Config, error) {
	c := f.config()
	if err := p.checkActivation(c); err != nil {
		return nil, err
	}
	c.Family, c.VocabSize = p.ModelType, p.VocabSize
	c.HiddenSize, c.NumLayers, c.NumHeads, c.NumKVHeads = p.Hidden, p.Layers, p.Heads, cmp.Or(p.KVHeads, p.Heads)
	c.DraftLayers = p.DraftLayers
	c.IntermediateSize, c.MaxModelLen = p.Intermediate, cmp.Or(p.MaxPositions, 2048)
	if c.HeadDim = cmp.Or(p.HeadDim, f.folder.headDim); c.HeadDim == 0 && p.Heads > 0 {
		c.HeadDim = p.Hidden / p.Heads
	}
	c.NormEps, c.NormOffset = cmp.Or(p.RMSEps, f.folder.eps, 1e-6), f.folder.normOffset
	if !f.folder.fixedBiases {
		c.QKVBias, c.OutBias = p.AttentionBias, p.AttentionBias
	}
	c.MLPBias = c.MLPBias || p.MLPBias
	c.TieEmbeddings = f.folder.tied
	if p.Tie != nil {
		c.TieEmbeddings = *p.Tie
	}
	if f.rootEmbedding {
		c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	}
	if err := p.positions(c, f); err != nil {
		return nil, err
	}
	if f.folder.finish != nil {
		if err := f.folder.finish(c, p); err != nil {
			return nil, err
		}
	}
	c.dropUnusedRecurrence()
	return c, nil
}

func (p *published) checkActivation(c *Config) error {
	want := "silu"
	if c.Activation == GatedGELU {
		want = "gelu_pytorch_tanh"
	}
	if act := cmp.Or(p.GemmaAct, p.Activation); act != "" && act != want && c.Gated() {
		return refused("hidden_act is %q; %s is supported", act, want)
	}
	return nil
}

func number(v float64) *float64 { return &v }
