package model

import (
	"cmp"
	"encoding/json"
	"slices"

	"llmmemory/internal/serving/model/pyjson"
)

// llama4 is the text model of Llama 4.
var llama4 = family{
	rules: Config{Experts: &Experts{Sigmoid: true, InputScale: true}}, noRopeEvery: 4,
	folder: inFolder{name: "llama4_text", outer: "llama4", eps: 1e-5, theta: 500000, headDim: 128, names: func(n *names) {
		const layer = "layers.%d.feed_forward."
		n.gate, n.upProj, n.downProj = layer+"gate_proj", layer+"up_proj", layer+"down_proj"
		n.router, n.expertGate, n.expertUp = layer+"router", "", layer+"experts.gate_up_proj"
		n.expertDown = layer + "experts.down_proj"
		n.sharedGate, n.sharedUp = layer+"shared_expert.gate_proj", layer+"shared_expert.up_proj"
		n.sharedDown = layer + "shared_expert.down_proj"
	}, prepare: func(p *published) error {
		if len(p.RopeLayers) == 0 { // an empty list means the default
			p.RopeLayers = nil
		}
		return nil
	}, finish: readLlama4},
	gguf: inGGUF{architecture: "llama4", interleaved: true, wholeHeads: true, factors: true, expertSize: "expert_feed_forward_length",
		finish: readLlama4GGUF},
}

func readLlama4(c *Config, p *published) error {
	e, inter := c.Experts, p.Intermediate
	c.Rope.Interleaved = true
	c.IntermediateSize = cmp.Or(p.DenseIntermediate, 16384)
	e.Count, e.PerToken, e.IntermediateSize, e.SharedSize = p.LocalExperts, cmp.Or(p.ExpertsPerToken, 1), inter, inter
	step := max(1, p.MixtureStep)
	e.denseLayers(c.NumLayers, func(i int) bool {
		if p.MixtureLayers != nil {
			return !slices.Contains(p.MixtureLayers, i)
		}
		return (i+1)%step != 0
	})
	if p.HeadNorms == nil || *p.HeadNorms {
		c.QKNorm = RotatedNorm
	}
	if !isFalse(p.Tuning) {
		c.Temperature = &Temperature{Floor: cmp.Or(p.FloorScale, 8192), Scale: cmp.Or(p.AttnScale, 0.1)}
	}
	return p.chunks(c)
}

// isFalse reports whether a field that may be a number is given and is false, 0 or null.
func isFalse(raw json.RawMessage) bool {
	return slices.Contains([]string{"false", "0", "null"}, string(raw))
}

// chunks sets the layers whose attention has chunks. Without layer_types, these are the layers with rotations.
func (p *published) chunks(c *Config) error {
	size := 8192 // transformers' default
	if p.ChunkSize != nil && !isFalse(p.ChunkSize) && json.Unmarshal(p.ChunkSize, &size) != nil {
		return refused("config.json: attention_chunk_size has the wrong type: %s", pyjson.Text(p.ChunkSize))
	}
	full := slices.Clone(c.NoRope)
	if p.LayerTypes != nil {
		var err error
		if full, err = layersOf("layer_types", p.LayerTypes, "full_attention", "chunked_attention"); err != nil {
			return err
		}
	}
	if isFalse(p.ChunkSize) || !slices.Contains(full, false) {
		return nil
	}
	if size < 1 {
		return refused("attention_chunk_size is %d", size)
	}
	c.AttentionChunk = size
	if slices.Contains(full, true) {
		c.Full = full
	}
	return nil
}

// readLlama4GGUF reads what llama.cpp reads. As in llama.cpp, the size of chunks and the temperature are constants, and
// heads have norms unless there are 128 experts.
func readLlama4GGUF(c *Config, k *ggufKeys) {
	e := c.Experts
	if e == nil {
		k.refuse("expert_count", "above 0")
		return
	}
	c.IntermediateSize = k.int("feed_forward_length", 0)
	e.SharedSize = e.IntermediateSize
	step := max(1, k.int(k.need("interleave_moe_layer_step"), 1))
	e.denseLayers(c.NumLayers, func(i int) bool { return (i+1)%step != 0 })
	if e.Count != 128 {
		c.QKNorm = RotatedNorm
	}
	switch k.int("attention.sliding_window", 8192) {
	case 8192:
		c.AttentionChunk, c.Full = 8192, slices.Clone(c.NoRope)
		c.Temperature = &Temperature{Floor: 8192, Scale: 0.1}
	case 0:
		c.NoRope = nil
	default:
		k.refuse("attention.sliding_window", "0 or 8192")
	}
	c.UnusedWindow = 0
}
