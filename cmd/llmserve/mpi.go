//go:build mpi

package main

import (
	"time"

	"llmmemory/internal/model/mpi"
)

func init() {
	connect = func(limit time.Duration) (world, error) { return mpi.Start(limit) }
}
