package ptx

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// A scalar is a type of PTX, such as u32 or pred.
type scalar struct {
	kind byte // 'u', 's', 'b', 'f' or 'p'
	bits int
}

func scalarOf(name string) (scalar, error) {
	if name == "pred" {
		return scalar{'p', 1}, nil
	}
	if name != "" && strings.IndexByte("usbf", name[0]) >= 0 {
		if n, err := strconv.Atoi(name[1:]); err == nil && (n == 8 || n == 16 || n == 32 || n == 64) {
			return scalar{name[0], n}, nil
		}
	}
	return scalar{}, fmt.Errorf("the interpreter does not know the type %s", name)
}

// mask has a bit for each bit of the type.
func (t scalar) mask() uint64 { return ^uint64(0) >> (64 - t.bits) }

// value returns the number that a register holds: a signed one with copies of its sign in the higher bits.
func (t scalar) value(x uint64) uint64 {
	unused := 64 - t.bits
	if t.kind == 's' {
		return uint64(int64(x<<unused) >> unused)
	}
	return x << unused >> unused
}

// A function computes the result of one lane.
type function func(x, y, z uint64) uint64

// integer returns the function of an instruction on integers, bits or predicates, or nil.
func integer(name string, t scalar) function {
	m, v := t.mask(), t.value
	switch name {
	case "mov":
		return func(x, _, _ uint64) uint64 { return x & m }
	case "add":
		return func(x, y, _ uint64) uint64 { return (x + y) & m }
	case "sub":
		return func(x, y, _ uint64) uint64 { return (x - y) & m }
	case "mul.lo":
		return func(x, y, _ uint64) uint64 { return x * y & m }
	case "mad.lo":
		return func(x, y, z uint64) uint64 { return (x*y + z) & m }
	case "mul.wide":
		return func(x, y, _ uint64) uint64 { return v(x) * v(y) & (m<<t.bits | m) }
	case "mul.hi":
		return func(x, y, _ uint64) uint64 { return high(v(x), v(y), t) }
	case "neg":
		return func(x, _, _ uint64) uint64 { return -x & m }
	case "not":
		return func(x, _, _ uint64) uint64 { return ^x & m }
	case "and":
		return func(x, y, _ uint64) uint64 { return x & y & m }
	case "or":
		return func(x, y, _ uint64) uint64 { return (x | y) & m }
	case "xor":
		return func(x, y, _ uint64) uint64 { return (x ^ y) & m }
	case "min", "max":
		return func(x, y, _ uint64) uint64 {
			if t.less(x, y) == (name == "min") {
				return x & m
			}
			return y & m
		}
	case "selp":
		return func(x, y, z uint64) uint64 {
			if z&1 != 0 {
				return x & m
			}
			return y & m
		}
	}
	return shifting(name, t)
}

// shifting returns the function of an instruction that divides or moves bits, or nil. Shifts by more than the width shift
// everything out.
func shifting(name string, t scalar) function {
	m, v := t.mask(), t.value
	switch name {
	case "shl":
		return func(x, y, _ uint64) uint64 { return x << min(y&0xffffffff, 64) & m }
	case "shr":
		if t.kind == 's' {
			return func(x, y, _ uint64) uint64 { return uint64(int64(v(x))>>min(y&0xffffffff, 63)) & m }
		}
		return func(x, y, _ uint64) uint64 { return v(x) >> min(y&0xffffffff, 64) }
	case "div", "rem":
		return func(x, y, _ uint64) uint64 {
			quotient, remainder := divide(v(x), v(y), t)
			if name == "div" {
				return quotient & m
			}
			return remainder & m
		}
	case "bfe":
		if t.kind != 'u' {
			return nil
		}
		return func(x, y, z uint64) uint64 { return v(x) >> (y & 0xff) & (1<<(z&0xff) - 1) }
	case "prmt":
		if t.bits == 32 {
			return permute
		}
	}
	return nil
}

// less compares as the type does.
func (t scalar) less(x, y uint64) bool {
	if t.kind == 's' {
		return int64(t.value(x)) < int64(t.value(y))
	}
	return t.value(x) < t.value(y)
}

// high returns the upper half of a product.
func high(x, y uint64, t scalar) uint64 {
	if t.bits < 64 {
		return x * y >> t.bits & t.mask()
	}
	upper, _ := bits.Mul64(x, y)
	if t.kind == 's' {
		upper -= uint64(int64(x)>>63)&y + uint64(int64(y)>>63)&x
	}
	return upper
}

// divide returns all bits set for a division by 0, whose result the manual leaves open.
func divide(x, y uint64, t scalar) (quotient, remainder uint64) {
	switch {
	case y == 0:
		return ^uint64(0), ^uint64(0)
	case t.kind == 's':
		return uint64(int64(x) / int64(y)), uint64(int64(x) % int64(y))
	}
	return x / y, x % y
}

// permute is prmt: digit i of the selector, from the lowest on, says which byte of x (0 to 3) or y (4 to 7) byte i is.
// With 8 in a digit, all bits of the byte are its highest bit.
func permute(x, y, selector uint64) uint64 {
	source, result := x&0xffffffff|y<<32, uint64(0)
	for i := range 4 {
		digit := selector >> (4 * i) & 15
		b := source >> (8 * (digit & 7)) & 0xff
		if digit&8 != 0 {
			b = uint64(int8(b)>>7) & 0xff
		}
		result |= b << (8 * i)
	}
	return result
}

// comparison returns the function of setp, or nil.
func comparison(name string, t scalar) function {
	if t.kind == 'f' {
		return floatComparison(name, t)
	}
	var holds func(x, y uint64) bool
	switch name {
	case "eq":
		holds = func(x, y uint64) bool { return t.value(x) == t.value(y) }
	case "ne":
		holds = func(x, y uint64) bool { return t.value(x) != t.value(y) }
	case "lt", "lo":
		holds = t.less
	case "ge", "hs":
		holds = func(x, y uint64) bool { return !t.less(x, y) }
	case "gt", "hi":
		holds = func(x, y uint64) bool { return t.less(y, x) }
	case "le", "ls":
		holds = func(x, y uint64) bool { return !t.less(y, x) }
	default:
		return nil
	}
	return func(x, y, _ uint64) uint64 { return truth(holds(x, y)) }
}

func truth(x bool) uint64 {
	if x {
		return 1
	}
	return 0
}
