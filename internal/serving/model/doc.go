// Package model runs decoder-only transformers on the CPU. One forward pass, configured by data, serves all
// families (families.go): where norms stand, which layers have windows and rotations, which
// activation, which experts a token takes. Weights come from a folder as Hugging Face publishes it or
// from a GGUF file, and are packed once.
//
// A forward pass takes a batch of tokens of many sequences, writes their keys and
// values into a kvstore.Store where the slot mapping says, attends through the
// block tables, and returns logits where they are asked for. The logits of a
// sequence have the same bits whatever else is in the batch, however its prompt
// was cut into chunks, and on any number of cores. A Group of workers, each
// with a Part of the model, computes the same bits as one worker.
//
// The scheduler decides when each token is computed. The engine decides what to do with
// the logits.
package model

import "errors"

// ErrModel is wrapped when a model cannot be loaded: its message says what was
// found and what is supported.
var ErrModel = errors.New("cannot load the model")

// ErrBatch is wrapped when a batch cannot be computed.
var ErrBatch = errors.New("bad batch")
