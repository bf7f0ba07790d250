package model

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"llmmemory/internal/serving/model/pyjson"
)

// publishedStates has the fields of config.json for layers with states.
type publishedStates struct {
	// LFM2
	NormEps        float64  `json:"norm_eps"`
	TieEmbedding   *bool    `json:"tie_embedding"`
	AttentionAt    []int    `json:"full_attn_idxs"`
	ConvTokens     *int     `json:"conv_L_cache"`
	ConvBias       bool     `json:"conv_bias"`
	BlockFF        int      `json:"block_ff_dim"`
	BlockMultiple  *int     `json:"block_multiple_of"`
	BlockFFFactor  *float64 `json:"block_ffn_dim_multiplier"`
	BlockFFAdjusts *bool    `json:"block_auto_adjust_ff_dim"`

	// Granite 4
	MambaHeads    *int            `json:"mamba_n_heads"`
	MambaGroups   *int            `json:"mamba_n_groups"`
	MambaState    *int            `json:"mamba_d_state"`
	MambaHead     json.RawMessage `json:"mamba_d_head"` // a number, or "auto"
	MambaConv     *int            `json:"mamba_d_conv"`
	MambaExpand   *int            `json:"mamba_expand"`
	MambaConvBias *bool           `json:"mamba_conv_bias"`
	MambaBias     bool            `json:"mamba_proj_bias"`
	SharedMLP     *int            `json:"shared_intermediate_size"`
	PositionKind  string          `json:"position_embedding_type"`

	StepLimit []json.RawMessage `json:"time_step_limit"` // Granite 4 and Nemotron-H

	// Qwen3-Next
	LinearKeyHeads   *int  `json:"linear_num_key_heads"`
	LinearValueHeads *int  `json:"linear_num_value_heads"`
	LinearKeyDim     *int  `json:"linear_key_head_dim"`
	LinearValueDim   *int  `json:"linear_value_head_dim"`
	LinearConv       *int  `json:"linear_conv_kernel_dim"`
	FullInterval     *int  `json:"full_attention_interval"`
	OutputGate       *bool `json:"attn_output_gate"`

	// Nemotron-H
	Pattern         *string  `json:"hybrid_override_pattern"`
	BlockTypes      []string `json:"layers_block_type"`
	StateGroups     *int     `json:"n_groups"`
	StateSize       *int     `json:"ssm_state_size"`
	StateHeads      *int     `json:"mamba_num_heads"`
	StateHeadDim    *int     `json:"mamba_head_dim"`
	ConvKernel      *int     `json:"conv_kernel"`
	UseConvBias     *bool    `json:"use_conv_bias"`
	AttentionDim    int      `json:"attention_head_dim"`
	MLPAct          string   `json:"mlp_hidden_act"`
	MambaAct        string   `json:"mamba_hidden_act"`
	SharedExpertMLP *int     `json:"moe_shared_expert_intermediate_size"`
	MoELatent       *int     `json:"moe_latent_size"`
}

// lfm2 uses the defaults of transformers' configuration. In GGUF, a layer without key heads is a convolution.
var lfm2 = family{
	rules: Config{QKNorm: HeadNorm, Recurrence: &Recurrence{Kind: ShortConv}},
	folder: inFolder{name: "lfm2", eps: 1e-5, theta: 1000000, tied: true, names: func(n *names) {
		n.norm, n.attnNorm, n.mlpNorm = "embedding_norm", "layers.%d.operator_norm", "layers.%d.ffn_norm"
		n.out, n.qNorm, n.kNorm = "layers.%d.self_attn.out_proj", "layers.%d.self_attn.q_layernorm", "layers.%d.self_attn.k_layernorm"
		const mlp, conv = "layers.%d.feed_forward.", "layers.%d.conv."
		n.gate, n.upProj, n.downProj = mlp+"w1", mlp+"w3", mlp+"w2"
		n.recurrentIn, n.recurrentOut, n.conv = conv+"in_proj", conv+"out_proj", conv+"conv"
	}, prepare: prepareLFM2, finish: func(c *Config, p *published) error {
		r := c.Recurrence
		r.Kernel, r.ConvBias, r.Bias = *cmp.Or(p.ConvTokens, integer(3)), p.ConvBias, p.ConvBias
		return p.recurrentLayers(r, "full_attention", "conv")
	}},
	gguf: inGGUF{architecture: "lfm2", names: func(n *names) {
		const conv = "blk.%d.shortconv."
		n.norm = "token_embd_norm"
		n.recurrentIn, n.recurrentOut, n.conv = conv+"in_proj", conv+"out_proj", conv+"conv"
	}, finish: func(c *Config, k *ggufKeys) {
		c.Recurrence.Kernel = k.int(k.need("shortconv.l_cache"), 0)
	}},
}

