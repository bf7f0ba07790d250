package main

import (
	"bytes"
	"fmt"
	"unsafe"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// swap returns a case that copies blocks between an array on the GPU and pinned host memory. The blocks are at random
// places in the array and at consecutive places in host memory. The copy is to the GPU if toGPU is true, and otherwise
// to the host.
func swap(blocks, size int, toGPU bool) benchmark {
	way := "out"
	if toGPU {
		way = "in"
	}
	name := fmt.Sprintf("swap_blocks_%s blocks=%d bytes=%d", way, blocks, size)
	return benchmark{name: name, goal: goal{45, ofBus}, prepare: func(b *bench) prepared {
		numbers, array := b.random(2 * blocks * size / 2) // twice as many as are swapped
		host := mustGet(b.context.AllocPinned(blocks * size))
		b.memory = append(b.memory, host)
		var pairs []int32
		places := b.rng.Perm(2 * blocks)[:blocks]
		for i, block := range places {
			if toGPU {
				pairs = append(pairs, int32(i), int32(block))
			} else {
				pairs = append(pairs, int32(block), int32(i))
			}
		}
		for i := range host.Bytes() {
			host.Bytes()[i] = byte(i * 7)
		}
		return prepared{
			bytes: float64(blocks * size),
			kernel: kernels.SwapBlocks{Blocks: kernels.Blocks{Arrays: b.numbers([]uint64{uint64(array.Pointer())}), Count: 1, BlockBytes: size},
				Host: host.Pointer(), Mapping: b.numbers(pairs), Pairs: blocks, In: toGPU},
			check: func() float64 {
				for i, block := range places {
					onHost, got := host.Bytes()[i*size:][:size], contents(array, block*size, size)
					if !bytes.Equal(onHost, got) || !toGPU && !bytes.Equal(got, numbers[block*size:][:size]) {
						must(fmt.Errorf("block %d is not what was copied", block))
					}
				}
				return 0
			},
		}
	}}
}

func write(cache kernels.CacheType, tokens, heads int) benchmark {
	kernel := "reshape_and_cache"
	if cache != kernels.CacheAuto {
		kernel += "_" + cache.String()
	}
	return benchmark{name: fmt.Sprintf("%s tokens=%d heads=%d size=%d", kernel, tokens, heads, headSize), prepare: func(b *bench) prepared {
		width, kind := heads*headSize, cpuTypes[cache]
		rows, memory := b.random(tokens * width)
		blocks := (tokens + blockSize - 1) / blockSize
		caches := [2]*cuda.Memory{b.alloc(kind.Size() * blocks * blockSize * width), b.alloc(kind.Size() * blocks * blockSize * width)}
		var slots []int64
		for _, slot := range b.rng.Perm(blocks * blockSize)[:tokens] {
			slots = append(slots, int64(slot))
		}
		return prepared{
			bytes: 2 * float64(2+kind.Size()) * float64(tokens*width),
			kernel: kernels.ReshapeAndCache{Cache: cache, KeyCache: caches[0].Pointer(), ValueCache: caches[1].Pointer(), Key: memory.Pointer(), Value: memory.Pointer(),
				Slots: b.numbers(slots), Tokens: tokens, KeyHeads: heads, HeadSize: headSize, BlockSize: blockSize, KeyStride: width, ValueStride: width},
			check: func() float64 {
				for _, token := range checked(tokens) {
					for head := range heads {
						place := ((int(slots[token])/blockSize*heads+head)*blockSize + int(slots[token])%blockSize) * headSize
						want := make([]byte, kind.Size()*headSize)
						for i := range headSize {
							kind.Store(unsafe.Pointer(&want[kind.Size()*i]), float32(element(rows, token*width+head*headSize+i)))
						}
						for _, cache := range caches {
							if !bytes.Equal(contents(cache, kind.Size()*place, len(want)), want) {
								must(fmt.Errorf("token %d is not in its slot", token))
							}
						}
					}
				}
				return 0
			},
		}
	}}
}

// copyBlocks returns a case that copies blocks from random places in the upper half of each array to random
// places in the lower half.
func copyBlocks(count, arrays, size int) benchmark {
	return benchmark{name: fmt.Sprintf("copy_blocks pairs=%d arrays=%d bytes=%d", count, arrays, size), prepare: func(b *bench) prepared {
		half := count * size
		numbers, array := b.random(arrays * 2 * half / 2)
		var pointers []uint64
		for i := range arrays {
			pointers = append(pointers, uint64(array.Pointer())+uint64(i*2*half))
			b.fill(array, i*2*half, half)
		}
		src, dst := b.rng.Perm(count), b.rng.Perm(count)
		var pairs []int32
		for i := range count {
			pairs = append(pairs, int32(count+src[i]), int32(dst[i]))
		}
		return prepared{
			bytes: 2 * float64(arrays*half),
			kernel: kernels.CopyBlocks{Blocks: kernels.Blocks{Arrays: b.numbers(pointers), Count: arrays, BlockBytes: size},
				Mapping: b.numbers(pairs), Pairs: count},
			check: func() float64 {
				for i := range arrays {
					got := contents(array, i*2*half, half)
					for j := range count {
						if !bytes.Equal(got[dst[j]*size:][:size], numbers[i*2*half+half+src[j]*size:][:size]) {
							must(fmt.Errorf("block %d of array %d is not the one that was copied", dst[j], i))
						}
					}
				}
				return 0
			},
		}
	}}
}
