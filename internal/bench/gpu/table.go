package main

import (
	"errors"
	"fmt"
	"time"

	"llmmemory/internal/bench/gpu/goals"
	"llmmemory/internal/serving/cuda"
)

// A goal is the rate that a kernel must reach, as a multiple of another rate.
type goal struct {
	minimum   float64
	reference string // ofCopy, ofBus, or a way of compare.py
}

const (
	ofCopy = "copy"
	ofBus  = "GB/s"
)

// reached returns the rate as a multiple of the goal's rate, or 0 if the goal's rate was not measured.
func (g goal) reached(r result, copied float64, rivals []goals.Rival) float64 {
	switch g.reference {
	case ofCopy:
		return r.bytes / r.seconds / copied
	case ofBus:
		return r.bytes / r.seconds / 1e9
	}
	for _, rival := range rivals {
		if rival.Way == g.reference {
			return rival.Seconds / r.seconds
		}
	}
	return 0
}

// A table is printed row by row.
type table struct {
	b        *bench
	copied   float64 // bytes per second
	rivals   map[string][]goals.Rival
	deadline time.Time // later rows are not measured, unless it is zero
	tally    goals.Tally
	errs     []error
}

const rowFormat = "%-52s %10s %10s %7s  %-26s %7s %-9s %s\n"

// table measures all cases and prints a row for each. It returns the errors of all cases that were wrong or
// could not be measured.
func (b *bench) table(list []benchmark, rivals map[string][]goals.Rival, limit time.Duration) error {
	t := &table{b: b, rivals: rivals}
	if limit > 0 {
		t.deadline = time.Now().Add(limit)
	}
	var err error
	if t.copied, err = b.copyRate(); err != nil {
		return err
	}
	g := b.context.Device()
	fmt.Printf("%s, compute capability %d.%d, %d multiprocessors, driver for CUDA %d.%d\ncopy inside the GPU: %.0f GB/s read and written\n\n",
		g.Name, g.Major, g.Minor, g.Multiprocessors, b.version/1000, b.version%1000/10, t.copied/1e9)
	fmt.Printf(rowFormat, "kernel", "us", "rate", "of copy", "against PyTorch", "error", "alone", "required")
	for _, c := range list {
		err := t.row(c)
		if errors.Is(err, cuda.ErrOutOfMemory) { // a smaller GPU has fewer rows
			fmt.Printf("%-52s not measured: %v\n", c.name, err)
			continue
		}
		if err != nil {
			t.errs = append(t.errs, fmt.Errorf("%s: %w", c.name, err))
			fmt.Printf("%-52s %v\n", c.name, err)
			if b.broken(err) {
				return errors.Join(t.errs...)
			}
		}
	}
	fmt.Println("\nagainst PyTorch: the time of cuBLAS, cuDNN and others there, divided by ours. error: the largest difference from float64, 1 being what" +
		"\nis allowed: one unit in the last place, twice the rounding error of a float64 sum. Attention may have this error of the output and of each" +
		"\np |v - output|, because weights p are rounded too. alone: whether rows have the same bits alone, in other batches and in other chunks." +
		"\nrequired: the least ratio, and whether it holds.")
	fmt.Printf("%v\n\n", &t.tally)
	if err := b.resources(); err != nil {
		t.errs = append(t.errs, err)
	}
	if t.errs != nil {
		return errors.Join(t.errs...)
	}
	fmt.Println("all right")
	return nil
}

// row measures a case and prints its row. If the case cannot be measured, it returns an error and prints nothing.
func (t *table) row(c benchmark) error {
	if !t.deadline.IsZero() && !time.Now().Before(t.deadline) {
		return errors.New("not measured: the time is over")
	}
	r, err := t.b.measure(c)
	if err != nil {
		return err
	}
	rate, share := fmt.Sprintf("%.0f GB/s", r.bytes/r.seconds/1e9), fmt.Sprintf("%.2f", r.bytes/r.seconds/t.copied)
	if r.flops > 0 {
		rate, share = fmt.Sprintf("%.0f TF/s", r.flops/r.seconds/1e12), "-"
	}
	rivals := "-"
	for i, rival := range t.rivals[c.name] {
		if i == 0 {
			rivals = ""
		}
		rivals += fmt.Sprintf("%s %.2f ", rival.Way, rival.Seconds/r.seconds)
	}
	fmt.Printf(rowFormat, c.name, fmt.Sprintf("%.1f", r.seconds*1e6), rate, share, rivals, fmt.Sprintf("%.3f", r.error), r.invariance, t.judge(c, r))
	if !(r.error <= 1) || r.invariance == different {
		t.errs = append(t.errs, fmt.Errorf("%s: error %.3f, alone: %s", c.name, r.error, r.invariance))
	}
	return nil
}

// judge counts the goal of a case, and returns it with the verdict.
func (t *table) judge(c benchmark, r result) string {
	g := c.goal
	if g.reference == "" {
		return "-"
	}
	required := fmt.Sprintf("%.2f of %s", g.minimum, g.reference)
	if g.reference == ofBus {
		required = fmt.Sprintf("%.0f GB/s", g.minimum)
	}
	return t.tally.Judge(required, g.minimum, g.reached(r, t.copied, t.rivals[c.name]))
}

func (b *bench) resources() error {
	fmt.Printf("%-36s %9s %6s %7s %8s\n", "compiled kernel", "registers", "local", "shared", "threads")
	spilled := 0
	for _, name := range b.set.Names() {
		n, err := b.set.Needs(name)
		if err != nil {
			return err
		}
		fmt.Printf("%-36s %9d %6d %7d %8d\n", name, n.Registers, n.Local, n.Shared, n.MaxThreads)
		if n.Local > 0 {
			spilled++
		}
	}
	fmt.Printf("%d kernels have local memory, for registers that did not fit\n", spilled)
	return nil
}
