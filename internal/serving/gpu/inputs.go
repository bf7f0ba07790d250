package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
)

// inputs has the addresses of a batch's inputs on the GPU, where one copy puts them.
type inputs struct {
	device *cuda.Memory

	tokens, positions, queryStart, seqLens, logits cuda.Pointer
	groups                                         []groupInputs
	plans                                          map[int]*plan // by the window of a layer
}

// groupInputs locate the keys and values of a group of layers.
type groupInputs struct {
	slots, tables cuda.Pointer
	stride        int // of tables
}

type plan struct {
	kernels.AttentionPlan
	entries cuda.Pointer
}

// A field is an array of inputs.
type field struct {
	to   *cuda.Pointer
	data []byte
}

func fieldOf[T int32 | int64](to *cuda.Pointer, values []T) field { return field{to, bytesOf(values)} }

// bytesOf returns the memory of numbers.
func bytesOf[T uint16 | int32 | int64 | float32 | cuda.Pointer](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(T(0))))
}

// fill sends the inputs of a batch to the GPU, through the memory of f. For a decoding step, it returns a text for the
// step's shape. Steps with the same text have the same kernels and addresses, so they can share a graph. For other
// batches it returns "".
func (in *inputs) fill(r *Runner, f *flight, b *model.Batch, decode bool) (shape string, err error) {
	fields := []field{fieldOf(&in.tokens, b.Tokens), fieldOf(&in.positions, b.Positions), fieldOf(&in.queryStart, b.QueryStart),
		fieldOf(&in.seqLens, b.SeqLens)}
	shape = fmt.Sprint(len(b.Tokens))
	in.groups = append(in.groups[:0], make([]groupInputs, r.groups)...)
	for g := range in.groups {
		from, to := &b.Blocks, &in.groups[g]
		if g > 0 {
			from = &b.Others[g-1]
		}
		to.stride = from.TableStride
		shape += fmt.Sprint(" ", to.stride)
		fields = append(fields, fieldOf(&to.slots, from.Slots), fieldOf(&to.tables, from.BlockTables))
	}
	in.plans = map[int]*plan{}
	parts := 0
	for i := range r.NumLayers {
		window := r.Window(i)
		if in.plans[window] != nil {
			continue
		}
		p, err := r.attentionShape.Plan(r.context.Device(), b.QueryStart, b.SeqLens, window)
		if err != nil {
			return "", err
		}
		if decode {
			var launches kernels.DecodeShape
			launches, decode = p.PadDecode()
			shape += fmt.Sprint(" ", launches)
		}
		planned := &plan{AttentionPlan: p}
		in.plans[window] = planned
		fields = append(fields, fieldOf(&planned.entries, p.Entries))
		parts = max(parts, p.PartBytes)
	}
	if !decode {
		shape = ""
	}
	if err := r.growAttention(parts); errors.Is(err, cuda.ErrOutOfMemory) {
		return "", fmt.Errorf("%w: %w", model.ErrBatch, err)
	} else if err != nil {
		return "", err
	}
	return shape, in.send(r, f, append(fields, fieldOf(&in.logits, b.Logits)))
}

// aligned rounds a size up to a multiple of 16, because kernels need addresses that are multiples of 16.
func aligned(size int) int { return (size + 15) / 16 * 16 }

func (in *inputs) send(r *Runner, to *flight, fields []field) (err error) {
	size := 0
	for _, f := range fields {
		size += aligned(len(f.data))
	}
	if to.inputs, err = r.device.grown(to.inputs, size); err != nil {
		return err
	}
	if in.device == nil || in.device.Size() < size {
		if err := errors.Join(r.stream.Synchronize(), r.graphs.close(), in.device.Close()); err != nil {
			return err
		}
		if in.device, err = r.context.Alloc(2 * size); err != nil {
			return err
		}
	}
	at := 0
	for _, f := range fields {
		copy(to.inputs.Bytes()[at:], f.data)
		*f.to = in.device.Pointer() + cuda.Pointer(at)
		at += aligned(len(f.data))
	}
	return r.stream.Upload(in.device, 0, to.inputs, 0, size)
}

// replace replaces placeholders by the tokens that the previous batch has chosen. If consecutive placeholders are for
// consecutive tokens and read consecutive rows of logits, one copy replaces all of them.
func (in *inputs) replace(r *Runner, all []model.Placeholder) {
	for len(all) > 0 {
		n, first := 1, all[0]
		for n < len(all) && all[n].Token == first.Token+int32(n) && all[n].Logits == first.Logits+int32(n) {
			n++
		}
		at := int(in.tokens-in.device.Pointer()) + 4*int(first.Token)
		r.try(func() error {
			return r.stream.Copy(in.device, at, r.results.Memory, r.results.indices()+4*int(first.Logits), 4*n)
		})
		all = all[n:]
	}
}
