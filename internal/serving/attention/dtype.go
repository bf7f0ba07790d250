package attention

import (
	"math"
	"unsafe"

	"llmmemory/internal/serving/half"
)

// DType is the type of an element.
type DType uint8

const (
	F32  DType = iota
	F16        // IEEE binary16
	BF16       // the upper half of an F32
	E4M3       // 8 bits, 4 of exponent, no infinities (OCP FP8 E4M3FN)
	E5M2       // 8 bits, 5 of exponent (OCP FP8 E5M2)
	Int8       // keys and values only; each token and head has a scale
	dtypes
)

var dtypeNames = [...]string{"f32", "f16", "bf16", "e4m3", "e5m2", "int8"}

// String returns the type's name in file formats: f32, f16, bf16, e4m3, e5m2 or int8.
func (d DType) String() string {
	if d >= dtypes {
		return "unknown type"
	}
	return dtypeNames[d]
}

// Size is the number of bytes of an element.
func (d DType) Size() int {
	switch d {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 1
}

// e4m3ToF32 converts an E4M3 number without rounding. The smallest positive number is 2^-9, and the largest is 448.
// 0x7f and 0xff are NaN.
func e4m3ToF32(b uint8) float32 {
	if b&0x7f == 0x7f {
		return math.Float32frombits(0x7fc00000 | uint32(b&0x80)<<24)
	}
	return half.FromF16(uint16(b&0x80)<<8|uint16(b&0x7f)<<7) * 256
}

// toFP8 converts f to an 8-bit format with the given number of fraction bits and exponent bias. It rounds to nearest,
// ties to even. largest is the encoding of the format's largest number; larger numbers become that number, as in vLLM.
// A NaN becomes 0x7f or 0xff, depending on its sign.
func toFP8(f float32, fraction, bias uint32, largest uint8) uint8 {
	b := math.Float32bits(f)
	sign, abs := uint8(b>>24&0x80), b&0x7fffffff
	drop, base := 23-fraction, (127-bias)<<23 // the number of bits rounded off; the bits of 2^-bias
	switch {
	case abs > 0x7f800000:
		return sign | 0x7f
	case abs >= base+uint32(largest)<<drop:
		return sign | largest
	case abs < base+1<<23: // a multiple of the smallest denormal number
		unit := math.Float64frombits(uint64(1023+bias+fraction-1) << 52)
		return sign | uint8(math.RoundToEven(float64(math.Float32frombits(abs))*unit))
	}
	abs += 1<<(drop-1) - 1 + abs>>drop&1
	return sign | uint8((abs-base)>>drop)
}

// Load reads a number of the type, without applying a scale.
func (d DType) Load(p unsafe.Pointer) float32 {
	switch d {
	case F32:
		return *(*float32)(p)
	case F16:
		return half.FromF16(*(*uint16)(p))
	case BF16:
		return half.FromBF16(*(*uint16)(p))
	case E4M3:
		return e4m3ToF32(*(*uint8)(p))
	case E5M2:
		return half.FromF16(uint16(*(*uint8)(p)) << 8)
	}
	return float32(*(*int8)(p))
}

// Store writes v, rounded to nearest, ties to even. The 8-bit types saturate. Int8 stores NaN as 0.
func (d DType) Store(p unsafe.Pointer, v float32) {
	switch d {
	case F32:
		*(*float32)(p) = v
	case F16:
		*(*uint16)(p) = half.ToF16(v)
	case BF16:
		*(*uint16)(p) = half.ToBF16(v)
	case E4M3:
		*(*uint8)(p) = toFP8(v, 3, 7, 0x7e) // at most 448
	case E5M2:
		*(*uint8)(p) = toFP8(v, 2, 15, 0x7b) // at most 57344
	case Int8:
		if v != v {
			v = 0
		}
		*(*int8)(p) = int8(max(-127, min(127, math.RoundToEven(float64(v)))))
	}
}

// loadAll reads len(x) numbers of type d, which begin at p, without applying a scale.
func (d DType) loadAll(x []float32, p unsafe.Pointer) {
	if d == F32 {
		copy(x, unsafe.Slice((*float32)(p), len(x)))
		return
	}
	size := d.Size()
	for i := fastest.widen(d, x, p); i < len(x); i++ {
		x[i] = d.Load(unsafe.Add(p, i*size))
	}
}

// StoreAll writes the numbers of x to memory that begins at p, as Store does.
func (d DType) StoreAll(p unsafe.Pointer, x []float32) {
	if d == F32 {
		copy(unsafe.Slice((*float32)(p), len(x)), x)
		return
	}
	size := d.Size()
	for i := fastest.narrow(d, p, x); i < len(x); i++ {
		d.Store(unsafe.Add(p, i*size), x[i])
	}
}

// A Tensor is rows of elements in the caller's memory: queries, outputs, or keys and values to write. Row i starts at
// element i × Stride of Data, and has head size elements for each head, without gaps.
type Tensor struct {
	DType  DType
	Data   []byte // aligned for the type
	Stride int    // elements from one row to the next
}

// Float32s returns a tensor that uses the memory of x.
func Float32s(x []float32, stride int) Tensor {
	if len(x) == 0 {
		return Tensor{Stride: stride}
	}
	return Tensor{F32, unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)), stride}
}

// Check returns an error if the type is not F32, F16 or BF16, if rows overlap, or if Data is not aligned or does not
// have the given number of rows with width elements each. name is what the error message calls the tensor.
func (t *Tensor) Check(name string, rows, width int) error {
	size := t.DType.Size()
	switch {
	case t.DType > BF16:
		return badArgument("%s of type %v; f32, f16 and bf16 are possible", name, t.DType)
	case rows == 0:
		return nil
	case t.Stride < width:
		return badArgument("%s: rows of %d elements that start every %d elements overlap", name, width, t.Stride)
	case t.Stride > math.MaxInt/8/rows || ((rows-1)*t.Stride+width)*size > len(t.Data):
		return badArgument("%s: %d rows of %d elements, %d apart, do not fit into %d bytes", name, rows, width, t.Stride,
			len(t.Data))
	case uintptr(unsafe.Pointer(&t.Data[0]))%uintptr(size) != 0:
		return badArgument("%s is not aligned to elements of %d bytes", name, size)
	}
	return nil
}

// At returns the address of an element of a row.
func (t *Tensor) At(row, element int) unsafe.Pointer {
	return unsafe.Pointer(&t.Data[(row*t.Stride+element)*t.DType.Size()])
}

// Load reads len(dst) elements of a row, beginning with the given element.
func (t *Tensor) Load(dst []float32, row, element int) {
	if len(dst) > 0 {
		t.DType.loadAll(dst, t.At(row, element))
	}
}

// Store writes src to a row, from the given element on. It rounds to nearest.
func (t *Tensor) Store(src []float32, row, element int) {
	if len(src) > 0 {
		t.DType.StoreAll(t.At(row, element), src)
	}
}
