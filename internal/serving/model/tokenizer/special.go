package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SpecialTokens reads the texts of those of bos_token, eos_token, unk_token and pad_token that a folder has. It reads
// tokenizer_config.json, and special_tokens_map.json, which older versions of transformers write, for those that are
// missing there.
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
		if err := json.Unmarshal(data, &fields); err != nil {
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

// tokenText reads a token's text from a string or from an object with content.
func tokenText(raw json.RawMessage) (text string) {
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &object) == nil {
		text = object.Content
	}
	return text
}
