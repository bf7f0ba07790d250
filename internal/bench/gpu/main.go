// Command gpu measures and checks the kernels of internal/serving/cuda/kernels on a GPU, and prints one
// table. .ci/gpu builds it and runs it on a machine with a GPU.
//
//	gpu -cases              print the cases, for compare.py
//	gpu [-theirs FILE]      measure, and compare with the times in FILE that compare.py measured
//	gpu -within TIME        begin no case after TIME
//	gpu -small -driver FILE small cases, with another library in place of the driver (tests)
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"llmmemory/internal/bench/gpu/goals"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

func main() {
	library := flag.String("driver", cuda.Library, "`file` to open as NVIDIA's driver")
	small := flag.Bool("small", false, "small cases, whose times mean nothing")
	names := flag.Bool("cases", false, "print the cases and exit")
	theirs := flag.String("theirs", "", "`file` with the times of compare.py")
	limit := flag.Duration("within", 0, "`time` after which no other case is begun; 0 means no limit")
	flag.Parse()
	if err := run(*library, *small, *names, *theirs, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

func run(library string, small, names bool, theirs string, limit time.Duration) error {
	list := cases(small)
	if names {
		for _, c := range list {
			fmt.Println(c.name)
		}
		return nil
	}
	rivals, err := goals.ReadRivals(theirs)
	if err != nil {
		return err
	}
	b, err := newBench(library, small)
	if err != nil {
		return err
	}
	err = b.table(list, rivals, limit)
	return errors.Join(err, b.close())
}

// cases returns all cases, or small ones for tests.
func cases(small bool) []benchmark {
	pick := func(normal, reduced int) int {
		if small {
			return reduced
		}
		return normal
	}
	all := rowwises(pick)
	all = append(all, rotary(pick(4096, 3), pick(40, 2)), sample(pick(64, 2), pick(128256, 1000), 0), sample(pick(64, 2), pick(128256, 1000), 50), embedding(pick(8192, 5), pick(32000, 50), pick(4096, 264)),
		write(kernels.CacheAuto, pick(8192, 5), pick(8, 2)), write(kernels.CacheE4M3, pick(8192, 5), pick(8, 2)), copyBlocks(pick(1000, 3), pick(4, 2), pick(64<<10, 4096)),
		swap(pick(1000, 3), pick(64<<10, 4096), false), swap(pick(1000, 3), pick(64<<10, 4096), true))
	return append(append(all, attentions(small)...), products(small)...)
}
