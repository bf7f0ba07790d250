// Package workload provides the requests of a simulation. Their lengths and arrivals are random, or come from
// a trace of a real server.
//
//	lengths, info, err := workload.Named("sharegpt")
//	source, err := workload.Gamma(lengths, 2, 1, seed, 3600, 0)
//	trace, err := workload.Open("BurstGPT_1.csv")
//	fitted := workload.WithoutLonger(workload.FirstRequests(trace, 1000), 2048)
//
// A Source returns requests in the order of arrival. Equal seeds give equal requests; another rate changes
// only their arrivals. A trace is read row by row in constant memory, and its arrivals are shifted so that
// the first request arrives at 0.
package workload
