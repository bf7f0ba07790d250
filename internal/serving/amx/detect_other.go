//go:build !amd64 || purego

package amx

// Usable returns no products: this build has no tiles.
func Usable() Features { return Features{} }
