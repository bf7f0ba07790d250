//go:build !amd64

package attention

func choose() kernels { return portable{} }
