package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"llmmemory/internal/serving/model/pyjson"
)

func openMerges(dir string) (*Tokenizer, error) {
	vocab, err := os.ReadFile(filepath.Join(dir, "vocab.json"))
	if err != nil {
		if _, err := os.Stat(filepath.Join(dir, "tokenizer.model")); err == nil {
			return nil, badFormat("the only tokenizer file in %s is tokenizer.model, which is not read; transformers' "+
				"AutoTokenizer writes tokenizer.json (save_pretrained)", dir)
		}
		return nil, badFormat("neither tokenizer.json nor vocab.json is in %s", dir)
	}
	merges, err := os.ReadFile(filepath.Join(dir, "merges.txt"))
	if err != nil {
		return nil, badFormat("vocab.json without merges.txt in %s", dir)
	}
	var ids map[string]int
	if err := json.Unmarshal(vocab, &ids); err != nil {
		return nil, badFormat("vocab.json: %w", err)
	}
	t := blank()
	t.usePatterns(patternGPT2)
	if err := t.setVocabulary(&document{Model: vocabulary{Vocab: ids}}); err != nil {
		return nil, err
	}
	for _, name := range []string{"<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>"} {
		if id, ok := ids[name]; ok {
			t.special[id] = true
			t.added.add(name, int32(id), strip{})
		}
	}
	// OPT also begins a text with its end-of-text token.
	if id, ok := ids["</s>"]; ok {
		t.first = []int32{int32(id)}
	}
	t.merges = map[pair]merge{}
	for rank, line := range strings.Split(strings.TrimRight(string(merges), "\n"), "\n") {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		if err := t.merge(rank, strings.Split(line, " ")); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// SpecialTokens returns the texts of bos_token, eos_token, unk_token and pad_token by these names. It reads them from
// tokenizer_config.json in the folder. Tokens missing there are read from special_tokens_map.json, a file of older
// versions of transformers.
func SpecialTokens(dir string) (map[string]string, error) {
	tokens := map[string]string{}
	for _, file := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var fields map[string]json.RawMessage
		if err := pyjson.Unmarshal(data, &fields); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
			if text := tokenText(fields[name]); text != "" && tokens[name] == "" {
				tokens[name] = text
			}
		}
	}
	return tokens, nil
}

func tokenText(raw json.RawMessage) (text string) {
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
		text = object.Content
	}
	return text
}
