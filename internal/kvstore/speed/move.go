package speed

import (
	"fmt"
	"io"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/parallel"
)

// A copier copies memory with all workers of a pool.
type copier struct {
	to, from []byte
	parts    int
}

// Do copies a part; see parallel.Task.
func (c *copier) Do(_, part int) {
	lo, hi := len(c.to)*part/c.parts, len(c.to)*(part+1)/c.parts
	copy(c.to[lo:hi], c.from[lo:hi])
}

func copying(pool *parallel.Pool, to, from []byte) work {
	c := &copier{to, from, pool.Size()}
	return func(int) { pool.Run(c.parts, c) }
}

// moveTable compares writing and moving with copying the same bytes.
func moveTable(w io.Writer, o Options) error {
	fmt.Fprintf(w, "%-44s %9s %9s %9s %9s\n", "write and move, 1 thread", "memcpy", "GB/s", "of memcpy", "to reach")
	for _, l := range []attention.Layout{attention.LayoutTile, attention.LayoutFlash, attention.LayoutVLLM} {
		for _, d := range []attention.DType{attention.F16, attention.F32} {
			if err := writeRow(w, o, l, d); err != nil {
				return err
			}
		}
	}
	pool, err := parallel.New(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	config := kvstore.Config{Shape: shape(attention.F16), Layers: 4, NumBlocks: 1024, HostBlocks: 512}
	store, err := kvstore.New(config, pool)
	if err != nil {
		return err
	}
	defer store.Close()
	var pairs []kvstore.Pair
	for i := range 256 {
		pairs = append(pairs, kvstore.Pair{Src: int32(i * 389 % 509), Dst: int32(512 + i*269%509)})
	}
	bytes := len(pairs) * config.BlockBytes()
	from, to := make([]byte, bytes), make([]byte, bytes)
	for i := range from {
		from[i] = byte(i)
	}
	out := make([]kvstore.Pair, len(pairs))
	for i, p := range pairs {
		out[i] = kvstore.Pair{Src: p.Dst, Dst: p.Src}
	}
	for _, move := range []struct {
		name  string
		do    func([]kvstore.Pair) error
		pairs []kvstore.Pair
	}{{"copy_blocks", store.CopyBlocks, pairs}, {"swap out", store.SwapOut, out}, {"swap in", store.SwapIn, pairs}} {
		t := o.alternate(func(int) { must(move.do(move.pairs)) }, copying(pool, to, from))
		fmt.Fprintf(w, "%-44s %9.1f %9.1f %8.0f%% %9s\n", move.name+", 256 blocks of 4 layers, scattered",
			float64(bytes)/float64(median(t[1])), float64(bytes)/float64(median(t[0])), 100*ratio(t[1], t[0]), "80%")
	}
	return nil
}

// writeRow measures reshape_and_cache of 2,048 tokens without conversion, each time into
// other blocks.
func writeRow(w io.Writer, o Options, l attention.Layout, d attention.DType) error {
	b, err := newBench(d, l, memory/4, 1)
	if err != nil {
		return err
	}
	defer b.close()
	const n = 2048
	width := kvHeads * headSize
	key, value := make([]byte, n*width*d.Size()), make([]byte, n*width*d.Size())
	tables := b.tables(n, true)
	t := kvstore.Tokens{
		Key: attention.Tensor{DType: d, Data: key, Stride: width}, Value: attention.Tensor{DType: d, Data: value,
			Stride: width},
		Slots: make([]int64, n),
	}
	write := func(i int) {
		table := tables[i%len(tables)]
		for j := range t.Slots {
			t.Slots[j] = int64(table[j/blockSize])*blockSize + int64(j%blockSize)
		}
		must(b.store.Write(0, &t))
	}
	target := make([]byte, 2*len(key)*8)
	for i := 0; i < len(target); i += 4096 {
		target[i] = 1 // the system hands pages out at the first write
	}
	both := append(append([]byte{}, key...), value...)
	memcpy := func(i int) { copy(target[i%8*len(both):][:len(both)], both) }
	times := o.alternate(write, memcpy)
	reach := ""
	if l == attention.LayoutTile {
		reach = "80%"
	}
	fmt.Fprintf(w, "%-44s %9.1f %9.1f %8.0f%% %9s\n", fmt.Sprintf("reshape_and_cache, %v, layout %v", d, l),
		float64(len(both))/float64(median(times[1])), float64(len(both))/float64(median(times[0])),
		100*ratio(times[1], times[0]), reach)
	return nil
}
