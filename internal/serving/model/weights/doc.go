// Package weights reads files of weights: safetensors, which may consist of several shards, and GGUF. It maps a file
// and does not copy it. It checks the lengths and shapes in a header against the file's size before it allocates memory
// for them. A damaged header therefore causes an error and not a large allocation.
//
// Package model determines which tensors a model needs. Package matrix packs them.
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
