package attention

import (
	"math"
	"unsafe"
)

// A Tensor is rows of elements in the caller's memory: queries, outputs, or keys and values to write. Row i starts at
// element i × Stride of Data and holds [heads, head size] without gaps.
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

// Check returns an error if rows of width elements do not fit into Data. The error names the tensor by name.
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

// Load reads len(dst) elements from the given element of a row on.
func (t *Tensor) Load(dst []float32, row, element int) {
	if len(dst) > 0 {
		t.DType.loadAll(dst, t.At(row, element))
	}
}

// Store writes src from the given element of a row on, rounded to nearest.
func (t *Tensor) Store(src []float32, row, element int) {
	if len(src) > 0 {
		t.DType.StoreAll(t.At(row, element), src)
	}
}
