package main

import "llmmemory/internal/terminal"

// removed has the replacements of commands and flags that llmgrade no longer has.
var removed = terminal.Removed{
	"similar":               "run JPlag or MOSS on the folder of the class; cmd/llmgrade/README.md shows how",
	"llmgrade --exhaustive": "the directed and random traces decide the points; play other calls with --replay FILE",
}
