package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"llmmemory/internal/invariants"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/kvstore"
)

// blocks holds the keys and values on the GPU. Each layer of the store has an array of keys and an array of
// values.
type blocks struct {
	gpu    *Device
	store  kvstore.Config
	caches memories
	arrays *cuda.Memory // the addresses of all arrays

	moving sync.Mutex   // protects host and moves
	moves  *cuda.Stream // of ReadBlocks and WriteBlocks, on the thread of the mover
	host   *cuda.Pinned // movedBlocks blocks, then as many pairs

	mu     sync.Mutex // protects failed
	failed error      // of ReadBlocks, WriteBlocks or Poison
}

func newBlocks(d *Device, c kvstore.Config) (*blocks, error) {
	b := &blocks{gpu: d, store: c}
	var addresses []cuda.Pointer
	for range c.Layers {
		m, err := d.context.Alloc(c.NumBlocks * c.Shape.BlockBytes())
		if err != nil {
			return b, err
		}
		b.caches = append(b.caches, m)
		keys, values := b.cache(len(b.caches) - 1)
		addresses = append(addresses, keys, values)
	}
	errs := make([]error, 4)
	b.arrays, errs[0] = d.context.Alloc(8 * len(addresses))
	b.host, errs[1] = d.mover.AllocPinned(movedBlocks(&c) * (c.BlockBytes() + 8))
	b.moves, errs[2] = d.mover.NewStream()
	if errs[0] == nil {
		errs[3] = b.arrays.Write(0, bytesOf(addresses))
	}
	for _, name := range []string{"swap_blocks_in", "swap_blocks_out"} { // later, the thread that loads kernels may wait for a step
		_, err := d.set.Needs(name)
		errs = append(errs, err)
	}
	return b, errors.Join(errs...)
}

// cache returns the addresses of the array of keys and of the array of values of a layer of the store.
func (b *blocks) cache(i int) (keys, values cuda.Pointer) {
	m := b.caches[i]
	return m.Pointer(), m.Pointer() + cuda.Pointer(m.Size()/2)
}

// kernelBlocks describes the arrays to the kernels that move blocks.
func (b *blocks) kernelBlocks() kernels.Blocks {
	return kernels.Blocks{Arrays: b.arrays.Pointer(), Count: 2 * len(b.caches), BlockBytes: b.store.Shape.BlockBytes() / 2}
}

// CopyBlocks implements engine.ModelRunner. It launches one or more kernels. A kernel copies its pairs in any order, so
// pairs whose order matters must not belong to the same kernel. Therefore a pair begins a new kernel in two cases:
//   - It reads or writes a block that an earlier pair of the current kernel has written.
//   - It writes a block that an earlier pair of the current kernel has read.
func (r *Runner) CopyBlocks(pairs []kvstore.Pair) error {
	if len(pairs) == 0 {
		return nil
	}
	return r.context.Do(func() error {
		f, err := r.prepared.flight, error(nil)
		if f == nil {
			f, err = r.next()
		}
		if err == nil {
			f.pairs, err = r.device.grown(f.pairs, 8*len(pairs))
		}
		if err != nil {
			return err
		}
		read, written, first := map[int32]bool{}, map[int32]bool{}, 0
		flush := func(end int) error {
			mapping := f.pairs.Pointer() + cuda.Pointer(8*first)
			err := kernels.CopyBlocks{Blocks: r.kernelBlocks(), Mapping: mapping, Pairs: end - first}.Launch(r.set, r.stream)
			clear(read)
			clear(written)
			first = end
			return err
		}
		for i, p := range pairs {
			if n := int32(r.store.NumBlocks); p.Src < 0 || p.Dst < 0 || p.Src >= n || p.Dst >= n {
				return fmt.Errorf("copying block %d to block %d of %d", p.Src, p.Dst, n)
			}
			if written[p.Src] || written[p.Dst] || read[p.Dst] {
				if err := flush(i); err != nil {
					return err
				}
			}
			putPair(f.pairs.Bytes()[8*i:], p.Src, p.Dst)
			read[p.Src], written[p.Dst] = true, true
		}
		return flush(len(pairs))
	})
}

func putPair(buffer []byte, src, dst int32) {
	binary.LittleEndian.PutUint32(buffer, uint32(src))
	binary.LittleEndian.PutUint32(buffer[4:], uint32(dst))
}

// Poison implements engine.ModelRunner.
func (b *blocks) Poison(ids []int32) {
	if !invariants.Enabled {
		return
	}
	half := b.store.Shape.BlockBytes() / 2
	for _, m := range b.caches {
		for _, id := range ids {
			b.note(errors.Join(b.gpu.stream.Fill(m, int(id)*half, half, 0xff), b.gpu.stream.Fill(m, m.Size()/2+int(id)*half, half, 0xff)))
		}
	}
}

// ReadBlocks implements engine.ModelRunner. If it fails, each later Forward returns the error.
func (b *blocks) ReadBlocks(ids []int32, dst [][]byte) { b.swap(ids, dst, false) }

// WriteBlocks implements engine.ModelRunner. If it fails, each later Forward returns the error.
func (b *blocks) WriteBlocks(ids []int32, src [][]byte) { b.swap(ids, src, true) }

// swap copies blocks between the GPU and data, through pinned memory, and returns when they are copied. A launch copies
// as many blocks as fit into the pinned memory.
func (b *blocks) swap(ids []int32, data [][]byte, toGPU bool) {
	b.moving.Lock()
	defer b.moving.Unlock()
	size, most := b.store.BlockBytes(), movedBlocks(&b.store)
	for ; len(ids) > 0; ids, data = ids[min(most, len(ids)):], data[min(most, len(ids)):] {
		n := min(most, len(ids))
		for i, id := range ids[:n] {
			src, dst := id, int32(i)
			if toGPU {
				src, dst = dst, src
				copy(b.host.Bytes()[i*size:][:size], data[i])
			}
			putPair(b.host.Bytes()[most*size+8*i:], src, dst)
		}
		k := kernels.SwapBlocks{Blocks: b.kernelBlocks(), Host: b.host.Pointer(), Mapping: b.host.Pointer() + cuda.Pointer(most*size), Pairs: n, In: toGPU}
		b.note(b.gpu.mover.Do(func() error {
			return errors.Join(k.Launch(b.gpu.set, b.moves), b.moves.Synchronize())
		}))
		for i := range n {
			if !toGPU {
				copy(data[i], b.host.Bytes()[i*size:][:size])
			}
		}
	}
}

// movedBlocks returns the largest number of blocks that a launch copies to or from pinned memory: 32, or fewer so that
// they take at most 32 MiB, but at least one.
func movedBlocks(c *kvstore.Config) int { return max(1, min(32, 32<<20/c.BlockBytes())) }

func (b *blocks) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = errors.Join(b.failed, err)
}

// failure returns the errors of earlier calls of ReadBlocks, WriteBlocks and Poison.
func (b *blocks) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *blocks) close() error {
	return errors.Join(b.host.Close(), b.moves.Close(), b.arrays.Close(), b.caches.close())
}
