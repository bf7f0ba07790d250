package model

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"llmmemory/internal/serving/model/pyjson"
)

// gemma4 is the text model of Gemma 4 without experts. Norms multiply by their weights, unlike those of Gemma 3, and
// products of queries and keys are not scaled.
var gemma4 = family{
	rules: Config{NormPlace: NormAround, Activation: GatedGELU, AttentionScale: 1}, rootEmbedding: true,
	folder: inFolder{name: "gemma4_text", outer: "gemma4", headDim: 256, tied: true, fixedBiases: true, names: func(n *names) {
		n.layerScale, n.perLayerGate = "layers.%d.layer_scalar", "layers.%d.per_layer_input_gate"
		n.perLayerOut, n.perLayerPost = "layers.%d.per_layer_projection", "layers.%d.post_per_layer_input_norm"
		n.perLayerEmbed, n.perLayerIn, n.perLayerNorm = "embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"
	}, prepare: prepareGemma4, finish: readGemma4},
}

// prepareGemma4 sets defaults of transformers' configuration.
func prepareGemma4(p *published) error {
	p.VocabSize, p.Hidden, p.Layers = cmp.Or(p.VocabSize, 262144), cmp.Or(p.Hidden, 2304), cmp.Or(p.Layers, 30)
	p.Heads, p.KVHeads = cmp.Or(p.Heads, 8), cmp.Or(p.KVHeads, 4)
	p.Intermediate, p.MaxPositions = cmp.Or(p.Intermediate, 9216), cmp.Or(p.MaxPositions, 131072)
	p.ropes, p.RopeParams = cmp.Or(p.RopeParams, &scaling{}), nil
	switch {
	case p.MoEBlock:
		return refused("enable_moe_block is true; Gemma 4 with experts is not supported")
	case p.AttentionBias:
		return refused("attention_bias is true; Gemma 4 with biases is not supported")
	case p.Bidirectional == "all":
		return refused("use_bidirectional_attention is all; models that generate text attend to earlier tokens only")
	}
	return nil
}

func readGemma4(c *Config, p *published) (err error) {
	if c.LogitCap, err = softCap("final_logit_softcapping", p.LogitCap, 0); err != nil {
		return err
	}
	x := &Mixed{HeadDim: c.HeadDim, NumKVHeads: c.NumKVHeads, KeyIsValue: p.KeyIsValue, Shared: p.SharedLayers, WideMLP: p.WideMLP,
		PerLayerDim: 256, Vocabulary: cmp.Or(p.PerLayerVocab, 262144)}
	c.Mixed, x.HeadDim = x, cmp.Or(p.GlobalHeadDim, 512)
	if x.KeyIsValue {
		x.NumKVHeads = cmp.Or(p.GlobalKVHeads, x.NumKVHeads)
	}
	if p.PerLayerDim != nil {
		x.PerLayerDim = *p.PerLayerDim
	}
	x.Full = everyFrom(c.NumLayers, 6)
	if p.LayerTypes != nil {
		if x.Full, err = layersOf("layer_types", p.LayerTypes, "full_attention", "sliding_attention"); err != nil {
			return err
		}
	}
	if n := len(x.Full); n > 0 {
		x.Full[n-1] = true // as in transformers
	}
	if slices.Contains(x.Full, false) {
		if c.SlidingWindow, c.Full = p.windowSize(512), x.Full; c.SlidingWindow < 1 {
			return refused("sliding_window is %s", pyjson.Text(p.Window))
		}
	}
	return p.gemma4Ropes(c)
}

// gemma4Ropes sets the rotations. In a full layer, the first pairs (i, i + half) of a head rotate, and the others do not.
// The frequencies are those of a head that rotates as a whole.
func (p *published) gemma4Ropes(c *Config) error {
	x := c.Mixed
	full := cmp.Or(p.ropes.Full, &scaling{Rope: "proportional", Partial: 0.25})
	local := cmp.Or(p.ropes.Sliding, &scaling{})
	if kind := cmp.Or(full.Rope, "default"); kind != "proportional" && kind != "default" {
		return refused("rope scaling of type %q in full layers; proportional and default are supported", kind)
	}
	if kind := cmp.Or(local.Rope, "default"); kind != "default" {
		return refused("rope scaling of type %q in layers with a window; default is supported", kind)
	}
	c.Rope = &Rope{Theta: *cmp.Or(full.Theta, number(1e6)), Dim: x.HeadDim}
	c.LocalRope = &Rope{Theta: *cmp.Or(local.Theta, number(10000)), Dim: c.HeadDim}
	part := cmp.Or(full.Partial, 1)
	if !(part > 0 && part <= 1) || local.Partial != 0 && local.Partial != 1 {
		return refused("partial_rotary_factor is %v in full layers, %v in others", part, local.Partial)
	}
	if part < 1 && x.HeadDim <= 1<<16 {
		rotated := int(part * float64(x.HeadDim) / 2)
		c.Rope.Factors = slices.Repeat([]float64{1}, x.HeadDim/2)
		for i := rotated; i < len(c.Rope.Factors); i++ {
			c.Rope.Factors[i] = still
		}
	}
	if f := full.Factor; f != 0 {
		if c.Rope.Linear = f; !(f > 0) || math.IsInf(f, 0) {
			return refused("positions are divided by %v", f)
		}
	}
	return nil
}

// still is the factor of a frequency with which a pair does not rotate, as in llama.cpp.
const still = 1e30

// windowSize returns sliding_window, or 0 if it is not a number.
func (p *published) windowSize(otherwise int) (size int) {
	if p.Window == nil {
		return otherwise
	}
	if json.Unmarshal(p.Window, &size) != nil {
		return 0
	}
	return size
}
