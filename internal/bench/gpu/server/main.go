// Command server measures llmserve and its engine on a GPU, with models that have random weights, and prints
// one table. .ci/gpu builds it and runs it on a machine with a GPU.
//
//	server -work                          print the models and requests, for compare.py
//	server -llmserve FILE -llmsim FILE    measure, with these programs
//
// The flags -theirs, -within, -small and -driver have the same meaning as for the command internal/bench/gpu.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"llmmemory/internal/bench/gpu/goals"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/parallel"
)

type bench struct {
	small            bool
	library, dir     string
	llmserve, llmsim string    // programs
	deadline         time.Time // parts that need longer are not measured; zero means no limit
	rivals           map[string][]goals.Rival
	tally            goals.Tally
	errs             []error
	device           *gpu.Device
	pool             *parallel.Pool
	copied, uploaded float64 // bytes per second: read and written inside the GPU, and to the GPU
}

func main() {
	b := &bench{}
	flag.StringVar(&b.library, "driver", cuda.Library, "`file` to open as NVIDIA's driver")
	flag.BoolVar(&b.small, "small", false, "small models, whose times mean nothing")
	theirs := flag.String("theirs", "", "`file` with the times of compare.py")
	flag.StringVar(&b.llmserve, "llmserve", "", "`program` llmserve")
	flag.StringVar(&b.llmsim, "llmsim", "", "`program` llmsim")
	work := flag.Bool("work", false, "print the loads and exit")
	limit := flag.Duration("within", 0, "`time` after which nothing else is begun; 0 means no limit")
	flag.Parse()
	if *work {
		if err := b.work(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	if *limit > 0 {
		b.deadline = time.Now().Add(*limit)
	}
	if err := b.run(*theirs); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func (b *bench) run(theirs string) (err error) {
	if b.rivals, err = goals.ReadRivals(theirs); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "gpu-server-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.small {
		err = b.linkDriver()
	}
	if err := errors.Join(err, b.rates()); err != nil {
		return err
	}
	if b.pool, err = parallel.New(runtime.GOMAXPROCS(0)); err != nil {
		return err
	}
	defer b.pool.Close()
	fmt.Printf("copy inside the GPU: %.0f GB/s read and written; to the GPU: %.1f GB/s\n\n", b.copied/1e9, b.uploaded/1e9)
	fmt.Printf(rowFormat, "server", "measured", "ratio", "required")
	b.part("decode", 15, func() error { return b.onGPU(b.decode) })
	b.part("http", 25, b.http)
	b.part("paper", 45, func() error { return b.onGPU(b.paper) })
	b.part("predict", 35, b.predict)
	fmt.Printf("%v\n", &b.tally)
	if b.errs == nil {
		fmt.Println("all right")
	}
	return errors.Join(b.errs...)
}

// part measures one part, if at least the given seconds are left before b.deadline. It records and prints an error of
// the part. A part that is not measured counts as an error, unless the GPU has too little memory for it.
func (b *bench) part(name string, seconds float64, measure func() error) {
	err := errors.New("not measured: the time is over")
	if !b.lacksTime(seconds) {
		err = measure()
	}
	if errors.Is(err, cuda.ErrOutOfMemory) { // a smaller GPU has fewer rows
		fmt.Printf("%-52s not measured: %v\n", name, err)
		return
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n") // the others follow from it
		b.errs = append(b.errs, fmt.Errorf("%s: %s", name, first))
		fmt.Printf("%-52s %s\n", name, first)
	}
}

// lacksTime reports whether there is a b.deadline and fewer than the given seconds are left before it.
func (b *bench) lacksTime(seconds float64) bool {
	return !b.deadline.IsZero() && time.Until(b.deadline).Seconds() < seconds
}

func (b *bench) onGPU(f func() error) (err error) {
	if b.device, err = gpu.Open(b.library, 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.device.Close()) }()
	return f()
}

const rowFormat = "%-52s %-40s %7s  %s\n"

// row prints a row. The parameter goal is a text that describes the goal of the row: a ratio of at least minimum. row
// counts the goal and whether the ratio reaches it. If the text is empty, the row has no goal. A ratio of 0 means
// that it was not measured.
func (b *bench) row(name, measured string, ratio float64, goal string, minimum float64) {
	shown, verdict := "-", "-"
	if ratio > 0 {
		shown = fmt.Sprintf("%.2f", ratio)
	}
	if goal != "" {
		verdict = b.tally.Judge(goal, minimum, ratio)
	}
	fmt.Printf(rowFormat, name, measured, shown, verdict)
}

func (b *bench) pick(normal, small int) int {
	if b.small {
		return small
	}
	return normal
}

// folder returns the folder of a model. It writes the model if the folder does not exist.
func (b *bench) folder(name string, s shape) (string, error) {
	dir := filepath.Join(b.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, s.write(dir)
}

func (b *bench) rates() (err error) {
	driver, err := cuda.Open(b.library)
	if err != nil {
		return err
	}
	c, err := driver.NewContext(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	size := b.pick(1<<30, 1<<16)
	memory, err := c.Alloc(2 * size)
	if err != nil {
		return err
	}
	defer memory.Close()
	pinned, err := c.AllocPinned(size)
	if err != nil {
		return err
	}
	defer pinned.Close()
	stream, err := c.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	rate := func(copies int, copyOnce func() error) (float64, error) {
		err := errors.Join(copyOnce(), stream.Synchronize())
		begin := time.Now()
		for range copies {
			err = errors.Join(err, copyOnce())
		}
		err = errors.Join(err, stream.Synchronize())
		return float64(copies*size) / time.Since(begin).Seconds(), err
	}
	if b.copied, err = rate(10, func() error { return stream.Copy(memory, size, memory, 0, size) }); err != nil {
		return err
	}
	b.copied *= 2
	b.uploaded, err = rate(3, func() error { return stream.Upload(memory, 0, pinned, 0, size) })
	return err
}
