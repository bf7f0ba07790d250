package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// swapped describes blocks that lie anywhere in one array. They are gathered into pinned memory, or scattered
// from there.
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

// written describes keys and values that are written to slots in any order.
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
