package benchtest

import "runtime"

func readPortable(p []byte) {
	sum := byte(0)
	for i := 0; i < len(p); i += 64 {
		sum += p[i]
	}
	runtime.KeepAlive(sum) // keeps the compiler from removing the loop
}

func multiplyPortable(rounds int) (operations int) {
	x := [8]float32{}
	for range rounds {
		for i := range x {
			x[i] += x[i] * 0.5
		}
	}
	runtime.KeepAlive(x)
	return rounds * 8 * 2
}
