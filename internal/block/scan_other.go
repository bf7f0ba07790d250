//go:build !amd64

package block

func firstZero(counts []int32) int { return firstZeroPortable(counts) }
