package kernels

import (
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/serving/cuda"
)

// An operand is a field with an address.
type operand struct {
	field string
	at    cuda.Pointer
}

// checkOperands returns an error unless all addresses are multiples of align, other than 0. An access to another address
// would make the context unusable.
func checkOperands(kernel string, align int, operands ...operand) error {
	for _, o := range operands {
		if o.at == 0 {
			return fmt.Errorf("%s: %s is 0: it must be an address", kernel, o.field)
		}
		if o.at%cuda.Pointer(align) != 0 {
			return fmt.Errorf("%s: %s is %#x: the address must be a multiple of %d", kernel, o.field, uintptr(o.at), align)
		}
	}
	return nil
}

// given returns the operands that are not 0, of those that may be 0.
func given(operands ...operand) []operand {
	return slices.DeleteFunc(operands, func(o operand) bool { return o.at == 0 })
}

// checkCount returns an error unless there can be n rows or pairs.
func checkCount(kernel string, n int, unit string) error {
	if n < 0 || n > math.MaxInt32 {
		return fmt.Errorf("%s of %d %s: there may be 0 to %d", kernel, n, unit, math.MaxInt32)
	}
	return nil
}

// strideOf returns the number of elements from a token to the next: the given number, or the width of a token if it is 0. It
// must be a multiple of vectors.
func strideOf(kernel string, stride, width, vectors int) (int, error) {
	if stride == 0 {
		return width, nil
	}
	if stride < width || stride%vectors != 0 {
		return 0, fmt.Errorf("%s with %d elements from a token to the next: the number must be 0, or a multiple of %d and at least %d", kernel, stride, vectors, width)
	}
	return stride, nil
}
