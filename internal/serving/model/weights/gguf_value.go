package weights

import (
	"encoding/binary"
	"math"
)

const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// sizes has the bytes of the types of fixed size.
var sizes = map[uint32]uint64{
	typeUint8: 1, typeInt8: 1, typeUint16: 2, typeInt16: 2, typeUint32: 4, typeInt32: 4, typeFloat32: 4,
	typeBool: 1, typeUint64: 8, typeInt64: 8, typeFloat64: 8,
}

// A Value is an entry of the metadata. It refers to the memory of the file. The zero Value has no type.
type Value struct {
	kind  uint32
	known bool
	raw   []byte // bytes of a number, of a string, or of the elements of an array
	inner uint32 // the type of an array's elements
	n     int    // elements of an array
}

func (r *reader) value(kind uint32) Value {
	v := Value{kind: kind, known: true}
	switch {
	case kind == typeString:
		v.raw = r.bytes(r.uint64())
	case kind == typeArray:
		v.inner = r.uint32()
		r.array(&v, r.uint64())
	case sizes[kind] != 0:
		v.raw = r.bytes(sizes[kind])
	default:
		r.fail(kind)
	}
	return v
}

func (r *reader) fail(kind uint32) {
	if r.err == nil {
		r.err = unsupported("metadata of type %d", kind)
	}
}

func (r *reader) array(v *Value, n uint64) {
	start := r.rest
	switch {
	case r.err != nil:
		return
	case v.inner == typeString:
		if n > uint64(len(r.rest)/8) {
			n = uint64(len(r.rest)/8) + 1 // so that the loop ends in an error
		}
		for range n {
			r.bytes(r.uint64())
		}
	case sizes[v.inner] == 0:
		r.fail(v.inner) // arrays of arrays are not read
	case n > uint64(len(r.rest)):
		r.bytes(n)
	default:
		r.bytes(n * sizes[v.inner])
	}
	if r.err == nil {
		v.raw, v.n = start[:len(start)-len(r.rest)], int(n)
	}
}

// Int returns the value of an integer or a boolean.
func (v Value) Int() (int64, bool) {
	if !v.known {
		return 0, false
	}
	return integer(v.kind, v.raw)
}

func integer(kind uint32, b []byte) (int64, bool) {
	if kind == typeString || kind == typeArray || kind == typeFloat32 || kind == typeFloat64 {
		return 0, false
	}
	n, unused := int64(0), 64-8*len(b)
	for i, v := range b {
		n |= int64(v) << (8 * i)
	}
	if kind == typeInt8 || kind == typeInt16 || kind == typeInt32 {
		n = n << unused >> unused // extend the sign
	}
	return n, true
}

// Float returns the value of a number.
func (v Value) Float() (float64, bool) {
	switch {
	case !v.known:
		return 0, false
	case v.kind == typeFloat32:
		return float64(float32At(v.raw)), true
	case v.kind == typeFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw)), true
	}
	i, ok := v.Int()
	return float64(i), ok
}

// String returns the value of a string, or "" for other types.
func (v Value) String() string {
	if v.known && v.kind == typeString {
		return string(v.raw)
	}
	return ""
}

// Strings returns the elements of an array of strings, or nil for other types.
func (v Value) Strings() []string {
	if v.kind != typeArray || v.inner != typeString {
		return nil
	}
	all, rest := make([]string, v.n), v.raw
	for i := range all {
		n := binary.LittleEndian.Uint64(rest)
		all[i], rest = string(rest[8:8+n]), rest[8+n:]
	}
	return all
}

// Floats returns the elements of an array of numbers, or nil for other types.
func (v Value) Floats() []float64 {
	size := int(sizes[v.inner])
	if v.kind != typeArray || size == 0 {
		return nil
	}
	all := make([]float64, v.n)
	for i := range all {
		all[i], _ = Value{kind: v.inner, known: true, raw: v.raw[i*size : (i+1)*size]}.Float()
	}
	return all
}
