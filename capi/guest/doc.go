// Package guest has only tests. They check that libllm_memory does not disturb the C program it is linked into. They
// also check that libllm_cache does what its header says (cache_test.go). Most tests compile a program of testdata/guest
// or testdata/examples and run it. The comment at the beginning of a program says what it shows.
package guest
