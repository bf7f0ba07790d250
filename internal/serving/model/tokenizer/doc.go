// Package tokenizer converts text to the tokens of a model and back. It supports byte-level BPE (GPT-2, OPT, Llama 3,
// Qwen, DeepSeek, Falcon, gpt-oss and others) and SentencePiece's BPE with a fallback to bytes (Llama 1 and 2, Mistral,
// Gemma). It reads a vocabulary from tokenizer.json, from vocab.json with merges.txt, or from a GGUF file.
//
// A Tokenizer never changes and is safe for concurrent use. Chat templates are in package chat.
package tokenizer

import (
	"errors"
	"fmt"
)

// ErrFormat is wrapped when a tokenizer's files are damaged or need something that this package does not support.
var ErrFormat = errors.New("bad tokenizer")

func badFormat(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}
