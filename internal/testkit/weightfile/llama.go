package weightfile

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// A Llama describes a model with the architecture of Llama and random weights. Its tokens are the 256 bytes and pairs
// of bytes.
type Llama struct {
	Hidden, Layers, Heads, KVHeads, Inter, Vocab, Context int
	Type                                                  string // F16, Q8_0 or Q4_0
	Seed                                                  uint64 // of the weights
}

var llamaTypes = map[string]uint32{"F16": 1, "Q4_0": 2, "Q8_0": 8}

// LlamaFile writes a Llama to a GGUF file. The file may be larger than memory.
func LlamaFile(path string, l Llama) error {
	kind, ok := llamaTypes[l.Type]
	if !ok {
		return fmt.Errorf("no weights of type %q", l.Type)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	tensors := l.tensors(kind)
	header, _ := l.header(tensors)
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(header.Bytes()); err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(1, 1+l.Seed))
	var row bytes.Buffer
	for _, t := range tensors {
		for range t.Shape[0] {
			row.Reset()
			appendRow(&row, rnd, t.Type, t.Shape[len(t.Shape)-1], len(t.Shape))
			if _, err := w.Write(row.Bytes()); err != nil {
				return err
			}
			if len(t.Shape) == 1 {
				break
			}
		}
		if _, err := w.Write(make([]byte, aligned(t.bytes())-t.bytes())); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// LlamaHole writes a GGUF file with a hole in place of the weights, so that it takes little space on disk. The default
// of Type is F16. The parameter omitted is the name of a tensor that the file does not contain, or "".
func LlamaHole(path string, l Llama, omitted string) error {
	kind := llamaTypes[cmp.Or(l.Type, "F16")]
	tensors := slices.DeleteFunc(l.tensors(kind), func(t *Tensor) bool { return t.Name == omitted })
	header, size := l.header(tensors)
	if err := os.WriteFile(path, header.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Truncate(path, int64(header.Len()+size))
}

func (l *Llama) header(tensors []*Tensor) (header *writer, size int) {
	header = &writer{}
	header.begin(l.meta(), len(tensors))
	for _, t := range tensors {
		header.describe(t, size)
		size += aligned(t.bytes())
	}
	header.pad()
	return header, size
}

func (t *Tensor) bytes() int {
	n := 1
	for _, s := range t.Shape {
		n *= s
	}
	return map[uint32]int{0: n * 4, 1: n * 2, 2: n / 32 * 18, 8: n / 32 * 34}[t.Type]
}

// appendRow appends random weights around ±0.02, or a norm of ones.
func appendRow(dst *bytes.Buffer, rnd *rand.Rand, kind uint32, n, dimensions int) {
	b := dst.AvailableBuffer()
	halves := func(bits uint64) []byte { // random sign and mantissa, with the exponent of 0.0156 to 0.0312
		h := uint16(bits)&0x83ff | 9<<10
		return append(b, byte(h), byte(h>>8))
	}
	switch {
	case dimensions == 1:
		for range n {
			bits := math.Float32bits(1)
			b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
	case kind == 1:
		for k := 0; k < n; k += 4 {
			for bits, j := rnd.Uint64(), 0; j < 4 && k+j < n; bits, j = bits>>16, j+1 {
				b = halves(bits)
			}
		}
	default: // blocks of 32 with a scale of 2^-12 for 8 bits and 2^-8 for 4 bits
		scale, size := uint16(3<<10), 32
		if kind == 2 {
			scale, size = 7<<10, 16
		}
		for k := 0; k < n; k += 32 {
			b = append(b, byte(scale), byte(scale>>8))
			for j := 0; j < size; j += 8 {
				bits := rnd.Uint64()
				b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24), byte(bits>>32), byte(bits>>40), byte(bits>>48), byte(bits>>56))
			}
		}
	}
	dst.Write(b)
}

func (l *Llama) tensors(kind uint32) []*Tensor {
	matrix := func(name string, outputs, inputs int) *Tensor {
		return &Tensor{Name: name, Type: kind, Shape: []int{outputs, inputs}}
	}
	norm := func(name string) *Tensor { return &Tensor{Name: name, Shape: []int{l.Hidden}} }
	all := []*Tensor{matrix("token_embd.weight", l.Vocab, l.Hidden), norm("output_norm.weight"), matrix("output.weight", l.Vocab, l.Hidden)}
	query, kv := l.Hidden, l.Hidden/l.Heads*l.KVHeads
	for i := range l.Layers {
		prefix := fmt.Sprintf("blk.%d.", i)
		all = append(all, norm(prefix+"attn_norm.weight"), norm(prefix+"ffn_norm.weight"),
			matrix(prefix+"attn_q.weight", query, l.Hidden), matrix(prefix+"attn_k.weight", kv, l.Hidden), matrix(prefix+"attn_v.weight", kv, l.Hidden),
			matrix(prefix+"attn_output.weight", l.Hidden, query), matrix(prefix+"ffn_gate.weight", l.Inter, l.Hidden),
			matrix(prefix+"ffn_up.weight", l.Inter, l.Hidden), matrix(prefix+"ffn_down.weight", l.Hidden, l.Inter))
	}
	return all
}

func (l *Llama) meta() map[string]any {
	tokens, merges := byteTokens(l.Vocab)
	kinds := make([]int32, len(tokens))
	for i := range kinds {
		kinds[i] = 1
	}
	return map[string]any{
		"general.architecture": "llama", "general.name": "random", "llama.embedding_length": uint32(l.Hidden), "llama.block_count": uint32(l.Layers),
		"llama.attention.head_count": uint32(l.Heads), "llama.attention.head_count_kv": uint32(l.KVHeads),
		"llama.feed_forward_length": uint32(l.Inter), "llama.context_length": uint32(l.Context), "llama.vocab_size": uint32(l.Vocab),
		"llama.rope.freq_base": float32(10000), "llama.rope.dimension_count": uint32(l.Hidden / l.Heads),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"tokenizer.ggml.model":                   "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
		"tokenizer.ggml.merges": merges, "tokenizer.ggml.bos_token_id": uint32(0), "tokenizer.ggml.eos_token_id": uint32(0),
	}
}

// byteTokens returns a vocabulary of n tokens, and its merges. The tokens are the 256 bytes, as byte-level BPE writes
// them, and pairs of bytes.
func byteTokens(n int) (tokens, merges []string) {
	other := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r, other = other, other+1
		}
		tokens = append(tokens, string(r))
	}
	for i := 0; len(tokens) < n; i++ {
		a, b := tokens[i/256%256], tokens[i%256]
		tokens, merges = append(tokens, a+b), append(merges, a+" "+b)
	}
	return tokens, merges
}
