package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"llmmemory/internal/sim/cost"
	"llmmemory/internal/terminal"
)

// openPrices reads a file of prices and warns of those that no GPU has: neither one of llmsim list
// nor one that is used, by its name or file.
func openPrices(warn io.Writer, path string, used ...string) (cost.Prices, error) {
	prices, err := cost.OpenPrices(path)
	if err != nil || path == "" {
		return prices, err
	}
	known := cost.GPUs()
	for _, file := range used {
		if g, err := cost.OpenGPU(file); err == nil { // else it is refused where it is used
			known = append(known, g.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(prices.GPUs)) {
		if slices.Contains(known, name) {
			continue
		}
		meant := ""
		if near := terminal.Nearest(name, known); near != "" {
			meant = fmt.Sprintf("; did you mean %s?", near)
		}
		fmt.Fprintf(warn, "llmsim: prices %s: no GPU is called %q%s\n", path, name, meant)
	}
	return prices, nil
}
