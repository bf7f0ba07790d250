# Makes the tables of cmd/llmserve/README.md of lines like
#	134m-F16 theirs decode=16 flash=1 101.0 tokens/s
#	134m-Q8_0 int8 decode=16 1156.0 tokens/s
#	25m-F16 ours n=8 0.41 s
# of which the fastest of each work counts; int8 is this project with activations in 8 bits.
{
	at = $1 SUBSEP $3 SUBSEP $2
	value = $(NF - 1)
	if (!(at in best) || ($NF == "s" ? value < best[at] : value > best[at])) best[at] = value
}

END {
	print "| work | Llama, 25 M, F16 | 134 M, F16 | 134 M, Q8_0 | 134 M, Q4_0 |"
	print "|---|---|---|---|---|"
	n = split("25m-F16 134m-F16 134m-Q8_0 134m-Q4_0", models, " ")
	forward("row")
	print ""
	print "| work | Q8_0: f32 | int8 | llama.cpp | Q4_0: f32 | int8 | llama.cpp |"
	print "|---|---|---|---|---|---|---|"
	forward("types")
	print ""
	print "| work | 25 M, F16 | 134 M, F16 |"
	print "|---|---|---|"
	n = 2
	row("16 requests at once over one prompt of 2,048 tokens, 64 new tokens each", "shared=16")
	row("8 completions of one prompt of 1,024 tokens, 64 tokens each", "n=8")
	exit missing
}

function forward(form) {
	line(form, "prompt of 512 tokens", "prefill=512")
	line(form, "decoding, 1 sequence", "decode=1")
	line(form, "decoding, 16 sequences", "decode=16")
	line(form, "decoding, 32 sequences", "decode=32")
}

function line(form, name, work) {
	if (form == "row") row(name, work)
	else printf "| %s |%s%s\n", name, three("134m-Q8_0", work), three("134m-Q4_0", work)
}

# three are this project without and with activations in 8 bits, and llama.cpp.
function three(model, work,    ours, int8, theirs) {
	ours = best[model, work, "ours"]
	int8 = best[model, work, "int8"]
	theirs = best[model, work, "theirs"]
	if (!ours || !int8 || !theirs) {
		missing = 1
		return " not measured | not measured | not measured |"
	}
	return sprintf(" %.0f (%.1f×) | %.0f (%.1f×) | %.0f |", ours, ours / theirs, int8, int8 / theirs, theirs)
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
