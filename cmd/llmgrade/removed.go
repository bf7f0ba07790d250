package main

import "llmmemory/internal/terminal"

// removed maps commands and flags that llmgrade no longer has to their replacements.
var removed = terminal.Removed{
	"similar":               "run JPlag or MOSS on the folder of the class; cmd/llmgrade/README.md shows how",
	"llmgrade --exhaustive": "the directed and random traces decide the points; play other calls with --replay FILE",
}
