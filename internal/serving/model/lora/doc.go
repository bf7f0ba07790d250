// Package lora reads adapters (LoRA): pairs of small matrices A and B that change the products with matrices of a model.
// With an adapter, the product of x and a matrix W becomes W x + scale · B A x. An adapter is a folder of Hugging Face's
// PEFT or a GGUF file of llama.cpp. Tensors, and known settings, that this package does not read are refused by name,
// because an adapter that is only partly applied would give wrong answers without an error.
//
// Package model determines which matrices an adapter changes, and computes the products.
package lora

import (
	"errors"
	"fmt"
)

// ErrAdapter is wrapped when an adapter cannot be read. The message says what was found and what is supported.
var ErrAdapter = errors.New("cannot read the adapter")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrAdapter, fmt.Errorf(format, args...))
}
