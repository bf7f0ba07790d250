// Command randomgguf writes Llamas with random weights, of about 25 and 134 million
// parameters, as GGUF: go run ./testdata/bench/randomgguf FOLDER
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"llmmemory/internal/testkit/weightfile"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: randomgguf FOLDER")
	}
	small := weightfile.Llama{Hidden: 288, Layers: 6, Heads: 6, KVHeads: 6, Inter: 768, Vocab: 32000, Context: 4096}
	large := weightfile.Llama{Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, Inter: 2048, Vocab: 32000, Context: 4096}
	for name, l := range map[string]weightfile.Llama{"25m": small, "134m": large} {
		for _, kind := range []string{"F16", "Q8_0", "Q4_0"} {
			l.Type = kind
			path := filepath.Join(os.Args[1], fmt.Sprintf("%s-%s.gguf", name, kind))
			if err := weightfile.LlamaFile(path, l); err != nil {
				log.Fatal(err)
			}
		}
	}
}
