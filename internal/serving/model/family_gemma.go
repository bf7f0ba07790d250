package model

import (
	"cmp"
	"encoding/json"
	"math"
)

var gemma2 = family{
	rules:         Config{NormPlace: NormAround, Activation: GatedGELU, AttentionCap: 50, LogitCap: 30},
	rootEmbedding: true, window: &window{every: 2, size: 4096, ggufSize: 4096},
	folder: inFolder{name: "gemma2", headDim: 256, tied: true, normOffset: 1, after: readGemma},
	gguf: inGGUF{name: "gemma2", after: func(c *Config, k *ggufKeys) {
		c.scaleLargestGemma(46)
		c.AttentionCap = k.float("attn_logit_softcapping", c.AttentionCap)
		c.LogitCap = k.float("final_logit_softcapping", c.LogitCap)
	}},
}

var gemma3 = family{
	rules:         Config{NormPlace: NormAround, Activation: GatedGELU, QKNorm: HeadNorm},
	rootEmbedding: true, window: &window{every: 6, size: 4096}, localRope: true, localTheta: 10000,
	folder: inFolder{name: "gemma3_text", outer: "gemma3", theta: 1000000, headDim: 256, tied: true, normOffset: 1,
		before: gemma3Sizes, after: readGemma},
	gguf: inGGUF{name: "gemma3", after: func(c *Config, k *ggufKeys) {
		c.scaleLargestGemma(62)
		c.LogitCap = k.float("final_logit_softcapping", c.LogitCap)
	}},
}

// gemma3Sizes sets the sizes that the text_config of Gemma 3 may omit.
func gemma3Sizes(p *published) error {
	if p.Text == nil {
		return nil
	}
	p.VocabSize, p.Hidden, p.Layers = orElse(p.VocabSize, 262208), orElse(p.Hidden, 2304), orElse(p.Layers, 26)
	p.Heads, p.KVHeads = orElse(p.Heads, 8), orElse(p.KVHeads, 4)
	p.Intermediate, p.MaxPositions = orElse(p.Intermediate, 9216), orElse(p.MaxPositions, 131072)
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

// softCap reads a number, or null for no cap.
func softCap(name string, raw json.RawMessage, otherwise float64) (float64, error) {
	if len(raw) == 0 {
		return otherwise, nil
	}
	var v *float64
	if json.Unmarshal(raw, &v) != nil {
		return 0, refused("config.json: %s has the wrong type: %s", name, raw)
	}
	if v == nil {
		return 0, nil
	}
	return *v, nil
}

// scaleLargestGemma sets the attention scale of the largest model of a family, which differs from that of the others
// and is not in GGUF.
func (c *Config) scaleLargestGemma(layers int) {
	if c.NumLayers == layers && c.NumHeads > 0 {
		c.AttentionScale = 1 / math.Sqrt(float64(c.HiddenSize/c.NumHeads))
	}
}
