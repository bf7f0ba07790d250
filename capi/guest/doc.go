// Package guest has no code, only tests. They check that libllm_memory is a good guest in a C program
// (internal/README.md, decision 3), and that libllm_cache does what its header says (cache_test.go). Each test
// compiles one of the programs in testdata/guest and runs it. The comment at the head of each program says what the
// program shows.
package guest
