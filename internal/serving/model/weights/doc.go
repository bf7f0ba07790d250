// Package weights reads files of weights: safetensors, which may consist of several shards, and GGUF. It maps a file
// and does not copy it. It checks the header against the file's size before it allocates anything, so a damaged
// header causes an error and costs no memory.
//
// Package model knows which tensors a model needs. Package matrix knows how they are packed.
package weights

import (
	"errors"
	"fmt"
)

// ErrFormat is wrapped when a file is damaged or does not have the expected format.
var ErrFormat = errors.New("damaged file of weights")

// ErrUnsupported is wrapped by errors about valid files whose format or type this package cannot read.
var ErrUnsupported = errors.New("not supported")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(format, args...))
}
