package gpu

import (
	"errors"
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/model"
)

// inputs has the inputs of a batch on the GPU. They are arrays in one memory, so that one copy can send all of them.
// The pointers are the addresses of the arrays.
type inputs struct {
	device *cuda.Memory

	tokens, positions, queryStart, seqLens, logits, states cuda.Pointer
	groups                                                 []groupInputs
	plans                                                  map[int]*plan // by the window of a layer
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
	address *cuda.Pointer
	data    []byte
}

func fieldOf[T any](address *cuda.Pointer, values []T) field {
	return field{address, bytesOf(values)}
}

// bytesOf returns the memory of numbers.
func bytesOf[T any](values []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(one)))
}

// fill sends the inputs of a batch to the GPU, through the memory of f. For a decoding step, it returns a text for the
// step's shape. Steps with the same text have the same kernels and addresses, so they can share a graph. For other
// batches it returns "".
func (x *inputs) fill(r *Runner, f *flight, b *model.Batch, decode bool) (shape string, err error) {
	fields := []field{fieldOf(&x.tokens, b.Tokens), fieldOf(&x.positions, b.Positions), fieldOf(&x.queryStart, b.QueryStart),
		fieldOf(&x.seqLens, b.SeqLens)}
	shape = fmt.Sprint(len(b.Tokens))
	x.groups = append(x.groups[:0], make([]groupInputs, r.groups)...)
	for g := range x.groups {
		blocks, group := &b.Blocks, &x.groups[g]
		if g > 0 {
			blocks = &b.Others[g-1]
		}
		group.stride = blocks.TableStride
		shape += fmt.Sprint(" ", group.stride)
		fields = append(fields, fieldOf(&group.slots, blocks.Slots), fieldOf(&group.tables, blocks.BlockTables))
	}
	x.plans = map[int]*plan{}
	parts := 0
	for i := range r.NumLayers {
		window := r.Window(i)
		if x.plans[window] != nil {
			continue
		}
		p, err := r.attentionShape.Plan(r.context.Device(), b.QueryStart, b.SeqLens, window)
		if err != nil {
			return "", err
		}
		if decode {
			var launches kernels.DecodeShape
			launches, decode = p.PadDecode(len(b.Tokens))
			shape += fmt.Sprint(" ", launches)
		}
		planned := &plan{AttentionPlan: p}
		x.plans[window] = planned
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
	return shape, r.send(&x.device, &f.inputs, append(fields, fieldOf(&x.logits, b.Logits), fieldOf(&x.states, b.States)))
}

// aligned rounds a size up to a multiple of 16, so that the addresses of the arrays are multiples of 16.
func aligned(size int) int { return (size + 15) / 16 * 16 }

// send copies fields to the GPU, through the memory of the host. It enlarges both memories if they are too small.
func (r *Runner) send(device **cuda.Memory, host **cuda.Pinned, fields []field) (err error) {
	size := 0
	for _, f := range fields {
		size += aligned(len(f.data))
	}
	if *host, err = r.device.grown(*host, size); err != nil {
		return err
	}
	if *device == nil || (*device).Size() < size {
		if err := errors.Join(r.stream.Synchronize(), r.graphs.close(), (*device).Close()); err != nil {
			return err
		}
		if *device, err = r.context.Alloc(2 * size); err != nil {
			return err
		}
	}
	offset := 0
	for _, f := range fields {
		copy((*host).Bytes()[offset:], f.data)
		*f.address = (*device).Pointer() + cuda.Pointer(offset)
		offset += aligned(len(f.data))
	}
	return r.stream.Upload(*device, 0, *host, 0, size)
}

// replace replaces placeholders by the tokens that the previous batch has chosen. It copies several tokens at once if
// they are consecutive in both batches. For that, each placeholder must have a Token and a Logits that are 1 larger
// than those of the placeholder before it.
func (x *inputs) replace(r *Runner, placeholders []model.Placeholder) {
	for len(placeholders) > 0 {
		n, first := 1, placeholders[0]
		for n < len(placeholders) && placeholders[n].Token == first.Token+int32(n) && placeholders[n].Logits == first.Logits+int32(n) {
			n++
		}
		offset := int(x.tokens-x.device.Pointer()) + 4*int(first.Token)
		r.try(func() error {
			return r.stream.Copy(x.device, offset, r.results.Memory, r.results.tokens()+4*int(first.Logits), 4*n)
		})
		placeholders = placeholders[n:]
	}
}
