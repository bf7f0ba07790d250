package kernels

import (
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
)

// A checker checks the arguments of a launch, so that no kernel makes the context unusable. It keeps the first error.
type checker struct {
	kernel string
	err    error
	empty  bool // the launch has no rows or pairs, so its addresses may be 0
}

// ready reports whether the kernel can be launched, and has something to do.
func (c *checker) ready() bool { return c.err == nil && !c.empty }

func (c *checker) keep(err error) {
	if c.err == nil {
		c.err = err
	}
}

// require keeps an error unless ok is true. The text of the error is the name of the kernel, followed by the formatted
// arguments.
func (c *checker) require(ok bool, format string, args ...any) {
	if !ok {
		c.keep(fmt.Errorf("%s%s", c.kernel, fmt.Sprintf(format, args...)))
	}
}

// row requires that rows of n elements are whole vectors.
func (c *checker) row(t Type, n int) {
	c.keep(t.check(c.kernel))
	c.require(n > 0 && n <= math.MaxInt32 && n%t.in16() == 0, " of rows of %d elements: the length must be a multiple of %d", n, t.in16())
}

// count requires that there can be n rows or pairs.
func (c *checker) count(n int, unit string) {
	c.require(n >= 0 && n <= math.MaxInt32, " of %d %s: there may be 0 to %d", n, unit, math.MaxInt32)
	c.empty = c.empty || n == 0
}

// stride returns the number of elements from the start of a token to the start of the next. This is the parameter
// stride or, if that is 0, the width of a token. A stride other than 0 must be at least the width. It must also be a
// multiple of vectorSize, because kernels read whole vectors.
func (c *checker) stride(stride, width, vectorSize int) uint64 {
	if stride == 0 {
		return uint64(width)
	}
	c.require(stride >= width && stride%vectorSize == 0, " with %d elements from a token to the next: the number must be 0, or a multiple of %d and at least %d", stride, vectorSize, width)
	return uint64(stride)
}

// An operand is a field with an address.
type operand struct {
	field   string
	address cuda.Pointer
}

// addresses requires that each address is a multiple of align and is not 0, unless the launch is empty.
func (c *checker) addresses(align int, operands ...operand) {
	for _, o := range operands {
		c.require(o.address != 0 || c.empty, ": %s is 0: it must be an address", o.field)
		c.optional(align, o)
	}
}

// optional requires that each address is 0 or another multiple of align, unless the launch is empty.
func (c *checker) optional(align int, operands ...operand) {
	for _, o := range operands {
		c.require(o.address%cuda.Pointer(align) == 0 || c.empty, ": %s is %#x: the address must be a multiple of %d", o.field, uintptr(o.address), align)
	}
}
