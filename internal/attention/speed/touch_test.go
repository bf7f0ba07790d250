package speed

import (
	"os"
	"testing"

	"llmmemory/internal/attention"
)

func TestProfile(t *testing.T) {
	if os.Getenv("QUICK") == "" {
		t.Skip()
	}
	d := attention.F16
	if os.Getenv("QUICK") == "int8" {
		d = attention.Int8
	}
	b, err := newBench(d, attention.LayoutTile, memory, 1)
	if err != nil {
		t.Fatal(err)
	}
	tables := b.tables(16384, true)
	w := b.decode(b.batch(1, 16384, 1), tables)
	for i := range 150 {
		w(i)
	}
}
