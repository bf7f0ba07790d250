// Package weights reads files of weights: safetensors, also in shards, and GGUF.
// A file is mapped, never copied; its header is checked against its size before
// anything is made of it, so a header that lies costs an error and no memory.
//
// Which tensors a model needs is the business of model, and how they are packed
// that of matrix.
package weights

import "errors"

// ErrFormat is wrapped when a file is not what it says it is.
var ErrFormat = errors.New("damaged file of weights")

// ErrUnsupported is wrapped when a file is sound, and in a format or a type that is not
// read.
var ErrUnsupported = errors.New("not supported")
