package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
)

// A shape describes a model with random weights: its config.json and its tensors. layerTensors lists the tensors of one
// layer, and otherTensors the tensors outside the layers. A line of a list has the name, the rows and the columns of a
// tensor. The line of a vector has no columns. In names, % stands for the number of the layer.
type shape struct {
	config       map[string]any
	layers       int
	layerTensors string
	otherTensors string
	dtype        string // BF16 or F16
	kvBytes      int    // of the keys and values of a token
}

// llama returns the shape of a Llama, Llama-3-8B unless small.
func llama(small bool) shape {
	hidden, layers, heads, kv, inter, vocab, head := 4096, 32, 32, 8, 14336, 128256, 128
	if small {
		hidden, layers, heads, kv, inter, vocab, head = 64, 2, 2, 1, 96, 264, 64
	}
	return shape{
		config: map[string]any{"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "hidden_size": hidden, "num_hidden_layers": layers,
			"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": head, "intermediate_size": inter, "vocab_size": vocab,
			"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "hidden_act": "silu", "tie_word_embeddings": false},
		layers: layers, dtype: "BF16", kvBytes: 2 * 2 * layers * kv * head,
		layerTensors: fmt.Sprintf(`
			model.layers.%%.input_layernorm.weight %[1]d
			model.layers.%%.self_attn.q_proj.weight %[2]d %[1]d
			model.layers.%%.self_attn.k_proj.weight %[3]d %[1]d
			model.layers.%%.self_attn.v_proj.weight %[3]d %[1]d
			model.layers.%%.self_attn.o_proj.weight %[1]d %[2]d
			model.layers.%%.post_attention_layernorm.weight %[1]d
			model.layers.%%.mlp.gate_proj.weight %[4]d %[1]d
			model.layers.%%.mlp.up_proj.weight %[4]d %[1]d
			model.layers.%%.mlp.down_proj.weight %[1]d %[4]d`, hidden, heads*head, kv*head, inter),
		otherTensors: fmt.Sprintf(`
			model.embed_tokens.weight %[1]d %[2]d
			model.norm.weight %[2]d
			lm_head.weight %[1]d %[2]d`, vocab, hidden),
	}
}

// opt returns the shape of an OPT, OPT-13B unless small.
func opt(small bool) shape {
	hidden, layers, heads, vocab := 5120, 40, 40, 50272
	if small {
		hidden, layers, heads, vocab = 64, 1, 1, 104
	}
	const positions = 2048
	return shape{
		config: map[string]any{"model_type": "opt", "architectures": []string{"OPTForCausalLM"}, "hidden_size": hidden, "num_hidden_layers": layers,
			"num_attention_heads": heads, "ffn_dim": 4 * hidden, "vocab_size": vocab, "max_position_embeddings": positions, "word_embed_proj_dim": hidden,
			"do_layer_norm_before": true, "activation_function": "relu"},
		layers: layers, dtype: "F16", kvBytes: 2 * 2 * layers * hidden,
		layerTensors: fmt.Sprintf(`
			model.decoder.layers.%%.self_attn_layer_norm.weight %[1]d
			model.decoder.layers.%%.self_attn_layer_norm.bias %[1]d
			model.decoder.layers.%%.self_attn.q_proj.weight %[1]d %[1]d
			model.decoder.layers.%%.self_attn.q_proj.bias %[1]d
			model.decoder.layers.%%.self_attn.k_proj.weight %[1]d %[1]d
			model.decoder.layers.%%.self_attn.k_proj.bias %[1]d
			model.decoder.layers.%%.self_attn.v_proj.weight %[1]d %[1]d
			model.decoder.layers.%%.self_attn.v_proj.bias %[1]d
			model.decoder.layers.%%.self_attn.out_proj.weight %[1]d %[1]d
			model.decoder.layers.%%.self_attn.out_proj.bias %[1]d
			model.decoder.layers.%%.final_layer_norm.weight %[1]d
			model.decoder.layers.%%.final_layer_norm.bias %[1]d
			model.decoder.layers.%%.fc1.weight %[2]d %[1]d
			model.decoder.layers.%%.fc1.bias %[2]d
			model.decoder.layers.%%.fc2.weight %[1]d %[2]d
			model.decoder.layers.%%.fc2.bias %[1]d`, hidden, 4*hidden),
		otherTensors: fmt.Sprintf(`
			model.decoder.embed_tokens.weight %[1]d %[2]d
			model.decoder.embed_positions.weight %[3]d %[2]d
			model.decoder.final_layer_norm.weight %[2]d
			model.decoder.final_layer_norm.bias %[2]d`, vocab, hidden, positions+2),
	}
}

type entry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// ones is how many elements at the start of the data are 1. The weights of all norms lie in this part of the data, so
// that norms do not scale.
const ones = 1 << 16

// entries returns the header of the safetensors file, and the number of elements in its data. All tensors overlap in
// the same random data, except weights of norms, so the file is hardly larger than its largest tensor.
func (s *shape) entries() (all map[string]entry, elements int) {
	all, elements = map[string]entry{}, ones
	add := func(lines, layer string) {
		for line := range strings.Lines(strings.TrimSpace(lines)) {
			var rows, columns int
			fields := strings.Fields(line)
			name := strings.ReplaceAll(fields[0], "%", layer)
			n, _ := fmt.Sscan(strings.Join(fields[1:], " "), &rows, &columns)
			start, size, sizes := ones+len(all)*40503%ones, rows, []int{rows}
			if n == 2 {
				size, sizes = rows*columns, []int{rows, columns}
			} else if strings.HasSuffix(name, "norm.weight") {
				start = 0
			}
			all[name] = entry{s.dtype, sizes, [2]int{2 * start, 2 * (start + size)}}
			elements = max(elements, start+size)
		}
	}
	for i := range s.layers {
		add(s.layerTensors, fmt.Sprint(i))
	}
	add(s.otherTensors, "")
	return all, elements
}

func (s *shape) bytes() (n int) {
	all, _ := s.entries()
	for _, e := range all {
		n += e.Offsets[1] - e.Offsets[0]
	}
	return n
}

func (s *shape) write(dir string) error {
	config, err := json.Marshal(s.config)
	if err != nil {
		return err
	}
	all, elements := s.entries()
	header, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"config.json": config, "tokenizer.json": tokenizerFile()} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)); err != nil {
		return err
	}
	return s.writeData(file, elements)
}

