package attention

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func cpu() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

func TestQuick(t *testing.T) {
	if os.Getenv("QUICK") == "" {
		t.Skip()
	}
	for _, dtype := range []DType{F16, BF16, E4M3, E5M2, Int8} {
		for _, n := range []int{256} {
			r := rand.New(rand.NewPCG(1, 1))
			p := newProblem(r, problemSpec{
				shape: Shape{BlockSize: 16, NumKVHeads: 8, HeadSize: 128, DType: dtype}, heads: 32, lens: []int{n},
			})
			runner := newRunner(t, 1)
			best := time.Hour
			for range 40 {
				s := cpu()
				for range 20 {
					_ = runner.Forward(&p.cache, &p.batch)
				}
				best = min(best, (cpu()-s)/20)
			}
			bytes := float64(n * 2 * 8 * 128 * dtype.Size())
			// parts
			w := &runner.workers[0]
			part := func(f func()) float64 {
				best := time.Hour
				for range 40 {
					s := cpu()
					for range 200 {
						f()
					}
					best = min(best, (cpu()-s)/200)
				}
				return float64(best)
			}
			runner.cache, runner.batch, runner.group = &p.cache, &p.batch, 4
			it := &runner.plan.items[0]
			runner.setRows(w, it)
			w.reaches(0)
			k := runner.kernels
			find := part(func() { runner.findTiles(w, 0, 0, 0, 0, n/16) })
			sc := part(func() { k.tileScores(&w.call, dtype, w.q, 4, 128, &w.tiles[0], n/16, w.scores) })
			we := part(func() {
				for i := range w.rows {
					runner.weigh(w, &w.rows[i], w.scores[i*scoreStride:][:scoreStride], 0, 0, n, 1)
				}
			})
			va := part(func() {
				k.tileValues(&w.call, dtype, w.scores, 4, n, 0, &w.tiles[w.firstValue], 128, w.part[2:], recordSize(&p.cache))
			})
			set := part(func() { runner.setRows(w, it) })
			fin := part(func() { runner.merge(w); runner.finish(w) })
			fmt.Printf("%v %d: %.1f GB/s; %.0f ns a head of them find %.0f scores %.0f weigh %.0f values %.0f set %.0f merge+finish %.0f\n", dtype, n, bytes/float64(best), float64(best)/8, find, sc, we, va, set, fin)
		}
	}
}
