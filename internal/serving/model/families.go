package model

import "slices"

// A family is a kind of models: what all its models share, and how the rest is read from their files. A new family is
// one entry of families.
type family struct {
	rules         Config  // settings that all models of the family have, and defaults of others
	learned       bool    // positions are learned, not rotations
	rootEmbedding bool    // embeddings are multiplied by the square root of their size
	noRopeEvery   int     // the last of every so many layers has no rotations; 0: all have them
	window        *window // nil: there is none
	localRope     bool    // layers with a window have a rotation of their own, without scaling
	localTheta    float64 // the theta of that; 0: that of the other layers

	folder inFolder
	gguf   inGGUF
}

// A window is the sliding window of some layers, or of all.
type window struct {
	every    int  // the last of every so many layers has none; 0: all have it, but none in GGUF, as in llama.cpp
	size     int  // tokens, where config.json does not state it; 0: there is none
	ggufSize int  // the same for GGUF
	optional bool // config.json: only with use_sliding_window
	upper    bool // config.json: layers from max_window_layers on have it
}

// inFolder is how a family is read from a folder as Hugging Face publishes it.
type inFolder struct {
	name  string // model_type
	outer string // model_type of models that also see images, whose text_config is a config.json of this family

	// What is used where config.json does not state it.
	eps, theta float64
	headDim    int
	tied       bool

	fixedBiases bool     // attention_bias is ignored
	normOffset  float32  // Config.NormOffset
	longRope    []string // other names of the rope_type longrope

	names  func(n *names)                      // changes the names of Llama's tensors
	before func(p *published) error            // checks and changes config.json before it is read
	after  func(c *Config, p *published) error // reads what only this family has
}

// inGGUF is how a family is read from GGUF, where Llama, Mistral and Mixtral have one name, and so have OLMo 2 and 3. The
// family with the name is the one that can have what any of them has.
type inGGUF struct {
	name        string // general.architecture; "": the family is not read
	interleaved bool   // Rope.Interleaved
	wholeHeads  bool   // all elements of a head are rotated
	factors     bool   // the tensor ropeFactors is used, as in llama.cpp
	longFactors bool   // so are ropeShort and ropeLong
	longScaled  bool   // which must be there if cosines are scaled
	expertSize  string // the key of Experts.IntermediateSize

	names func(n *names) // changes the names of GGUF's tensors
	after func(c *Config, k *ggufKeys)
}

var families = []*family{
	{folder: inFolder{name: "llama"}},
	{window: &window{size: 4096}, folder: inFolder{name: "mistral"}},
	{
		rules: Config{QKVBias: true}, window: &window{size: 4096, optional: true, upper: true},
		folder: inFolder{name: "qwen2", fixedBiases: true}, gguf: inGGUF{name: "qwen2"},
	},
	{
		rules: Config{QKNorm: HeadNorm}, window: &window{size: 4096, optional: true, upper: true},
		folder: inFolder{name: "qwen3"}, gguf: inGGUF{name: "qwen3"},
	},
	{rules: Config{NormPlace: NormAfter, QKNorm: WidthNorm}, folder: inFolder{name: "olmo2", eps: 1e-5}},
	{
		rules: Config{NormPlace: NormAfter, QKNorm: WidthNorm}, window: &window{every: 4, size: 4096}, localRope: true,
		folder: inFolder{name: "olmo3", eps: 1e-5}, gguf: inGGUF{name: "olmo2"},
	},
	{
		window: &window{},
		folder: inFolder{name: "phi3", eps: 1e-5, longRope: []string{"su", "yarn"}, names: func(n *names) {
			n.q, n.k, n.v = "layers.%d.self_attn.qkv_proj", "", ""
			n.gate, n.up = "", "layers.%d.mlp.gate_up_proj"
		}},
		gguf: inGGUF{name: "phi3", longFactors: true, longScaled: true, names: func(n *names) { n.gate = "" }},
	},
	{
		noRopeEvery: 4, window: &window{optional: true},
		folder: inFolder{name: "smollm3", theta: 2000000, tied: true},
		gguf:   inGGUF{name: "smollm3", interleaved: true},
	},
	&gpt2, &opt, &granite, &gemma2, &gemma3, &mixtral, &qwen2Mixture, &qwen3Mixture, &gptOSS,
}

// familyOf returns the first family that matches, or nil.
func familyOf(matches func(f *family) bool) *family {
	i := slices.IndexFunc(families, matches)
	if i < 0 {
		return nil
	}
	return families[i]
}

// config returns the settings that do not depend on a file.
func (f *family) config() *Config {
	c := f.rules
	if c.Experts != nil {
		e := *c.Experts
		c.Experts = &e
	}
	return &c
}

// everyFrom marks the last of every n layers.
func everyFrom(layers, n int) []bool {
	marks := make([]bool, max(0, min(layers, 1<<24)))
	for i := n - 1; i >= 0 && i < len(marks); i += n {
		marks[i] = true
	}
	return marks
}
