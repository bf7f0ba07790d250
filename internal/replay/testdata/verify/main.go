// Command verify plays recordings with rules changed. Each line of its input has the number of
// a change and the names of recordings. It says in a line what the first difference
// is, if there is one. The tests of mutants build it, because it links faster than llmbench.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"llmmemory/internal/replay"
)

// change makes the change of a number; 0: none. What the tests add to the build sets it.
var change = func(number int) {}

func main() {
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

// loaded has a function for each recording that was asked for, which plays it.
var loaded = map[string]func() error{}

func verify(number int, file string) error {
	change(0)
	play := loaded[file]
	if play == nil {
		old, err := replay.IsOld(file)
		if err != nil {
			return err
		}
		if play, err = load(file, old); err != nil {
			return err
		}
		loaded[file] = play
	}
	change(number)
	return play()
}

func load(file string, old bool) (play func() error, err error) {
	if old {
		t, err := replay.LoadOld(file)
		return func() error {
			_, err := replay.VerifyOld(t)
			return err
		}, err
	}
	t, err := replay.Load(file)
	return func() error { return replay.Verify(t) }, err
}