func prepareLFM2(p *published) error {
	p.RMSEps, p.Tie = p.NormEps, cmp.Or(p.TieEmbedding, p.Tie)
	p.Intermediate = cmp.Or(p.BlockFF, p.Intermediate, 12288)
	if p.BlockFFAdjusts != nil && !*p.BlockFFAdjusts {
		return nil
	}
	multiple, factor := *cmp.Or(p.BlockMultiple, integer(256)), *cmp.Or(p.BlockFFFactor, number(1))
	if multiple < 1 {
		return refused("block_multiple_of is %d", multiple)
	}
	n := int(float64(2*p.Intermediate/3) * factor)
	p.Intermediate = (n + multiple - 1) / multiple * multiple
	return nil
}

// graniteHybrid has the defaults of transformers' configuration. An MLP that all tokens use is beside the experts, or
// alone if there are none. Layers with attention have no positions unless position_embedding_type is rope.
var graniteHybrid = family{
	rules: Config{Experts: &Experts{Normalize: true}, Recurrence: &Recurrence{Kind: Mamba2}},
	folder: inFolder{name: "granitemoehybrid", prepare: granite.folder.prepare, names: func(n *names) {
		const mamba, moe, shared = "layers.%d.mamba.", "layers.%d.block_sparse_moe.", "layers.%d.shared_mlp."
		n.recurrentIn, n.recurrentOut, n.conv, n.recurrentNorm = mamba+"in_proj", mamba+"out_proj", mamba+"conv1d", mamba+"norm"
		n.decay, n.stepBias, n.skip = mamba+"A_log", mamba+"dt_bias", mamba+"D"
		n.router, n.expertGate, n.expertUp, n.expertDown = moe+"router.layer", "", moe+"input_linear", moe+"output_linear"
		n.gate, n.upProj, n.downProj = "", shared+"input_linear", shared+"output_linear"
		n.sharedGate, n.sharedUp, n.sharedDown = "", n.upProj, n.downProj
	}, finish: finishGraniteHybrid},
	gguf: inGGUF{architecture: "granitehybrid", interleaved: true, factors: true, longFactors: true, expertSize: "feed_forward_length",
		names: ssmNames, finish: func(c *Config, k *ggufKeys) {
			granite.gguf.finish(c, k)
			shared := k.int("expert_shared_feed_forward_length", c.IntermediateSize)
			if c.Experts != nil {
				c.Experts.SharedSize = shared
			} else {
				c.IntermediateSize = shared
			}
			k.mamba2(c.Recurrence)
		}},
}

func ssmNames(n *names) {
	const ssm = "blk.%d.ssm_"
	n.recurrentIn, n.recurrentOut, n.conv, n.recurrentNorm = ssm+"in", ssm+"out", ssm+"conv1d", ssm+"norm"
	n.decay, n.stepBias, n.skip, n.negative = ssm+"a", ssm+"dt.bias", ssm+"d", true
}

