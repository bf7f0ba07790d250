// Package mpi joins processes that mpirun or srun has started, on one machine or several, which have a part of
// a model each. It is built with the tag mpi, cgo, and an MPI library of version 3; without the tag it is empty.
//
// Sums do not use MPI_Allreduce, whose order depends on the library, the sizes and the network. They are made
// by recursive doubling from messages between two processes: (a+b)+(c+d) in every process.
//
// A process that dies or stops gives no error, and MPI has no limits of time. So every wait of this package has
// one. When it is over, the processes that are left tell each other that they are there, and the first of them
// says which one is not and ends all (MPI_Abort).
package mpi
