package subject_test

import (
	"os"
	"testing"
	"time"

	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/subject"
)

func BenchmarkStart(b *testing.B) {
	k, err := build.NewKit()
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	src, _ := os.ReadFile("../../../testdata/submissions/correct/llm_memory.c")
	p, err := k.Build("x", src)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := subject.Start(p.Native(), subject.Patience{Call: time.Second, Process: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