// mamba2 reads the sizes of Mamba 2. The number of heads is in the key of Mamba 1's rank.
func (k *ggufKeys) mamba2(r *Recurrence) {
	r.Kernel, r.KeyDim, r.ConvBias = k.int(k.need("ssm.conv_kernel"), 0), k.int(k.need("ssm.state_size"), 0), true
	r.Heads, r.KeyHeads = k.int(k.need("ssm.time_step_rank"), 0), k.int("ssm.group_count", 1)
	if inner := k.int(k.need("ssm.inner_size"), 0); r.Heads > 0 {
		if r.HeadDim = inner / r.Heads; r.HeadDim*r.Heads != inner {
			k.refuse("ssm.inner_size", "a multiple of ssm.time_step_rank")
		}
	}
}

func finishGraniteHybrid(c *Config, p *published) error {
	if err := granite.folder.finish(c, p); err != nil {
		return err
	}
	if p.PositionKind != "rope" {
		c.NoRope = everyFrom(c.NumLayers, 1)
	}
	shared := *cmp.Or(p.SharedMLP, integer(1024))
	if p.LocalExperts == 0 {
		c.Experts, c.IntermediateSize = nil, shared
	} else {
		e := c.Experts
		e.Count, e.PerToken, e.IntermediateSize, e.SharedSize = p.LocalExperts, p.ExpertsPerToken, p.Intermediate, shared
	}
	r := c.Recurrence
	inner := *cmp.Or(p.MambaExpand, integer(2)) * c.HiddenSize
	r.Heads, r.KeyHeads, r.KeyDim = *cmp.Or(p.MambaHeads, integer(128)), *cmp.Or(p.MambaGroups, integer(1)), *cmp.Or(p.MambaState, integer(256))
	r.Kernel, r.ConvBias, r.Bias = *cmp.Or(p.MambaConv, integer(4)), p.MambaConvBias == nil || *p.MambaConvBias, p.MambaBias
	if p.MambaHead != nil && p.MambaHead[0] != '"' {
		if json.Unmarshal(p.MambaHead, &r.HeadDim) != nil {
			return refused("config.json: mamba_d_head has the wrong type: %s", pyjson.Text(p.MambaHead))
		}
	} else if r.Heads > 0 {
		r.HeadDim = inner / r.Heads
	}
	if r.inner() != inner {
		return refused("mamba_n_heads × mamba_d_head is %d × %d; mamba_expand × hidden_size is %d", r.Heads, r.HeadDim, inner)
	}
	if err := r.limitSteps(p.StepLimit); err != nil {
		return err
	}
	if p.LayerTypes == nil { // transformers' default
		p.AttentionAt = []int{}
	}
	return p.recurrentLayers(r, "attention", "mamba")
}

// limitSteps sets the limits of time steps from time_step_limit, a list of two numbers. An infinity is no limit.
func (r *Recurrence) limitSteps(limits []json.RawMessage) error {
	if limits == nil {
		return nil
	}
	if len(limits) != 2 {
		return refused("config.json: time_step_limit has %d numbers; 2 are needed", len(limits))
	}
	lowest, err := pyjson.Float(limits[0])
	highest, err2 := pyjson.Float(limits[1])
	if err := cmp.Or(err, err2); err != nil {
		return refused("config.json: time_step_limit: %w", err)
	}
	if !(lowest <= highest) || !(highest > 0) || math.IsInf(lowest, 1) {
		return refused("config.json: time_step_limit is from %s to %s", pyjson.Text(limits[0]), pyjson.Text(limits[1]))
	}
	r.MinStep = max(lowest, 0)
	if !math.IsInf(highest, 1) {
		r.MaxStep = highest
	}
	return nil
}

// qwen3Next has the defaults of transformers' configuration.
var qwen3Next = family{
	rules: Config{QKNorm: HeadNorm, Gate: true, Experts: &Experts{SharedGate: true}, Recurrence: &Recurrence{Kind: DeltaNet}},
	folder: inFolder{name: "qwen3_next", headDim: 256, normOffset: 1, names: func(n *names) {
		const linear = "layers.%d.linear_attn."
		n.recurrentIn, n.recurrentB, n.recurrentOut = linear+"in_proj_qkvz", linear+"in_proj_ba", linear+"out_proj"
		n.conv, n.recurrentNorm = linear+"conv1d", linear+"norm"
		n.decay, n.stepBias = linear+"A_log", linear+"dt_bias"
	}, prepare: prepareQwen3Next, finish: finishQwen3Next},
}

