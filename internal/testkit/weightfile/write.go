// Package weightfile writes small files of model weights for tests, in the formats safetensors and GGUF.
package weightfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A Tensor is a tensor as it is in the file. Data has its bytes. Type (GGUF) or DType (safetensors) is the type of its
// elements.
type Tensor struct {
	Name  string
	Type  uint32 // GGUF
	DType string // safetensors
	Shape []int  // rows first
	Data  []byte
}

// F32 returns a tensor of float32 for both formats.
func F32(name string, values []float32, shape ...int) Tensor {
	data := make([]byte, 0, len(values)*4)
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return Tensor{Name: name, DType: "F32", Shape: shape, Data: data}
}

// Safetensors returns a safetensors file.
func Safetensors(tensors ...Tensor) []byte {
	header, data := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte{}
	for _, t := range tensors {
		header[t.Name] = map[string]any{
			"dtype": t.DType, "shape": t.Shape, "data_offsets": []int{len(data), len(data) + len(t.Data)},
		}
		data = append(data, t.Data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(file, text...), data...)
}

// GGUF returns the content of a GGUF file. The values of meta may have the types uint32, float32, string, bool,
// []string, []float32 and []int32.
func GGUF(meta map[string]any, tensors ...Tensor) []byte {
	w := &writer{}
	w.begin(meta, len(tensors))
	offset := 0
	for _, t := range tensors {
		w.describe(&t, offset)
		offset += aligned(len(t.Data))
	}
	w.pad()
	for _, t := range tensors {
		w.Write(t.Data)
		w.Write(make([]byte, aligned(len(t.Data))-len(t.Data)))
	}
	return w.Bytes()
}

func aligned(n int) int { return (n + 31) / 32 * 32 }

type writer struct{ bytes.Buffer }

func (w *writer) begin(meta map[string]any, tensors int) {
	w.WriteString("GGUF")
	w.put(uint32(3), uint64(tensors), uint64(len(meta)))
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		w.text(key)
		w.value(meta[key])
	}
}

func (w *writer) describe(t *Tensor, offset int) {
	w.text(t.Name)
	w.put(uint32(len(t.Shape)))
	for _, n := range slices.Backward(t.Shape) {
		w.put(uint64(n))
	}
	w.put(t.Type, uint64(offset))
}

func (w *writer) pad() { w.Write(make([]byte, aligned(w.Len())-w.Len())) }

func (w *writer) put(values ...any) {
	for _, v := range values {
		if err := binary.Write(w, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
}

func (w *writer) text(s string) {
	w.put(uint64(len(s)))
	w.WriteString(s)
}

func (w *writer) value(v any) {
	switch v := v.(type) {
	case uint32:
		w.put(uint32(4), v)
	case float32:
		w.put(uint32(6), v)
	case bool:
		w.put(uint32(7), v)
	case string:
		w.put(uint32(8))
		w.text(v)
	case []string:
		w.put(uint32(9), uint32(8), uint64(len(v)))
		for _, s := range v {
			w.text(s)
		}
	case []float32:
		w.put(uint32(9), uint32(6), uint64(len(v)), v)
	case []int32:
		w.put(uint32(9), uint32(5), uint64(len(v)), v)
	default:
		panic(fmt.Sprintf("no metadata of type %T", v))
	}
}
