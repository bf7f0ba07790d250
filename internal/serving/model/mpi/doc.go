// Package mpi connects processes that mpirun or srun has started, on one or several machines. Each process has a
// part of a model. The package needs the build tag mpi, cgo, and an MPI library of version 3; without the tag it is
// empty.
//
// Sums do not use MPI_Allreduce, because its order of additions depends on the library, the sizes and the network.
// They use recursive doubling with messages between two processes, so that every process computes (a+b)+(c+d).
//
// MPI reports no error when a process dies or stops, and has no timeouts. Every wait of this package therefore has a
// time limit, except those of Start and End. If a wait exceeds it, the processes that still run tell each other so. Of
// these, the process with the lowest rank reports the missing processes and ends all (MPI_Abort).
package mpi
