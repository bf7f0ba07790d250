// Package model runs decoder-only transformers on the CPU. One forward pass serves all families. An entry of the list
// families describes each family: the positions of its norms, the layers with windows and with rotations, its
// activation and its experts. Weights come from a folder in Hugging Face's format or from a GGUF file, and are packed
// when they are loaded. A forward pass takes a batch of tokens of many sequences. It writes their keys and values into
// the slots of a kvstore.Store and attends through the block tables. Layers with states read and write the states in
// blocks of the same store. The Runner then computes the requested logits or hidden states. On one kind of processor,
// the logits of a sequence always have the same bits. They do not depend on the rest of the batch, on the prompt's
// chunks, or on the number of cores. A Group of workers, each with a Part of the model, computes the same bits as one
// worker. The scheduler decides when to compute each token; the engine uses the logits.
package model

import (
	"errors"
	"fmt"
)

// ErrModel is wrapped when a model cannot be loaded. The message says what was found and what is supported.
var ErrModel = errors.New("cannot load the model")

// ErrBatch is wrapped when a batch cannot be computed.
var ErrBatch = errors.New("bad batch")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrModel, fmt.Errorf(format, args...))
}

func badBatch(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrBatch, fmt.Errorf(format, args...))
}
