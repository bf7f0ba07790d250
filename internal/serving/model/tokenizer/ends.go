package tokenizer

import (
	"slices"

	"llmmemory/internal/serving/model/weights"
)

// endTexts lists the texts of tokens that end an answer in llama.cpp, whatever the file says (special_eog_ids in
// llama-vocab.cpp). It leaves out families that are not supported here.
var endTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", endOfText,
	"<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
	"<｜end▁of▁sentence｜>",
}

// endOfText ends a text in Llama 2, where it is a control token. In Gemma it is only an added token, the HTML tag.
const endOfText = "</s>"

// Ends returns the tokens that end a text or an assistant's turn. The caller must not change them.
func (t *Tokenizer) Ends() []int32 { return t.ends }

// isEnd reports whether a GGUF token with this text and kind ends an answer. endOfText does only if it is a control
// token.
func isEnd(text string, kind int) bool {
	return slices.Contains(endTexts, text) && (text != endOfText || kind == ggufControl)
}

// setEnds finds the tokens that end an answer: those that keys of the file name, and those with a text of endTexts.
// The key eos_token_ids is written by ollama. In Harmony (gpt-oss), <|end|> ends a message but not the answer.
func (t *Tokenizer) setEnds(meta map[string]weights.Value, tokens []string, kinds []float64) error {
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id", "eos_token_ids"} {
		value := meta["tokenizer.ggml."+key]
		ids := value.Floats()
		if id, ok := value.Float(); ok {
			ids = []float64{id}
		}
		for _, id := range ids {
			if !(id >= 0 && id < float64(len(tokens))) {
				return badFormat("%s is %v of %d", key, id, len(tokens))
			}
			t.addEnd(int32(id))
		}
	}
	for i, text := range tokens {
		if isEnd(text, kindOf(kinds, i)) {
			t.addEnd(int32(i))
		}
	}
	named := func(text string) func(int32) bool {
		return func(id int32) bool { return tokens[id] == text }
	}
	if slices.ContainsFunc(t.ends, named("<|return|>")) && slices.ContainsFunc(t.ends, named("<|call|>")) {
		t.ends = slices.DeleteFunc(t.ends, named("<|end|>"))
	}
	return nil
}

func (t *Tokenizer) addEnd(id int32) {
	if !slices.Contains(t.ends, id) {
		t.ends = append(t.ends, id)
	}
}
