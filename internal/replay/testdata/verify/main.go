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
		t, err := replay.Load(file)
		if err == nil {
			err = replay.Verify(t)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}
