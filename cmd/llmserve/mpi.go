//go:build mpi

package main

import (
	"time"

	"llmmemory/internal/serving/model/mpi"
)

func init() {
	connect = func(limit time.Duration) (world, error) { return mpi.Start(limit) }
}
