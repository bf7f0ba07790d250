//go:build !linux

package pool

func large[T any](n int) []T { return make([]T, n) }
