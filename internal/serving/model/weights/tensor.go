package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model/matrix"
)

// DType is the type of a tensor's elements.
type DType uint8

const (
	F32 DType = iota
	F16
	BF16

	// GGUF: blocks of 32 integers of 4, 5 or 8 bits with a scale. Types with _1 also have a minimum.
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	IQ4_NL // integers are indices of a table
	MXFP4  // 4-bit numbers, with a scale that is a power of 2

	// GGUF: blocks of 256 integers of 2 to 6 bits. Groups of 16 or 32 have a scale; in Q2_K, Q4_K and Q5_K they
	// also have a minimum.
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_XS // integers are indices of a table

	// Folders: matrices made from several tensors.
	Groups4     // 4-bit integers; at least 64 in a row share a zero and a scale, which F16 holds exactly
	Groups4Free // 4-bit integers; at least 32 in a row share a zero and a scale
	FP8         // 8-bit numbers (E4M3); at least 32 in a row share a scale
)

func (d DType) String() string { return layouts[d].name }

// A layout describes the blocks of a type, and the types of matrix to which tensors of this type are packed.
type layout struct {
	name            string
	elements, bytes int // of a block
	scaled          int // elements that share a scale, or 0 without scales
	read            func(block []byte, q []int8, s []matrix.Scale)
	packed          matrix.Type // for activations that are not rounded to 8 bits
	rounds          matrix.Type // for activations that are rounded; F32 if there is none
}

var layouts = [...]layout{
	F32: {name: "F32", elements: 1, bytes: 4}, F16: {name: "F16", elements: 1, bytes: 2, packed: matrix.F16},
	BF16:        {name: "BF16", elements: 1, bytes: 2, packed: matrix.BF16},
	Q8_0:        {"Q8_0", 32, 34, 32, readQ8_0, matrix.Int8, matrix.W8A8},
	Q4_0:        {"Q4_0", 32, 18, 32, readQ4_0, matrix.Int4, matrix.W4A8},
	Q4_1:        {"Q4_1", 32, 20, 32, readQ4_1, matrix.Int4, matrix.W4A8Min},
	Q5_0:        {"Q5_0", 32, 22, 32, readQ5_0, matrix.Int8, matrix.W5A8},
	Q5_1:        {"Q5_1", 32, 24, 32, readQ5_1, matrix.Int8Min, matrix.W5A8Min},
	IQ4_NL:      {"IQ4_NL", 32, 18, 32, readIQ4NL, matrix.NL4, matrix.NL4A8},
	MXFP4:       {"MXFP4", 32, 17, 32, readMXFP4, matrix.FP4, matrix.FP4A8},
	Q2_K:        {"Q2_K", 256, 84, 16, readQ2K, matrix.Int4K, matrix.W4A8Min},
	Q3_K:        {"Q3_K", 256, 110, 16, readQ3K, matrix.Int4K, matrix.W4A8},
	Q4_K:        {"Q4_K", 256, 144, 32, readQ4K, matrix.Int4K, matrix.W4A8Min},
	Q5_K:        {"Q5_K", 256, 176, 32, readQ5K, matrix.Int8KMin, matrix.W5A8Min},
	Q6_K:        {"Q6_K", 256, 210, 16, readQ6K, matrix.Int8K, matrix.W6A8},
	IQ4_XS:      {"IQ4_XS", 256, 136, 32, readIQ4XS, matrix.NL4, matrix.NL4A8},
	Groups4:     {name: "INT4", scaled: 64, packed: matrix.Int4K},
	Groups4Free: {name: "INT4", scaled: 32, packed: matrix.Int4F},
	FP8:         {name: "F8_E4M3", scaled: 32, packed: matrix.E4M3},
}

// A Tensor is a vector, a matrix, or several matrices one after the other. It must not be used after its file is
// closed.
type Tensor struct {
	Name       string
	DType      DType
	Rows, Cols int // Rows counts the rows of all matrices; a vector has one row
	data       []byte
	mapped     bool          // data is in a mapped file
	source     matrix.Source // reads the rows if they are not consecutive in data, else nil
}

func makeTensor(name string, d DType, shape []uint64, data []byte) (*Tensor, error) {
	if len(shape) < 1 || len(shape) > 3 {
		return nil, unsupported("tensor %q has %d dimensions; vectors, matrices and lists of matrices are read", name,
			len(shape))
	}
	rows, cols := uint64(1), shape[len(shape)-1]
	for _, n := range shape[:len(shape)-1] {
		if n > math.MaxInt32 || rows > math.MaxInt32 {
			return nil, damaged("tensor %q has the shape %v", name, shape)
		}
		rows *= n
	}
	l := layouts[d]
	if rows == 0 || cols == 0 || cols%uint64(l.elements) != 0 {
		return nil, damaged("tensor %q of type %v has the shape %v", name, d, shape)
	}
	blocks := cols / uint64(l.elements)
	if have := uint64(len(data) / l.bytes); blocks > have || rows != have/blocks ||
		rows*blocks*uint64(l.bytes) != uint64(len(data)) {
		return nil, damaged("tensor %q of type %v with the shape %v has %d bytes", name, d, shape, len(data))
	}
	return &Tensor{Name: name, DType: d, Rows: int(rows), Cols: int(cols), data: data, mapped: true}, nil
}

