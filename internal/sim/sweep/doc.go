// Package sweep runs a grid of scenarios: systems × block sizes × rates × seeds, several at a time, on one
// machine or divided into shards. Finished jobs are kept line by line in a folder, from which an interrupted
// sweep resumes. A sweep without shards takes the results of all shards in its folder. sweep.csv has the
// same bytes however the sweep was divided or interrupted.
//
//	sweep.json             what the sweep is: its grid and its jobs
//	results-I-of-N.jsonl   a line for each job that shard I of N has finished
//	lock                   held while a sweep works in the folder
//	sweep.csv              a row for each job, once all are there
//
// A single run is in package scenario.
package sweep
