// Package guest holds no code, only tests: that libllm_memory is a good guest
// in a C program (design, decision 3). Each test compiles one of the programs
// in testdata/guest and runs it; what a program shows stands at its head.
package guest
