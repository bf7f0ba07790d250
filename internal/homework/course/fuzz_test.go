package course

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// FuzzCalls plays the random tests with bytes from Go's fuzzer. The tests make calls on two engines. Between the calls,
// they also write to the engines' memory as an outside writer does. The corpus is the seeds below and the files in
// testdata/fuzz. This command searches for more inputs, and adds those that fail to testdata/fuzz:
//
//	go test -fuzz FuzzCalls
func FuzzCalls(f *testing.F) {
	for seed := range byte(8) { // long enough for some hundred calls
		bytes := make([]byte, 16<<10)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(bytes)
		f.Add(bytes)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		play(t, rapid.SampledFrom(kinds).Draw(t, "kind"))
	}))
}
