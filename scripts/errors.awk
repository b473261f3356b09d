# errors.awk - docs/errors.md as optimfs-errors(7), or as a table in C
# SPDX-License-Identifier: Apache-2.0
# usage: awk -v to=man|c -f scripts/errors.awk docs/errors.md

BEGIN { FS = " \\| " }

# Words of Markdown for mdoc: `code` is bold.
function mdoc(s,    n, part, i, out) {
	gsub(/\\/, "\\e", s)
	n = split(s, part, "`")
	for (i = 1; i <= n; i++)
		out = out (i == 1 ? "" : i % 2 == 0 ? "\\fB" : "\\fR") part[i]
	if (out ~ /^[.']/)
		out = "\\&" out
	return out
}
function sentence(s) {
	return toupper(substr(s, 1, 1)) substr(s, 2) (s ~ /[.)]$/ ? "" : ".")
}
# Text of a manual page, in lines of at most 80 bytes.
function fold(s,    word, n, i, line, out) {
	n = split(s, word, " ")
	for (i = 1; i <= n; i++) {
		if (line != "" && length(line " " word[i]) > 80) {
			out = out line "\n"
			line = ""
		}
		if (line == "" && out != "" && word[i] ~ /^[.']/)
			word[i] = "\\&" word[i]
		line = line (line == "" ? "" : " ") word[i]
	}
	return out line
}
# Words of Markdown as a string of C.
function c(s) {
	gsub(/`/, "", s)
	gsub(/\\/, "\\\\", s)
	gsub(/"/, "\\\"", s)
	return "\"" s "\""
}

to == "man" && NR == 1 {
	print ".\\\" SPDX-License-Identifier: Apache-2.0"
	print ".\\\" Made from docs/errors.md by scripts/errors.awk."
	print ".Dd November 22, 2026\n.Dt OPTIMFS-ERRORS 7\n.Os"
	print ".Sh NAME\n.Nm optimfs-errors\n.Nd error codes of optimfs"
	print ".Sh DESCRIPTION"
	print "Every failure has a stable code, which is at the start of"
	print "the message, in\n.Pa .optimfs/errors\nand in the attribute"
	print ".Li user.optimfs.error\nof the file that failed."
	print "The message says what failed, where and why; this page says"
	print "what the code means and what to do.\n.Ql optimfs explain"
	print "prints an entry of it.\n.Bl -tag -width Ds"
}
to == "c" && NR == 1 {
	print "/* Made from docs/errors.md by scripts/errors.awk. */"
}

/^\| OFS[0-9]/ {
	code = substr($1, 3)
	sub(/ \|$/, "", $4)
	if (NF != 4) {
		print FILENAME ":" NR ": not four columns" >"/dev/stderr"
		exit 1
	}
	if (to == "man") {
		print ".It " code " " mdoc($2)
		print fold(mdoc(sentence($3)))
		print ".br\n" fold("To do: " mdoc($4) ".")
	} else {
		printf "{ %d, %s,\n\t%s,\n\t%s, %d },\n", substr(code, 4), c($2),
		    c($3), c($4), $4 !~ /^none|^as OFS|the message/
	}
}

END {
	if (to == "man")
		print ".El\n.Sh SEE ALSO\n.Xr optimfs 1 ,\n.Xr optimfs 5"
}
