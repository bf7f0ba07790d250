# Makes the tables of cmd/llmserve/README.md of lines like
#	134m-F16 theirs decode=16 flash=1 101.0 tokens/s
#	25m-F16 ours n=8 0.41 s
# of which the fastest of each work counts.
{
	at = $1 SUBSEP $3 SUBSEP $2
	value = $(NF - 1)
	if (!(at in best) || ($NF == "s" ? value < best[at] : value > best[at])) best[at] = value
}

END {
	print "| work | Llama, 25 M, F16 | 134 M, F16 | 134 M, Q8_0 | 134 M, Q4_0 |"
	print "|---|---|---|---|---|"
	n = split("25m-F16 134m-F16 134m-Q8_0 134m-Q4_0", models, " ")
	row("prompt of 512 tokens", "prefill=512")
	row("decoding, 1 sequence", "decode=1")
	row("decoding, 16 sequences", "decode=16")
	row("decoding, 32 sequences", "decode=32")
	print ""
	print "| work | 25 M, F16 | 134 M, F16 |"
	print "|---|---|---|"
	n = 2
	row("16 requests at once over one prompt of 2,048 tokens, 64 new tokens each", "shared=16")
	row("8 completions of one prompt of 1,024 tokens, 64 tokens each", "n=8")
	exit missing
}

function row(name, work,    i) {
	printf "| %s |", name
	for (i = 1; i <= n; i++) printf " %s |", cell(models[i], work)
	print ""
}

function cell(model, work,    ours, theirs, times) {
	ours = best[model, work, "ours"]
	theirs = best[model, work, "theirs"]
	if (!ours || !theirs) {
		missing = 1
		return "not measured"
	}
	times = (work ~ /^(shared|n)=/) ? theirs / ours : ours / theirs
	return number(ours, work) " / " number(theirs, work) " (" sprintf(times < 10 ? "%.1f" : "%.0f", times) "×)"
}

function number(x, work) {
	if (work !~ /^(shared|n)=/) return sprintf("%.0f", x)
	return sprintf(x < 2 ? "%.2f" : "%.1f", x)
}
