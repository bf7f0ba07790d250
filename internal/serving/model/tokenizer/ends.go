package tokenizer

import (
	"slices"

	"llmmemory/internal/serving/model/weights"
)

// endTexts lists the texts of tokens that end an answer in llama.cpp even if no key of the file names them
// (special_eog_ids in llama-vocab.cpp). Texts of families that are not supported here are left out.
var endTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", endOfText,
	"<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
	"<｜end▁of▁sentence｜>",
}

// endOfText ends a text in Llama 2. There it is a control token. In Gemma it is an HTML tag, an ordinary added token.
const endOfText = "</s>"

// Ends returns the tokens that end a text or the assistant's answer. The caller must not change them.
func (t *Tokenizer) Ends() []int32 { return t.ends }

// isEnd reports whether a GGUF token with this text and kind ends an answer. The token endOfText does so only if it
// is a control token.
func isEnd(text string, kind int) bool {
	return slices.Contains(endTexts, text) && (text != endOfText || kind == ggufControl)
}

// setEnds sets the tokens that end an answer. Some are named by keys of the file. Others are found by their text, which
// is in endTexts. The key eos_token_ids is written by ollama. In Harmony (gpt-oss), <|end|> ends a message but not the
// answer.
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
