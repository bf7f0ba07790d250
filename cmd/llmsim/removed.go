package main

import "llmmemory/internal/terminal"

// removed has the replacements of commands and flags that llmsim no longer has.
var removed = terminal.Removed{
	"calibrate --figures": "the table that calibrate prints has the same numbers",
	"cheapest":            "run llmsim plan for each --gpu, and divide what a server costs by the rate that it holds",
	"plan --prices":       withoutMoney,
	"fleet --prices":      withoutMoney,
	"sweep --shard":       "run llmsim run --json in each task of a job array; cmd/llmsim/README.md shows how",
}

const withoutMoney = "llmsim computes rates and latencies, not money: divide what a server costs by the rate"
