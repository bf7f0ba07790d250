// Package workload is where the requests of a simulation come from: lengths
// drawn at random and given arrivals, or a trace of a real server, read row by
// row.
//
//	lengths, info, err := workload.Named("sharegpt")
//	source, err := workload.Gamma(lengths, 2, 1, seed, 3600, 0)
//	trace, err := workload.Open("BurstGPT_1.csv")
//	fitted := workload.WithoutLonger(workload.FirstRequests(trace, 1000), 2048)
//
// A Source yields requests in the order of arrival. The same seed gives the
// same requests; the rate changes their arrivals only. A trace is read as a
// stream, in memory that does not grow with it, and its arrivals are shifted so
// that its first request arrives at 0.
//
// Lengths and contents of requests live here, not what a server does with them.
package workload
