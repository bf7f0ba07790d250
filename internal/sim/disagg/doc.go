// Package disagg simulates servers that only prefill beside servers that only decode, as
// vLLM's disaggregated prefilling and DistServe (Zhong et al., OSDI 2024) have them: a
// prompt is computed on one, its keys and values are sent over a link, and the rest of
// the answer is decoded on another. Search finds the ratio of the two that sustains the
// highest rate.
//
// Requests are given to servers in turn. A prefill server sends one request after the
// other, each when its first token is computed; it streams that token itself. How
// a server runs is in package sim.
package disagg
