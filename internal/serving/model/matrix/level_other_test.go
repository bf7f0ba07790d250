//go:build !amd64 || purego

package matrix

import "testing"

func levels() []int { return []int{0} }

func setLevel(testing.TB, int) {}

func eachLevel(_ testing.TB, f func(name string)) { f(Kernels()) }

func fuses() bool { return false }
