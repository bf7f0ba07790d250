// Command verify plays recordings with changed rules. Each line of its input has the number
// of a change and the names of recordings. For each it prints a line with the first
// difference, if there is one. The tests of mutants build it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"llmmemory/internal/scheduling/replay"
)

// change activates the change with the given number, or none if it is 0. Files that the tests
// add to the build set it.
var change = func(number int) {}

func main() {
	debug.SetGCPercent(400) // recordings stay in memory, so a collection frees little
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		number, err := strconv.Atoi(fields[0])
		for _, file := range fields[1:] {
			if err == nil {
				err = verify(number, file)
			}
		}
		difference := ""
		if err != nil {
			difference = strconv.Quote(err.Error())
		}
		fmt.Printf("played %d: %s\n", number, difference)
	}
}

// loaded has the recordings that have been loaded, by file.
var loaded = map[string]*replay.Trace{}

func verify(number int, file string) error {
	change(0)
	t := loaded[file]
	if t == nil {
		var err error
		if t, err = replay.Load(file); err != nil {
			return err
		}
		loaded[file] = t
	}
	change(number)
	_, err := replay.Verify(t)
	return err
}
