package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// openMerges reads the files of GPT-2 and OPT: vocab.json and merges.txt.
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
	if err := t.usePattern(patternGPT2); err != nil {
		return nil, err
	}
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
