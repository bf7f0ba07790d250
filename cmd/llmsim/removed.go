package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// removedFlags are flags that commands had, and what takes their place.
var removedFlags = map[string]string{
	"fleet --mtbf": noFailures, "fleet --down": noFailures, "fleet --scale": fixedSize, "fleet --scale-by": fixedSize,
	"fleet --scale-target": fixedSize, "fleet --scale-every": fixedSize, "fleet --start-up": fixedSize,
	"plan --shard":       "a plan runs on one machine; llmsim sweep has --shard",
	"plan --all-systems": "llmsim sweep --systems all compares systems; plan --system NAME plans for one",
}

const (
	noFailures = "replicas do not fail; a fleet with one replica less (--replicas) shows what is left"
	fixedSize  = "a fleet has a fixed size: compare several values of --replicas"
)

// removedCommands are commands that llmsim had, and what takes their place.
var removedCommands = map[string]string{
	"merge":        "with all results-*.jsonl in one folder, llmsim sweep without --shard writes the tables",
	"disaggregate": "prefill and decode on different servers are not simulated: nothing measured supported the times",
}

// addRemoved adds a hidden command for each that was removed, which says what takes its place.
func addRemoved(c *cobra.Command) {
	for name, instead := range removedCommands {
		c.AddCommand(&cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return errors.New(name + " was removed: " + instead) },
		})
	}
}
