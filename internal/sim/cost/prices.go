package cost

import (
	_ "embed"
	"fmt"
	"math"
)

//go:embed prices.json
var pricesJSON []byte

// Prices are what GPUs cost to rent and to run.
type Prices struct {
	Source      string           `json:"source"`       // of the dollars
	WattsSource string           `json:"watts_source"` // of the watts
	GPUs        map[string]Price `json:"gpus"`         // by GPU.Name
}

// A Price is of one GPU. 0: not known.
type Price struct {
	Dollars float64 `json:"dollars_per_hour,omitempty"`
	Watts   float64 `json:"watts,omitempty"` // at most
}

// OpenPrices reads a file of prices; "" is the built-in one. The error wraps ErrFile.
func OpenPrices(path string) (Prices, error) {
	var p Prices
	if path == "" {
		embedded(pricesJSON, &p)
	} else if err := readFile(path, &p); err != nil {
		return Prices{}, fmt.Errorf("prices %s: %w", path, err)
	}
	for name, v := range p.GPUs {
		for _, number := range []float64{v.Dollars, v.Watts} {
			if !(number >= 0) || math.IsInf(number, 0) {
				return Prices{}, fmt.Errorf("%w: prices %s: %s: %v: want numbers of at least 0", ErrFile, path, name, number)
			}
		}
	}
	return p, nil
}
