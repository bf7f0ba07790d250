package main

import (
	"github.com/spf13/cobra"

	"llmmemory/internal/view/picture"
)

func drawCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "draw",
		Short: "Draw block pool, block tables and prefix sharing of a real state as an SVG",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return picture.Draw(c.OutOrStdout()) },
	}
}
