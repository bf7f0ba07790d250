package speed

// These keep what is computed, so that the compiler does not leave it out.
var (
	sink    byte
	product float32
)

// readPortable looks at every cache line.
func readPortable(p []byte) {
	sum := byte(0)
	for i := 0; i < len(p); i += 64 {
		sum += p[i]
	}
	sink = sum
}

func multiplyPortable(rounds int) (operations int) {
	x := [8]float32{}
	for range rounds {
		for i := range x {
			x[i] += x[i] * 0.5
		}
	}
	product = x[0]
	return rounds * 8 * 2
}
