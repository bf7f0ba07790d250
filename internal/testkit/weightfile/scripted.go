package weightfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// The sizes of a scripted model: tokens of its context and of its window, and the width of its only head.
const scriptedContext, scriptedWindow, scriptedHead = 1 << 18, 32, 32

// Scripted returns the files of a folder with a tiny model (model_type mistral) whose answers are chosen. The answers
// are by name. If the prompt ends with the special token <|NAME|>, which the chat template writes, the model writes the
// answer with this name, and ends. The tokens of prompts are bytes. A long prompt is cheap, because attention has a
// window. Scripted panics if the answers cannot be cut into tokens that determine the next one.
func Scripted(answers map[string]string, template string) map[string][]byte {
	s := newScript(answers)
	hidden := (len(s.next) + 31) / 32 * 32
	embedding, output := make([]float32, len(s.tokens)*hidden), make([]float32, len(s.tokens)*hidden)
	state := 0
	for _, id := range slices.Sorted(maps.Keys(s.next)) {
		embedding[id*hidden+state] = 1
		output[s.next[id]*hidden+state] = 8
		state++
	}
	ones := slices.Repeat([]float32{1}, hidden)
	tensors := []Tensor{F32("model.embed_tokens.weight", embedding, len(s.tokens), hidden), F32("lm_head.weight", output, len(s.tokens), hidden)}
	for _, name := range []string{"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"} {
		tensors = append(tensors, F32(name+".weight", ones, hidden))
	}
	for name, shape := range map[string][2]int{"self_attn.q": {scriptedHead, hidden}, "self_attn.k": {scriptedHead, hidden}, "self_attn.v": {scriptedHead, hidden},
		"self_attn.o": {hidden, scriptedHead}, "mlp.gate": {32, hidden}, "mlp.up": {32, hidden}, "mlp.down": {hidden, 32}} {
		tensors = append(tensors, F32("model.layers.0."+name+"_proj.weight", make([]float32, shape[0]*shape[1]), shape[0], shape[1]))
	}
	return map[string][]byte{
		"model.safetensors": Safetensors(tensors...),
		"config.json": object(map[string]any{"model_type": "mistral", "architectures": []string{"MistralForCausalLM"}, "vocab_size": len(s.tokens),
			"hidden_size": hidden, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
			"head_dim": scriptedHead, "sliding_window": scriptedWindow, "max_position_embeddings": scriptedContext, "rms_norm_eps": 1e-6,
			"rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": false, "eos_token_id": s.end, "torch_dtype": "float32"}),
		"tokenizer.json":        s.tokenizer(),
		"tokenizer_config.json": object(map[string]any{"eos_token": s.tokens[s.end], "chat_template": template}),
	}
}

func object(fields map[string]any) []byte {
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return text
}

// A script has the tokens of a scripted model, and the token that follows each token of an answer.
type script struct {
	tokens []string       // as the tokenizer writes them; first the bytes
	number map[string]int // of a piece of an answer
	next   map[int]int
	marks  []string // special tokens
	end    int
}

func newScript(answers map[string]string) *script {
	tokens, _ := byteTokens(256)
	s := &script{tokens: tokens, number: map[string]int{}, next: map[int]int{}}
	s.end = s.special("<|im_end|>")
	s.special("<|im_start|>")
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		last := s.special("<|" + name + "|>")
		for rest := answers[name]; rest != ""; {
			piece := s.cut(rest)
			rest = rest[len(piece):]
			id, ok := s.number[piece]
			if !ok {
				id = len(s.tokens)
				s.tokens, s.number[piece] = append(s.tokens, byteLevel(s.tokens, piece)), id
			}
			s.next[last], last = id, id
		}
		s.next[last] = s.end
	}
	return s
}

func (s *script) special(name string) int {
	s.tokens, s.marks = append(s.tokens, name), append(s.marks, name)
	return len(s.tokens) - 1
}

// cut returns the first piece of the rest of an answer: at least 12 bytes that are not yet a piece, or all.
func (s *script) cut(rest string) string {
	for n := 12; n+12 < len(rest); n++ {
		if _, ok := s.number[rest[:n]]; !ok && utf8.RuneStart(rest[n]) {
			return rest[:n]
		}
	}
	if id, ok := s.number[rest]; ok && s.next[id] != s.end {
		panic(fmt.Sprintf("an answer ends with %q, which has another continuation", rest))
	}
	return rest
}

// byteLevel writes a text as byte-level BPE does.
func byteLevel(bytes []string, text string) (written string) {
	for i := range len(text) {
		written += bytes[text[i]]
	}
	return written
}

func (s *script) tokenizer() []byte {
	vocabulary, added := map[string]int{}, []any{}
	for id, token := range s.tokens {
		if slices.Contains(s.marks, token) {
			added = append(added, map[string]any{"id": id, "content": token, "special": true})
		} else {
			vocabulary[token] = id
		}
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}
	return object(map[string]any{"added_tokens": added, "pre_tokenizer": byteLevel, "decoder": byteLevel,
		"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}}})
}
