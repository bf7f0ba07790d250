// Package guest holds no code, only tests: that libllm_memory is a good guest
// in a C program (internal/README.md, decision 3), and that libllm_cache keeps what its
// header says (cache_test.go). Each test compiles one of the programs
// in testdata/guest and runs it; the head of each program says what it shows.
package guest
