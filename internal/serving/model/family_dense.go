package model

import (
	"cmp"
	"encoding/json"
	"math"

	"llmmemory/internal/serving/model/pyjson"
)

var gemma2 = family{
	rules:         Config{NormPlace: NormAround, Activation: GatedGELU, AttentionCap: 50, LogitCap: 30},
	rootEmbedding: true, window: &window{period: 2, size: 4096, ggufSize: 4096},
	folder: inFolder{name: "gemma2", headDim: 256, tied: true, normOffset: 1, finish: readGemma},
	gguf: inGGUF{architecture: "gemma2", finish: func(c *Config, k *ggufKeys) {
		c.scaleLargestGemma(46)
		c.AttentionCap = k.float("attn_logit_softcapping", c.AttentionCap)
		c.LogitCap = k.float("final_logit_softcapping", c.LogitCap)
	}},
}

var gemma3 = family{
	rules:         Config{NormPlace: NormAround, Activation: GatedGELU, QKNorm: HeadNorm},
	rootEmbedding: true, window: &window{period: 6, size: 4096}, localRope: true, localTheta: 10000,
	folder: inFolder{name: "gemma3_text", outer: "gemma3", theta: 1000000, headDim: 256, tied: true, normOffset: 1,
		prepare: gemma3Sizes, finish: readGemma},
	gguf: inGGUF{architecture: "gemma3", finish: func(c *Config, k *ggufKeys) {
		c.scaleLargestGemma(62)
		c.LogitCap = k.float("final_logit_softcapping", c.LogitCap)
	}},
}

func gemma3Sizes(p *published) error {
	if p.Text == nil {
		return nil
	}
	p.VocabSize, p.Hidden, p.Layers = cmp.Or(p.VocabSize, 262208), cmp.Or(p.Hidden, 2304), cmp.Or(p.Layers, 26)
	p.Heads, p.KVHeads = cmp.Or(p.Heads, 8), cmp.Or(p.KVHeads, 4)
	p.Intermediate, p.MaxPositions = cmp.Or(p.Intermediate, 9216), cmp.Or(p.MaxPositions, 131072)
	return nil
}

func readGemma(c *Config, p *published) (err error) {
	c.AttentionScale = 1 / math.Sqrt(cmp.Or(p.AttentionScalar, 256))
	if c.AttentionCap, err = softCap("attn_logit_softcapping", p.AttentionCap, c.AttentionCap); err != nil {
		return err
	}
	c.LogitCap, err = softCap("final_logit_softcapping", p.LogitCap, c.LogitCap)
	return err
}

func softCap(name string, raw json.RawMessage, otherwise float64) (float64, error) {
	if len(raw) == 0 {
		return otherwise, nil
	}
	var v *float64
	if json.Unmarshal(raw, &v) != nil {
		return 0, refused("config.json: %s has the wrong type: %s", name, pyjson.Text(raw))
	}
	if v == nil {
		return 0, nil
	}
	return *v, nil
}

// scaleLargestGemma sets the attention scale if the model is the largest of its family. The largest model has the given
// number of layers. Only this model's scale depends on its size, and GGUF does not state it.
func (c *Config) scaleLargestGemma(layers int) {
	if c.NumLayers == layers && c.NumHeads > 0 {
		c.AttentionScale = 1 / math.Sqrt(float64(c.HiddenSize/c.NumHeads))
	}
}

var granite = family{
	folder: inFolder{name: "granite", prepare: func(p *published) error {
		if p.LogitsScaling != nil && *p.LogitsScaling == 0 {
			return refused("logits_scaling is 0")
		}
		return nil
	}, finish: func(c *Config, p *published) error {
		c.EmbeddingScale, c.ResidualScale = p.EmbeddingMultiplier, p.ResidualMultiplier
		c.AttentionScale = cmp.Or(p.AttentionMultiplier, 1)
		if p.LogitsScaling != nil {
			c.LogitScale = 1 / *p.LogitsScaling
		}
		return nil
	}},
	gguf: inGGUF{architecture: "granite", interleaved: true, factors: true, longFactors: true,
		finish: func(c *Config, k *ggufKeys) {
			c.EmbeddingScale, c.ResidualScale = k.float("embedding_scale", 0), k.float("residual_scale", 0)
			c.AttentionScale = k.float("attention.scale", 0)
			scale := k.float("logit_scale", 1)
			if scale == 0 {
				k.refuse("logit_scale", "above 0")
			}
			c.LogitScale = 1 / scale
			if k.float("rope.scaling.finetuned", 1) == 0 {
				c.NoRope = everyFrom(c.NumLayers, 1)
			}
		}},
}

// gpt2 and opt use other names in config.json than Llama. Their functions inFolder.prepare copy the values to the
// fields with Llama's names.

var gpt2 = family{
	rules: Config{Norm: LayerNorm, Activation: GELU, QKVBias: true, OutBias: true, MLPBias: true}, learned: true,
	folder: inFolder{name: "gpt2", eps: 1e-5, tied: true, fixedBiases: true, names: func(n *names) {
		*n = names{
			embed: "wte", positions: "wpe", norm: "ln_f", head: "lm_head",
			attnNorm: "h.%d.ln_1", q: "h.%d.attn.c_attn", out: "h.%d.attn.c_proj",
			mlpNorm: "h.%d.ln_2", upProj: "h.%d.mlp.c_fc", downProj: "h.%d.mlp.c_proj",
			transposed: true,
		}
	}, prepare: func(p *published) error {
		if p.GPT2Act != "" && p.GPT2Act != "gelu_new" || p.ScaleByLoop {
			return refused("GPT-2 with the activation %q, scaling by layer %v; gelu_new without it is supported", p.GPT2Act,
				p.ScaleByLoop)
		}
		p.Hidden, p.Layers, p.Heads, p.KVHeads, p.HeadDim = p.NEmbd, p.NLayer, p.NHead, p.NHead, 0
		p.Intermediate, p.MaxPositions, p.RMSEps = cmp.Or(p.NInner, 4*p.NEmbd), cmp.Or(p.NPositions, 1024), p.LayerEps
		return nil
	}},
}

var opt = family{
	rules:   Config{Norm: LayerNorm, Activation: ReLU, PositionOffset: 2, QKVBias: true, OutBias: true, MLPBias: true},
	learned: true,
	folder: inFolder{name: "opt", eps: 1e-5, tied: true, fixedBiases: true, names: func(n *names) {
		const layer = "decoder.layers.%d."
		*n = names{
			embed: "decoder.embed_tokens", positions: "decoder.embed_positions", norm: "decoder.final_layer_norm",
			head: "lm_head", attnNorm: layer + "self_attn_layer_norm",
			q: layer + "self_attn.q_proj", k: layer + "self_attn.k_proj", v: layer + "self_attn.v_proj",
			out: layer + "self_attn.out_proj", mlpNorm: layer + "final_layer_norm", upProj: layer + "fc1", downProj: layer + "fc2",
		}
	}, prepare: func(p *published) error {
		switch {
		case p.NormBefore != nil && !*p.NormBefore || p.WordDim != 0 && p.WordDim != p.Hidden:
			return refused("OPT with norms after its layers or projected embeddings (OPT-350m) is not supported")
		case p.GPT2Act != "" && p.GPT2Act != "relu":
			return refused("OPT with the activation %q; relu is supported", p.GPT2Act)
		}
		p.KVHeads, p.HeadDim, p.Intermediate, p.RMSEps = p.Heads, 0, p.FFN, 0
		return nil
	}},
}
