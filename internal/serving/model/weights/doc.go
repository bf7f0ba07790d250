// Package weights reads files of weights: safetensors, also in shards, and GGUF.
// A file is mapped, never copied. Its header is checked against its size before
// anything is allocated, so a wrong header leads to an error and costs no memory.
//
// Package model knows which tensors a model needs, and package matrix how they are packed.
package weights

import "errors"

// ErrFormat is wrapped when a file is not what it says it is.
var ErrFormat = errors.New("damaged file of weights")

// ErrUnsupported is wrapped by errors about valid files whose format or type this package
// cannot read.
var ErrUnsupported = errors.New("not supported")
