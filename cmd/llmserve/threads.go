package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/parallel"
)

func (o *modelOptions) pool(rank int) (*parallel.Pool, error) {
	threads := o.threads
	var cpus []int
	if o.cpus != "" {
		var err error
		if cpus, err = parseCPUs(o.cpus); err != nil {
			return nil, fmt.Errorf("--cpus %s: %w", o.cpus, err)
		}
		if err := present(cpus); err != nil {
			return nil, fmt.Errorf("--cpus %s: %w", o.cpus, err)
		}
		threads = min(threads, len(cpus))
	}
	if o.workers > o.processes() {
		start, end := threads*rank/o.workers, threads*(rank+1)/o.workers
		if threads = end - start; cpus != nil {
			cpus = cpus[start:end]
		}
		if threads == 0 && cpus == nil {
			threads = 1 // more workers than threads
		}
	}
	if cpus != nil && threads == 0 {
		return nil, fmt.Errorf("--cpus %s: %d workers need a processor each", o.cpus, o.workers)
	}
	return parallel.New(threads, cpus...)
}

func parseCPUs(list string) (cpus []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= 1<<16 {
			return nil, fmt.Errorf("%q is neither a processor nor a range like 0-3", part)
		}
		for cpu := first; cpu <= last; cpu++ {
			if slices.Contains(cpus, cpu) {
				return nil, fmt.Errorf("processor %d is named twice", cpu)
			}
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// present returns an error if this process cannot run on all of the processors.
func present(cpus []int) error {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	for _, cpu := range cpus {
		if !allowed.IsSet(cpu) {
			return fmt.Errorf("processor %d is not one of the %d that this process can run on", cpu, allowed.Count())
		}
	}
	return nil
}