// Bytes returns the size of the tensor's data.
func (t *Tensor) Bytes() int { return len(t.data) }

// Block returns the number of elements of a row that share a scale, or 0 for a type without scales.
func (t *Tensor) Block() int { return layouts[t.DType].scaled }

// Packed returns the type of matrix that can represent the tensor's weights without rounding, in blocks of Block.
func (t *Tensor) Packed() matrix.Type { return layouts[t.DType].packed }

// Rounds returns the type of matrix for products with activations rounded to 8 bits. It returns F32 if tensors of this
// type are never multiplied by such activations.
func (t *Tensor) Rounds() matrix.Type { return layouts[t.DType].rounds }

// Raw returns the bytes of row i in the file. The tensor must not be Combined.
func (t *Tensor) Raw(i int) []byte {
	size := t.Cols / layouts[t.DType].elements * layouts[t.DType].bytes
	return t.data[i*size : (i+1)*size]
}

// Row writes row i to dst as float32. It implements matrix.Source.
func (t *Tensor) Row(i int, dst []float32) {
	dst = dst[:t.Cols]
	if t.source != nil {
		t.source.Row(i, dst)
		return
	}
	row := t.Raw(i)
	switch t.DType {
	case F32:
		for k := range dst {
			dst[k] = math.Float32frombits(binary.LittleEndian.Uint32(row[k*4:]))
		}
	case F16:
		for k := range dst {
			dst[k] = half.FromF16(binary.LittleEndian.Uint16(row[k*2:]))
		}
	case BF16:
		for k := range dst {
			dst[k] = half.FromBF16(binary.LittleEndian.Uint16(row[k*2:]))
		}
	default:
		layouts[t.DType].dequantize(row, t.Cols, dst)
	}
}

func (t *Tensor) element(row, col int) float32 {
	data := t.Raw(row)
	switch t.DType {
	case F32:
		return float32At(data[col*4:])
	case F16:
		return f16(data[col*2:])
	}
	return half.FromBF16(binary.LittleEndian.Uint16(data[col*2:]))
}

// Vector returns all elements, row by row.
func (t *Tensor) Vector() []float32 {
	v := make([]float32, t.Rows*t.Cols)
	for i := range t.Rows {
		t.Row(i, v[i*t.Cols:])
	}
	return v
}

// Release tells the system that the memory of t is not needed. It concerns only pages completely in t. Reading t again
// reads the file.
func (t *Tensor) Release() { t.release(t.data) }

// ReleaseRows does the same for the rows [start, end).
func (t *Tensor) ReleaseRows(start, end int) {
	if t.source != nil {
		return // the parts of a row may be anywhere in data
	}
	size := len(t.data) / t.Rows
	t.release(t.data[start*size : end*size])
}

func (t *Tensor) release(data []byte) {
	if !t.mapped || len(data) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(&data[0]))
	skip := (page - start%page) % page
	if size := uintptr(len(data)); size > skip+page {
		// Only a hint, so errors are ignored.
		_ = unix.Madvise(data[skip:skip+(size-skip)/page*page], unix.MADV_DONTNEED)
	}
}

// Combined reports whether the rows of the tensor are computed from other tensors of the files: from several tensors,
// or from one tensor that has another shape.
func (t *Tensor) Combined() bool { return t.source != nil }

// CopyTo copies the tensor's data into memory and returns the copy. The size of memory must be at least the size of the
// data. CopyTo releases the pages of the tensor's data. The tensor must not be Combined.
func (t *Tensor) CopyTo(memory []byte) *Tensor {
	const piece = 16 << 20
	for start := 0; start < len(t.data); start += piece {
		end := min(start+piece, len(t.data))
		copy(memory[start:end], t.data[start:end])
		t.release(t.data[start:end])
	}
	moved := *t
	moved.data, moved.mapped = memory[:len(t.data)], false
	return &moved
}

// FromFloats returns a tensor that uses the memory of values.
func FromFloats(name string, rows, cols int, values []float32) *Tensor {
	data := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), rows*cols*4)
	return &Tensor{Name: name, DType: F32, Rows: rows, Cols: cols, data: data}
}

// FromBytes returns a tensor that uses the memory of data. data has the rows one after the other, in the format that
// type d has in safetensors and GGUF files.
func FromBytes(d DType, rows, cols int, data []byte) *Tensor {
	return &Tensor{DType: d, Rows: rows, Cols: cols, data: data}
}

// Collect returns a Tensors with the given tensors. Of two with the same name, it contains the last one.
func Collect(tensors ...*Tensor) *Tensors {
	t := &Tensors{byName: map[string]*Tensor{}}
	for _, one := range tensors {
		t.byName[one.Name] = one
	}
	return t
}

// A mapped is a mapped file. The file must not be truncated before it is closed. The system kills a process that reads
// memory beyond the file's end.
type mapped struct{ data []byte }

func mapFile(path string) (*mapped, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() == 0 {
		return &mapped{}, nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &mapped{data}, nil
}

// checkPointer returns an error if the file is a pointer of Git LFS. A clone without git lfs has such pointers in place
// of large files.
func checkPointer(file []byte) error {
	if bytes.HasPrefix(file, []byte("version https://git-lfs.github.com/spec/")) {
		return damaged("it is a pointer of Git LFS; git lfs pull fetches the file")
	}
	return nil
}

func (m *mapped) close() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unix.Munmap(data)
}
