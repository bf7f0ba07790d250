package model

import "slices"

// A family describes a family of models: the properties that all its models share, and how their files state the
// other properties. To add a family, add an entry to families.
type family struct {
	rules         Config  // settings common to the family, and defaults for others
	learned       bool    // positions are learned, not rotations
	rootEmbedding bool    // embeddings are multiplied by the square root of their size
	noRopeEvery   int     // if not 0, every n-th layer has no rotations unless config.json says otherwise
	window        *window // nil if no layer has a window
	localRope     bool    // layers with a window have a different rotation, without scaling
	localTheta    float64 // its theta if the file has none; 0 means that of the other layers

	folder inFolder
	gguf   inGGUF
}

// A window describes the layers with a sliding window. In config.json, layer_types comes before all fields but size and
// optional. Without upperLayers and period, the layers without rotations have the window if family.noRopeEvery is not 0.
type window struct {
	period      int  // every period-th layer has no window; if 0, all layers can have it (in GGUF none, as in llama.cpp)
	size        int  // tokens if config.json does not state them; 0 means no window
	ggufSize    int  // the same for GGUF
	optional    bool // in config.json, only use_sliding_window enables it
	upperLayers bool // in config.json, the layers from max_window_layers on have it
}

// inFolder describes how to read a family from a folder in Hugging Face's format.
type inFolder struct {
	name  string // model_type
	outer string // model_type of models that also read images; their text_config is a config.json of this family

	// Defaults of config.json.
	eps, theta float64
	headDim    int
	tied       bool

	fixedBiases bool     // attention_bias is ignored
	normOffset  float32  // Config.NormOffset
	longRope    []string // other names of rope_type longrope

	names   func(n *names)                      // changes the names of Llama's tensors
	prepare func(p *published) error            // checks and changes config.json before it is read
	finish  func(c *Config, p *published) error // reads settings that only this family has
}

// inGGUF describes how to read the GGUF files of a family. GGUF has one architecture, llama, for Llama, Mistral and
// Mixtral. It has one architecture, olmo2, for OLMo 2 and OLMo 3. This package reads all files of llama as files of
// Mixtral, and all files of olmo2 as files of OLMo 3. The inGGUF of Llama, Mistral and OLMo 2 is therefore empty.
type inGGUF struct {
	architecture string // general.architecture; "" if the family is not read
	interleaved  bool   // Rope.Interleaved
	halves       bool   // a layer has attention, a state or an MLP
	wholeHeads   bool   // all elements of a head must be rotated
	factors      bool   // the tensor ropeFactors is used, as in llama.cpp
	longFactors  bool   // the tensors ropeShort and ropeLong are used
	longScaled   bool   // they must be present if cosines are scaled without YaRN
	expertSize   string // the key of Experts.IntermediateSize
	routed       bool   // experts have DeepSeek's keys

	names  func(n *names) // changes the names of GGUF's tensors
	finish func(c *Config, k *ggufKeys)
}

var families = []*family{
	{folder: inFolder{name: "llama"}},
	{window: &window{size: 4096}, folder: inFolder{name: "mistral"}},
	{
		rules: Config{QKVBias: true}, window: &window{size: 4096, optional: true, upperLayers: true},
		folder: inFolder{name: "qwen2", fixedBiases: true}, gguf: inGGUF{architecture: "qwen2"},
	},
	{
		rules: Config{QKNorm: HeadNorm}, window: &window{size: 4096, optional: true, upperLayers: true},
		folder: inFolder{name: "qwen3"}, gguf: inGGUF{architecture: "qwen3"},
	},
	{rules: Config{NormPlace: NormAfter, QKNorm: WidthNorm}, folder: inFolder{name: "olmo2", eps: 1e-5}},
	{
		rules: Config{NormPlace: NormAfter, QKNorm: WidthNorm}, window: &window{period: 4, size: 4096}, localRope: true,
		folder: inFolder{name: "olmo3", eps: 1e-5}, gguf: inGGUF{architecture: "olmo2"},
	},
	{
		window: &window{},
		folder: inFolder{name: "phi3", eps: 1e-5, longRope: []string{"su", "yarn"}, names: func(n *names) {
			n.q, n.k, n.v = "layers.%d.self_attn.qkv_proj", "", ""
			n.gate, n.upProj = "", "layers.%d.mlp.gate_up_proj"
		}},
		gguf: inGGUF{architecture: "phi3", longFactors: true, longScaled: true, names: func(n *names) { n.gate = "" }},
	},
	{
		noRopeEvery: 4, window: &window{optional: true},
		folder: inFolder{name: "smollm3", theta: 2000000, tied: true},
		gguf:   inGGUF{architecture: "smollm3", interleaved: true},
	},
	&gpt2, &opt, &granite, &gemma2, &gemma3, &mixtral, &qwen2Mixture, &qwen3Mixture, &gptOSS,
	&deepSeekV2, &deepSeekV3, &kimiK2, &glmFlash, &glm4, &glm4Mixture, &ernie, &ernieMixture, &llama4, &gemma4,
	&lfm2, &graniteHybrid, &qwen3Next, &qwen35, &qwen35Mixture, &nemotronH,
}

func familyOf(matches func(f *family) bool) *family {
	i := slices.IndexFunc(families, matches)
	if i < 0 {
		return nil
	}
	return families[i]
}

// config returns the family's settings, for a file to complete.
func (f *family) config() *Config {
	c := f.rules
	if c.Experts != nil {
		e := *c.Experts
		c.Experts = &e
	}
	if c.Recurrence != nil {
		r := *c.Recurrence
		c.Recurrence = &r
	}
	return &c
}

func everyFrom(layers, n int) []bool {
	marks := make([]bool, max(0, min(layers, 1<<24)))
	for i := n - 1; i >= 0 && i < len(marks); i += n {
		marks[i] = true
	}
	return marks
}
