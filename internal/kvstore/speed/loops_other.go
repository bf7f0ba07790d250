//go:build !amd64

package speed

var sink byte

// Read looks at every cache line.
func Read(p []byte) {
	sum := byte(0)
	for i := 0; i < len(p); i += 64 {
		sum += p[i]
	}
	sink = sum
}

var product float32

func multiply(rounds int) (operations int) {
	x := [8]float32{}
	for range rounds {
		for i := range x {
			x[i] += x[i] * 0.5
		}
	}
	product = x[0]
	return rounds * 8 * 2
}
