// Command randomgguf writes models with random weights as GGUF files: Llamas of about 25 and 134 million
// parameters or, with -tiny, a tiny model of each family.
//
//	go run ./testdata/bench/randomgguf [-tiny] FOLDER
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"llmmemory/internal/testkit/weightfile"
	"llmmemory/testdata/bench/fatal"
)

func main() {
	tiny := flag.Bool("tiny", false, "write a tiny model of each family")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: randomgguf [-tiny] FOLDER")
	}
	if *tiny {
		for _, t := range weightfile.Tinies() {
			fatal.If(os.WriteFile(filepath.Join(flag.Arg(0), t.Name+".gguf"), t.GGUF(), 0o644))
		}
		return
	}
	small := weightfile.Llama{Hidden: 288, Layers: 6, Heads: 6, KVHeads: 6, Inter: 768, Vocab: 32000, Context: 4096}
	large := weightfile.Llama{Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12, Inter: 2048, Vocab: 32000, Context: 4096}
	for name, l := range map[string]weightfile.Llama{"25m": small, "134m": large} {
		for _, kind := range []string{"F16", "Q8_0", "Q4_0"} {
			l.Type = kind
			fatal.If(weightfile.LlamaFile(filepath.Join(flag.Arg(0), fmt.Sprintf("%s-%s.gguf", name, kind)), l))
		}
	}
}