// qwen35 and qwen35Mixture have projections of their own for z, b and a. The experts of a layer are in two tensors.
var qwen35 = family{
	rules: Config{QKNorm: HeadNorm, Gate: true, Recurrence: &Recurrence{Kind: DeltaNet}},
	folder: inFolder{name: "qwen3_5_text", outer: "qwen3_5", headDim: 256, normOffset: 1, names: qwen35Names, prepare: prepareQwen3Next,
		finish: readDeltaNet},
}

var qwen35Mixture = family{
	rules: Config{QKNorm: HeadNorm, Gate: true, Experts: &Experts{SharedGate: true}, Recurrence: &Recurrence{Kind: DeltaNet}},
	folder: inFolder{name: "qwen3_5_moe_text", outer: "qwen3_5_moe", headDim: 256, normOffset: 1, names: func(n *names) {
		qwen35Names(n)
		n.expertGate, n.expertUp, n.expertDown = "", "layers.%d.mlp.experts.gate_up_proj", "layers.%d.mlp.experts.down_proj"
		n.outputsFirst = true
	}, prepare: prepareQwen3Next, finish: func(c *Config, p *published) error {
		p.Normalize, c.IntermediateSize = true, cmp.Or(c.IntermediateSize, p.ExpertIntermediate)
		return finishQwen3Next(c, p)
	}},
}

func qwen35Names(n *names) {
	qwen3Next.folder.names(n)
	const linear = "layers.%d.linear_attn.in_proj_"
	n.recurrentIn, n.recurrentZ, n.recurrentB, n.recurrentA = linear+"qkv", linear+"z", linear+"b", linear+"a"
}

func prepareQwen3Next(p *published) error {
	if p.Partial == 0 {
		p.Partial = 0.25
	}
	if p.OutputGate != nil && !*p.OutputGate {
		return refused("attn_output_gate is false; true is supported")
	}
	return nil
}

func finishQwen3Next(c *Config, p *published) error {
	if err := readQwenExperts(c, p); err != nil {
		return err
	}
	if p.NumExperts == 0 {
		c.Experts = nil
	}
	return readDeltaNet(c, p)
}

func readDeltaNet(c *Config, p *published) error {
	r := c.Recurrence
	r.Heads, r.HeadDim = *cmp.Or(p.LinearValueHeads, integer(32)), *cmp.Or(p.LinearValueDim, integer(128))
	r.KeyHeads, r.KeyDim = *cmp.Or(p.LinearKeyHeads, integer(16)), *cmp.Or(p.LinearKeyDim, integer(128))
	r.Kernel = *cmp.Or(p.LinearConv, integer(4))
	if p.LayerTypes == nil {
		interval := *cmp.Or(p.FullInterval, integer(4))
		if interval < 1 {
			return refused("full_attention_interval is %d", interval)
		}
		for _, full := range everyFrom(c.NumLayers, interval) {
			r.Layers = append(r.Layers, !full)
		}
		return nil
	}
	return p.recurrentLayers(r, "full_attention", "linear_attention")
}

// recurrentLayers sets r.Layers from layer_types, which has the two given names. Older files list the layers with
// attention in full_attn_idxs; if they lack it, all layers have attention.
func (p *published) recurrentLayers(r *Recurrence, attention, recurrent string) error {
	attends, err := layersOf("layer_types", p.LayerTypes, attention, recurrent)
	if p.LayerTypes == nil {
		for i := range max(0, min(p.Layers, 1<<24)) {
			attends = append(attends, p.AttentionAt == nil || slices.Contains(p.AttentionAt, i))
		}
	}
	for _, a := range attends {
		r.Layers = append(r.Layers, !a)
	}
	return err
}

func integer(n int) *int { return &n }
