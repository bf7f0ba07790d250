// Command gpu measures and checks the kernels of internal/serving/cuda/kernels on a GPU, and prints one table. .ci/gpu
// builds it, and runs it on a machine with a GPU.
//
//	gpu -cases              print the cases, for compare.py
//	gpu [-theirs FILE]      measure, beside the times in FILE that compare.py measured
//	gpu -small -driver FILE the same with small cases on another library in place of the driver (tests)
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"llmmemory/internal/serving/cuda"
)

func main() {
	library := flag.String("driver", cuda.Library, "`file` to open as NVIDIA's driver")
	small := flag.Bool("small", false, "small cases, whose times mean nothing")
	names := flag.Bool("cases", false, "print the cases and exit")
	theirs := flag.String("theirs", "", "`file` with the times of compare.py")
	flag.Parse()
	if err := run(*library, *small, *names, *theirs); err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

func run(library string, small, names bool, theirs string) error {
	list := cases(small)
	if names {
		for _, c := range list {
			fmt.Println(c.name())
		}
		return nil
	}
	times, err := readTimes(theirs)
	if err != nil {
		return err
	}
	b, err := newBench(library, small)
	if err != nil {
		return err
	}
	err = b.table(list, times)
	return errors.Join(err, b.close())
}

// readTimes reads lines with the name of a case, a tab and seconds. Lines that begin with # are printed.
func readTimes(file string) (map[string]float64, error) {
	times := map[string]float64{}
	if file == "" {
		return times, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			fmt.Println(lines.Text())
			continue
		}
		name, seconds, _ := strings.Cut(lines.Text(), "\t")
		if times[name], err = strconv.ParseFloat(seconds, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return times, nil
}

// table measures all cases. It returns an error if one was wrong, after all were measured.
func (b *bench) table(list []benchmark, theirs map[string]float64) error {
	g := b.context.Device()
	copied, err := b.copyRate()
	if err != nil {
		return err
	}
	fmt.Printf("%s, compute capability %d.%d, %d multiprocessors, driver for CUDA %d.%d\ncopy inside the GPU: %.0f GB/s read and written\n\n",
		g.Name, g.Major, g.Minor, g.Multiprocessors, b.version/1000, b.version%1000/10, copied/1e9)
	fmt.Printf("%-44s %11s %10s %7s %8s %9s %s\n", "kernel", "us", "rate", "of copy", "PyTorch", "error", "alone")
	var wrong []error
	for _, c := range list {
		r, err := b.measure(c)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", c.name(), err))
			fmt.Printf("%-44s %v\n", c.name(), err)
			if b.broken(err) {
				break
			}
			continue
		}
		rate, share := fmt.Sprintf("%.0f GB/s", r.bytes/r.seconds/1e9), fmt.Sprintf("%.2f", r.bytes/r.seconds/copied)
		if r.flops > 0 {
			rate, share = fmt.Sprintf("%.0f TF/s", r.flops/r.seconds/1e12), "-"
		}
		ratio := "-"
		if t := theirs[c.name()]; t > 0 {
			ratio = fmt.Sprintf("%.2f x", t/r.seconds)
		}
		fmt.Printf("%-44s %11.1f %10s %7s %8s %9.3f %s\n", c.name(), r.seconds*1e6, rate, share, ratio, r.error, r.alone)
		if !(r.error <= 1) || r.alone == different {
			wrong = append(wrong, fmt.Errorf("%s: error %.3f, alone: %s", c.name(), r.error, r.alone))
		}
	}
	fmt.Println("\nPyTorch: its time divided by ours. error: the largest difference from float64, 1 being what is allowed: one unit in the" +
		"\nlast place, and for attention 2^-9 of the sum of |p v|. alone: whether rows have the same bits alone as in the batch.")
	if wrong != nil {
		return errors.Join(wrong...)
	}
	fmt.Println("all right")
	return nil
}
