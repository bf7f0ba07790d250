// Package guest has only tests. They check that libllm_memory does not disturb the C program that it is linked into,
// and that libllm_cache does what its header says (cache_test.go). Each test compiles one of the programs in
// testdata/guest and runs it. The comment at the beginning of each program says what the program shows.
package guest
