package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// swapped blocks lie anywhere in one array, and are gathered into pinned memory or spread from there.
type swapped struct {
	blocks, bytes int
	in            bool
}

func (s swapped) name() string {
	way := "out"
	if s.in {
		way = "in"
	}
	return fmt.Sprintf("swap_blocks_%s blocks=%d bytes=%d", way, s.blocks, s.bytes)
}

func (s swapped) goal() goal { return goal{45, ofBus} }

func (s swapped) prepare(b *bench) (p prepared, err error) {
	contents, array, err := b.random(2 * s.blocks * s.bytes / 2) // twice as many as are swapped
	if err != nil {
		return p, err
	}
	arrays, err := b.upload(binary.LittleEndian.AppendUint64(nil, uint64(array.Pointer())))
	if err != nil {
		return p, err
	}
	host, err := b.context.AllocPinned(s.blocks * s.bytes)
	if err != nil {
		return p, err
	}
	b.memory = append(b.memory, host)
	var pairs []int32
	places := b.rng.Perm(2 * s.blocks)[:s.blocks]
	for i, block := range places {
		if s.in {
			pairs = append(pairs, int32(i), int32(block))
		} else {
			pairs = append(pairs, int32(block), int32(i))
		}
	}
	mapping, err := b.int32s(pairs)
	if err != nil {
		return p, err
	}
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(i * 7)
	}
	p.bytes = float64(s.blocks * s.bytes)
	p.launch = func() error {
		return kernels.SwapBlocks{Blocks: kernels.Blocks{Arrays: arrays.Pointer(), Count: 1, BlockBytes: s.bytes}, Host: host.Pointer(),
			Mapping: mapping.Pointer(), Pairs: s.blocks, In: s.in}.Launch(b.set, b.stream)
	}
	p.check = func() (float64, error) {
		got := make([]byte, s.bytes)
		for i, block := range places {
			there := host.Bytes()[i*s.bytes:][:s.bytes]
			if err := array.Read(block*s.bytes, got); err != nil {
				return 0, err
			}
			if !bytes.Equal(there, got) || !s.in && !bytes.Equal(got, contents[block*s.bytes:][:s.bytes]) {
				return 0, fmt.Errorf("block %d is not what was copied", block)
			}
		}
		return 0, nil
	}
	return p, nil
}

// written are keys and values that go to slots in any order.
type written struct {
	tokens, heads, size int
}

func (w written) name() string {
	return fmt.Sprintf("reshape_and_cache tokens=%d heads=%d size=%d", w.tokens, w.heads, w.size)
}

func (w written) prepare(b *bench) (p prepared, err error) {
	const block = 16
	width := w.heads * w.size
	rows, tokens, err := b.random(w.tokens * width)
	if err != nil {
		return p, err
	}
	blocks := (w.tokens + block - 1) / block
	var caches [2]*cuda.Memory
	for i := range caches {
		if caches[i], err = b.alloc(2 * blocks * block * width); err != nil {
			return p, err
		}
	}
	slots := b.rng.Perm(blocks * block)[:w.tokens]
	var text []byte
	for _, s := range slots {
		text = binary.LittleEndian.AppendUint64(text, uint64(s))
	}
	where, err := b.upload(text)
	if err != nil {
		return p, err
	}
	p.bytes = 2 * 2 * 2 * float64(w.tokens*width)
	p.launch = func() error {
		return kernels.ReshapeAndCache{KeyCache: caches[0].Pointer(), ValueCache: caches[1].Pointer(), Key: tokens.Pointer(), Value: tokens.Pointer(), Slots: where.Pointer(),
			Tokens: w.tokens, KeyHeads: w.heads, HeadSize: w.size, BlockSize: block, KeyStride: width, ValueStride: width}.Launch(b.set, b.stream)
	}
	p.check = func() (float64, error) {
		got := make([]byte, 2*w.size)
		for _, token := range checked(w.tokens) {
			for head := range w.heads {
				for _, cache := range caches {
					if err := cache.Read(2*((slots[token]/block*w.heads+head)*block+slots[token]%block)*w.size, got); err != nil {
						return 0, err
					}
					if !bytes.Equal(got, rows[2*(token*width+head*w.size):][:2*w.size]) {
						return 0, fmt.Errorf("token %d is not in its slot", token)
					}
				}
			}
		}
		return 0, nil
	}
	return p, nil
}

// copied blocks lie anywhere in the upper half of each array, and their copies in the lower half.
type copied struct{ pairs, arrays, bytes int }

func (c copied) name() string {
	return fmt.Sprintf("copy_blocks pairs=%d arrays=%d bytes=%d", c.pairs, c.arrays, c.bytes)
}

func (c copied) prepare(b *bench) (p prepared, err error) {
	half := c.pairs * c.bytes
	contents, array, err := b.random(c.arrays * 2 * half / 2)
	if err != nil {
		return p, err
	}
	var pointers []byte
	for i := range c.arrays {
		pointers = binary.LittleEndian.AppendUint64(pointers, uint64(array.Pointer())+uint64(i*2*half))
		if err := errors.Join(b.stream.Fill(array, i*2*half, half, 0xff), b.stream.Synchronize()); err != nil {
			return p, err
		}
	}
	arrays, err := b.upload(pointers)
	if err != nil {
		return p, err
	}
	from, to := b.rng.Perm(c.pairs), b.rng.Perm(c.pairs)
	var pairs []int32
	for i := range c.pairs {
		pairs = append(pairs, int32(c.pairs+from[i]), int32(to[i]))
	}
	mapping, err := b.int32s(pairs)
	if err != nil {
		return p, err
	}
	p.bytes = 2 * float64(c.arrays*half)
	p.launch = func() error {
		return kernels.CopyBlocks{Blocks: kernels.Blocks{Arrays: arrays.Pointer(), Count: c.arrays, BlockBytes: c.bytes}, Mapping: mapping.Pointer(), Pairs: c.pairs}.Launch(b.set, b.stream)
	}
	p.check = func() (float64, error) {
		got := make([]byte, 2*half)
		for i := range c.arrays {
			if err := array.Read(i*2*half, got); err != nil {
				return 0, err
			}
			for j := range c.pairs {
				if !bytes.Equal(got[to[j]*c.bytes:][:c.bytes], contents[i*2*half+half+from[j]*c.bytes:][:c.bytes]) {
					return 0, fmt.Errorf("block %d of array %d is not the one that was copied", to[j], i)
				}
			}
		}
		return 0, nil
	}
	return p, nil
}