// writeData writes ones, followed by random numbers. Their standard deviation is 0.02 for Llama-3-8B, as for models
// before training, and larger for small models, so that answers depend on all tokens. To save time, writeData draws
// only some of the numbers and repeats them. The length of a repetition is not a multiple of the length of a row, so
// that a matrix does not have equal rows.
func (s *shape) writeData(file *os.File, elements int) error {
	encode := half.ToBF16
	if s.dtype == "F16" {
		encode = half.ToF16
	}
	piece, rnd := make([]byte, 0, 2*ones), rand.New(rand.NewPCG(1, 2))
	for range ones {
		piece = binary.LittleEndian.AppendUint16(piece, encode(1))
	}
	if _, err := file.Write(piece); err != nil {
		return err
	}
	deviation := 1.28 / math.Sqrt(float64(s.config["hidden_size"].(int)))
	left, period := 2*(elements-ones), 2*(1<<22+8)
	for piece = piece[:0]; len(piece) < min(left, period); {
		piece = binary.LittleEndian.AppendUint16(piece, encode(float32(deviation*rnd.NormFloat64())))
	}
	for ; left > 0; left -= len(piece) {
		piece = piece[:min(left, len(piece))]
		if _, err := file.Write(piece); err != nil {
			return err
		}
	}
	return file.Close()
}

// tokenizerFile returns a tokenizer.json with a token for each byte. Further tokens of the model have no text.
func tokenizerFile() []byte {
	vocabulary := map[string]int{}
	next := 256
	for b := range 256 {
		letter := rune(b) // as byte-level tokenizers write bytes
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			letter = rune(next)
			next++
		}
		vocabulary[string(letter)] = b
	}
	text, _ := json.Marshal(map[string]any{ // strings and numbers only
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false}, "decoder": map[string]any{"type": "ByteLevel"},
		"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}},
	})
	return text
}

func (b *bench) openModel(dir string) (*model.Model, *gpu.Model, error) {
	var g *gpu.Model
	m, err := model.OpenFolder(dir, b.pool, model.Part{}, model.LoadOn(func(c *model.Config, s *model.Sources) (err error) {
		if g, err = b.device.NewModel(c, kernels.CacheAuto); err != nil {
			return err
		}
		return g.Load(s, "auto", b.pool, func(int, int) {})
	}))
	return m, g, err
}
