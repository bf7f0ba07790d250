// Command verify plays recordings and fails at the first difference. The tests
// of mutants build it, because it links faster than llmbench.
package main

import (
	"fmt"
	"os"

	"llmmemory/internal/replay"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := verify(file); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

func verify(file string) error {
	old, err := replay.IsOld(file)
	if err != nil {
		return err
	}
	if old {
		t, err := replay.LoadOld(file)
		if err == nil {
			_, err = replay.VerifyOld(t)
		}
		return err
	}
	t, err := replay.Load(file)
	if err == nil {
		err = replay.Verify(t)
	}
	return err
}
